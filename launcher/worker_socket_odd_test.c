/* SPDX-License-Identifier: Apache-2.0 */
/* Who else may come to the socket of a worker: bytes of any kind, slow readers, other
 * workers and other users. */
#include <config.h>

#include "launcher/worker_socket_bed.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "muster.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int dial(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    str_copy(addr.sun_path, sizeof(addr.sun_path), getenv("MUSTER_SOCKET"));
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        _exit(100);
    }
    return fd;
}

/* Reads until the other side hangs up; the type of the first message. */
static int read_to_end(int fd)
{
    char data[65536];
    size_t len = 0;

    for (;;) {
        ssize_t n = recv(fd, data + len, sizeof(data) - len, 0);

        if (n <= 0) {
            break;
        }
        len += (size_t)n;
    }
    close(fd);
    return len >= 6 ? data[5] : 0;
}

#define HELLO "\0\0\0\x08\0\x01\0\x01\0\0\0\x09"

static const struct {
    const char *name;
    const char *data;
    size_t len;
    int first; /* type of the first answer, 0 for none, -1 for any */
} hostile[] = {
#define CASE(name, data, first) {name, data, sizeof(data) - 1, first}
    CASE("http", "GET / HTTP/1.1\r\n\r\n", 0),
    CASE("empty frame", "\0\0\0\0", 0),
    CASE("huge frame", "\xff\xff\xff\xff\0\1", 0),
    CASE("report before hello", "\0\0\0\x0c\0\6\0\0\0\0\0\0\0\1\0\0", 0),
    CASE("unknown before hello", "\0\0\0\2\x77\x77", 0),
    CASE("hello cut short", "\0\0\0\3\0\1\0", 0),
    CASE("hello of version 9", "\0\0\0\4\0\1\0\x09", WORKER_REFUSED),
    CASE("two hellos", HELLO HELLO, -1),
    CASE("an agent's message", HELLO "\0\0\0\7\0\x08\1\0\0\0\0",
         -1),
    CASE("65 metrics", HELLO "\0\0\0\x0c\0\6\0\0\0\0\0\0\0\1\0\x41", -1),
    CASE("a report with more behind it",
         HELLO "\0\0\0\x0d\0\6\0\0\0\0\0\0\0\1\0\0x", -1),
#undef CASE
};

static int worker_hostile(struct agent *a, int i)
{
    int silent[WORKER_SOCKET_CONNECTIONS_MAX];
    struct muster *m = NULL;
    int rc;

    (void)a;
    (void)i;
    for (size_t k = 0; k < sizeof(hostile) / sizeof(hostile[0]); k++) {
        int fd = dial();
        int first;

        if (send(fd, hostile[k].data, hostile[k].len, MSG_NOSIGNAL) < 0) {
            return 99;
        }
        first = read_to_end(fd);
        if (hostile[k].first >= 0 && first != hostile[k].first) {
            return (int)k + 1;
        }
    }
    for (int k = 0; k < WORKER_SOCKET_CONNECTIONS_MAX; k++) {
        silent[k] = dial();
        if (send(silent[k], "\0", 1, MSG_NOSIGNAL) != 1) {
            return 50;
        }
    }
    if (read_to_end(dial()) != 0) {
        return 51; /* one too many */
    }
    for (int k = 0; k < WORKER_SOCKET_CONNECTIONS_MAX; k++) {
        close(silent[k]);
    }
    while ((rc = muster_init(&m)) == -ECONNREFUSED) {
        poll(NULL, 0, 1); /* until the agent has seen those go */
    }
    if (rc < 0) {
        return 52;
    }
    rc = muster_should_stop(m);
    muster_finalize(m);
    return rc == 0 ? 0 : 53;
}

static void test_hostile(void)
{
    struct agent a;

    bed_open(&a, 1);
    bed_run(&a, worker_hostile, "hostile bytes");
    is_int(a.n_reports, 0, "nothing of it was a report");
    is_int(a.n_hellos, 5, "four of them got as far as a hello, and the last");
    bed_close(&a);
}

