/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/exec_setup.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_CPUS = 65536 };

/* The signal first, then the question: a parent that ended before the first is
 * noticed by the second. */
void exec_tie_to_parent(const struct setup *s)
{
    if (!s->parent) {
        return;
    }
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        exec_fail(s, EXEC_PARENT, errno, "set the parent-death signal");
    }
    if (getppid() != s->parent) {
        exec_fail(s, EXEC_PARENT, 0, "(process %d)", (int)s->parent);
    }
}

static void new_session(const struct setup *s)
{
    if (s->o.same_session) {
        return;
    }
    if (setsid() < 0 && getsid(0) != getpid()) {
        /* A shell with job control has made us a group leader: then the session
         * stays the shell's, which is what somebody at a shell wants. */
        if (errno != EPERM) {
            exec_fail(s, EXEC_SESSION, errno, "%s", "");
        }
    }
}

static void go_there(const struct setup *s)
{
    char *end;
    long mask;

    if (s->o.cwd && chdir(s->o.cwd) < 0) {
        exec_fail(s, EXEC_CWD, errno, "%s", s->o.cwd);
    }
    if (s->o.umask) {
        mask = strtol(s->o.umask, &end, 8);
        if (end == s->o.umask || *end || mask < 0 || mask > 0777) {
            exec_fail(s, EXEC_OPTIONS, 0, "--umask=%s", s->o.umask);
        }
        umask((mode_t)mask);
    }
}

/* One "a" or "a-b" at *p; false where it is neither. */
static bool take_range(const char **p, long *first, long *last)
{
    char *end;

    if (**p < '0' || **p > '9') {
        return false;
    }
    *first = *last = strtol(*p, &end, 10);
    if (*end == '-') {
        *p = end + 1;
        if (**p < '0' || **p > '9') {
            return false;
        }
        *last = strtol(*p, &end, 10);
    }
    *p = end;
    return *first <= *last && *last < MAX_CPUS;
}

static void bind_to_cpus(const struct setup *s)
{
    cpu_set_t set[MAX_CPUS / CPU_SETSIZE] = {0};
    const char *p = s->o.cpus;
    long first, last;

    if (!p) {
        return;
    }
    do {
        if (!take_range(&p, &first, &last)) {
            exec_fail(s, EXEC_CPUS, EINVAL, "%s", s->o.cpus);
        }
        for (long i = first; i <= last; i++) {
            CPU_SET_S((size_t)i, sizeof(set), set);
        }
    } while (*p++ == ',');
    if (p[-1]) {
        exec_fail(s, EXEC_CPUS, EINVAL, "%s", s->o.cpus);
    }
    if (sched_setaffinity(0, sizeof(set), set) < 0) {
        exec_fail(s, EXEC_CPUS, errno, "%s", s->o.cpus);
    }
}

static void raise_limit(const struct setup *s, const struct exec_limit *limit)
{
    struct rlimit l;
    rlim_t want;

    if (getrlimit((__rlimit_resource_t)limit->what, &l) < 0) {
        exec_fail(s, EXEC_LIMITS, errno, "on %s", limit->name);
    }
    want = exec_limit_soft(limit, &l);
    if (l.rlim_cur == want) {
        return;
    }
    l.rlim_cur = want;
    if (setrlimit((__rlimit_resource_t)limit->what, &l) < 0) {
        exec_fail(s, EXEC_LIMITS, errno, "on %s", limit->name);
    }
}

static void limit_core(const struct setup *s)
{
    uint64_t bytes = RLIM_INFINITY;
    struct rlimit l;

    if (!s->o.core) {
        return;
    }
    if (strcmp(s->o.core, "unlimited") && str_to_u64(s->o.core, &bytes) < 0) {
        exec_fail(s, EXEC_OPTIONS, 0, "--core=%s", s->o.core);
    }
    if (getrlimit(RLIMIT_CORE, &l) < 0) {
        exec_fail(s, EXEC_LIMITS, errno, "on core files");
    }
    l.rlim_cur = bytes < l.rlim_max ? bytes : l.rlim_max;
    if (setrlimit(RLIMIT_CORE, &l) < 0) {
        exec_fail(s, EXEC_LIMITS, errno, "on core files");
    }
}

static void set_limits(const struct setup *s)
{
    for (size_t i = 0; i < EXEC_N_LIMITS; i++) {
        raise_limit(s, &exec_limits[i]);
    }
    limit_core(s);
}

/* Best effort: the agent is to outlive a worker when memory runs out, but a
 * container may have /proc read-only. */
static void prefer_oom(const struct setup *s)
{
    _close_ int fd = -1;
    char text[16];
    int n;

    if (!s->o.oom_score_adj) {
        return;
    }
    fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    n = snprintf(text, sizeof(text), "%d", s->o.oom_score_adj);
    if (fd >= 0 && write(fd, text, (size_t)n) < 0) {
        return;
    }
}

static void reset_signals(void)
{
    sigset_t none;

    for (int sig = 1; sig < 65; sig++) {
        signal(sig, SIG_DFL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void empty_stdin(const struct setup *s)
{
    int fd;

    for (size_t i = 0; i < s->o.n_keep; i++) {
        if (s->keep[i] == 0) {
            return;
        }
    }
    fd = open("/dev/null", O_RDONLY);
    if (fd < 0 || dup2(fd, 0) < 0) {
        exec_fail(s, EXEC_STDIN, errno, "%s", "");
    }
    if (fd > 2) {
        close(fd);
    }
}

/* For kernels and sandboxes without close_range. */
static void mark_one_by_one(void)
{
    struct rlimit l = {.rlim_cur = 1024};

    getrlimit(RLIMIT_NOFILE, &l);
    for (int fd = 3; fd < (int)l.rlim_cur && fd < 65536; fd++) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
}

static void sort_fds(const struct setup *s)
{
    enum { CLOEXEC = 1 << 2 }; /* CLOSE_RANGE_CLOEXEC, absent in old headers */

    if (syscall(SYS_close_range, 3U, ~0U, CLOEXEC) < 0) {
        mark_one_by_one();
    }
    for (size_t i = 0; i < s->o.n_keep; i++) {
        if (fcntl(s->keep[i], F_SETFD, 0) < 0) {
            exec_fail(s, EXEC_FDS, errno, "%d", s->keep[i]);
        }
    }
}

void exec_set_up(const struct setup *s)
{
    exec_tie_to_parent(s);
    new_session(s);
    go_there(s);
    bind_to_cpus(s);
    set_limits(s);
    prefer_oom(s);
    reset_signals();
    empty_stdin(s);
    sort_fds(s);
}
