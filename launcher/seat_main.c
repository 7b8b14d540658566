/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster-seat MILLISECONDS PROGRAM [ARGUMENT...]
 *
 * Stands in for one rank of an MPI world among the workers of an agent: waits for
 * the process of that rank (`muster exec`), gives it environment, directory and
 * output of this worker, and ends as its program ends. Signals that an agent sends
 * to workers are passed on. Where that process is gone without a word, mpirun has
 * killed it: then this kills what the program left, and ends as the program did or,
 * where that was not said, by SIGKILL too.
 *
 * Where nobody comes in that time mpirun hangs, most likely, and the worker fails.
 *
 * Run through muster-exec, so that all that is open is stdout and stderr, and
 * nothing here is shown but on stderr, as the worker's own words.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/seqsock.h"
#include "base/str.h"
#include "launcher/rank_sweep.h"
#include "launcher/seat.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

struct stand_in {
    char path[PATH_MAX];
    uint32_t rank, world;
    int listener; /* -1 once the seat is taken */
    int conn;     /* -1 before */
    int signals;
    uint64_t until_ms; /* for somebody to come */
    struct seat_offer offer;
    bool has_ended; /* the program, as `end` says; not swept up after yet */
    struct seat_end end;
};

static _Noreturn void die(struct stand_in *s, int sig)
{
    struct rlimit no_core = {0, 0};
    sigset_t one;

    unlink(s->path);
    setrlimit(RLIMIT_CORE, &no_core);
    signal(sig, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, sig);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    _exit(128 + sig);
}

static _Noreturn void leave(struct stand_in *s, int status)
{
    unlink(s->path);
    _exit(status);
}

/* --- the start --- */

static int number(const char *name, uint32_t *ret, struct error *e)
{
    const char *text = getenv(name);
    uint64_t n;

    if (!text || str_to_u64(text, &n) < 0 || n > UINT32_MAX) {
        return error_text(e, ERR_USAGE, "is started by an agent, not by hand "
                          "(%s is not set)", name);
    }
    *ret = (uint32_t)n;
    return 0;
}

static int make_offer(struct stand_in *s, char **argv, struct error *e)
{
    struct seat_offer *o = &s->offer;
    const char *slash = strrchr(s->path, '/');
    const char *agent = getenv("MUSTER_AGENT");
    mode_t mask = umask(077);

    umask(mask);

    strlist_add_all(&o->argv, argv);
    strlist_add_all(&o->env, environ);
    snprintf(o->mark, sizeof(o->mark), SEAT_MARK "=%.160s.%.64s",
             agent ? agent : "", slash ? slash + 1 : s->path);
    strlist_add(&o->env, o->mark);
    snprintf(o->umask, sizeof(o->umask), "%o", (unsigned)mask);
    if (!getcwd(o->cwd, sizeof(o->cwd))) {
        return error_set(e, errno, "find the working directory");
    }
    return o->argv.failed || o->env.failed ? error_set(e, ENOMEM, "offer")
                                           : 0;
}

/* Beside the worker's socket. */
static int find_path(struct stand_in *s, struct error *e)
{
    const char *socket = getenv("MUSTER_SOCKET");
    const char *slash = socket ? strrchr(socket, '/') : NULL;
    char dir[PATH_MAX];
    uint32_t generation = 0;
    int rc = number("MUSTER_GENERATION", &generation, e);

    rc = rc < 0 ? rc : number("RANK", &s->rank, e);
    rc = rc < 0 ? rc : number("WORLD_SIZE", &s->world, e);
    if (rc == 0 && (!slash || (size_t)(slash - socket) >= sizeof(dir))) {
        rc = error_text(e, ERR_USAGE, "MUSTER_SOCKET is no path");
    }
    if (rc < 0) {
        return rc;
    }
    memcpy(dir, socket, (size_t)(slash - socket));
    dir[slash - socket] = '\0';
    return seat_path(dir, generation, s->rank, s->path, sizeof(s->path), e);
}

