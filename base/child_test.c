/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The children here are this program itself, with a verb as its argument.
 */
#include <config.h>

#include "base/child.h"
#include "base/cleanup.h"
#include "base/proc.h"
#include "base/turn_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The verbs. */

static int act_signal(int sig)
{
    struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    signal(sig, SIG_DFL);
    raise(sig);
    return 99;
}

static int act_orphan(int code)
{
    if (fork() == 0) {
        if (fork() == 0) {
            setsid();
            while (getppid() != (pid_t)atoi(getenv("REAPER"))) {
                usleep(1000);
            }
            _exit(code);
        }
        _exit(0);
    }
    wait(NULL);
    return 0;
}

/* Leaves a member in its group that only a signal ends. */
static int act_leave(void)
{
    if (fork() == 0) {
        for (;;) {
            pause();
        }
    }
    return 0;
}

static int act_fds(void)
{
    _free_ char *fds = proc_fd_inventory();
    char line[200];
    ssize_t n = read(0, line, sizeof(line));

    printf("%s|%zd|%d\n", fds, n, getpid() == getsid(0));
    return 0;
}

static int act_mask(void)
{
    struct sigaction sa;
    sigset_t mask;
    int n_blocked = 0, n_ignored = 0;

    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int s = 1; s < 65; s++) {
        n_blocked += sigismember(&mask, s) == 1;
        n_ignored += sigaction(s, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN;
    }
    return n_blocked * 10 + n_ignored;
}

/* Uses `ms` of CPU time. */
static int act_work(int ms)
{
    while (clock() < ms * (CLOCKS_PER_SEC / 1000)) {
    }
    return 0;
}

static int act(const char *verb, int arg)
{
    if (strcmp(verb, "work") == 0) {
        return act_work(arg);
    }
    if (strcmp(verb, "exit") == 0) {
        return arg;
    }
    if (strcmp(verb, "signal") == 0) {
        return act_signal(arg);
    }
    if (strcmp(verb, "orphan") == 0) {
        return act_orphan(arg);
    }
    if (strcmp(verb, "leave") == 0) {
        return act_leave();
    }
    if (strcmp(verb, "fds") == 0) {
        return act_fds();
    }
    if (strcmp(verb, "mask") == 0) {
        return act_mask();
    }
    pause();
    return 98;
}

/* The tests' side. */

static uv_loop_t loop;
static struct child_table *table;

struct seen {
    struct child_exit how;
    int n;
};

static void on_exit_seen(void *arg, const struct child_exit *how)
{
    struct seen *s = arg;

    s->how = *how;
    s->n++;
}

static pid_t start(const char *verb, int arg, child_exit_f *f, void *farg,
                   bool new_session)
{
    char number[16];
    char *argv[] = {(char *)"child", (char *)verb, number, NULL};
    struct child_spec spec = {.path = tap_self(), .argv = argv, .envp = environ,
                              .stdio = {-1, 1, 2},
                              .new_session = new_session};
    struct error e = {0};
    pid_t pid = -1;

    snprintf(number, sizeof(number), "%d", arg);
    if (child_spawn(table, &spec, f, farg, &pid, &e) < 0) {
        bail_out("%s", e.text);
    }
    return pid;
}

static void test_codes(void)
{
    int bad = 0;

    for (int code = 0; code < 256; code++) {
        struct seen s = {0};
        pid_t pid = start("exit", code, on_exit_seen, &s, false);

        turn_until(&loop, &s.n, 1);
        bad += s.n != 1 || s.how.pid != pid || s.how.code != code ||
               s.how.signal != 0 || child_shell_status(&s.how) != code;
    }
    is_int(bad, 0, "exit codes 0 to 255");
    is_int((int)child_count(table), 0, "the table is empty again");
}

