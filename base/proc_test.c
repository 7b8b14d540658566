/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/proc.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void wait_forever(void)
{
    for (;;) {
        pause();
    }
}

static _Noreturn void be_chain(int depth, int ready)
{
    /* Every other one in a session of its own. */
    while (depth > 1 && fork() == 0) {
        if (--depth % 2) {
            setsid();
        }
    }
    if (write(ready, "x", 1) != 1) {
        _exit(1);
    }
    wait_forever();
}

static void read_n(int fd, int n)
{
    char c;

    for (int i = 0; i < n; i++) {
        if (read(fd, &c, 1) != 1) {
            bail_out("no word from the test's processes");
        }
    }
}

/* Reaps all children that end until none is left, sweeping meanwhile. Returns
 * how many were reaped, or -1 after 10 s. */
static int sweep_all(void)
{
    uint64_t until = clock_mono_ms() + 10000;
    int n = 0;

    while (clock_mono_ms() < until) {
        pid_t pid;

        proc_sweep(getpid(), NULL, NULL, NULL);
        pid = waitpid(-1, NULL, 0);
        while (pid > 0) {
            n++;
            pid = waitpid(-1, NULL, WNOHANG);
        }
        if (pid < 0 && errno == ECHILD) {
            return n;
        }
    }
    return -1;
}

static void test_read(void)
{
    struct proc p = {0};

    is_int(proc_read(getpid(), &p), 0, "ourselves");
    is_int(p.pid, getpid(), "pid");
    is_int(p.parent, getppid(), "parent");
    is_int(p.group, getpgrp(), "group");
    is_int(p.session, getsid(0), "session");
    is_int(p.state, 'R', "state");
    ok(p.start > 0, "start");
    is_int(proc_read(0, &p), -ESRCH, "pid 0");
    is_int(proc_read(-5, &p), -ESRCH, "a negative pid");
    is_int(proc_read(4194303, &p), -ESRCH, "nobody");
}

static void *burn(void *arg)
{
    const atomic_bool *end = arg;

    prctl(PR_SET_NAME, "burns");
    while (!atomic_load(end)) {
    }
    return NULL;
}

static void test_threads(void)
{
    uint64_t until = clock_mono_ms() + 60000, ticks = 0;
    atomic_bool end = false;
    pthread_t t;
    struct proc p;

    if (pthread_create(&t, NULL, burn, &end)) {
        bail_out("pthread_create");
    }
    while (ticks < 10 && clock_mono_ms() < until) {
        usleep(10000);
        ticks = proc_thread_ticks(getpid(), "burns");
    }
    ok(ticks >= 10, "what a thread of that name has used");
    is_int(proc_read(getpid(), &p), 0, "the process");
    ok(p.cpu_ticks + 2 >= ticks, "has used as much");
    is_int((intmax_t)proc_thread_ticks(getpid(), "burn"), 0, "no other name is meant");
    atomic_store(&end, true);
    pthread_join(t, NULL); /* returns before the kernel has quite forgotten it */
    while (proc_thread_ticks(getpid(), "burns") > 0 && clock_mono_ms() < until) {
        usleep(1000);
    }
    is_int((intmax_t)proc_thread_ticks(getpid(), "burns"), 0, "one that has ended is gone");
    is_int((intmax_t)proc_thread_ticks(4194303, "burns"), 0, "and nobody has none");
}

static void test_odd_names(void)
{
    static const char *const names[] = {"a b", "x) R 1 2 3", "((", "\n) Z 1"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct proc p = {0};
        pid_t pid;
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0) {
            bail_out("pipe");
        }
        pid = fork();
        if (pid == 0) {
            prctl(PR_SET_NAME, names[i]);
            if (write(fds[1], "x", 1) != 1) {
                _exit(1);
            }
            wait_forever();
        }
        read_n(fds[0], 1);
        is_int(proc_read(pid, &p), 0, "name %zu", i);
        is_str(p.name, names[i], "the name as it is");
        is_int(p.parent, getpid(), "and the fields after it");
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        close(fds[0]);
        close(fds[1]);
    }
}

