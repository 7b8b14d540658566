/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reaper looks at who has ended without reaping (WNOWAIT), tells, and then
 * reaps, so that a pid is never free while somebody is being told about it. It
 * takes at most MAX_PER_TURN at a time and then lets the loop turn, because a
 * fork bomb's orphans could otherwise keep timers from ever running.
 */
#include <config.h>

#include "base/child.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_SLOTS = 256, MAX_PER_TURN = 256 };

struct child {
    pid_t pid;
    child_exit_f *on_exit;
    void *arg;
    struct child *next;
};

struct child_table {
    uv_signal_t sigchld;
    uv_async_t again;
    unsigned n_open_handles;
    struct child *slots[N_SLOTS];
    size_t n;
    struct child_watch *watches;
};

static struct child **find(const struct child_table *t, pid_t pid)
{
    struct child *const *at = &t->slots[(size_t)pid % N_SLOTS];

    while (*at && (*at)->pid != pid) {
        at = &(*at)->next;
    }
    return (struct child **)(uintptr_t)at;
}

static void tell_watches(struct child_table *t, const struct child_exit *how)
{
    struct child_watch *w = t->watches;

    while (w) {
        struct child_watch *next = w->next;

        w->on_orphan(w->arg, how);
        w = next;
    }
}

static void tell(struct child_table *t, const struct child_exit *how)
{
    struct child **at = find(t, how->pid);
    struct child *c = *at;

    if (!c) {
        tell_watches(t, how);
        return;
    }
    c->on_exit(c->arg, how);
    /* The callback may have started children in the same slot. */
    at = find(t, how->pid);
    *at = c->next;
    free(c);
    if (--t->n == 0) {
        uv_unref((uv_handle_t *)&t->sigchld);
    }
}

static uint64_t to_ms(struct timeval tv)
{
    return (uint64_t)tv.tv_sec * 1000 + (uint64_t)tv.tv_usec / 1000;
}

static struct child_exit exit_from(const siginfo_t *si,
                                   const struct rusage *usage)
{
    bool exited = si->si_code == CLD_EXITED;

    return (struct child_exit){
        .pid = si->si_pid,
        .code = exited ? si->si_status : -1,
        .signal = exited ? 0 : si->si_status,
        .core = si->si_code == CLD_DUMPED,
        .cpu_ms = to_ms(usage->ru_utime) + to_ms(usage->ru_stime),
        .rss_kib = (uint64_t)usage->ru_maxrss,
    };
}

/* The raw call, because glibc's has no place for the resource usage. */
static int wait_for(idtype_t type, pid_t pid, int flags, siginfo_t *si,
                    struct rusage *usage)
{
    long rc;

    memset(si, 0, sizeof(*si));
    do {
        rc = syscall(SYS_waitid, type, pid, si, WEXITED | WNOHANG | flags,
                     usage);
    } while (rc < 0 && errno == EINTR);
    return (int)rc;
}

static void reap(struct child_table *t)
{
    for (int i = 0; i < MAX_PER_TURN; i++) {
        struct rusage usage;
        struct child_exit how;
        siginfo_t si;

        if (wait_for(P_ALL, 0, WNOWAIT, &si, &usage) < 0 || si.si_pid == 0) {
            return;
        }
        how = exit_from(&si, &usage);
        tell(t, &how);
        wait_for(P_PID, how.pid, 0, &si, &usage);
    }
    uv_async_send(&t->again);
}

static void on_sigchld(uv_signal_t *h, int sig)
{
    (void)sig;
    reap(h->data);
}

static void on_again(uv_async_t *h)
{
    reap(h->data);
}

int child_table_create(uv_loop_t *loop, struct child_table **ret,
                       struct error *e)
{
    struct child_table *t = calloc(1, sizeof(*t));
    sigset_t chld;
    int rc;