static int take_signals(struct stand_in *s, struct error *e)
{
    static const int sigs[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1,
                               SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(sigs); i++) {
        sigaddset(&set, sigs[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? error_set(e, errno, "take signals") : 0;
}

/* --- the seat is taken --- */

static void refuse(int fd, const char *why)
{
    struct seat_end end = {.code = 1};
    _buf_ struct buf b = {0};

    str_copy(end.text, sizeof(end.text), why);
    seat_end_encode(&end, &b);
    seqsock_send(fd, SEAT_REFUSED, &b, NULL, 0);
}

static const char *why_not(const struct stand_in *s, int rc,
                           const struct seqsock_msg *m, char *text, size_t n)
{
    struct seat_hello h;

    if (rc != 1 || m->type != SEAT_HELLO ||
        seat_hello_decode(&m->data, &h) < 0) {
        return "it does not say who it is";
    }
    if (h.version != SEAT_VERSION) {
        return "its muster is another one: install the same on all hosts";
    }
    if (h.rank != s->rank || h.world != s->world) {
        snprintf(text, n, "it is rank %u of %u to MPI, and %u of %u to muster",
                 h.rank, h.world, s->rank, s->world);
        return text;
    }
    return NULL;
}

static bool give_offer(struct stand_in *s, int fd)
{
    _buf_ struct buf b = {0};
    _close_ int blob = -1;
    struct error e = {0};
    int fds[3] = {-1, 1, 2};

    seat_offer_encode(&s->offer, &b);
    blob = b.failed ? -1 : seqsock_blob(b.data, b.len, &e);
    fds[0] = blob;
    return blob >= 0 && seqsock_send(fd, SEAT_OFFER, NULL, fds, 3) == 0;
}

/* One that is refused makes room for another. */
static void serve_listener(struct stand_in *s)
{
    enum { HELLO_MS = 5000 };
    struct error e = {0};
    _close_ int fd = seqsock_accept(s->listener, &e);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    _seqsock_msg_ struct seqsock_msg m;
    const char *why;
    char text[128];

    if (fd < 0) {
        return;
    }
    seqsock_msg_init(&m);
    why = why_not(s, poll(&p, 1, HELLO_MS) == 1 ? seqsock_recv(fd, &m) : 0, &m,
                  text, sizeof(text));
    if (why || !give_offer(s, fd)) {
        fprintf(stderr, "muster: the process that came for MPI rank %u is "
                "refused: %s\n", s->rank, why ? why : "no memory");
        refuse(fd, why ? why : "no memory");
        return;
    }
    s->conn = take_fd(&fd);
    close_fd(&s->listener);
    unlink(s->path);
}

static void take_end(struct stand_in *s, const struct seqsock_msg *m)
{
    if (seat_end_decode(&m->data, &s->end) < 0) {
        leave(s, 1);
    }
    s->has_ended = true;
    if (m->type == SEAT_FAILED) {
        fprintf(stderr, "muster: %s\n", s->end.text);
    }
    if (s->end.code || s->end.signal) {
        seat_record_write(s->path, s->end.by_launch);
    }
}

static _Noreturn void end_as(struct stand_in *s)
{
    if (s->end.signal) {
        die(s, (int)s->end.signal);
    }
    leave(s, (int)s->end.code);
}

/* Its end may have been told, and no more. */
static _Noreturn void end_alone(struct stand_in *s)
{
    if (!s->has_ended) {
        seat_record_write(s->path, true);
    }
    rank_sweep(s->offer.mark, 0);
    if (s->has_ended) {
        end_as(s);
    }
    fprintf(stderr, "muster: mpirun has killed the process of MPI rank %u\n",
            s->rank);
    die(s, SIGKILL);
}

static void serve_conn(struct stand_in *s)
{
    _seqsock_msg_ struct seqsock_msg m;
    int rc;

    seqsock_msg_init(&m);
    rc = seqsock_recv(s->conn, &m);
    if (rc == -EAGAIN) {
        return;
    }
    if (rc <= 0) {
        end_alone(s);
    }
    if (m.type == SEAT_ENDED || m.type == SEAT_FAILED) {
        take_end(s, &m);
    } else if (m.type == SEAT_SWEPT && s->has_ended) {
        end_as(s);
    }
}

static void serve_signals(struct stand_in *s)
{
    struct signalfd_siginfo info;

    while (read(s->signals, &info, sizeof(info)) == sizeof(info)) {
        _buf_ struct buf b = {0};

        if (s->conn < 0 && (info.ssi_signo == SIGTERM ||
                            info.ssi_signo == SIGINT ||
                            info.ssi_signo == SIGQUIT)) {
            die(s, (int)info.ssi_signo);
        }
        seat_number_encode(info.ssi_signo, &b);
        if (s->conn >= 0) {
            seqsock_send(s->conn, SEAT_SIGNAL, &b, NULL, 0);
        }
    }
}

static int time_left(const struct stand_in *s)
{
    uint64_t now = clock_mono_ms();
    uint64_t left = s->until_ms > now ? s->until_ms - now : 0;

    return s->listener < 0 ? -1 : left < INT_MAX ? (int)left : INT_MAX;
}

static void serve(struct stand_in *s)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = s->signals, .events = POLLIN},
                               {.fd = s->listener, .events = POLLIN},
                               {.fd = s->conn, .events = POLLIN}};

        int n = poll(fds, ARRAY_SIZE(fds), time_left(s));

        if (n == 0 && time_left(s) == 0) {
            fprintf(stderr, "muster: mpirun has started no process of MPI rank "
                    "%u within gang.timeout\n", s->rank);
            leave(s, 1);
        }
        if (n < 0 && errno != EINTR) {
            leave(s, 1);
        }
        /* How it ended first: a signal may come because it did. */
        if (fds[2].revents) {
            serve_conn(s);
        }
        if (fds[1].revents) {
            serve_listener(s);
        }
        if (fds[0].revents) {
            serve_signals(s);
        }
    }
}

int main(int argc, char **argv)
{
    static struct stand_in s = {.listener = -1, .conn = -1, .signals = -1};
    struct error e = {0};
    uint64_t wait_ms = 0;
    int rc = argc < 3 || str_to_u64(argv[1], &wait_ms) < 0
                 ? error_text(&e, ERR_USAGE, "no time and program given")
                 : find_path(&s, &e);

    s.until_ms = clock_mono_ms() + wait_ms;
    rc = rc < 0 ? rc : make_offer(&s, argv + 2, &e);
    rc = rc < 0 ? rc : take_signals(&s, &e);
    if (rc == 0) {
        rc = s.listener = seqsock_listen(s.path, &e);
    }
    if (rc < 0) {
        fprintf(stderr, "muster-seat: %s\n", e.text);
        return 126;
    }
    serve(&s);
}
