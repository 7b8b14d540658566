/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One that is silent is made with a FIFO where the environment of a process of ours
 * would be: who opens or reads it waits, as for a process in the middle of an exec.
 */
#include <config.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/proc_env.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_MS = 60000 };

static _Noreturn void wait_forever(void)
{
    for (;;) {
        pause();
    }
}

static struct proc proc_of(pid_t pid)
{
    struct proc p = {.pid = pid};

    proc_read(pid, &p);
    return p;
}

/* Asks again whom it had no time for, on a machine that has other things to do. */
static enum proc_env_answer insist(struct proc_env *a, const struct proc *p,
                                   const char *entry)
{
    uint64_t until = clock_mono_ms() + WAIT_MS;
    enum proc_env_answer answer;

    do {
        answer = proc_env_ask(a, p, entry);
    } while (answer == PROC_ENV_SILENT && clock_mono_ms() < until);
    return answer;
}

static enum proc_env_answer ask(pid_t pid, const char *entry)
{
    _proc_env_ struct proc_env a = {0};
    struct proc p = proc_of(pid);

    return insist(&a, &p, entry);
}

static bool has_env(pid_t pid, const char *entry)
{
    return ask(pid, entry) == PROC_ENV_HAS;
}

static bool has_no_env(pid_t pid)
{
    return ask(pid, "") == PROC_ENV_NONE;
}

static int sweep_all(struct proc_env *a, const char *entry, int want)
{
    uint64_t until = clock_mono_ms() + WAIT_MS;
    int n;

    do {
        n = proc_sweep_env(a, entry, NULL);
    } while (n == 0 && want && clock_mono_ms() < until);
    return n;
}

static int sweep(const char *entry, int want)
{
    _proc_env_ struct proc_env a = {0};

    return sweep_all(&a, entry, want);
}

static int list(const char *entry, struct proc_list *l)
{
    _proc_env_ struct proc_env a = {0};
    bool any_silent = true;
    int rc = 0;

    for (int i = 0; i < 5 && rc == 0 && any_silent; i++) {
        l->n = 0;
        rc = proc_env_list(&a, entry, l, &any_silent, NULL);
    }
    return rc;
}

static void reap_all(void)
{
    while (waitpid(-1, NULL, 0) > 0) {
    }
}

/* --- processes that answer --- */

static void test_env(void)
{
    char entry[64];
    _proc_list_ struct proc_list l = {0};
    char *argv[] = {(char *)"sleep", (char *)"1000", NULL};
    char *envp[] = {(char *)"A=1", entry, (char *)"B=2", NULL};
    uint64_t until = clock_mono_ms() + WAIT_MS;
    pid_t pid;

    snprintf(entry, sizeof(entry), "MUSTER_TEST_TAG=%d", getpid());
    pid = fork();
    if (pid == 0) {
        execve("/bin/sleep", argv, envp);
        _exit(1);
    }
    while (!has_env(pid, entry) && clock_mono_ms() < until) {
        usleep(1000);
    }
    ok(has_env(pid, entry), "an entry");
    ok(has_env(pid, "A=1") && has_env(pid, "B=2"), "first and last");
    ok(!has_env(pid, "A=") && !has_env(pid, "=1") &&
           !has_env(pid, "A=12"), "but no part of one");
    ok(!has_env(4194303, entry), "nobody has none");
    is_int(list(entry, &l), 0, "listed");
    is_int((int)l.n, 1, "one");
    is_int(l.n ? l.items[0].pid : 0, pid, "the right one");
    is_int(sweep(entry, 1), 1, "swept");
    waitpid(pid, NULL, 0);
    is_int(sweep(entry, 0), 0, "gone");
}

/* Its memory is gone, and it is not: as while it still closes its files. */
static void test_env_of_the_dying(void)
{
    siginfo_t si;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(0);
    }
    ok(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT) == 0, "one that ended");
    ok(has_no_env(pid), "has no environment to be seen");
    ok(!has_no_env(getpid()), "as one that lives has");
    waitpid(pid, NULL, 0);
    ok(!has_no_env(pid), "nobody has none");
}