    if (!t) {
        return error_set(e, ENOMEM, "make the table of children");
    }
    rc = uv_signal_init(loop, &t->sigchld);
    if (rc < 0) {
        free(t);
        return error_set(e, -rc, "watch for ended children");
    }
    t->sigchld.data = t;
    t->n_open_handles = 1;
    rc = uv_async_init(loop, &t->again, on_again);
    if (rc == 0) {
        t->again.data = t;
        t->n_open_handles = 2;
        uv_unref((uv_handle_t *)&t->again);
        rc = uv_signal_start(&t->sigchld, on_sigchld, SIGCHLD);
    }
    if (rc < 0) {
        child_table_destroy(t);
        return error_set(e, -rc, "watch for ended children");
    }
    /* Only living children keep a loop running. */
    uv_unref((uv_handle_t *)&t->sigchld);
    /* A mask is inherited: whoever started us may have blocked it. */
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    pthread_sigmask(SIG_UNBLOCK, &chld, NULL);
    /* One may have ended before we watched. */
    uv_async_send(&t->again);
    *ret = t;
    return 0;
}

static void free_table(struct child_table *t)
{
    for (size_t i = 0; i < N_SLOTS; i++) {
        while (t->slots[i]) {
            struct child *c = t->slots[i];

            t->slots[i] = c->next;
            free(c);
        }
    }
    free(t);
}

static void on_closed(uv_handle_t *h)
{
    struct child_table *t = h->data;

    if (--t->n_open_handles == 0) {
        free_table(t);
    }
}

void child_table_destroy(struct child_table *t)
{
    if (!t) {
        return;
    }
    if (t->n_open_handles > 1) {
        uv_close((uv_handle_t *)&t->again, on_closed);
    }
    uv_close((uv_handle_t *)&t->sigchld, on_closed);
}

void child_watch_add(struct child_table *t, struct child_watch *w)
{
    w->next = t->watches;
    t->watches = w;
}

void child_watch_remove(struct child_table *t, struct child_watch *w)
{
    struct child_watch **at = &t->watches;

    while (*at && *at != w) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = w->next;
    }
}

/* A descriptor that is to become 0, 1 or 2 must not have been overwritten by an
 * earlier one of the three. */
static int check_stdio(const struct child_spec *spec, struct error *e)
{
    for (int i = 0; i < 3; i++) {
        int from = spec->stdio[i];

        if (from >= 0 && from < i && spec->stdio[from] != from) {
            return error_text(e, EINVAL, "descriptor %d cannot become %d: it "
                              "is replaced before", from, i);
        }
    }
    for (size_t i = 0; i < spec->n_pass; i++) {
        if (spec->pass[i] <= 2) {
            return error_text(e, EINVAL, "descriptor %d cannot be passed",
                              spec->pass[i]);
        }
    }
    return 0;
}

/* Positive errno, as the posix_spawn family. */
static int add_actions(posix_spawn_file_actions_t *fa,
                       const struct child_spec *spec)
{
    int rc = 0;

    for (int i = 0; i < 3 && rc == 0; i++) {
        rc = spec->stdio[i] < 0
                 ? posix_spawn_file_actions_addopen(
                       fa, i, "/dev/null", i == 0 ? O_RDONLY : O_WRONLY, 0)
                 : posix_spawn_file_actions_adddup2(fa, spec->stdio[i], i);
    }
    /* dup2 onto itself takes close-on-exec off, in the child only. */
    for (size_t i = 0; i < spec->n_pass && rc == 0; i++) {
        rc = posix_spawn_file_actions_adddup2(fa, spec->pass[i],
                                              spec->pass[i]);
    }
    if (rc == 0 && spec->cwd) {
        rc = posix_spawn_file_actions_addchdir_np(fa, spec->cwd);
    }
    return rc;
}

static int set_attributes(posix_spawnattr_t *attr, bool new_session)
{
    int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                (new_session ? POSIX_SPAWN_SETSID : 0);
    sigset_t none, all;
    int rc;

    sigemptyset(&none);
    sigfillset(&all);
    rc = posix_spawnattr_setsigmask(attr, &none);
    if (rc == 0) {
        rc = posix_spawnattr_setsigdefault(attr, &all);
    }
    if (rc == 0) {
        rc = posix_spawnattr_setflags(attr, (short)flags);
    }
    return rc;
}