static bool was_greeted(struct agent *a)
{
    return a->n_hellos == 1;
}

static bool has_left(struct agent *a)
{
    return a->n_disconnects == 1;
}

/* A worker that reports and is gone, just when the agent has to tell it
 * something: the agent finds that nobody reads before it has read the report. */
static void test_last_words(void)
{
    struct worker_msg m = {.type = WORKER_REPORT,
                           .report = {.step = 7, .n_metrics = 1,
                                      .metrics = {{"loss", 0.25}}}};
    _buf_ struct buf b = {0};
    struct agent a;
    int fd;

    bed_open(&a, 1);
    setenv("MUSTER_SOCKET", worker_socket_path(a.sockets[0]), 1);
    fd = dial();
    unsetenv("MUSTER_SOCKET");
    ok(send(fd, HELLO, sizeof(HELLO) - 1, MSG_NOSIGNAL) > 0, "hello");
    bed_run_until(&a, was_greeted);
    worker_msg_encode(&b, &m);
    ok(send(fd, b.data, b.len, MSG_NOSIGNAL) == (ssize_t)b.len, "a report");
    close(fd);
    worker_socket_set_state(a.sockets[0], true, 1);
    bed_run_until(&a, has_left);
    is_int(a.n_reports, 1, "is heard, though its sender is gone");
    ok(a.loss == 0.25, "with its value");
    is_int(a.n_disconnects, 1, "then comes the goodbye");
    is_str(a.why, "", "a plain one");
    bed_close(&a);
}

/* Says hello and JOIN, many unknown messages, reads nothing for a while. */
static int worker_slow(struct agent *a, int i)
{
    static const char join[] = "\0\0\0\2\0\4";
    static const char odd[] = "\0\0\0\3\x12\x34z";
    int fd = dial();
    char data[65536];
    size_t len = 0;
    bool stop = false;

    (void)a;
    (void)i;
    if (send(fd, HELLO, sizeof(HELLO) - 1, 0) < 0 ||
        send(fd, join, 3, 0) < 0) {
        return 1;
    }
    for (int k = 0; k < 3; k++) {
        send(fd, join + 3 + k, 1, 0); /* byte by byte */
    }
    for (int k = 0; k < 3000; k++) {
        if (send(fd, odd, sizeof(odd) - 1, 0) < 0) {
            return 2;
        }
    }
    poll(NULL, 0, 300); /* states pile up: only the newest has to arrive */
    while (!stop) {
        size_t frame;
        ssize_t n = recv(fd, data + len, sizeof(data) - len, 0);

        if (n <= 0) {
            return 3;
        }
        len += (size_t)n;
        while (worker_frame_next(data, len, &frame, NULL) == 1) {
            stop = data[5] == WORKER_STATE && data[6] == 1;
            memmove(data, data + frame, len - frame);
            len -= frame;
        }
    }
    close(fd);
    return 0;
}

static bool slow_ended(struct agent *a)
{
    static uint32_t n; /* of requests, one a turn and more */

    for (int i = 0; i < 1000 && n < 200000; i++) {
        worker_socket_set_state(a->sockets[0], false, ++n);
    }
    if (n == 200000) {
        worker_socket_set_state(a->sockets[0], true, n);
        n++;
    }
    return bed_all_ended(a);
}

static void test_slow(void)
{
    struct agent a;

    bed_open(&a, 1);
    bed_start(&a, worker_slow);
    bed_run_until(&a, slow_ended);
    is_int(a.results[0], 0, "a slow reader gets the newest state");
    bed_close(&a);
}

static int whose_is_it; /* what the agent of this test is told */

static int whose(void *arg, int pid)
{
    (void)arg;
    return pid == getpid() ? whose_is_it : -2;
}