/* A pid must not become another process's while somebody is told about it. */
static void on_exit_look(void *arg, const struct child_exit *how)
{
    int *n = arg;
    siginfo_t si = {0};

    ok(waitid(P_PID, (id_t)how->pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           si.si_pid == how->pid, "one that has ended is told before it is "
       "reaped");
    ++*n;
}

static void test_order(void)
{
    int n = 0;
    pid_t pid = start("exit", 0, on_exit_look, &n, false);

    ok(turn_until(&loop, &n, 1), "told");
    is_int(kill(pid, 0), -1, "and is reaped then");
}

static void test_usage(void)
{
    struct seen s = {0};

    start("work", 60, on_exit_seen, &s, false);
    turn_until(&loop, &s.n, 1);
    ok(s.how.cpu_ms >= 40, "CPU time is told (%llu ms)",
       (unsigned long long)s.how.cpu_ms);
    ok(s.how.rss_kib > 100, "and memory (%llu KiB)",
       (unsigned long long)s.how.rss_kib);
}

static bool ends_a_process(int sig)
{
    static const int harmless[] = {SIGCHLD, SIGCONT, SIGURG, SIGWINCH,
                                   SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};

    for (size_t i = 0; i < ARRAY_SIZE(harmless); i++) {
        if (harmless[i] == sig) {
            return false;
        }
    }
    return sig < 32 || sig >= SIGRTMIN;
}

static void test_signals(void)
{
    int bad = 0, n = 0;

    for (int sig = 1; sig < 65; sig++) {
        struct seen s = {0};

        if (!ends_a_process(sig)) {
            continue;
        }
        n++;
        start("signal", sig, on_exit_seen, &s, false);
        turn_until(&loop, &s.n, 1);
        if (s.how.signal != sig || s.how.code != -1 ||
            child_shell_status(&s.how) != 128 + sig) {
            diag("signal %d: code %d signal %d", sig, s.how.code,
                 s.how.signal);
            bad++;
        }
    }
    is_int(bad, 0, "all %d signals that end a process", n);
    is_str(child_signal_name(SIGSEGV), "SIGSEGV", "a name");
    is_str(child_signal_name(40), "signal 40", "a number");
    is_str(child_signal_name(-3), "signal -3", "nonsense");
}

static void test_orphans(void)
{
    struct seen own = {0}, first = {0}, second = {0};
    struct child_watch a = {on_exit_seen, &first, NULL};
    struct child_watch b = {on_exit_seen, &second, NULL};
    char pid[16];

    snprintf(pid, sizeof(pid), "%d", getpid());
    setenv("REAPER", pid, 1);
    is_int(child_become_subreaper(NULL), 0, "subreaper");
    child_watch_add(table, &a);
    child_watch_add(table, &b);
    start("orphan", 7, on_exit_seen, &own, false);
    ok(turn_until(&loop, &first.n, 1),
       "an orphan in a session of its own is reaped");
    is_int(first.how.code, 7, "its code");
    is_int(second.n, 1, "both watches are told");
    turn_until(&loop, &own.n, 1);
    is_int(own.how.code, 0, "the child's own end is not mistaken for it");
    child_watch_remove(table, &b);
    child_watch_remove(table, &b);
    start("orphan", 8, on_exit_seen, &own, false);
    turn_until(&loop, &first.n, 2);
    is_int(second.n, 1, "a removed watch is not told");
    child_watch_remove(table, &a);
    turn_until(&loop, &own.n, 2);
}

/* The orphan of a child of ours, alive, as soon as it has come to us. */
static pid_t orphan_of(pid_t parent)
{
    for (int i = 0; i < 60000; i++) {
        _proc_list_ struct proc_list l = {0};

        child_table_reap(table);
        proc_descendants(getpid(), &l, NULL);
        for (size_t k = 0; k < l.n; k++) {
            if (l.items[k].pid != parent && l.items[k].parent == getpid()) {
                return l.items[k].pid;
            }
        }
        usleep(1000);
    }
    return -1;
}

static void test_adoption(void)
{
    struct seen own = {0}, adopted = {0}, orphan = {0}, late = {0};
    struct child_watch w = {on_exit_seen, &orphan, NULL};
    pid_t parent, pid;

    child_watch_add(table, &w);
    is_int(child_adopt(table, getpid(), on_exit_seen, &adopted, NULL), -ECHILD,
           "who is no child of ours is not taken over");
    is_int(child_adopt(table, 1, on_exit_seen, &adopted, NULL), -EEXIST,
           "nor is init");
    parent = start("leave", 0, on_exit_seen, &own, false);
    pid = orphan_of(parent);
    turn_until(&loop, &own.n, 1);
    is_int(child_kill(table, pid, 0), -ESRCH, "an orphan is nobody's");
    is_int(child_adopt(table, pid, on_exit_seen, &adopted, NULL), 0,
           "and can be taken over");
    is_int(child_adopt(table, pid, on_exit_seen, &adopted, NULL), -EEXIST,
           "once");
    child_hand_over(table, pid, on_exit_seen, &late);
    child_hand_over(table, parent, on_exit_seen, &orphan);
    is_int(child_kill(table, pid, SIGTERM), 0, "then it can be signalled");
    turn_until(&loop, &late.n, 1);
    is_int(late.how.signal, SIGTERM, "its end is told to who has it now");
    is_int(adopted.n + orphan.n, 0, "and to nobody else");
    is_int(child_adopt(table, pid, on_exit_seen, &late, NULL), -ECHILD,
           "a dead one is not taken over");
    child_watch_remove(table, &w);
}

/* One that has ended, and was not reaped, is still there to be taken over. */
static void test_adopt_zombie(void)
{
    struct seen s = {0};
    siginfo_t si;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(6);
    }
    waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT);
    is_int(child_adopt(table, pid, on_exit_seen, &s, NULL), 0,
           "one that has ended is taken over");
    turn_until(&loop, &s.n, 1);
    is_int(s.how.code, 6, "and its end is told");
}

