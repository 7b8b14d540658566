/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster-mpi: the companion of one agent, and the only process of a run that
 * is an MPI rank. It finds or starts its agent, then joins the MPI world, tells
 * the agent who else is there, and moves bulk data for it until the agent says
 * how the run ended. It makes no decision, and it may die at any time: the
 * agent and its workers go on.
 *
 * With one rank there is nothing to move, and MPI is not even initialised.
 *
 * Started by the front end it is told which run it belongs to. Started by hand
 * (`mpirun ... muster run`), only rank 0 knows, and the others learn it by MPI.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/key.h"
#include "base/proc.h"
#include "base/seqsock.h"
#include "base/str.h"
#include "comm/agent_find.h"
#include "comm/companion.h"
#include "comm/mpi/bulk.h"
#include "comm/mpi/gather.h"
#include "rendezvous/roster.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    AGENT_START_MS = 20000,
    INFO_MS = 10000,
    AGENT_DEAD_MS = 5000,
    SWEEP_ROUNDS = 100,
    SWEEP_PAUSE_MS = 20,
    MAX_ABANDONED = 512 * 1024 * 1024, /* bytes, see bulk.h */
    ATTACH_SECONDS = 60,
    FINALIZE_SECONDS = 3,
    MAX_POLL = 2 + BULK_GROUPS_MAX,
    STATUS_RESUMABLE = 75,
    STATUS_USAGE = 2,
};

struct companion {
    struct companion_run run;
    const char *key_file;  /* where the front end or a Secret put the key */
    bool by_hand;          /* no front end started this mpirun */
    bool is_kept;          /* agents have a keeper, see comm/agent_find.h */
    bool insecure;         /* the key may go over MPI */
    bool report_status;    /* exit with the verdict */
    uint64_t epoch;
    unsigned gather_seconds;
    int rank, size, local_rank;
    char tag[160]; /* under which its agent is found on this host */
    bool in_mpi;
    int agent_fd;
    struct bulk *bulk;
};

/* Signal handlers can reach only this. */
static int signal_pipe[2] = {-1, -1};
static volatile sig_atomic_t exit_status_on_alarm = STATUS_RESUMABLE;

static void on_signal(int sig)
{
    int saved = errno;
    char byte = (char)sig;

    if (write(signal_pipe[1], &byte, 1) < 0) {
        /* full: the reader has enough to do */
    }
    errno = saved;
}

static void on_alarm(int sig)
{
    static const char text[] = "muster-mpi: MPI did not finish in time\n";

    (void)sig;
    if (write(2, text, sizeof(text) - 1) < 0) {
        /* nobody listens */
    }
    _exit(exit_status_on_alarm);
}

static int take_signals(struct error *e)
{
    static const int told[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        return error_set(e, errno, "make a pipe");
    }
    for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
        sigaction(told[i], &sa, NULL);
    }
    sa.sa_handler = on_alarm;
    sigaction(SIGALRM, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

/* --- command line --- */

/* "addr,addr,...:port" */
static int parse_front(struct companion *c, const char *text)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    size_t n = 0;

    if (!colon || str_to_u64(colon + 1, &port) < 0 || port > UINT16_MAX) {
        return -EINVAL;
    }
    while (text < colon && n < COMPANION_MAX_FRONT) {
        size_t len = strcspn(text, ",");

        len = text + len > colon ? (size_t)(colon - text) : len;
        snprintf(c->run.front_addrs[n++], sizeof(c->run.front_addrs[0]),
                 "%.*s", (int)len, text);
        text += len + 1;
    }
    c->run.front_port = (uint16_t)port;
    c->run.has_front = true;
    return 0;
}

static int parse_number(const char *text, uint64_t max, uint64_t *ret)
{
    return str_to_u64(text, ret) < 0 || *ret > max ? -EINVAL : 0;
}

static int take_option(struct companion *c, int option)
{
    uint64_t n = 0;

    switch (option) {
    case 'i':
        str_copy(c->run.id, sizeof(c->run.id), optarg);
        return 0;
    case 'd':
        str_copy(c->run.dir, sizeof(c->run.dir), optarg);
        return 0;
    case 'f':
        return parse_front(c, optarg);
    case 'k':
        c->key_file = optarg;
        return 0;
    case 'e':
        return parse_number(optarg, UINT32_MAX, &c->epoch);
    case 'g':
        if (parse_number(optarg, 86400, &n) < 0) {
            return -EINVAL;
        }
        c->gather_seconds = (unsigned)n;
        return 0;
    case 'n':
        c->run.agent_is_node = true;
        return 0;
    case 'l':
        c->run.loopback = true;
        return 0;
    case 'b':
        c->by_hand = true;
        c->report_status = true;
        return 0;
    case 'K':
        c->is_kept = true;
        return 0;
    case 'x':
        c->insecure = true;
        return 0;
    default:
        return -EINVAL;
    }
}

