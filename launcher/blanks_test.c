/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blanks: what they have while they wait, what they become, and those that are gone
 * when they are needed. A worker made of one is compared with one that was started
 * plainly. launcher/workers_test.c has sets of workers of them.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/proc.h"
#include "base/turn_bed.h"
#include "launcher/blanks.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static uv_loop_t loop;
static struct child_table *table;
static char exec_path[PATH_MAX];
static struct error e;

static void on_tick(uv_timer_t *t)
{
    (void)t;
}

static bool turn_until_waiting(const struct blanks *b, unsigned n)
{
    uv_timer_t tick;
    int i;

    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 5, 5);
    for (i = 0; i < 4000 && blanks_waiting(b) != n; i++) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    return blanks_waiting(b) == n;
}

static struct blanks *make(unsigned n)
{
    static char *const envp[] = {(char *)"BLANK_MARK=1", NULL};
    struct blanks_config config = {.loop = &loop, .children = table,
                                   .exec_path = exec_path, .envp = envp,
                                   .first_ms = 1, .pace_ms = 1};
    struct blanks *b = NULL;

    if (blanks_create(&config, &b, &e) < 0) {
        bail_out("%s", e.text);
    }
    blanks_fill(b, n);
    if (!turn_until_waiting(b, n)) {
        bail_out("%u of %u blanks", blanks_waiting(b), n);
    }
    return b;
}

static void finish(struct blanks *b)
{
    blanks_destroy(b);
    uv_run(&loop, UV_RUN_DEFAULT);
    is_int((int)child_count(table), 0, "nobody is left");
}

/* --- a worker, of a blank or plain --- */

struct worker {
    int out[2], status[2], gate[2];
    struct exec_options o;
    pid_t pid;
    int ended; /* 1 + status, or 1001 + signal */
};

static void on_exit_seen(void *arg, const struct child_exit *how)
{
    ((struct worker *)arg)->ended =
        1 + (how->signal ? 1000 + how->signal : how->code);
}

static void open_worker(struct worker *w, const char *cwd)
{
    memset(w, 0, sizeof(*w));
    w->pid = -1;
    if (pipe2(w->out, O_CLOEXEC) < 0 || pipe2(w->status, O_CLOEXEC) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, w->gate) < 0) {
        bail_out("no pipes");
    }
    w->o = (struct exec_options){
        .id = 3, .cwd = cwd, .oom_score_adj = 300, .core = "4096",
        .status_fd = w->status[1], .gate_fd = w->gate[1]};
}

static void close_worker(struct worker *w)
{
    for (int i = 0; i < 2; i++) {
        close_fd(&w->out[i]);
        close_fd(&w->status[i]);
        close_fd(&w->gate[i]);
    }
}

static int tell(struct blanks *b, struct worker *w, char *const *argv,
                char *const *envp)
{
    struct blank_job job = {.o = &w->o, .argv = argv, .envp = envp,
                            .out_fd = w->out[1], .err_fd = w->out[1]};

    return blanks_start(b, &job, on_exit_seen, w, &w->pid, &e);
}

static void start_plain(struct worker *w, char *const *argv,
                        char *const *envp)
{
    const int pass[] = {w->status[1], w->gate[1]};
    _strlist_ struct strlist line = {0};
    struct child_spec spec = {.path = exec_path, .envp = envp,
                              .stdio = {-1, w->out[1], w->out[1]},
                              .pass = pass, .n_pass = 2, .new_session = true};

    exec_argv(&line, &w->o, argv);
    spec.argv = line.items;
    if (child_spawn(table, &spec, on_exit_seen, w, &w->pid, &e) < 0) {
        bail_out("%s", e.text);
    }
}

/* Lets it go, waits for its end, and returns what it has printed. */
static char *hear(struct worker *w)
{
    _buf_ struct buf said = {0};
    ssize_t n;

    if (write(w->gate[0], "g", 1) != 1) {
        bail_out("the gate is closed");
    }
    close_fd(&w->gate[0]);
    close_fd(&w->gate[1]);
    close_fd(&w->status[1]);
    close_fd(&w->out[1]);
    while ((n = read(w->out[0], buf_reserve(&said, 4096), 4096)) > 0) {
        said.len += (size_t)n;
    }
    turn_until(&loop, &w->ended, 1);
    close_worker(w);
    buf_append(&said, "", 1);
    return buf_take(&said);
}

/* --- what a worker sees of itself: main() with --tell --- */