static int spawn(const struct child_spec *spec, pid_t *ret_pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    int rc = posix_spawn_file_actions_init(&fa);

    if (rc) {
        return rc;
    }
    rc = posix_spawnattr_init(&attr);
    if (rc) {
        posix_spawn_file_actions_destroy(&fa);
        return rc;
    }
    rc = add_actions(&fa, spec);
    if (rc == 0) {
        rc = set_attributes(&attr, spec->new_session);
    }
    if (rc == 0) {
        rc = posix_spawn(ret_pid, spec->path, &fa, &attr, spec->argv,
                         spec->envp);
    }
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    return rc;
}

static void add(struct child_table *t, struct child *c)
{
    c->next = t->slots[(size_t)c->pid % N_SLOTS];
    t->slots[(size_t)c->pid % N_SLOTS] = c;
    if (t->n++ == 0) {
        uv_ref((uv_handle_t *)&t->sigchld);
    }
}

int child_spawn(struct child_table *t, const struct child_spec *spec,
                child_exit_f *on_exit, void *arg, pid_t *ret_pid,
                struct error *e)
{
    _free_ struct child *c = NULL;
    pid_t pid = -1;
    int rc = check_stdio(spec, e);

    if (rc < 0) {
        return rc;
    }
    if (gettid() != getpid()) {
        return error_text(e, EPERM, "children are started by the main thread "
                          "only: they end with the thread that started them");
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        return error_set(e, ENOMEM, "start %s", spec->path);
    }
    rc = spawn(spec, &pid);
    if (rc) {
        return error_set(e, rc, "start %s", spec->path);
    }
    *c = (struct child){.pid = pid, .on_exit = on_exit, .arg = arg};
    add(t, take_ptr(&c));
    *ret_pid = pid;
    return 0;
}

int child_adopt(struct child_table *t, pid_t pid, child_exit_f *on_exit,
                void *arg, struct error *e)
{
    struct rusage usage;
    struct child *c;
    siginfo_t si;

    if (pid <= 1 || child_is_known(t, pid)) {
        return error_text(e, EEXIST, "process %d is nobody's orphan", (int)pid);
    }
    if (wait_for(P_PID, pid, WNOWAIT, &si, &usage) < 0) {
        return error_set(e, errno, "take over process %d", (int)pid);
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        return error_set(e, ENOMEM, "take over process %d", (int)pid);
    }
    *c = (struct child){.pid = pid, .on_exit = on_exit, .arg = arg};
    add(t, c);
    return 0;
}

void child_hand_over(struct child_table *t, pid_t pid, child_exit_f *on_exit,
                     void *arg)
{
    struct child *c = *find(t, pid);

    if (c) {
        c->on_exit = on_exit;
        c->arg = arg;
    }
}

bool child_is_known(const struct child_table *t, pid_t pid)
{
    return pid > 0 && *find(t, pid) != NULL;
}

size_t child_count(const struct child_table *t)
{
    return t->n;
}

int child_kill(struct child_table *t, pid_t pid, int sig)
{
    if (!child_is_known(t, pid)) {
        return -ESRCH;
    }
    return kill(pid, sig) < 0 ? -errno : 0;
}

int child_kill_group(struct child_table *t, pid_t pid, int sig)
{
    /* kill(-1) would be everybody. */
    if (pid <= 1 || !child_is_known(t, pid)) {
        return -ESRCH;
    }
    return kill(-pid, sig) < 0 ? -errno : 0;
}

void child_table_reap(struct child_table *t)
{
    reap(t);
}

int child_become_subreaper(struct error *e)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) {
        return error_set(e, errno, "become the reaper of orphans");
    }
    return 0;
}

const char *child_signal_name(int sig)
{
    static _Thread_local char text[24];
    const char *abbreviation = sigabbrev_np(sig);

    if (abbreviation) {
        snprintf(text, sizeof(text), "SIG%s", abbreviation);
    } else {
        snprintf(text, sizeof(text), "signal %d", sig);
    }
    return text;
}

int child_shell_status(const struct child_exit *how)
{
    return how->signal ? 128 + how->signal : how->code;
}
