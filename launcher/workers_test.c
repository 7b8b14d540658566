/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers are this program itself, with a verb as its argument: among them
 * the hard cases of what training code leaves behind.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/proc.h"
#include "base/str.h"
#include "launcher/exec.h"
#include "launcher/workers.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- the verbs ------------------------------------------------------------- */

static _Noreturn void wait_forever(void)
{
    for (;;) {
        pause();
    }
}

static int act_signal(int sig)
{
    struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    signal(sig, SIG_DFL); /* a sanitizer may have taken it */
    raise(sig);
    return 99;
}

static void ignore_all(void)
{
    for (int s = 1; s < 65; s++) {
        signal(s, SIG_IGN);
    }
}

/* A daemon of the old school. `clean`: without the environment, too. */
static void leave_daemon(bool clean)
{
    char *argv[] = {(char *)"sleep", (char *)"1000", NULL};
    char *none[] = {NULL};

    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            ignore_all();
            close_range(0, ~0U, 0);
            execve("/bin/sleep", argv, clean ? none : environ);
            _exit(1);
        }
        _exit(0);
    }
    wait(NULL);
}

static int act_many(int n, bool own_sessions)
{
    for (int i = 0; i < n; i++) {
        if (fork() == 0) {
            if (own_sessions && i % 2) {
                setsid();
            }
            wait_forever();
        }
    }
    printf("forked\n");
    fflush(stdout);
    wait_forever();
}

static int act_long(int megabytes)
{
    static char block[1 << 16];

    memset(block, 'z', sizeof(block));
    for (int i = 0; i < megabytes * 16; i++) {
        if (fs_write_all(1, block, sizeof(block)) < 0) {
            return 1;
        }
    }
    return 0;
}

/* Like `exec > >(tee ...)` in a shell script: the last words come from a process
 * that outlives the worker. */
static int act_late_words(void)
{
    if (fork() == 0) {
        while (getppid() != (pid_t)atoi(getenv("AGENT"))) {
            usleep(500);
        }
        printf("last words\n");
        fflush(stdout);
        _exit(0);
    }
    return 0;
}

static int act(const char *verb, int arg)
{
    if (strcmp(verb, "exit") == 0) {
        return arg;
    }
    if (strcmp(verb, "signal") == 0) {
        return act_signal(arg);
    }
    if (strcmp(verb, "say") == 0) {
        printf("out %s\n", getenv("WHO"));
        fprintf(stderr, "err %s\n", getenv("WHO"));
        return arg;
    }
    if (strcmp(verb, "last-words") == 0) {
        fputs("one\ntwo\nthree\n", stderr);
        return 1;
    }
    if (strcmp(verb, "stubborn") == 0) {
        ignore_all();
        printf("up\n");
        fflush(stdout);
        wait_forever();
    }
    if (strcmp(verb, "stopped") == 0) {
        printf("up\n");
        fflush(stdout);
        raise(SIGSTOP);
        wait_forever();
    }
    if (strcmp(verb, "daemon") == 0) {
        leave_daemon(arg);
        return 0;
    }
    if (strcmp(verb, "many") == 0) {
        return act_many(arg, true);
    }
    if (strcmp(verb, "mute") == 0) {
        close(1);
        close(2);
        wait_forever();
    }
    if (strcmp(verb, "long") == 0) {
        return act_long(arg);
    }
    if (strcmp(verb, "late") == 0) {
        return act_late_words();
    }
    printf("up\n");
    fflush(stdout);
    wait_forever();
}

/* --- the tests' side ------------------------------------------------------- */

static uv_loop_t loop;
static struct workers_host host = {.loop = &loop, .node = "node2"};
static char dir[64] = "/tmp/workers-test.XXXXXX";

/* What a test sees of one set. */
struct view {
    struct workers *set;
    int n_started, n_exits, n_gone;
    struct worker_end ends[64];
    char text[64][300];
    char tail[64][300];
    void (*then)(struct view *v);
    bool stop_on_failure;
};

static struct buf printed; /* what the sink got, of all sets */
static int n_wrong_stream;

static void on_sink(void *arg, uint32_t rank, enum output_which which,
                    enum output_piece piece, const char *data, size_t len)
{
    (void)arg;
    (void)rank;
    (void)piece;
    n_wrong_stream += which != (memmem(data, len, "err ", 4) ? OUTPUT_STDERR
                                                             : OUTPUT_STDOUT);
    if (printed.len < 1 << 20) {
        buf_append(&printed, data, len);
    }
}