static void tell_limits(void)
{
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit l;

        getrlimit((__rlimit_resource_t)i, &l);
        printf("limit %d %llx %llx\n", i, (unsigned long long)l.rlim_cur,
               (unsigned long long)l.rlim_max);
    }
}

static void tell_file(const char *path, const char *only)
{
    char line[4096];
    FILE *f = fopen(path, "re");

    while (f && fgets(line, sizeof(line), f)) {
        if (!only || strstr(line, only)) {
            printf("%s: %s", path, line);
        }
    }
    if (f) {
        fclose(f);
    }
}

static void tell_signals(void)
{
    static const char *const lines[] = {"SigBlk", "SigIgn", "SigCgt", "Umask",
                                        "NoNewPrivs", "Cpus_allowed:",
                                        "Mems_allowed:", "Seccomp"};

    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        tell_file("/proc/self/status", lines[i]);
    }
}

/* All but numbers that differ from process to process. */
static int be_told(int argc, char **argv)
{
    char path[PATH_MAX] = "?";
    int death = 0;
    struct stat st;

    for (int i = 1; i < argc; i++) {
        printf("arg %s\n", argv[i]);
    }
    for (char **v = environ; *v; v++) {
        printf("env %s\n", *v);
    }
    prctl(PR_GET_PDEATHSIG, &death);
    printf("cwd %s\n", getcwd(path, sizeof(path)) ? path : "?");
    printf("session %d group %d parent %d death %d\n", getsid(0) == getpid(),
           getpgrp() == getpid(), getppid(), death);
    printf("nice %d umask %o\n", getpriority(PRIO_PROCESS, 0), umask(0));
    tell_limits();
    tell_signals();
    tell_file("/proc/self/oom_score_adj", NULL);
    tell_file("/proc/self/cgroup", NULL);
    for (int fd = 0; fd < 4096; fd++) {
        if (fstat(fd, &st) == 0) {
            ssize_t n;
            char name[32];

            snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
            n = readlink(name, path, sizeof(path) - 1);
            path[n < 0 ? 0 : n] = '\0';
            printf("fd %d %s %o\n", fd,
                   S_ISFIFO(st.st_mode) ? "a pipe" : path, st.st_mode);
        }
    }
    return 7;
}

static void test_alike(void)
{
    char long_[70000], self[PATH_MAX];
    char *argv[] = {self, (char *)"--tell", (char *)"", (char *)"a b", long_,
                    NULL};
    char *envp[] = {(char *)"PATH=/usr/bin", (char *)"EMPTY=", (char *)"A=b=c",
                    (char *)"LINES=1\n2", NULL};
    _free_ char *of_blank = NULL, *plain = NULL;
    struct worker one, other;
    void *lost[BLANKS_MAX];
    struct blanks *b = make(1);

    str_copy(self, sizeof(self), tap_self());
    memset(long_, 'x', sizeof(long_) - 1); /* more than a message holds */
    long_[sizeof(long_) - 1] = '\0';
    open_worker(&one, "/usr");
    is_int(tell(b, &one, argv, envp), 0, "a blank becomes a worker");
    ok(child_is_known(table, one.pid), "which is our child");
    is_int((int)blanks_settle(b, lost), 0, "and has understood");
    is_int((int)blanks_waiting(b), 0, "it waits no more");
    of_blank = hear(&one);
    is_int(one.ended, 8, "its status is its own");
    open_worker(&other, "/usr");
    start_plain(&other, argv, envp);
    plain = hear(&other);
    is_int(other.ended, 8, "one that was started plainly");
    like(plain, "cwd /usr\nsession 1 group 1 parent", "tells all of itself");
    is_str(of_blank, plain, "and is the same in everything");
    finish(b);
}

/* --- while it waits --- */

static pid_t only_child(void)
{
    _proc_list_ struct proc_list l = {0};

    proc_descendants(getpid(), &l, NULL);
    return l.n == 1 ? l.items[0].pid : -1;
}

static int count_fds(pid_t pid)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        char path[64], to[64];

        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
        n += readlink(path, to, sizeof(to)) > 0;
    }
    return n;
}

static void settle_down(pid_t pid)
{
    struct proc p = {0};

    for (int i = 0; i < 5000; i++) {
        if (proc_read(pid, &p) == 0 && p.state == 'S' && count_fds(pid) == 4) {
            return;
        }
        usleep(1000);
    }
}

