/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster-watch [--keep=FD]... [--after=WORD]... [--] agent [argument...]
 *
 * The parent of one agent, and the reaper of whatever it leaves behind. It does
 * nothing until the agent ends; then it ends all processes that it inherits,
 * until none is left, and ends with the agent's status, unless --after is given.
 * It is kept this small so that nothing in it can fail: no allocation before the
 * end, no files, no loop.
 *
 * An agent that did not end with 0 may have left files, too: with --after it then
 * becomes the agent's program with those words as arguments.
 *
 * Descriptors of --keep reach the agent; muster-watch itself keeps none open, so
 * that whoever waits for them (mpirun, a pipe's reader) waits for the agent
 * alone. Of 0, 1 and 2 those not kept become /dev/null.
 *
 * Signals that ask an agent for something are passed on to it; none ends
 * muster-watch. When muster-watch itself is killed, the agent gets SIGTERM, and
 * getppid() tells it why.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/proc.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_KEEP = 32, MAX_AFTER = 8, MAX_PAUSE_MS = 1000 };

struct watch {
    int keep[MAX_KEEP];
    size_t n_keep;
    char *after[MAX_AFTER + 2]; /* [0] is the program; ends with a NULL */
    size_t n_after;
    char **argv;
};

static bool is_kept(const struct watch *w, int fd)
{
    for (size_t i = 0; i < w->n_keep; i++) {
        if (w->keep[i] == fd) {
            return true;
        }
    }
    return false;
}

static int parse_keep(struct watch *w, const char *text)
{
    uint64_t fd;

    if (w->n_keep == MAX_KEEP || str_to_u64(text, &fd) < 0 || fd > 1 << 20) {
        return -1;
    }
    w->keep[w->n_keep++] = (int)fd;
    return 0;
}

static int parse_after(struct watch *w, char *word)
{
    if (w->n_after == MAX_AFTER) {
        return -1;
    }
    w->after[++w->n_after] = word;
    return 0;
}

static int parse(struct watch *w, char **argv)
{
    for (argv++; *argv && (*argv)[0] == '-'; argv++) {
        if (strcmp(*argv, "--") == 0) {
            argv++;
            break;
        }
        if (!(str_starts(*argv, "--keep=") && parse_keep(w, *argv + 7) == 0) &&
            !(str_starts(*argv, "--after=") && parse_after(w, *argv + 8) == 0)) {
            return -1;
        }
    }
    w->argv = argv;
    return *argv ? 0 : -1;
}

static void close_from_3(bool at_exec)
{
    enum { CLOEXEC = 1 << 2 }; /* CLOSE_RANGE_CLOEXEC, absent in old headers */

    if (syscall(SYS_close_range, 3U, ~0U, at_exec ? CLOEXEC : 0) == 0) {
        return;
    }
    for (int fd = 3; fd < 65536; fd++) {
        if (at_exec) {
            fcntl(fd, F_SETFD, FD_CLOEXEC);
        } else {
            close(fd);
        }
    }
}

static void drop_stdio(const struct watch *kept)
{
    int null = open("/dev/null", O_RDWR);

    for (int fd = 0; fd < 3; fd++) {
        if (null >= 0 && !(kept && is_kept(kept, fd))) {
            dup2(null, fd);
        }
    }
    if (null > 2) {
        close(null);
    }
}

/* Returns if it cannot. */
static void run(char **argv)
{
    sigset_t none;

    for (int sig = 1; sig < 65; sig++) {
        signal(sig, SIG_DFL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[0], argv);
}

static _Noreturn void become_agent(const struct watch *w, pid_t parent)
{
    int code;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(126);
    }
    drop_stdio(w);
    close_from_3(true);
    for (size_t i = 0; i < w->n_keep; i++) {
        fcntl(w->keep[i], F_SETFD, 0);
    }
    run(w->argv);
    code = errno;
    if (is_kept(w, 2)) {
        fprintf(stderr, "muster-watch: cannot run %s: %s\n", w->argv[0],
                strerror(code));
    }
    _exit(code == ENOENT ? 127 : 126);
}

/* Reaps what has ended. Returns false once there are no children at all. */
static bool reap(pid_t agent, int *status, bool *agent_ended)
{
    for (;;) {
        int one;
        pid_t pid = waitpid(-1, &one, WNOHANG);

        if (pid <= 0) {
            return pid == 0;
        }
        if (pid == agent) {
            *status = one;
            *agent_ended = true;
        }
    }
}

static bool is_passed_on(int sig)
{
    static const int passed[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT,
                                 SIGUSR1, SIGUSR2, SIGWINCH};

    for (size_t i = 0; i < ARRAY_SIZE(passed); i++) {
        if (passed[i] == sig) {
            return true;
        }
    }
    return false;
}

/* Returns the agent's wait status. */
static int wait_for_agent(pid_t agent, const sigset_t *all)
{
    bool ended = false;
    int status = 0;

    for (;;) {
        int sig;

        reap(agent, &status, &ended);
        if (ended) {
            return status;
        }
        sig = sigwaitinfo(all, NULL);
        if (is_passed_on(sig)) {
            kill(agent, sig);
        }
    }
}

/* A process in an uninterruptible wait goes when that wait ends, and only then:
 * we stay its parent until it does, looking ever less often. */
static void sweep_up(const sigset_t *chld)
{
    long pause_ms = 1;
    int status;
    bool ended;

    for (;;) {
        struct timespec t;

        proc_sweep(getpid(), NULL, NULL, NULL);
        if (!reap(-1, &status, &ended)) {
            return;
        }
        t = (struct timespec){.tv_sec = pause_ms / 1000,
                              .tv_nsec = pause_ms % 1000 * 1000000};
        sigtimedwait(chld, NULL, &t);
        pause_ms = pause_ms * 2 < MAX_PAUSE_MS ? pause_ms * 2 : MAX_PAUSE_MS;
    }
}

int main(int argc, char **argv)
{
    struct watch w = {0};
    pid_t self = getpid(), agent;
    sigset_t all, chld;
    int status;

    if (argc < 2 || parse(&w, argv) < 0) {
        fputs("usage: muster-watch [--keep=FD]... [--after=WORD]... [--] AGENT "
              "[ARGUMENT...]\n", stderr);
        return 2;
    }
    /* Fails where we lead a group already (a shell with job control). */
    setsid();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    /* Inherited as ignored, it would make the kernel reap for us. */
    signal(SIGCHLD, SIG_DFL);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) {
        return 126;
    }
    agent = fork();
    if (agent == 0) {
        become_agent(&w, self);
    }
    if (agent < 0) {
        return 126;
    }
    drop_stdio(NULL);
    close_from_3(false);
    status = wait_for_agent(agent, &all);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sweep_up(&chld);
    if (status != 0 && w.n_after > 0) {
        w.after[0] = w.argv[0];
        for (int sig = 1; sig < 65; sig++) {
            signal(sig, SIG_IGN); /* what still waits was meant for the agent */
        }
        run(w.after);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