static int parse_args(struct companion *c, int argc, char **argv)
{
    static const struct option options[] = {
        {"run-id", required_argument, NULL, 'i'},
        {"run-dir", required_argument, NULL, 'd'},
        {"front", required_argument, NULL, 'f'},
        {"key-file", required_argument, NULL, 'k'},
        {"epoch", required_argument, NULL, 'e'},
        {"gather-seconds", required_argument, NULL, 'g'},
        {"agent-is-node", no_argument, NULL, 'n'},
        {"loopback", no_argument, NULL, 'l'},
        {"by-hand", no_argument, NULL, 'b'},
        {"kept", no_argument, NULL, 'K'},
        {"insecure-bootstrap", no_argument, NULL, 'x'},
        {0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (take_option(c, option) < 0) {
            fprintf(stderr, "muster-mpi: is started by `muster run`, not by "
                            "hand\n");
            return -EINVAL;
        }
    }
    return 0;
}

static int env_number(const char *name, int fallback)
{
    const char *text = getenv(name);
    uint64_t n;

    return text && parse_number(text, INT_MAX, &n) == 0 ? (int)n : fallback;
}

/* What the launcher says before MPI_Init. Where it is a plain PMIx one (prterun,
 * srun --mpi=pmix) only MPI can tell the size: any number above 1 asks it. */
static void read_place(struct companion *c)
{
    bool pmix = getenv("PMIX_NAMESPACE");

    c->rank = env_number("OMPI_COMM_WORLD_RANK", env_number("PMIX_RANK", 0));
    c->size = env_number("OMPI_COMM_WORLD_SIZE", pmix ? 2 : 1);
    c->local_rank = env_number("OMPI_COMM_WORLD_LOCAL_RANK",
                               pmix ? env_number("SLURM_LOCALID", 0) : 0);
}

/* --- the run --- */

static int read_key(struct companion *c, struct error *e)
{
    const char *named = c->key_file ? c->key_file : getenv("MUSTER_KEY_FILE");
    char path[PATH_MAX], base[PATH_MAX];
    int rc;

    if (named) {
        return key_read(named, false, c->run.key, e);
    }
    rc = fs_path(path, sizeof(path), e, "%s/key", c->run.dir);
    rc = rc < 0 ? rc : key_read(path, true, c->run.key, e);
    if (rc == 0 || fs_runtime_dir(base, sizeof(base), NULL) < 0) {
        return rc;
    }
    /* No shared run directory: the front end put it here over ssh. */
    if (fs_path(path, sizeof(path), NULL, "%s/%s/key", base, c->run.id) == 0 &&
        key_read(path, true, c->run.key, NULL) == 0) {
        return 0;
    }
    return error_wrap(e, "no job key here (share the run directory, set "
                      "MUSTER_KEY_FILE, or use --insecure-bootstrap)");
}

/* Without a front end rank 0 alone knows the run: it tells the others. The key
 * goes along only where that was allowed. */
static int share_run(struct companion *c, struct error *e)
{
    _buf_ struct buf b = {0};
    struct companion_world w = {.run = c->run};
    int rc;

    if (!c->insecure) {
        memset(w.run.key, 0, sizeof(w.run.key));
    }
    if (c->rank == 0) {
        companion_world_encode(&w, &b);
    }
    rc = gather_from_first(&b, SEQSOCK_MAX, e);
    if (rc == 0 && c->rank != 0 && companion_world_decode(&b, &w) < 0) {
        rc = error_text(e, ERR_FORMAT, "rank 0 sent a run that does not "
                        "parse: do all hosts have the same muster?");
    } else if (rc == 0 && c->rank != 0) {
        c->run = w.run;
        c->run.has_front = false;
    }
    explicit_bzero(&w, sizeof(w));
    if (b.data) {
        explicit_bzero(b.data, b.len);
    }
    return rc;
}

static int learn_run(struct companion *c, struct error *e)
{
    struct error key_error = {0};
    int rc = 0, first;

    if (c->rank == 0 || !c->by_hand) {
        rc = read_key(c, &key_error);
    }
    if (c->by_hand && c->size > 1) {
        if (share_run(c, e) < 0) {
            return -EIO;
        }
        if (c->rank != 0 && !c->insecure) {
            rc = read_key(c, &key_error);
        }
    }
    if (c->in_mpi && !gather_all_ok(rc == 0, &first)) {
        return rc < 0 ? error_text(e, key_error.code, "%s", key_error.text)
                      : error_text(e, ERR_LOST, "MPI rank %d has no job key",
                                   first);
    }
    return rc < 0 ? error_text(e, key_error.code, "%s", key_error.text) : 0;
}

/* --- the agent --- */

static int receive_info(struct companion *c, struct buf *ret, struct error *e)
{
    struct pollfd p = {.fd = c->agent_fd, .events = POLLIN};
    _seqsock_msg_ struct seqsock_msg m;
    struct companion_outcome refusal;

    seqsock_msg_init(&m);
    if (poll(&p, 1, INFO_MS) != 1 || seqsock_recv(c->agent_fd, &m) != 1) {
        return error_text(e, ETIMEDOUT, "the agent does not answer");
    }
    if (m.type == COMPANION_REFUSED &&
        companion_outcome_decode(&m.data, &refusal) == 0) {
        return error_text(e, EPERM, "the agent refuses: %s", refusal.text);
    }
    if (m.type != COMPANION_INFO) {
        return error_text(e, ERR_FORMAT, "the agent answers strangely");
    }
    buf_append(ret, m.data.data, m.data.len);
    return ret->failed ? -ENOMEM : 0;
}

static int meet_agent(struct companion *c, struct buf *ret_info,
                      struct error *e)
{
    struct companion_hello hello = {.version = COMPANION_VERSION,
                                    .epoch = c->epoch};
    _buf_ struct buf b = {0};
    int rc;

    /* By hand nobody ever comes back to an agent: any name will do. */
    if (c->by_hand) {
        snprintf(c->tag, sizeof(c->tag), "mpi-%ld", (long)getpid());
    } else {
        str_copy(c->tag, sizeof(c->tag), c->run.id);
    }
    rc = (c->is_kept ? agent_find_kept : agent_find_or_start)(
        c->tag, (unsigned)c->local_rank, AGENT_START_MS, e);
    if (rc < 0) {
        return rc;
    }
    c->agent_fd = rc;
    str_copy(hello.muster_version, sizeof(hello.muster_version),
             PACKAGE_VERSION);
    companion_hello_encode(&hello, &b);
    rc = seqsock_send(c->agent_fd, COMPANION_HELLO, &b, NULL, 0);
    return rc < 0 ? error_set(e, -rc, "speak to the agent")
                  : receive_info(c, ret_info, e);
}

static int tell_world(struct companion *c, const struct roster *roster,
                      struct error *e)
{
    struct companion_world w = {.epoch = c->epoch,
                                .mpi_rank = (uint32_t)c->rank,
                                .run = c->run};
    _buf_ struct buf b = {0};
    _buf_ struct buf bytes = {0};
    _close_ int blob = -1;
    int rc;

    roster_encode(roster, &bytes);
    if (bytes.failed) {
        return error_set(e, ENOMEM, "encode the roster");
    }
    blob = seqsock_blob(bytes.data, bytes.len, e);
    if (blob < 0) {
        return blob;
    }
    companion_world_encode(&w, &b);
    rc = seqsock_send(c->agent_fd, COMPANION_WORLD, &b, &blob, 1);
    explicit_bzero(&w, sizeof(w));
    explicit_bzero(c->run.key, sizeof(c->run.key)); /* it was for the agent */
    if (b.data) {
        explicit_bzero(b.data, b.len);
    }
    return rc < 0 ? error_set(e, -rc, "speak to the agent") : 0;
}

static int join_mpi(struct companion *c, struct error *e)
{
    int level;

    alarm(c->gather_seconds);
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &level) !=
        MPI_SUCCESS) {
        return error_text(e, EIO, "MPI_Init failed");
    }
    c->in_mpi = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c->size);
    return bulk_create(MPI_COMM_WORLD, &c->bulk, e);
}