/* One that is stopped is swept like any other, with what is below it. */
static void test_sweep_stopped(void)
{
    char entry[64];
    char *argv[] = {(char *)"sh", (char *)"-c",
                    (char *)"sleep 1000 & kill -STOP $$ $!; wait", NULL};
    char *envp[] = {entry, NULL};
    int status = 0;
    pid_t pid;

    snprintf(entry, sizeof(entry), "MUSTER_TEST_STOPPED=%d", getpid());
    pid = fork();
    if (pid == 0) {
        execve("/bin/sh", argv, envp);
        _exit(1);
    }
    is_int(waitpid(pid, &status, WUNTRACED), pid, "a process");
    ok(WIFSTOPPED(status), "that is stopped");
    is_int(sweep(entry, 2), 2, "is swept, with its child");
    reap_all();
    is_int(sweep(entry, 0), 0, "nobody is left");
}

/* The one that sweeps has the entry as well, and so has its parent. */
static int act(const char *verb, const char *entry)
{
    int status = 1;
    pid_t pid = fork();

    if (strcmp(verb, "above") == 0) {
        if (pid == 0) {
            execl(tap_self(), "proc_env_test", "sweep", entry, NULL);
            _exit(1);
        }
        waitpid(pid, &status, 0);
        return status == 0 ? 0 : 1;
    }
    if (pid == 0) {
        wait_forever();
    }
    return sweep(entry, 1) == 1 ? 0 : 1;
}

static void test_sweep_spares_itself(void)
{
    char entry[64];
    int status = 1;
    pid_t pid;

    snprintf(entry, sizeof(entry), "MUSTER_TEST_ABOVE=%d", getpid());
    pid = fork();
    if (pid == 0) {
        putenv(entry);
        execl(tap_self(), "proc_env_test", "above", entry, NULL);
        _exit(1);
    }
    waitpid(pid, &status, 0);
    is_int(status, 0, "a sweep takes its brother, not itself nor its parent");
    sweep(entry, 0);
    reap_all();
}