static bool is_it(void *pid, pid_t other)
{
    return *(pid_t *)pid == other;
}

static void test_descendants(void)
{
    _proc_list_ struct proc_list l = {0};
    pid_t first, second;
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0) {
        bail_out("pipe");
    }
    if (fork() == 0) {
        be_chain(5, fds[1]);
    }
    read_n(fds[0], 5);
    is_int(proc_descendants(getpid(), &l, NULL), 0, "listed");
    is_int((int)l.n, 5, "all five, through sessions");
    for (size_t i = 1; i < l.n; i++) {
        is_int(l.items[i].parent, l.items[i - 1].pid, "parents come first");
    }
    first = l.items[0].pid;
    second = l.items[1].pid;
    l.n = 0;
    is_int(proc_descendants_but(getpid(), is_it, &second, &l, NULL), 0,
           "but one");
    is_int((int)l.n, 5, "who is no child is not asked about");
    l.n = 0;
    proc_descendants_but(getpid(), is_it, &first, &l, NULL);
    is_int((int)l.n, 0, "who is one is left out, with all below it");
    is_int(sweep_all(), 5, "swept and reaped");
    l.n = 0;
    proc_descendants(getpid(), &l, NULL);
    is_int((int)l.n, 0, "none is left");
    is_int(proc_sweep(getpid(), NULL, NULL, NULL), 0, "nothing to sweep");
    close(fds[0]);
    close(fds[1]);
}

/* The one picked and what is below it goes; its brother stays. */
/* A process that has left its session, and all of whose parents have ended. */
static pid_t make_daemon(void)
{
    int ends[2];
    pid_t pid = 0;

    if (pipe(ends) < 0) {
        bail_out("pipe");
    }
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            pid = getpid();
            if (write(ends[1], &pid, sizeof(pid)) != sizeof(pid)) {
                _exit(1);
            }
            wait_forever();
        }
        _exit(0);
    }
    wait(NULL);
    if (read(ends[0], &pid, sizeof(pid)) != sizeof(pid)) {
        bail_out("no word from the test's processes");
    }
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void test_below(void)
{
    pid_t child = fork(), other, daemon;

    if (child == 0) {
        wait_forever();
    }
    other = fork();
    if (other == 0) {
        wait_forever();
    }
    daemon = make_daemon();
    is_int(proc_is_below(getpid(), getpid()), 1, "a process and itself");
    is_int(proc_is_below(child, getpid()), 1, "a child");
    is_int(proc_is_below(child, getppid()), 1, "a grandchild");
    is_int(proc_is_below(daemon, getpid()), 1, "one that has left all but this "
           "subreaper");
    is_int(proc_is_below(getpid(), child), 0, "not its child");
    is_int(proc_is_below(child, other), 0, "nor a sibling");
    is_int(proc_is_below(1, getpid()), 0, "nor the first of all");
    kill(child, SIGKILL);
    kill(other, SIGKILL);
    kill(daemon, SIGKILL);
    while (wait(NULL) > 0) {
    }
    is_int(proc_is_below(child, getpid()), -ESRCH, "one that has gone is below "
           "nobody");
}

static bool pick_pid(void *arg, const struct proc *p)
{
    return p->pid == *(pid_t *)arg;
}

static void test_pick(void)
{
    pid_t picked, other;
    int fds[2], status;

    if (pipe2(fds, O_CLOEXEC) < 0) {
        bail_out("pipe");
    }
    picked = fork();
    if (picked == 0) {
        be_chain(3, fds[1]);
    }
    other = fork();
    if (other == 0) {
        be_chain(1, fds[1]);
    }
    read_n(fds[0], 4);
    is_int(proc_sweep(getpid(), pick_pid, &picked, NULL), 3,
           "the picked one and the two below it");
    is_int(waitpid(picked, &status, 0), picked, "it ends");
    is_int(waitpid(other, &status, WNOHANG), 0, "its brother lives");
    is_int(sweep_all(), 3, "the rest");
    close(fds[0]);
    close(fds[1]);
}