static void on_started(void *arg)
{
    ((struct view *)arg)->n_started++;
}

static void on_exit_view(void *arg, const struct worker_end *end)
{
    struct view *v = arg;

    if (v->n_exits < 64) {
        v->ends[v->n_exits] = *end;
        str_copy(v->text[v->n_exits], 300, end->text);
        str_copy(v->tail[v->n_exits], 300, end->tail);
    }
    v->n_exits++;
    if (v->stop_on_failure && end->status && !end->stopped) {
        workers_stop(v->set, 0);
    }
}

static void on_gone(void *arg)
{
    struct view *v = arg;

    v->n_gone++;
    workers_destroy(v->set);
    v->set = NULL;
    if (v->then) {
        v->then(v);
    }
}

struct launch_args {
    unsigned n;
    const char *verb;
    int arg;
    const int *args;    /* one each instead */
    const char *program; /* instead of ourselves */
    const char *cwd;
    const char *logs_dir;
    bool hold;
    unsigned linger_ms;
};

static int start(struct view *v, struct launch_args a, struct error *e)
{
    static char pid[32];
    struct worker_spec specs[64];
    char words[64][16], who[64][16];
    char *argvs[64][4], *envs[64][8];
    struct workers_config c = {.workers = specs, .n = a.n, .cwd = a.cwd,
                               .logs_dir = a.logs_dir, .hold = a.hold,
                               .linger_ms = a.linger_ms};
    struct workers_events ev = {.on_started = on_started,
                                .on_exit = on_exit_view,
                                .on_gone = on_gone, .arg = v};

    snprintf(pid, sizeof(pid), "AGENT=%d", getpid());
    for (unsigned i = 0; i < a.n; i++) {
        snprintf(words[i], 16, "%d", a.args ? a.args[i] : a.arg);
        snprintf(who[i], 16, "WHO=%u", i);
        argvs[i][0] = (char *)(a.program ? a.program : "/proc/self/exe");
        argvs[i][1] = (char *)a.verb;
        argvs[i][2] = words[i];
        argvs[i][3] = NULL;
        envs[i][0] = (char *)"PATH=/usr/bin:/bin";
        envs[i][1] = who[i];
        envs[i][2] = pid;
        envs[i][3] = NULL;
        specs[i] = (struct worker_spec){.argv = argvs[i], .envp = envs[i],
                                        .rank = 100 + i};
    }
    return workers_start(&host, &c, &ev, &v->set, e);
}

static char self[4096];