static void test_other_user(void)
{
    char entry[64];
    _proc_list_ struct proc_list l = {0};
    char *argv[] = {(char *)"sleep", (char *)"1000", NULL};
    char *envp[] = {entry, NULL};
    uint64_t until = clock_mono_ms() + WAIT_MS;
    pid_t pid;

    if (geteuid() != 0) {
        skip("only root can start a process of another user");
        return;
    }
    snprintf(entry, sizeof(entry), "MUSTER_TEST_OTHER=%d", getpid());
    pid = fork();
    if (pid == 0) {
        if (setuid(65534) == 0) {
            execve("/bin/sleep", argv, envp);
        }
        _exit(1);
    }
    while (!has_env(pid, entry) && clock_mono_ms() < until) {
        usleep(1000);
    }
    ok(has_env(pid, entry), "a process of another user");
    list(entry, &l);
    is_int((int)l.n, 0, "is none of ours");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void *wait_in_thread(void *arg)
{
    (void)arg;
    wait_forever();
}

/* A process whose first thread has ended is known by what the others have. */
static void test_env_of_others(void)
{
    uint64_t until = clock_mono_ms() + WAIT_MS;
    pid_t pid = fork();
    char entry[PATH_MAX + 8];

    snprintf(entry, sizeof(entry), "PATH=%s", getenv("PATH"));
    if (pid == 0) {
        pthread_t t;

        pthread_create(&t, NULL, wait_in_thread, NULL);
        pthread_exit(NULL);
    }
    while (proc_of(pid).state != 'Z' && clock_mono_ms() < until) {
        usleep(1000);
    }
    ok(has_env(pid, entry) && !has_no_env(pid), "known without its first thread");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* --- processes that do not --- */

static const char mark[] = "MUSTER_TEST_MARK=1";

/* What is there instead of /proc, and what the asker says. */
struct place {
    char root[64];
    struct proc_env env;
    pid_t told[64];
    size_t n_told;
};

static void on_silent(void *arg, const struct proc *p)
{
    struct place *at = arg;

    if (at->n_told < ARRAY_SIZE(at->told)) {
        at->told[at->n_told++] = p->pid;
    }
}

/* How often. */
static int told(const struct place *at, pid_t pid)
{
    int n = 0;

    for (size_t i = 0; i < at->n_told; i++) {
        n += at->told[i] == pid;
    }
    return n;
}

static void open_place(struct place *at)
{
    *at = (struct place){.root = "/tmp/proc-env-test.XXXXXX"};
    if (!mkdtemp(at->root)) {
        bail_out("no temporary directory");
    }
    at->env = (struct proc_env){.on_silent = on_silent, .arg = at,
                                .root = at->root};
}

static void close_place(struct place *at)
{
    proc_env_release(&at->env);
    fs_remove_tree(at->root, NULL);
}

static void env_path(char *to, const char *root, pid_t pid)
{
    snprintf(to, PATH_MAX, "%s/%d", root, (int)pid);
    mkdir(to, 0700);
    snprintf(to, PATH_MAX, "%s/%d/task", root, (int)pid);
    mkdir(to, 0700);
    snprintf(to, PATH_MAX, "%s/%d/task/%d", root, (int)pid, (int)pid);
    mkdir(to, 0700);
    snprintf(to, PATH_MAX, "%s/%d/task/%d/environ", root, (int)pid, (int)pid);
}

static void put_env(const char *root, pid_t pid, const char *text)
{
    char path[PATH_MAX];

    env_path(path, root, pid);
    if (fs_write_replace(path, text, strlen(text) + 1, NULL) < 0) {
        bail_out("cannot write %s", path);
    }
}

/* From now on its environment can be asked for, and does not come. */
static void put_fifo(const char *root, pid_t pid)
{
    char path[PATH_MAX];

    env_path(path, root, pid);
    unlink(path);
    if (mkfifo(path, 0600) < 0) {
        bail_out("cannot make %s", path);
    }
}

/* The other end of the FIFO, when there is a reader, who goes on waiting: for what
 * is written to it. */
static int catch_reader(const char *root, pid_t pid)
{
    uint64_t until = clock_mono_ms() + WAIT_MS;
    char path[PATH_MAX];
    int fd = -1;

    env_path(path, root, pid);
    while (fd < 0 && clock_mono_ms() < until) {
        fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        usleep(1000);
    }
    if (fd < 0) {
        bail_out("nobody reads %s", path);
    }
    return fd;
}

static void answer(int *fd)
{
    if (write(*fd, mark, sizeof(mark)) != sizeof(mark)) {
        bail_out("nobody reads any more");
    }
    close(*fd);
    *fd = -1;
}

static pid_t start_waiting(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        wait_forever();
    }
    return pid;
}

static void end_waiting(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int count_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    while (d && readdir(d)) {
        n++;
    }
    closedir(d);
    return n;
}

static bool threads_come_to(int n)
{
    uint64_t until = clock_mono_ms() + WAIT_MS;

    while (count_threads() != n && clock_mono_ms() < until) {
        usleep(1000);
    }
    return count_threads() == n;
}

/* How many have the mark, insisting as above. */
static size_t count_marked(struct place *at, size_t want, pid_t *ret_last,
                           bool *ret_any_silent)
{
    uint64_t until = clock_mono_ms() + WAIT_MS;
    size_t n = 0;

    do {
        _proc_list_ struct proc_list l = {0};

        proc_env_list(&at->env, mark, &l, ret_any_silent, NULL);
        n = l.n;
        *ret_last = n ? l.items[n - 1].pid : 0;
    } while (n != want && clock_mono_ms() < until);
    return n;
}

static void test_silent(void)
{
    pid_t silent = start_waiting(), ours = start_waiting(), last;
    struct proc p = proc_of(silent);
    int n_threads = count_threads(), fd;
    bool any = false;
    struct place at;

    open_place(&at);
    put_fifo(at.root, silent);
    put_env(at.root, ours, mark);
    is_int((int)count_marked(&at, 1, &last, &any), 1, "who answers is found");
    is_int(last, ours, "beside one that is silent");
    ok(any, "which is known");
    fd = catch_reader(at.root, silent);
    is_int(told(&at, silent), 1, "and told");
    is_int(proc_env_ask(&at.env, &p, mark), PROC_ENV_SILENT, "it stays silent");
    put_env(at.root, silent, mark);
    is_int(proc_env_ask(&at.env, &p, mark), PROC_ENV_SILENT,
           "and is not asked while somebody waits for its answer");
    is_int(told(&at, silent), 1, "nor told again");
    p.start++;
    is_int(insist(&at.env, &p, mark), PROC_ENV_HAS,
           "another process of that pid is");
    p.start--;
    ok(threads_come_to(n_threads + 1), "one thread waits");
    answer(&fd);
    ok(threads_come_to(n_threads), "until there is an answer");
    is_int(insist(&at.env, &p, mark), PROC_ENV_HAS, "then it is asked again");
    close_place(&at);
    end_waiting(silent);
    end_waiting(ours);
}

static void test_many_silent(void)
{
    struct place at;
    pid_t pids[3], ours = start_waiting(), last;
    bool any;
    int n_threads = count_threads(), fds[3];

    open_place(&at);
    put_env(at.root, ours, mark);
    for (int i = 0; i < 3; i++) {
        pids[i] = start_waiting();
        put_fifo(at.root, pids[i]);
    }
    is_int((int)count_marked(&at, 1, &last, &any), 1, "three are silent, one not");
    for (int i = 0; i < 3; i++) {
        fds[i] = catch_reader(at.root, pids[i]);
        is_int(told(&at, pids[i]), 1, "each is told once");
    }
    close_place(&at);
    for (int i = 0; i < 3; i++) {
        answer(&fds[i]);
        end_waiting(pids[i]);
    }
    ok(threads_come_to(n_threads), "who asked may be gone when they answer");
    end_waiting(ours);
}

/* A silent stranger, and one of ours with a silent child. */
static void test_sweep_silent(void)
{
    pid_t stranger = start_waiting(), ours, child, last;
    int ends[2], status = 0;
    struct place at;
    bool any;

    if (pipe2(ends, O_CLOEXEC) < 0) {
        bail_out("pipe");
    }
    ours = fork();
    if (ours == 0) {
        child = start_waiting();
        if (write(ends[1], &child, sizeof(child)) != sizeof(child)) {
            _exit(1);
        }
        wait_forever();
    }
    if (read(ends[0], &child, sizeof(child)) != sizeof(child)) {
        bail_out("no child");
    }
    open_place(&at);
    put_env(at.root, ours, mark);
    put_fifo(at.root, child);
    put_fifo(at.root, stranger);
    count_marked(&at, 1, &last, &any);
    is_int(sweep_all(&at.env, mark, 2), 2,
           "one that is silent is swept with its parent");
    is_int(waitpid(ours, &status, 0), ours, "one is gone");
    is_int(waitpid(child, &status, 0), child, "the other too");
    is_int(waitpid(stranger, &status, WNOHANG | WUNTRACED), 0,
           "a stranger that is silent is neither stopped nor killed");
    close_place(&at);
    end_waiting(stranger);
    close(ends[0]);
    close(ends[1]);
}

/* --- a process with a thread that waits --- */

static void be_left_with(const char *root)
{
    struct proc self = proc_of(getpid());
    _proc_env_ struct proc_env a = {.root = root};

    put_fifo(root, self.pid);
    if (proc_env_ask(&a, &self, mark) != PROC_ENV_SILENT) {
        _exit(1);
    }
    /* Kept open, so that the reader goes on waiting. */
    catch_reader(root, self.pid);
}

static int start_others(void)
{
    char *argv[] = {(char *)"true", NULL};
    int status = 1;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0 ||
        posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) != 0 ||
        waitpid(pid, &status, 0) != pid) {
        return 1;
    }
    return status;
}

