/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's end in this process, workers in children that use libmuster or
 * speak bytes of their own. */
#include <config.h>

#include "launcher/worker_socket.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "muster.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { N_MAX = 4, RUN_MS = 20000 };

/* What the agent saw, and what it does. */
struct agent {
    uv_loop_t loop;
    char dir[64];
    int n;
    struct worker_socket *sockets[N_MAX];
    struct segment *segment;
    pid_t pids[N_MAX];
    int results[N_MAX]; /* 0, an exit code, or -signal; -1 while it runs */
    int n_hellos, n_reports, n_saved, n_disconnects, n_joined_gone;
    int hello_pid;
    int64_t step;
    double loss;
    char path[WORKER_PATH_SIZE];
    char why[1024];
    void (*on_hello)(struct agent *a);
    uint64_t deadline_ms;
};

static void on_hello(void *arg, uint32_t local_rank, int pid)
{
    struct agent *a = arg;

    (void)local_rank;
    a->n_hellos++;
    a->hello_pid = pid;
    if (a->on_hello) {
        a->on_hello(a);
    }
}

static void on_report(void *arg, uint32_t local_rank,
                      const struct worker_report *report)
{
    struct agent *a = arg;

    (void)local_rank;
    a->n_reports++;
    a->step = report->step;
    if (report->n_metrics > 0 && !strcmp(report->metrics[0].name, "loss")) {
        a->loss = report->metrics[0].value;
    }
}

static void on_saved(void *arg, uint32_t local_rank, const char *path,
                     int64_t step)
{
    struct agent *a = arg;

    (void)local_rank;
    a->n_saved++;
    a->step = step;
    str_copy(a->path, sizeof(a->path), path);
}

static void on_disconnect(void *arg, uint32_t local_rank, bool had_joined,
                          const char *why)
{
    struct agent *a = arg;

    (void)local_rank;
    a->n_disconnects++;
    a->n_joined_gone += had_joined;
    str_copy(a->why, sizeof(a->why), why);
}

static const struct worker_socket_ops ops = {
    .on_hello = on_hello,
    .on_report = on_report,
    .on_checkpoint_saved = on_saved,
    .on_disconnect = on_disconnect,
};

static void agent_open(struct agent *a, int n)
{
    memset(a, 0, sizeof(*a));
    a->n = n;
    str_copy(a->dir, sizeof(a->dir), "/tmp/muster-test-XXXXXX");
    if (!mkdtemp(a->dir) || uv_loop_init(&a->loop) < 0) {
        bail_out("agent");
    }
    for (int i = 0; i < n; i++) {
        struct worker_welcome who = {
            .rank = (uint32_t)i, .world = (uint32_t)n,
            .local_rank = (uint32_t)i, .local_world = (uint32_t)n,
            .n_nodes = 1, .generation = 7, .run_dir = "/runs/x",
        };
        struct error e = {0};
        char path[128];

        snprintf(path, sizeof(path), "%s/%d", a->dir, i);
        if (worker_socket_create(&a->loop, path, &who, &ops, a,
                                 &a->sockets[i], &e) < 0) {
            bail_out("%s", e.text);
        }
    }
}

static void agent_close(struct agent *a)
{
    for (int i = 0; i < a->n; i++) {
        worker_socket_destroy(a->sockets[i]);
    }
    uv_run(&a->loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&a->loop), 0, "nothing left in the loop");
    is_int(rmdir(a->dir), 0, "nothing left in the directory");
    segment_destroy(a->segment);
}

/* Children come to be before any connection, or they would hold those open. */
static void start(struct agent *a, int (*worker)(struct agent *a, int i))
{
    for (int i = 0; i < a->n; i++) {
        a->results[i] = -1;
        a->pids[i] = fork();
        if (a->pids[i] == 0) {
            setenv("MUSTER_SOCKET", worker_socket_path(a->sockets[i]), 1);
            _exit(worker(a, i));
        }
    }
}