static void on_exit_kill_group(void *arg, const struct child_exit *how)
{
    struct seen *s = arg;

    s->how = *how;
    s->n++;
    is_int(child_kill_group(table, how->pid, SIGKILL), 0,
           "the group can be signalled while its leader is told about");
}

static void test_group_of_the_dead(void)
{
    struct seen s = {0}, left = {0};
    struct child_watch w = {on_exit_seen, &left, NULL};
    pid_t pid;

    child_watch_add(table, &w);
    pid = start("leave", 0, on_exit_kill_group, &s, true);
    ok(turn_until(&loop, &left.n, 1), "who is left in the group goes");
    is_int(left.how.signal, SIGKILL, "by the signal to the group");
    is_int(child_kill_group(table, pid, SIGKILL), -ESRCH, "once reaped: -ESRCH");
    child_watch_remove(table, &w);
}

static void on_exit_again(void *arg, const struct child_exit *how)
{
    int *left = arg;

    (void)how;
    if (--*left > 0) {
        start("exit", 0, on_exit_again, left, false);
    }
}

static void test_start_from_callback(void)
{
    int left = 20;

    start("exit", 0, on_exit_again, &left, false);
    while (left > 0) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    is_int(left, 0, "a callback may start the next child");
}

static void on_exit_count(void *arg, const struct child_exit *how)
{
    (void)how;
    ++*(int *)arg;
}

static void test_many(void)
{
    static int n;

    /* More than one turn of the loop takes. */
    for (int i = 0; i < 300; i++) {
        start("exit", 0, on_exit_count, &n, false);
    }
    ok(turn_until(&loop, &n, 300), "300 that end at once are all told");
    is_int((int)child_count(table), 0, "and forgotten");
}

static void test_kill(void)
{
    static const pid_t never[] = {0, -1, 1, -2, 4194303};
    struct seen s = {0};
    pid_t pid;

    for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
        is_int(child_kill(table, never[i], 0), -ESRCH, "kill(%d) is refused",
               never[i]);
        is_int(child_kill_group(table, never[i], 0), -ESRCH,
               "and of its group");
    }
    is_int(child_kill(table, getpid(), 0), -ESRCH, "ourselves, too");
    pid = start("wait", 0, on_exit_seen, &s, true);
    ok(child_is_known(table, pid), "a child is known");
    is_int(child_kill_group(table, pid, SIGTERM), 0, "and can be signalled");
    turn_until(&loop, &s.n, 1);
    is_int(s.how.signal, SIGTERM, "which arrives");
    ok(!child_is_known(table, pid), "then it is not known any more");
}

static void test_no_program(void)
{
    char *argv[] = {(char *)"x", NULL};
    struct child_spec spec = {.path = "/nonexistent/x", .argv = argv,
                              .envp = argv, .stdio = {-1, -1, -1}};
    struct error e = {0};
    pid_t pid = 77;

    if (tap_valgrind()) {
        skip("under valgrind it starts, and fails then");
        return;
    }
    is_int(child_spawn(table, &spec, NULL, NULL, &pid, &e), -ENOENT,
           "a missing program");
    like(e.text, "start /nonexistent/x", "is named");
    is_int(pid, 77, "and no pid is written");
    spec.path = tap_self();
    spec.cwd = "/proc/nonexistent";
    is_int(child_spawn(table, &spec, NULL, NULL, &pid, &e), -ENOENT,
           "a missing working directory");
    is_int((int)child_count(table), 0, "nothing is left in the table");
}