static void test_identity(void)
{
    struct proc p;
    pid_t pid = fork();

    if (pid == 0) {
        wait_forever();
    }
    proc_read(pid, &p);
    p.start++;
    is_int(proc_signal(&p, SIGKILL), -ESRCH, "not one that has the pid since");
    is_int(waitpid(pid, NULL, WNOHANG), 0, "which lives");
    p.start--;
    is_int(proc_signal(&p, SIGKILL), 0, "the right one");
    is_int(waitpid(pid, NULL, 0), pid, "which ends");
    is_int(proc_signal(&p, SIGKILL), -ESRCH, "nobody any more");
    p.pid = -1;
    is_int(proc_signal(&p, 0), -ESRCH, "never everybody");
    p.pid = 0;
    is_int(proc_signal(&p, 0), -ESRCH, "never our own group");
}

/* --- a pid that another process has by now, in a space of pids of our own --- */

static bool become_first(void)
{
    pid_t pid;
    int status;

    if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 ||
        mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0) {
        return false;
    }
    pid = fork();
    if (pid > 0) {
        waitpid(pid, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    return pid == 0 && mount("proc", "/proc", "proc", 0, NULL) == 0;
}

/* The next process gets `pid`. */
static bool ask_for(pid_t pid)
{
    FILE *f = fopen("/proc/sys/kernel/ns_last_pid", "we");

    return f && fprintf(f, "%d", (int)pid - 1) > 0 && fclose(f) == 0;
}

static pid_t start_one(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        wait_forever();
    }
    return pid;
}

static void end_one(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* 0: as it should be; 1: it was hit; 2: there can be no such pid here. */
static int reuse_pid(void)
{
    struct proc was = {0}, now = {0};
    pid_t pid;
    bool spared;

    if (!become_first() || proc_read(pid = start_one(), &was) < 0) {
        return 2;
    }
    /* Starts are told in ticks: two of the same tick are the same one, for us. */
    do {
        end_one(pid);
        if (!ask_for(pid) || start_one() != pid || proc_read(pid, &now) < 0) {
            return 2;
        }
    } while (now.start == was.start);
    spared = proc_signal(&was, SIGKILL) == -ESRCH;
    spared = spared && waitpid(pid, NULL, WNOHANG) == 0;
    end_one(pid);
    return spared ? 0 : 1;
}

static void test_reused(void)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        _exit(reuse_pid());
    }
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
        skip("no space of pids of our own here (not root?)");
        return;
    }
    is_int(status, 0, "a process that has the pid by now is not signalled");
}

static void test_wait_name(void)
{
    char name[64] = "x";
    pid_t pid = fork();

    if (pid == 0) {
        wait_forever();
    }
    proc_wait_name(pid, name, sizeof(name));
    ok(strspn(name, "abcdefghijklmnopqrstuvwxyz_.0123456789") == strlen(name),
       "where a process waits: '%s'", name);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    proc_wait_name(pid, name, sizeof(name));
    is_str(name, "", "one that has ended waits nowhere");
    proc_wait_name(-1, name, sizeof(name));
    is_str(name, "", "nor does none");
}

static void *wait_in_thread(void *arg)
{
    (void)arg;
    wait_forever();
}

/* A process whose first thread has ended shows as a zombie, and is none. */
static void test_dead_leader(void)
{
    _proc_list_ struct proc_list l = {0};
    uint64_t until = clock_mono_ms() + 10000;
    pid_t pid = fork();
    struct proc p = {0};

    if (pid == 0) {
        pthread_t t;

        pthread_create(&t, NULL, wait_in_thread, NULL);
        pthread_exit(NULL);
    }
    while (p.state != 'Z' && clock_mono_ms() < until) {
        proc_read(pid, &p);
    }
    is_int(p.state, 'Z', "its state");
    proc_descendants(getpid(), &l, NULL);
    is_int((int)l.n, 1, "still listed");
    is_int(sweep_all(), 1, "and swept");
}