static int assemble(struct companion *c, struct error *e)
{
    _buf_ struct buf info = {0};
    _roster_ struct roster roster = {0};
    int rc = meet_agent(c, &info, e);

    if (rc == 0 && c->size > 1) {
        rc = join_mpi(c, e);
    }
    rc = rc < 0 ? rc : learn_run(c, e);
    if (rc < 0) {
        return rc;
    }
    rc = c->in_mpi ? gather_roster(&info, &roster, e)
                   : gather_alone(&info, &roster, e);
    rc = rc < 0 ? rc : roster_check(&roster, e);
    rc = rc < 0 ? rc : tell_world(c, &roster, e);
    alarm(0);
    return rc;
}

/* --- serving --- */

static void attach(struct companion *c, const struct seqsock_msg *m)
{
    struct companion_attach a;
    struct companion_outcome outcome = {0};
    struct error e = {0};
    _buf_ struct buf b = {0};
    int rc;

    if (companion_attach_decode(&m->data, &a) < 0 || !c->bulk) {
        return;
    }
    alarm(ATTACH_SECONDS);
    rc = bulk_attach(c->bulk, a.tag, (const int *)a.members, a.n_members,
                     m->fds[0], m->fds[1], &e);
    alarm(0);
    free(a.members);
    outcome.tag = a.tag;
    outcome.ok = rc == 0;
    str_copy(outcome.text, sizeof(outcome.text), e.text);
    companion_outcome_encode(&outcome, &b);
    seqsock_send(c->agent_fd, COMPANION_ATTACHED, &b, NULL, 0);
    if (rc < 0) {
        _exit(STATUS_RESUMABLE); /* this world is of no use; a new one is made */
    }
}