/* A process of another worker is told so, and said no more. */
static void test_whose(void)
{
    static const struct {
        const char *what;
        int whose;
        int type;
    } cases[] = {
        {"a process of this worker", 1, WORKER_WELCOME},
        {"one that nobody knows", -1, WORKER_WELCOME},
        {"one of another worker", 0, WORKER_REFUSED},
    };
    const struct worker_socket_ops some = {.whose = whose};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct worker_welcome who = {.rank = 1, .local_rank = 1, .world = 2,
                                     .local_world = 2, .n_nodes = 1};
        struct worker_socket *w = NULL;
        struct sockaddr_un addr = {.sun_family = AF_UNIX};
        struct agent a;
        char got[512];
        ssize_t n;
        int fd;

        bed_open(&a, 0);
        snprintf(addr.sun_path, sizeof(addr.sun_path), "%.90s/s", a.dir);
        worker_socket_create(&a.loop, addr.sun_path, &who, &some, &a, &w, NULL);
        whose_is_it = cases[i].whose;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
            send(fd, HELLO, sizeof(HELLO) - 1, MSG_NOSIGNAL) < 0) {
            bail_out("connect");
        }
        for (int k = 0; k < 100; k++) {
            uv_run(&a.loop, UV_RUN_NOWAIT);
        }
        n = recv(fd, got, sizeof(got), MSG_DONTWAIT);
        is_int(n > 6 ? got[5] : -1, cases[i].type, "%s", cases[i].what);
        if (cases[i].type == WORKER_REFUSED) {
            ok(n > 0 && memmem(got, (size_t)n, "local rank 0", 12), "whose, and "
               "whose socket it is");
            is_int((int)recv(fd, got, 1, MSG_DONTWAIT), 0, "is closed");
        }
        close(fd);
        worker_socket_destroy(w);
        bed_close(&a);
    }
}

/* Where the socket was made open, another user is sent away all the same. */
static void check_other_user(struct agent *a, const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char c;

    chmod(a->dir, 0711);
    chmod(path, 0666);
    str_copy(addr.sun_path, sizeof(addr.sun_path), path);
    if (seteuid(65534) < 0) {
        bail_out("seteuid");
    }
    is_int(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0,
           "another user comes to an open one");
    /* Leak checkers cannot look into what has changed its user. */
    if (seteuid(0) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0) {
        bail_out("seteuid");
    }
    for (int i = 0; i < 100; i++) {
        uv_run(&a->loop, UV_RUN_NOWAIT);
    }
    is_int((int)recv(fd, &c, 1, MSG_DONTWAIT), 0, "and is sent away");
    close(fd);
}

static void test_create(void)
{
    struct stat st;
    struct worker_welcome who = {.world = 1, .local_world = 1, .n_nodes = 1};
    struct worker_socket *w = NULL;
    struct agent a;
    char path[200];

    bed_open(&a, 0);
    memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    is_int(worker_socket_create(&a.loop, path, &who, &bed_ops, &a, &w, NULL),
           -ENAMETOOLONG, "a long path");
    is_int(worker_socket_create(&a.loop, "/proc/nonexistent/s", &who, &bed_ops, &a, &w,
                                NULL), -ENOENT, "no directory");
    is_int(worker_socket_create(&a.loop, a.dir, &who, &bed_ops, &a, &w, NULL),
           -EADDRINUSE, "something else is there");
    snprintf(path, sizeof(path), "%s/s", a.dir);
    is_int(worker_socket_create(&a.loop, path, &who, &bed_ops, &a, &w, NULL), 0,
           "create");
    uv_run(&a.loop, UV_RUN_NOWAIT);
    is_int(stat(path, &st) < 0 ? 0 : st.st_mode & 07777, 0600, "privately");
    if (geteuid() != 0) {
        skip("only root can stand for two users");
    } else {
        check_other_user(&a, path);
    }
    worker_socket_destroy(w);
    is_int(access(path, F_OK), -1, "its path goes at once");
    worker_socket_destroy(NULL);
    bed_close(&a);
}

int main(void)
{
    alarm(120); /* so that a hang is a failure */
    test_create();
    test_hostile();
    test_last_words();
    test_slow();
    test_whose();
    return tap_done();
}