static void test_waiting(void)
{
    struct blanks *b;
    char path[64];
    _free_ char *env = NULL;
    size_t len = 0;
    struct proc p = {0};
    int leak = dup(0); /* without close-on-exec */
    pid_t pid;

    b = make(1);
    close(leak);
    pid = only_child();
    settle_down(pid);
    proc_read(pid, &p);
    is_int(p.session, pid, "it is in a session of its own");
    is_int(count_fds(pid), 4, "it has its socket, and /dev/null three times");
    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    fs_read(path, 1000, &env, &len, NULL);
    is_str(env, "BLANK_MARK=1", "of the environment what it is found by");
    is_int((int)len, 13, "and nothing else");
    finish(b);
}

static void test_number(void)
{
    struct blanks *b = make(5);

    blanks_fill(b, 2);
    is_int((int)blanks_waiting(b), 2, "too many are too many at once");
    blanks_fill(b, 4);
    blanks_rest(b);
    for (int i = 0; i < 20; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    is_int((int)blanks_waiting(b), 2, "none is started while there is no time");
    blanks_fill(b, 1000);
    ok(turn_until_waiting(b, BLANKS_MAX), "never more than there may be");
    finish(b);
    blanks_destroy(NULL);
}

/* --- those that are gone --- */

static char *const exit_0[] = {(char *)"/bin/true", NULL};
static char *const no_env[] = {NULL};

static void test_none(void)
{
    struct blanks *b = make(1);
    struct worker w;
    void *lost[BLANKS_MAX];

    kill(only_child(), SIGKILL);
    ok(turn_until_waiting(b, 0), "one that is killed does not count");
    open_worker(&w, NULL);
    is_int(tell(b, &w, exit_0, no_env), -EAGAIN, "there is none");
    is_int((int)blanks_settle(b, lost), 0, "nor one that was lost");
    close_worker(&w);
    blanks_fill(b, 1);
    ok(turn_until_waiting(b, 1), "until the next ones are wanted");
    finish(b);
}

/* Two are there; the first that would be told is dead already, unheard. */
static void test_dead(void)
{
    struct blanks *b = make(2);
    _proc_list_ struct proc_list l = {0};
    struct worker w;
    void *lost[BLANKS_MAX];
    siginfo_t si;

    proc_descendants(getpid(), &l, NULL);
    is_int((int)l.n, 2, "two");
    kill(l.items[1].pid, SIGKILL);
    waitid(P_PID, (id_t)l.items[1].pid, &si, WEXITED | WNOWAIT);
    open_worker(&w, NULL);
    is_int(tell(b, &w, exit_0, no_env), 0, "one that has just died is skipped");
    is_int(w.pid, l.items[0].pid, "for the next");
    is_int((int)blanks_settle(b, lost), 0, "which lives");
    free(hear(&w));
    is_int(w.ended, 1, "to its end");
    is_int((int)blanks_waiting(b), 0, "both are gone");
    finish(b);
}

static void test_lost(int sig)
{
    struct blanks *b = make(2);
    _proc_list_ struct proc_list l = {0};
    struct worker w[2];
    void *lost[BLANKS_MAX];
    uint64_t t;

    proc_descendants(getpid(), &l, NULL);
    for (size_t i = 0; i < l.n; i++) {
        kill(l.items[i].pid, SIGSTOP); /* so it reads nothing before it dies */
    }
    for (int i = 0; i < 2; i++) {
        open_worker(&w[i], NULL);
        is_int(tell(b, &w[i], exit_0, no_env), 0, "one is told");
    }
    kill(w[0].pid, SIGCONT);
    kill(w[1].pid, sig);
    t = uv_hrtime();
    is_int((int)blanks_settle(b, lost), 1, "%s: one is lost",
           child_signal_name(sig));
    t = (uv_hrtime() - t) / 1000000;
    ok(lost[0] == &w[1], "which, is told");
    ok(t < 2000, "soon (%d ms)", (int)t);
    free(hear(&w[0]));
    is_int(w[0].ended, 1, "the other one is a worker");
    is_int(w[1].ended, 0, "of the end of the first nobody is told");
    close_worker(&w[1]);
    finish(b);
}

/* What a blank cannot become is told as of any other. */
static void test_failures(void)
{
    static char *const nonesuch[] = {(char *)"nonesuch", NULL};
    struct blanks *b = make(2);
    struct worker w[2];
    void *lost[BLANKS_MAX];
    _buf_ struct buf said = {0};
    struct exec_report r = {0};
    char chunk[EXEC_RECORD_MAX];
    ssize_t n;

    open_worker(&w[0], NULL);
    open_worker(&w[1], NULL);
    tell(b, &w[0], nonesuch, no_env);
    tell(b, &w[1], exit_0, no_env);
    is_int((int)blanks_settle(b, lost), 0, "two have understood");
    n = read(w[0].status[0], chunk, sizeof(chunk));
    buf_append(&said, chunk, n < 0 ? 0 : (size_t)n);
    is_int(exec_report_decode(&said, &r), 1, "one reports");
    is_int((int)r.id, 3, "as who it is");
    is_int((int)r.stage, EXEC_FIND, "that there is no such program");
    turn_until(&loop, &w[0].ended, 1);
    is_int(w[0].ended, 128, "status 127");
    close_worker(&w[0]);
    close_fd(&w[1].gate[0]);
    turn_until(&loop, &w[1].ended, 1);
    is_int(w[1].ended, 127, "one that is not let go ends with 126");
    close_worker(&w[1]);
    finish(b);
}

/* --- their agent is gone --- */

/* Has three, and is killed or ends. */
static _Noreturn void be_agent(int to)
{
    _proc_list_ struct proc_list l = {0};

    uv_loop_init(&loop);
    if (child_table_create(&loop, &table, &e) < 0) {
        bail_out("%s", e.text);
    }
    make(3);
    proc_descendants(getpid(), &l, NULL);
    for (size_t i = 0; i < l.n; i++) {
        settle_down(l.items[i].pid);
        dprintf(to, "%d\n", (int)l.items[i].pid);
    }
    close(to);
    for (;;) {
        pause();
    }
}

static int count_alive(const pid_t *pids, int n)
{
    struct proc p;
    int alive = 0;

    for (int i = 0; i < n; i++) {
        alive += proc_read(pids[i], &p) == 0 && p.state != 'Z';
    }
    return alive;
}

static void test_agent_killed(void)
{
    char self[PATH_MAX], fd[16], text[200] = "";
    char *argv[] = {self, (char *)"--agent", fd, exec_path, NULL};
    pid_t agent, pids[3] = {0};
    int p[2];
    FILE *f;

    str_copy(self, sizeof(self), tap_self());
    if (pipe(p) < 0) {
        bail_out("no pipe");
    }
    snprintf(fd, sizeof(fd), "%d", p[1]);
    agent = fork();
    if (agent == 0) {
        close(p[0]);
        execv(self, argv);
        _exit(1);
    }
    close(p[1]);
    f = fdopen(p[0], "re");
    for (int i = 0; i < 3 && fgets(text, sizeof(text), f); i++) {
        pids[i] = (pid_t)atoi(text);
    }
    fclose(f);
    is_int(count_alive(pids, 3), 3, "an agent with three");
    kill(pids[0], SIGSTOP);
    kill(agent, SIGKILL);
    waitpid(agent, NULL, 0);
    for (int i = 0; i < 10000 && count_alive(pids, 3); i++) {
        usleep(1000);
    }
    is_int(count_alive(pids, 3), 0, "takes them along, also a stopped one");
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

static void find_exec(void)
{
    const char *build = getenv("MUSTER_BUILDDIR");
    char self[PATH_MAX];

    str_copy(self, sizeof(self), tap_self());
    for (int i = 0; i < 2; i++) {
        *strrchr(self, '/') = '\0';
    }
    fs_path(exec_path, sizeof(exec_path), NULL, "%s/muster-exec",
            build ? build : self);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--tell") == 0) {
        return be_told(argc, argv);
    }
    if (argc > 3 && strcmp(argv[1], "--agent") == 0) {
        str_copy(exec_path, sizeof(exec_path), argv[3]);
        be_agent(atoi(argv[2]));
    }
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    find_exec();
    test_agent_killed();
    uv_loop_init(&loop);
    if (child_become_subreaper(&e) < 0 ||
        child_table_create(&loop, &table, &e) < 0) {
        bail_out("%s", e.text);
    }
    test_alike();
    test_waiting();
    test_number();
    test_none();
    test_dead();
    test_lost(SIGSTOP);
    test_lost(SIGKILL);
    test_failures();
    child_table_destroy(table);
    uv_run(&loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&loop), 0, "nothing is left on the loop");
    return tap_done();
}