/* Runs the loop until `done` says so or time is over. */
static void run_until(struct agent *a, bool (*done)(struct agent *a))
{
    uint64_t deadline_ms = clock_mono_ms() + RUN_MS;

    while (!done(a) && clock_mono_ms() < deadline_ms) {
        uv_run(&a->loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
}

static bool all_ended(struct agent *a)
{
    bool all = true;

    for (int i = 0; i < a->n; i++) {
        int status;

        if (a->results[i] == -1 &&
            waitpid(a->pids[i], &status, WNOHANG) == a->pids[i]) {
            a->results[i] = WIFEXITED(status) ? WEXITSTATUS(status)
                                              : -WTERMSIG(status);
        }
        all = all && a->results[i] != -1;
    }
    return all && a->n_hellos == a->n_disconnects;
}

static void run(struct agent *a, int (*worker)(struct agent *a, int i),
                const char *name)
{
    start(a, worker);
    run_until(a, all_ended);
    for (int i = 0; i < a->n; i++) {
        is_int(a->results[i], 0, "%s: worker %d", name, i);
    }
}

static int check_identity(struct muster *m)
{
    if (muster_rank(m) != 1 || muster_world(m) != 2 ||
        muster_local_rank(m) != 1 || muster_local_world(m) != 2 ||
        muster_node(m) != 0 || muster_n_nodes(m) != 1 ||
        muster_generation(m) != 7) {
        return 2;
    }
    if (strcmp(muster_run_dir(m), "/runs/x") != 0 || muster_resume_path(m)) {
        return 3;
    }
    return 0;
}

static int worker_report(struct agent *a, int i)
{
    struct muster_metric metrics[] = {{"loss", 0.5}, {"throughput", 9}};
    struct muster *m = NULL;
    int rc;

    if (i == 0) {
        return 0; /* one that never connects */
    }
    if (muster_init(&m) < 0) {
        return 1;
    }
    rc = check_identity(m);
    if (rc == 0 && (muster_report(m, 41, metrics, 2) < 0 ||
                    chdir(a->dir) < 0 ||
                    muster_checkpoint_saved(m, "ck/42", 42) < 0)) {
        rc = 4;
    }
    muster_finalize(m);
    return rc;
}

static void test_report(void)
{
    struct agent a;
    char want[128];
    struct stat st;

    agent_open(&a, 2);
    is_int(stat(worker_socket_path(a.sockets[0]), &st), 0, "a socket");
    is_int(st.st_mode & 0777, 0600, "private");
    run(&a, worker_report, "report");
    is_int(a.n_hellos, 1, "one hello");
    is_int(a.hello_pid, a.pids[1], "of that process");
    is_int(a.n_reports, 1, "one report");
    ok(a.loss == 0.5, "its value");
    is_int(a.n_saved, 1, "one checkpoint");
    is_int(a.step, 42, "its step");
    snprintf(want, sizeof(want), "%s/ck/42", a.dir);
    is_str(a.path, want, "an absolute path");
    is_int(a.n_disconnects, 1, "one goodbye");
    is_int(a.n_joined_gone, 0, "not in collectives");
    is_str(a.why, "", "a plain one");
    agent_close(&a);
}

static int worker_collectives(struct agent *a, int i)
{
    enum { COUNT = 200003 };
    int32_t *x = malloc(COUNT * sizeof(*x));
    struct muster *m = NULL;
    char text[16] = "";
    int rc = 0;

    (void)a;
    if (muster_init(&m) < 0) {
        return 1;
    }
    for (int k = 0; k < COUNT; k++) {
        x[k] = k + i;
    }
    if (muster_allreduce(m, x, x, COUNT, MUSTER_INT32, MUSTER_SUM) < 0) {
        rc = 2;
    }
    for (int k = 0; rc == 0 && k < COUNT; k++) {
        rc = x[k] == 3 * k + 3 ? 0 : 3;
    }
    str_copy(text, sizeof(text), i == 2 ? "hello" : "");
    if (rc == 0 && muster_broadcast(m, text, sizeof(text), 2) < 0) {
        rc = 4;
    }
    if (rc == 0 && (strcmp(text, "hello") != 0 || muster_barrier(m) < 0)) {
        rc = 5;
    }
    muster_finalize(m);
    free(x);
    return rc;
}

/* Hands out the segment only when all are there: joins wait for it. */
static void give_segment(struct agent *a)
{
    struct segment_spec spec = {
        .generation = 7, .n_nodes = 1, .world = (uint32_t)a->n,
        .n_local = (uint32_t)a->n, .max_local = (uint32_t)a->n,
    };

    if (a->n_hellos < a->n) {
        return;
    }
    if (segment_create(&spec, &a->segment, NULL) < 0) {
        bail_out("segment");
    }
    for (int i = 0; i < a->n; i++) {
        worker_socket_set_segment(a->sockets[i], a->segment);
    }
}

static void test_collectives(void)
{
    struct agent a;

    agent_open(&a, 3);
    a.on_hello = give_segment;
    run(&a, worker_collectives, "collectives");
    is_int(a.n_joined_gone, 3, "three goodbyes of members");
    agent_close(&a);
}

static int worker_state(struct agent *a, int i)
{
    struct muster *m = NULL;
    int n_requests = 0, rc;

    (void)a;
    (void)i;
    if (muster_init(&m) < 0) {
        return 1;
    }
    while ((rc = muster_should_stop(m)) == 0) {
        n_requests += muster_checkpoint_requested(m);
        poll(NULL, 0, 1);
    }
    n_requests += muster_checkpoint_requested(m);
    n_requests += muster_checkpoint_requested(m);
    muster_finalize(m);
    return rc == 1 && n_requests == 2 ? 0 : 10 + n_requests;
}

static void push_states(struct agent *a)
{
    worker_socket_set_state(a->sockets[0], false, 1);
    worker_socket_set_state(a->sockets[0], false, 2);
    worker_socket_set_state(a->sockets[0], true, 2);
}

static void test_state(void)
{
    struct agent a;

    agent_open(&a, 1);
    a.on_hello = push_states;
    run(&a, worker_state, "state");
    agent_close(&a);
    agent_open(&a, 1);
    worker_socket_set_state(a.sockets[0], true, 2);
    run(&a, worker_state, "state before the connection");
    agent_close(&a);
}

static void leave_worker(struct agent *a)
{
    worker_socket_destroy(a->sockets[0]);
    a->n_disconnects = a->n_hellos; /* no callback comes any more */
    a->sockets[0] = NULL;
}

static void on_term(int sig)
{
    (void)sig;
}

static bool has_handler(void (*want)(int))
{
    struct sigaction now;

    return sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == want;
}

/* SIGTERM is the program's own until it asks whether it should stop. */
static int worker_signals(struct agent *a, int i)
{
    struct muster *m = NULL;

    (void)a;
    signal(SIGTERM, i == 0 ? SIG_DFL : on_term);
    if (muster_init(&m) < 0 || muster_report(m, 1, NULL, 0) < 0 ||
        muster_checkpoint_requested(m) < 0) {
        return 1;
    }
    if (!has_handler(i == 0 ? SIG_DFL : on_term)) {
        return 2;
    }
    if (muster_should_stop(m) != 0 || raise(SIGTERM) != 0) {
        return 3;
    }
    if (has_handler(on_term) != (i != 0)) {
        return 4;
    }
    muster_finalize(m);
    return has_handler(i == 0 ? SIG_DFL : on_term) ? 0 : 5;
}

static void test_signals(void)
{
    struct agent a;

    agent_open(&a, 2);
    run(&a, worker_signals, "SIGTERM");
    agent_close(&a);
}

static int worker_left(struct agent *a, int i)
{
    struct muster *m = NULL, *again = NULL;
    struct muster_metric one = {"loss", 1};
    int rc = muster_init(&m);

    (void)a;
    (void)i;
    if (rc == -ECONNREFUSED) {
        return 0; /* destroyed before the welcome went out */
    }
    if (rc < 0) {
        return 1;
    }
    while ((rc = muster_should_stop(m)) == 0) {
        poll(NULL, 0, 1);
    }
    if (rc != -ECONNABORTED || muster_report(m, 1, &one, 1) == 0 ||
        muster_checkpoint_saved(m, "/x", 1) != -ECONNABORTED) {
        return 2;
    }
    muster_finalize(m);
    return muster_init(&again) == -ECONNREFUSED ? 0 : 3;
}

static void test_agent_gone(void)
{
    struct agent a;

    agent_open(&a, 1);
    a.on_hello = leave_worker;
    run(&a, worker_left, "destroyed in a callback");
    agent_close(&a);
}

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

    agent_open(&a, 1);
    run(&a, worker_hostile, "hostile bytes");
    is_int(a.n_reports, 0, "nothing of it was a report");
    is_int(a.n_hellos, 5, "four of them got as far as a hello, and the last");
    agent_close(&a);
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

    agent_open(&a, 1);
    setenv("MUSTER_SOCKET", worker_socket_path(a.sockets[0]), 1);
    fd = dial();
    unsetenv("MUSTER_SOCKET");
    ok(send(fd, HELLO, sizeof(HELLO) - 1, MSG_NOSIGNAL) > 0, "hello");
    run_until(&a, was_greeted);
    worker_msg_encode(&b, &m);
    ok(send(fd, b.data, b.len, MSG_NOSIGNAL) == (ssize_t)b.len, "a report");
    close(fd);
    worker_socket_set_state(a.sockets[0], true, 1);
    run_until(&a, has_left);
    is_int(a.n_reports, 1, "is heard, though its sender is gone");
    ok(a.loss == 0.25, "with its value");
    is_int(a.n_disconnects, 1, "then comes the goodbye");
    is_str(a.why, "", "a plain one");
    agent_close(&a);
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

    for (int i = 0; i < 100 && n < 200000; i++) {
        worker_socket_set_state(a->sockets[0], false, ++n);
    }
    if (n == 200000) {
        worker_socket_set_state(a->sockets[0], true, n);
        n++;
    }
    return all_ended(a);
}

static void test_slow(void)
{
    struct agent a;

    agent_open(&a, 1);
    start(&a, worker_slow);
    run_until(&a, slow_ended);
    is_int(a.results[0], 0, "a slow reader gets the newest state");
    agent_close(&a);
}

/* Finishes `m` while a child keeps its connection open: the agent hears of no
 * goodbye. Then the next one joins. */
static int join_after(struct muster *m)
{
    struct muster *next = NULL;
    pid_t holder = fork();
    int rc;

    if (holder == 0) {
        alarm(60);
        for (;;) {
            pause();
        }
    }
    muster_finalize(m);
    rc = muster_init(&next);
    rc = rc < 0 ? rc : muster_barrier(next);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    muster_finalize(next);
    return rc;
}

static int worker_twice(struct agent *a, int i)
{
    struct muster *m = NULL, *second = NULL;

    (void)a;
    if (muster_init(&m) < 0 || muster_init(&second) < 0) {
        return 1;
    }
    if (muster_barrier(m) < 0) {
        return 2;
    }
    if (i == 0 && muster_barrier(second) != -EOPNOTSUPP) {
        return 3;
    }
    if (i == 0 && !strstr(muster_error_text(second), "already")) {
        return 4;
    }
    muster_finalize(second);
    return join_after(m) < 0 ? 5 : 0;
}

static void test_join_twice(void)
{
    struct agent a;

    agent_open(&a, 2);
    a.on_hello = NULL;
    a.n_hellos = a.n;
    give_segment(&a);
    a.n_hellos = 0;
    run(&a, worker_twice, "joining twice");
    agent_close(&a);
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

        agent_open(&a, 0);
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
        agent_close(&a);
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

    agent_open(&a, 0);
    memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    is_int(worker_socket_create(&a.loop, path, &who, &ops, &a, &w, NULL),
           -ENAMETOOLONG, "a long path");
    is_int(worker_socket_create(&a.loop, "/proc/nonexistent/s", &who, &ops, &a, &w,
                                NULL), -ENOENT, "no directory");
    is_int(worker_socket_create(&a.loop, a.dir, &who, &ops, &a, &w, NULL),
           -EADDRINUSE, "something else is there");
    snprintf(path, sizeof(path), "%s/s", a.dir);
    is_int(worker_socket_create(&a.loop, path, &who, &ops, &a, &w, NULL), 0,
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
    agent_close(&a);
}

int main(void)
{
    alarm(120); /* so that a hang is a failure */
    test_create();
    test_report();
    test_collectives();
    test_state();
    test_signals();
    test_agent_gone();
    test_hostile();
    test_last_words();
    test_slow();
    test_join_twice();
    test_whose();
    return tap_done();
}