static void test_bad_spawns(void)
{
    char *argv[] = {(char *)"x", NULL};
    int bad_pass[] = {2};
    struct child_spec spec = {.path = tap_self(), .argv = argv, .envp = argv,
                              .stdio = {-1, 0, -1}};
    struct error e = {0};
    pid_t pid;

    is_int(child_spawn(table, &spec, NULL, NULL, &pid, &e), -EINVAL,
           "a descriptor that was replaced before");
    spec.stdio[1] = -1;
    spec.pass = bad_pass;
    spec.n_pass = 1;
    is_int(child_spawn(table, &spec, NULL, NULL, &pid, &e), -EINVAL,
           "stdio passed twice");
    is_int((int)child_count(table), 0, "nothing is left in the table");
}

static void test_descriptors(void)
{
    char *argv[] = {(char *)"x", (char *)"fds", NULL};
    char got[512], want[64];
    int p[2], leak[2], pass, bad = 0;
    struct child_spec spec = {.path = tap_self(), .argv = argv, .envp = environ,
                              .stdio = {-1, -1, 2}, .pass = &pass,
                              .n_pass = 1, .new_session = true};
    struct seen s = {0};
    ssize_t n;
    pid_t pid;

    bad += pipe2(p, O_CLOEXEC) + pipe2(leak, O_CLOEXEC);
    pass = fcntl(leak[1], F_DUPFD_CLOEXEC, 50);
    spec.stdio[1] = p[1];
    bad += child_spawn(table, &spec, on_exit_seen, &s, &pid, NULL);
    close(p[1]);
    turn_until(&loop, &s.n, 1);
    n = read(p[0], got, sizeof(got) - 1);
    got[n < 0 ? 0 : n] = '\0';
    is_int(bad, 0, "started with a pipe");
    ok(got[0] == '5' && strstr(got, "pipe:") && !strchr(got, ' '),
       "it has only the one that was passed: %s", got);
    snprintf(want, sizeof(want), "|0|1\n");
    like(got, want, "empty stdin, a session of its own");
    close(p[0]);
    close(leak[0]);
    close(leak[1]);
    close(pass);
}

static void test_mask(void)
{
    struct seen s = {0};
    sigset_t mask, old;

    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, &old);
    signal(SIGPIPE, SIG_IGN);
    start("mask", 0, on_exit_seen, &s, false);
    turn_until(&loop, &s.n, 1);
    is_int(s.how.code, 0, "no signal blocked or ignored in a child");
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static void *spawn_elsewhere(void *arg)
{
    char *argv[] = {(char *)"x", NULL};
    struct child_spec spec = {.path = tap_self(), .argv = argv, .envp = argv,
                              .stdio = {-1, -1, -1}};
    pid_t pid;

    *(int *)arg = child_spawn(table, &spec, NULL, NULL, &pid, NULL);
    return NULL;
}

static void test_thread(void)
{
    pthread_t thread;
    int rc = 0;

    pthread_create(&thread, NULL, spawn_elsewhere, &rc);
    pthread_join(thread, NULL);
    is_int(rc, -EPERM, "no spawning from another thread");
}

/* A child that ended before the table was made, with SIGCHLD blocked. */
static void test_before(void)
{
    struct seen s = {0};
    struct child_watch w = {on_exit_seen, &s, NULL};
    siginfo_t si;
    sigset_t chld;
    pid_t pid;

    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    pid = fork();
    if (pid == 0) {
        _exit(5);
    }
    waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT);
    if (child_table_create(&loop, &table, NULL) < 0) {
        bail_out("no table");
    }
    child_watch_add(table, &w);
    ok(turn_until(&loop, &s.n, 1), "a child from before the table is reaped");
    is_int(s.how.code, 5, "with its code");
    child_watch_remove(table, &w);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return act(argv[1], argc > 2 ? atoi(argv[2]) : 0);
    }
    /* Whoever started the test may have left descriptors open. */
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    uv_loop_init(&loop);
    test_before();
    test_codes();
    test_order();
    test_usage();
    test_signals();
    test_orphans();
    test_adoption();
    test_adopt_zombie();
    test_group_of_the_dead();
    test_start_from_callback();
    test_many();
    test_kill();
    test_no_program();
    test_bad_spawns();
    test_descriptors();
    test_mask();
    test_thread();
    child_table_destroy(table);
    uv_run(&loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&loop), 0, "nothing is left on the loop");
    return tap_done();
}