static int act_left(const char *verb, const char *root)
{
    be_left_with(root);
    if (strcmp(verb, "exec") == 0) {
        execl("/bin/true", "true", NULL);
        return 1;
    }
    return strcmp(verb, "start") == 0 ? start_others() : 0;
}

static void test_nobody_is_held_up(void)
{
    static const struct { const char *verb, *what; } cases[] = {
        {"exit", "a process can end while a thread of it waits"},
        {"exec", "and become another"},
        {"start", "and start others"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct place at;
        int status = 1;
        pid_t pid;

        open_place(&at);
        pid = fork();
        if (pid == 0) {
            execl(tap_self(), "proc_env_test", cases[i].verb, at.root, NULL);
            _exit(1);
        }
        waitpid(pid, &status, 0);
        is_int(status, 0, "%s", cases[i].what);
        close_place(&at);
    }
}

static void test_word(void)
{
    struct proc p = {.pid = 7, .state = 'D', .name = "python3"};
    char text[256], small[8];

    proc_env_word(&p, text, sizeof(text));
    like(text, "process 7 (python3)", "who is silent");
    like(text, "(state D)", "and how it looks");
    ok(strlen(text) < sizeof(text) - 32, "there is room for it");
    proc_env_word(&p, small, sizeof(small));
    is_str(small, "process", "it is cut to what there is");
}

int main(int argc, char **argv)
{
    /* Where somebody is waited for after all, this says so. */
    alarm(240);
    if (argc == 3 && (strcmp(argv[1], "above") == 0 ||
                      strcmp(argv[1], "sweep") == 0)) {
        return act(argv[1], argv[2]);
    }
    if (argc == 3) {
        return act_left(argv[1], argv[2]);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    test_env();
    test_env_of_the_dying();
    test_env_of_others();
    test_sweep_stopped();
    test_sweep_spares_itself();
    test_other_user();
    test_silent();
    test_many_silent();
    test_sweep_silent();
    test_nobody_is_held_up();
    test_word();
    return tap_done();
}