/* One that runs away: a process that starts its successor and ends, some
 * thousand times a second, each in a session of its own. */
static _Noreturn void run_away(void)
{
    for (int i = 0; i < 20000; i++) {
        setsid();
        usleep(300);
        if (fork() != 0) {
            _exit(0);
        }
    }
    wait_forever();
}

static void test_moving_targets(void)
{
    int fds[2], n;

    if (pipe2(fds, O_CLOEXEC) < 0) {
        bail_out("pipe");
    }
    if (fork() == 0) {
        for (int i = 0; i < 50; i++) {
            if (fork() == 0) {
                be_chain(1, fds[1]);
            }
        }
        run_away();
    }
    read_n(fds[0], 50);
    n = sweep_all();
    ok(n > 50, "a tree that forks meanwhile is gone (%d reaped)", n);
    close(fds[0]);
    close(fds[1]);
}

static void test_inventory(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char want[32];
    _free_ char *all = proc_fd_inventory();

    snprintf(want, sizeof(want), "%d:/dev/null", fd);
    like(all, want, "an open descriptor");
    close(fd);
}

/* A leader with a child in a group of its own, whose pid comes back. */
static pid_t start_session(int stop, pid_t *ret_child)
{
    int ready[2];
    pid_t leader;

    if (pipe(ready) < 0 || (leader = fork()) < 0) {
        bail_out("no process");
    }
    if (leader == 0) {
        pid_t child;
        char byte;

        setsid();
        child = fork();
        if (child == 0) {
            setpgid(0, 0);
            child = getpid();
            if (write(ready[1], &child, sizeof(child)) != sizeof(child)) {
                _exit(1);
            }
            wait_forever();
        }
        _exit(read(stop, &byte, 1) < 0);
    }
    if (read(ready[0], ret_child, sizeof(*ret_child)) != sizeof(*ret_child)) {
        bail_out("no child");
    }
    close(ready[0]);
    close(ready[1]);
    return leader;
}

static void test_end_session(void)
{
    int stop[2], status = 0;
    pid_t leader, child;

    if (pipe2(stop, O_CLOEXEC) < 0) {
        bail_out("pipe");
    }
    leader = start_session(stop[0], &child);
    is_int(proc_end_session(leader, NULL), 0, "a leader that is alive keeps it");
    kill(leader, SIGKILL);
    waitpid(leader, NULL, 0);
    ok(kill(child, 0) == 0, "what it has started outlives it");
    is_int(proc_end_session(leader, NULL), 1, "until the session is ended");
    is_int(waitpid(child, &status, 0), child, "it is gone");
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "killed");
    is_int(proc_end_session(leader, NULL), 0, "nobody is left");
    is_int(proc_end_session(1, NULL), -EINVAL, "never that of init");
    close(stop[0]);
    close(stop[1]);
}

static void test_killed(void)
{
    siginfo_t info;
    pid_t pid = fork();

    if (pid == 0) {
        wait_forever();
    }
    kill(pid, SIGSTOP);
    ok(!proc_is_killed(pid), "a stopped process is not killed");
    kill(pid, SIGKILL);
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    ok(proc_is_killed(pid), "one that SIGKILL was sent to is");
    waitpid(pid, NULL, 0);
    ok(!proc_is_killed(pid) && !proc_is_killed(0) && !proc_is_killed(getpid()),
       "nobody else is");
}

int main(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    test_read();
    test_threads();
    test_odd_names();
    test_descendants();
    test_below();
    test_pick();
    test_identity();
    test_reused();
    test_wait_name();
    test_dead_leader();
    test_moving_targets();
    test_inventory();
    test_end_session();
    test_killed();
    return tap_done();
}