static void must_start(struct view *v, struct launch_args a)
{
    struct error e = {0};

    memset(v, 0, sizeof(*v));
    a.program = a.program ? a.program : self;
    if (start(v, a, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static void on_tick(uv_timer_t *t)
{
    (void)t;
}

#define turn_until(cond)                                        \
    do {                                                        \
        uint64_t until_ = clock_mono_ms() + 20000;              \
        uv_timer_t tick_;                                       \
        uv_timer_init(&loop, &tick_);                           \
        uv_timer_start(&tick_, on_tick, 5, 5);                  \
        while (!(cond) && clock_mono_ms() < until_) {           \
            uv_run(&loop, UV_RUN_ONCE);                         \
        }                                                       \
        uv_close((uv_handle_t *)&tick_, NULL);                  \
        uv_run(&loop, UV_RUN_NOWAIT);                           \
    } while (0)

/* Nobody is left of anything that a test started. */
static void check_nobody(const char *what)
{
    _proc_list_ struct proc_list l = {0};

    proc_descendants(getpid(), &l, NULL);
    is_int((int)l.n, 0, "%s: nobody is left", what);
}

static int count_in(const char *text, const char *word)
{
    int n = 0;

    for (const char *p = text; (p = strstr(p, word)); p++) {
        n++;
    }
    return n;
}

static void test_plain(void)
{
    char logs[128], path[160];
    _free_ char *text = NULL;
    struct view v;

    snprintf(logs, sizeof(logs), "%s/1", dir);
    buf_clear(&printed);
    must_start(&v, (struct launch_args){.n = 4, .verb = "say",
                                        .logs_dir = logs});
    is_int((int)workers_count(v.set), 4, "four workers");
    is_int((int)workers_alive(v.set), 4, "alive");
    ok(worker_pid(v.set, 3) > 0 && worker_pid(v.set, 4) == -1, "their pids");
    is_int(v.n_exits, 0, "nothing is told from inside the call");
    turn_until(v.n_gone);
    is_int(v.n_started, 1, "started once");
    is_int(v.n_exits, 4, "four ends");
    is_int(v.n_gone, 1, "gone once");
    like(v.text[0], " on node2 finished", "in words");
    is_int(count_in(buf_str(&printed), "out "), 4, "stdout of all");
    is_int(count_in(buf_str(&printed), "err "), 4, "stderr of all");
    is_int(n_wrong_stream, 0, "each as what it is");
    snprintf(path, sizeof(path), "%s/102/stderr", logs);
    for (int i = 0; i < 1000 && fs_read(path, 100, &text, NULL, NULL) < 0; i++) {
        usleep(1000);
    }
    is_str(text, "err 2\n", "a file for each");
    check_nobody("plain");
}

static void test_codes(void)
{
    int bad = 0;

    for (int base = 0; base < 256; base += 32) {
        int codes[32];
        struct view v;

        for (int i = 0; i < 32; i++) {
            codes[i] = base + i;
        }
        must_start(&v, (struct launch_args){.n = 32, .verb = "exit",
                                            .args = codes});
        turn_until(v.n_gone);
        for (int i = 0; i < v.n_exits; i++) {
            int want = base + (int)v.ends[i].local_rank;

            bad += v.ends[i].status != want || v.ends[i].how.code != want ||
                   v.ends[i].rank != 100 + v.ends[i].local_rank ||
                   v.ends[i].stopped || v.ends[i].exec_failed;
        }
        bad += v.n_exits != 32;
    }
    is_int(bad, 0, "exit codes 0 to 255");
}

static void test_signals(void)
{
    static const int sigs[] = {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP,
                               SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGUSR1,
                               SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM,
                               SIGSTKFLT, SIGXCPU, SIGXFSZ, SIGVTALRM,
                               SIGPROF, SIGIO, SIGPWR, SIGSYS, 34, 40, 64};
    struct view v;
    int bad = 0;

    must_start(&v, (struct launch_args){.n = ARRAY_SIZE(sigs),
                                        .verb = "signal", .args = sigs});
    turn_until(v.n_gone);
    for (int i = 0; i < v.n_exits; i++) {
        int sig = sigs[v.ends[i].local_rank];
        char want[64];

        snprintf(want, sizeof(want), "worker %u on node2 was killed by %s",
                 v.ends[i].rank, child_signal_name(sig));
        bad += v.ends[i].how.signal != sig || v.ends[i].status != 128 + sig ||
               strcmp(v.text[i], want) != 0;
    }
    is_int(v.n_exits, (int)ARRAY_SIZE(sigs), "all ended");
    is_int(bad, 0, "each by its signal, which is named");
}

static void test_exec_failures(void)
{
    static const struct {
        const char *program, *cwd, *want;
        int status;
    } cases[] = {
        {"./none.sh", "/usr", "worker 101 on node2: cannot run ./none.sh: no "
                              "such file in /usr", 127},
        {"nonesuch", NULL, "worker 101 on node2: cannot run nonesuch: not "
                           "found in PATH (/usr/bin:/bin)", 127},
        {"/", NULL, "worker 101 on node2: cannot run /: it is a directory",
         126},
        {"true", "/none", "worker 101 on node2: cannot run true: working "
                          "directory /none: No such file or directory", 126},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct view v;

        must_start(&v, (struct launch_args){.n = 2, .verb = "x",
                                            .program = cases[i].program,
                                            .cwd = cases[i].cwd});
        turn_until(v.n_gone);
        is_int(v.n_started, 0, "not started");
        for (int k = 0; k < 2; k++) {
            if (v.ends[k].local_rank == 1) {
                is_str(v.text[k], cases[i].want, "in words");
                is_int(v.ends[k].status, cases[i].status, "status");
                ok(v.ends[k].exec_failed, "never ran");
            }
        }
    }
}

static void test_held(void)
{
    struct view v;

    must_start(&v, (struct launch_args){.n = 3, .verb = "say", .hold = true});
    for (int i = 0; i < 20; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(2000);
    }
    is_int(v.n_started + v.n_exits, 0, "held at the gate");
    workers_release(v.set);
    turn_until(v.n_gone);
    is_int(v.n_exits, 3, "released");
    is_int(v.n_started, 1, "started");

    must_start(&v, (struct launch_args){.n = 3, .verb = "say", .hold = true});
    workers_stop(v.set, 5000);
    turn_until(v.n_gone);
    is_int(v.n_exits, 3, "stopped at the gate");
    is_int(v.n_started, 0, "never started");
    ok(v.ends[0].stopped && !v.ends[0].exec_failed, "which is no failure");

    must_start(&v, (struct launch_args){.n = 2, .verb = "x", .hold = true,
                                        .program = "nonesuch"});
    turn_until(v.n_exits == 2);
    is_int(v.n_exits, 2, "what cannot run is told before the gate");
    turn_until(v.n_gone);
    check_nobody("held");
}

static int n_up(void)
{
    return count_in(buf_str(&printed), "up\n");
}

static void test_stop(void)
{
    struct view v;
    uint64_t t;

    buf_clear(&printed);
    must_start(&v, (struct launch_args){.n = 4, .verb = "wait"});
    turn_until(n_up() == 4);
    workers_stop(v.set, 10000);
    turn_until(v.n_gone);
    is_int(v.ends[0].how.signal, SIGTERM, "a stop is SIGTERM");
    like(v.text[0], "was stopped by SIGTERM", "in words");
    ok(v.ends[0].stopped, "and no failure");

    buf_clear(&printed);
    must_start(&v, (struct launch_args){.n = 4, .verb = "stubborn"});
    turn_until(n_up() == 4);
    t = clock_mono_ms();
    workers_stop(v.set, 150);
    turn_until(v.n_gone);
    t = clock_mono_ms() - t;
    is_int(v.ends[3].how.signal, SIGKILL, "who ignores it is killed");
    ok(t >= 149 && t < 5000, "after the grace (%d ms)", (int)t);

    buf_clear(&printed);
    must_start(&v, (struct launch_args){.n = 2, .verb = "stubborn"});
    turn_until(n_up() == 2);
    workers_stop(v.set, 60000);
    workers_stop(v.set, 100000);
    uv_run(&loop, UV_RUN_NOWAIT);
    is_int(v.n_exits, 0, "a long grace");
    workers_stop(v.set, 0);
    turn_until(v.n_gone);
    is_int(v.n_gone, 1, "may be cut short");

    buf_clear(&printed);
    must_start(&v, (struct launch_args){.n = 2, .verb = "stopped"});
    turn_until(n_up() == 2);
    t = clock_mono_ms();
    workers_stop(v.set, 20000);
    turn_until(v.n_gone);
    is_int(v.ends[0].how.signal, SIGTERM, "a SIGSTOPped worker gets it, too");
    ok(clock_mono_ms() - t < 10000, "at once");
    check_nobody("stop");
}

static void test_left_behind(void)
{
    static const struct { const char *what, *verb; int arg; } cases[] = {
        {"a daemon", "daemon", 0},
        {"a daemon without its environment", "daemon", 1},
    };
    struct view v;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        must_start(&v, (struct launch_args){.n = 2, .verb = cases[i].verb,
                                            .arg = cases[i].arg,
                                            .linger_ms = 100});
        turn_until(v.n_exits == 2);
        is_int(v.n_gone, 0, "%s is not taken for gone", cases[i].what);
        turn_until(v.n_gone);
        is_int(v.n_gone, 1, "it goes when the time is over");
        check_nobody(cases[i].what);
    }
    must_start(&v, (struct launch_args){.n = 2, .verb = "daemon",
                                        .linger_ms = 60000});
    turn_until(v.n_exits == 2);
    workers_stop(v.set, 0);
    turn_until(v.n_gone);
    check_nobody("a forced stop does not linger");

    buf_clear(&printed);
    must_start(&v, (struct launch_args){.n = 1, .verb = "many", .arg = 50});
    turn_until(count_in(buf_str(&printed), "forked"));
    workers_stop(v.set, 0);
    turn_until(v.n_gone);
    check_nobody("50 children, half of them in sessions of their own");

    buf_clear(&printed);
    must_start(&v, (struct launch_args){.n = 3, .verb = "late",
                                        .linger_ms = 15000});
    turn_until(v.n_gone);
    is_int(count_in(buf_str(&printed), "last words"), 3,
           "last words of those that end by themselves are heard");
}

/* The daemon of a set that lives is left alone when another set ends. */
static void test_two_sets(void)
{
    _proc_list_ struct proc_list l = {0};
    struct view a, b, c;

    buf_clear(&printed);
    must_start(&a, (struct launch_args){.n = 1, .verb = "many", .arg = 4});
    turn_until(count_in(buf_str(&printed), "forked"));
    must_start(&b, (struct launch_args){.n = 2, .verb = "daemon",
                                        .linger_ms = 1});
    turn_until(b.n_gone);
    is_int(b.n_gone, 1, "the second set is gone");
    proc_descendants(getpid(), &l, NULL);
    is_int((int)l.n, 5, "the first has all of its processes");
    must_start(&c, (struct launch_args){.n = 1, .verb = "wait"});
    workers_stop(a.set, 0);
    turn_until(a.n_gone);
    is_int(c.n_exits, 0, "and the third outlives the first");
    workers_stop(c.set, 0);
    turn_until(c.n_gone);
    check_nobody("two sets");
}

static void test_odd_output(void)
{
    struct view v;

    must_start(&v, (struct launch_args){.n = 1, .verb = "mute"});
    turn_until(v.n_started);
    for (int i = 0; i < 10; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    is_int(v.n_exits, 0, "a worker that closes its output lives on");
    workers_stop(v.set, 0);
    turn_until(v.n_gone);
    must_start(&v, (struct launch_args){.n = 1, .verb = "long", .arg = 10});
    turn_until(v.n_gone);
    is_int(v.ends[0].status, 0, "10 MB without a newline are taken");
}

static void test_tail(void)
{
    struct view v;

    must_start(&v, (struct launch_args){.n = 1, .verb = "say", .arg = 7});
    turn_until(v.n_gone);
    is_str(v.tail[0], "err 0\n", "a failure comes with its last lines");
    is_str(v.text[0], "worker 100 on node2 exited with status 7", "and words");
    must_start(&v, (struct launch_args){.n = 1, .verb = "last-words"});
    turn_until(v.n_gone);
    is_str(v.tail[0], "one\ntwo\nthree\n", "as many as there are");
}

static void test_first_failure(void)
{
    static const int codes[] = {5, 0, 0, 0};
    struct view v;

    must_start(&v, (struct launch_args){.n = 4, .verb = "exit",
                                        .args = codes});
    v.stop_on_failure = true;
    turn_until(v.n_gone);
    is_int(v.n_exits, 4, "a stop from inside on_exit");
}

static void test_bad_starts(void)
{
    char path[sizeof(host.exec_path)];
    struct error e = {0};
    struct view v = {0};

    is_int(start(&v, (struct launch_args){.n = 0, .verb = "x"}, &e), -EINVAL,
           "no workers");
    str_copy(path, sizeof(path), host.exec_path);
    str_copy(host.exec_path, sizeof(host.exec_path), "/none/muster-exec");
    is_int(start(&v, (struct launch_args){.n = 3, .verb = "x"}, &e), -ENOENT,
           "no muster-exec");
    like(e.text, "/none/muster-exec", "which is named");
    str_copy(host.exec_path, sizeof(host.exec_path), path);
    turn_until(!host.sets);
    is_int(v.n_started + v.n_exits + v.n_gone, 0, "nothing is told");
    ok(host.sets == NULL, "nothing is left");
    workers_destroy(NULL);
}

/* No descriptor for the second of three: those before it are taken back. */
static void test_out_of_descriptors(void)
{
    struct rlimit old, few;
    struct error e = {0};
    struct view v = {0};
    int probe = dup(0), rc;

    close(probe);
    getrlimit(RLIMIT_NOFILE, &old);
    few = old;
    few.rlim_cur = (rlim_t)probe + 10;
    setrlimit(RLIMIT_NOFILE, &few);
    rc = start(&v, (struct launch_args){.n = 5, .verb = "wait",
                                        .program = self}, &e);
    setrlimit(RLIMIT_NOFILE, &old);
    is_int(rc, -EMFILE, "too few descriptors");
    turn_until(!host.sets);
    is_int(v.n_exits + v.n_gone, 0, "nothing is told");
    check_nobody("a start that failed half-way");
}

/* --- how long a restart takes ---------------------------------------------- */

enum { N_ROUNDS = 10 };

/* The next generation, from inside on_gone of the last. */
static void next_round(struct view *v)
{
    struct error e = {0};

    v->n_started = 0;
    if (v->n_gone < N_ROUNDS &&
        start(v, (struct launch_args){.n = 8, .verb = "wait",
                                      .program = self}, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static uint64_t plain_ns(void)
{
    char *argv[] = {self, (char *)"exit", (char *)"0", NULL};
    uint64_t best = UINT64_MAX;

    for (int k = 0; k < 10; k++) {
        uint64_t t = clock_mono_ns();
        pid_t pid[8];

        for (int i = 0; i < 8; i++) {
            if (posix_spawn(&pid[i], self, NULL, NULL, argv, environ) != 0) {
                bail_out("posix_spawn");
            }
        }
        t = clock_mono_ns() - t;
        best = t < best ? t : best;
        for (int i = 0; i < 8; i++) {
            waitpid(pid[i], NULL, 0);
        }
    }
    return best;
}

static void test_restart(void)
{
    uint64_t plain = plain_ns(), best = UINT64_MAX;
    struct view v;

    must_start(&v, (struct launch_args){.n = 8, .verb = "wait"});
    v.then = next_round;
    turn_until(v.n_started);
    for (int round = 1; round < N_ROUNDS; round++) {
        uint64_t t = clock_mono_ns();

        workers_stop(v.set, 0);
        while (v.n_gone < round || !v.n_started) {
            uv_run(&loop, UV_RUN_ONCE);
        }
        t = clock_mono_ns() - t;
        best = t < best ? t : best;
    }
    workers_stop(v.set, 0);
    turn_until(v.n_gone == N_ROUNDS);
    is_int(v.n_gone, N_ROUNDS, "ten generations");
    diag("8 workers killed, reaped and 8 executed: %.2f ms; "
         "8 x posix_spawn: %.2f ms", (double)best / 1e6, (double)plain / 1e6);
}

/* The command line of muster-exec: all of what a worker gets set up. */
static void test_exec_line(void)
{
    static char *const program[] = {(char *)"prog", (char *)"--cwd=x", NULL};
    const int keep[] = {8, 9};
    struct exec_options all = {
        .id = 3, .cwd = "/w", .cpus = "0-3", .umask = "027", .core = "0",
        .oom_score_adj = 500, .status_fd = 5, .gate_fd = 6, .keep = keep,
        .n_keep = 2};
    struct exec_options none = {.status_fd = -1, .gate_fd = -1};
    _strlist_ struct strlist a = {0}, b = {0};
    _free_ char *got_all = NULL, *got_none = NULL;
    char want[200];

    exec_argv(&a, &all, program);
    exec_argv(&b, &none, program);
    got_all = str_shell_join(a.items);
    got_none = str_shell_join(b.items);
    snprintf(want, sizeof(want), "muster-exec --parent=%d --id=3 --status=5 "
             "--gate=6 --keep=8 --keep=9 --cwd=/w --cpus=0-3 --umask=027 "
             "--core=0 --oom=500 -- prog --cwd=x", getpid());
    is_str(got_all, want, "every option");
    snprintf(want, sizeof(want), "muster-exec --parent=%d --id=0 -- prog "
             "--cwd=x", getpid());
    is_str(got_none, want, "none but those that are always there");
}

static void test_exec_status(void)
{
    static const struct {
        enum exec_stage stage;
        int code, want;
    } cases[] = {
        {EXEC_FIND, ENOENT, 127},  {EXEC_FIND, EACCES, 126},
        {EXEC_FIND, EISDIR, 126},  {EXEC_INTERPRETER, ENOENT, 126},
        {EXEC_CWD, ENOENT, 126},   {EXEC_RUN, ENOENT, 126},
        {EXEC_FORMAT, ENOEXEC, 126},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exec_report r = {.stage = cases[i].stage,
                                .code = cases[i].code};

        is_int(exec_report_status(&r), cases[i].want, "stage %d, errno %d",
               cases[i].stage, cases[i].code);
    }
}

static void test_texts(void)
{
    struct exec_report r = {.id = 7, .stage = EXEC_CWD, .code = ENOENT,
                            .detail = "/x"}, got;
    _buf_ struct buf b = {0};
    char text[256];

    exec_report_encode(&b, &r);
    ok(b.len <= EXEC_RECORD_MAX + 4, "a record has its bounds");
    for (size_t cut = 0; cut < b.len; cut++) {
        struct buf part = {0};

        buf_append(&part, b.data, cut);
        is_int(exec_report_decode(&part, &got), 0, "cut to %zu: wait", cut);
        buf_release(&part);
    }
    is_int(exec_report_decode(&b, &got), 1, "whole");
    is_int((int)b.len, 0, "taken off");
    exec_report_text(&got, "prog", text, sizeof(text));
    is_str(text, "cannot run prog: working directory /x: No such file or "
           "directory", "words");
    for (int stage = 1; stage < EXEC_N_STAGES; stage++) {
        r.stage = (enum exec_stage)stage;
        exec_report_text(&r, "prog", text, sizeof(text));
        ok(!strstr(text, "null"), "stage %d: %s", stage, text);
    }
    buf_append(&b, "\xff\xff\xff\xff", 4);
    ok(exec_report_decode(&b, &got) < 0, "too long a record");
    buf_clear(&b);
    buf_append(&b, "\0\0\0\4\0\0\0\1", 8);
    ok(exec_report_decode(&b, &got) < 0, "too short a record");
}

static void find_exec(void)
{
    const char *build = getenv("MUSTER_BUILDDIR");
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    self[n < 0 ? 0 : n] = '\0';
    if (build) {
        snprintf(host.exec_path, sizeof(host.exec_path), "%s/muster-exec",
                 build);
        return;
    }
    str_copy(host.exec_path, sizeof(host.exec_path) - 16, self);
    slash = strrchr(host.exec_path, '/');
    slash = slash ? slash : host.exec_path;
    snprintf(slash, 20, "/../muster-exec");
}

static void set_up(void)
{
    struct output_config oc = {.sink = on_sink};

    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    find_exec();
    uv_loop_init(&loop);
    if (!mkdtemp(dir) || child_become_subreaper(NULL) < 0 ||
        child_table_create(&loop, &host.children, NULL) < 0 ||
        output_create(&loop, &oc, &host.output, NULL) < 0) {
        bail_out("no temporary directory, subreaper, table or output");
    }
}

/* For tests/t2031-watch.t: an agent with three sets, to be killed. */
static int be_agent(void)
{
    struct view a, b, c;

    set_up();
    rmdir(dir); /* nobody will when we are killed */
    must_start(&a, (struct launch_args){.n = 4, .verb = "stubborn"});
    must_start(&b, (struct launch_args){.n = 1, .verb = "many", .arg = 20});
    must_start(&c, (struct launch_args){.n = 4, .verb = "daemon",
                                        .linger_ms = 100000});
    turn_until(n_up() == 4 && c.n_exits == 4 &&
               count_in(buf_str(&printed), "forked"));
    printf("%d\n", getpid());
    fflush(stdout);
    return uv_run(&loop, UV_RUN_DEFAULT);
}

int main(int argc, char **argv)
{
    _free_ char *before = NULL, *after = NULL;

    if (argc > 1 && strcmp(argv[1], "agent") == 0) {
        return be_agent();
    }
    if (argc > 1) {
        return act(argv[1], argc > 2 ? atoi(argv[2]) : 0);
    }
    set_up();
    before = proc_fd_inventory();
    test_exec_line();
    test_exec_status();
    test_texts();
    test_plain();
    test_codes();
    test_signals();
    test_exec_failures();
    test_held();
    test_stop();
    test_left_behind();
    test_two_sets();
    test_odd_output();
    test_tail();
    test_first_failure();
    test_bad_starts();
    test_out_of_descriptors();
    test_restart();
    uv_run(&loop, UV_RUN_NOWAIT);
    after = proc_fd_inventory();
    is_str(after, before, "no descriptor is left open");
    output_destroy(host.output, 5000, NULL, NULL);
    child_table_destroy(host.children);
    uv_run(&loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&loop), 0, "nothing is left on the loop");
    buf_release(&printed);
    fs_remove_tree(dir, NULL);
    return tap_done();
}