/* Leaves MPI politely if the others do too, and in any case. */
static _Noreturn void leave(struct companion *c, int status)
{
    bulk_destroy(c->bulk);
    exit_status_on_alarm = c->report_status ? status : 0;
    if (c->in_mpi) {
        alarm(FINALIZE_SECONDS);
        MPI_Finalize();
    }
    _exit(c->report_status ? status : 0);
}

/* The connection to the agent ended without a verdict: a newer companion has
 * taken it over, or it died. What it leaves is killed by its watch; where that is
 * dead too, this does it. */
static _Noreturn void lose_agent(struct companion *c)
{
    char entry[256];
    int lock = -1;

    if (agent_is_dead(c->tag, (unsigned)c->local_rank, AGENT_DEAD_MS, &lock)) {
        fprintf(stderr, "muster-mpi: the agent of this node is gone\n");
        snprintf(entry, sizeof(entry), "MUSTER_AGENT=%s.%d", c->tag,
                 c->local_rank);
        for (int round = 0;
             round < SWEEP_ROUNDS && proc_sweep_env(entry, NULL) > 0;
             round++) {
            poll(NULL, 0, SWEEP_PAUSE_MS);
        }
        close_fd(&lock);
        agent_remove_leftovers(c->tag);
    }
    /* The others may be in MPI: no goodbye there. */
    _exit(c->report_status ? STATUS_RESUMABLE : 0);
}

static void serve_agent(struct companion *c)
{
    _seqsock_msg_ struct seqsock_msg m;
    struct companion_outcome o;
    int rc;

    seqsock_msg_init(&m);
    rc = seqsock_recv(c->agent_fd, &m);
    if (rc <= 0) {
        lose_agent(c);
    }
    switch (m.type) {
    case COMPANION_ATTACH:
        attach(c, &m);
        break;
    case COMPANION_DETACH:
        if (c->bulk && companion_outcome_decode(&m.data, &o) == 0) {
            bulk_detach(c->bulk, o.tag);
        }
        break;
    case COMPANION_VERDICT:
        leave(c, companion_outcome_decode(&m.data, &o) == 0 ? o.status
                                                            : STATUS_RESUMABLE);
    default:
        break;
    }
}

static void serve_signals(struct companion *c)
{
    char sigs[16];
    ssize_t n = read(signal_pipe[0], sigs, sizeof(sigs));

    for (ssize_t i = 0; i < n; i++) {
        if (sigs[i] == SIGTERM || sigs[i] == SIGINT) {
            seqsock_send(c->agent_fd, COMPANION_TERM, NULL, NULL, 0);
        }
    }
}

static int poll_ms(const struct companion *c)
{
    int64_t us = c->bulk ? bulk_wait_us(c->bulk) : -1;

    return us < 0 ? -1 : (int)((us + 999) / 1000);
}

static void serve(struct companion *c)
{
    struct pollfd fds[MAX_POLL];

    for (;;) {
        size_t n = 2;

        fds[0] = (struct pollfd){.fd = c->agent_fd, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = signal_pipe[0], .events = POLLIN};
        if (c->bulk) {
            n += bulk_poll_fds(c->bulk, fds + 2, MAX_POLL - 2);
        }
        if (poll(fds, n, poll_ms(c)) < 0 && errno != EINTR) {
            return;
        }
        if (fds[0].revents) {
            serve_agent(c);
        }
        if (fds[1].revents) {
            serve_signals(c);
        }
        if (c->bulk) {
            bulk_step(c->bulk);
        }
        if (c->bulk && bulk_abandoned_bytes(c->bulk) > MAX_ABANDONED) {
            _exit(STATUS_RESUMABLE); /* a new world starts with clean memory */
        }
    }
}

int main(int argc, char **argv)
{
    struct companion c = {.agent_fd = -1, .epoch = 1, .gather_seconds = 300};
    struct error e = {0};

    if (parse_args(&c, argc, argv) < 0) {
        return STATUS_USAGE;
    }
    /* Its daemon is gone, and the MPI world with it; Open MPI 5 leaves ranks
     * beside a dead mpirun alive. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    read_place(&c);
    if (take_signals(&e) < 0 || assemble(&c, &e) < 0) {
        fprintf(stderr, "muster-mpi: rank %d: %s\n", c.rank, e.text);
        return STATUS_RESUMABLE;
    }
    secret_forget();
    serve(&c);
    return STATUS_RESUMABLE;
}
