/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/tracer.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
#include <linux/ptrace.h>
#include <sys/user.h>
#endif

enum { MAX_THREADS = 64, TIME_LIMIT_S = 60 };

static void expect(bool fact, const char *what)
{
    if (!fact) {
        fprintf(stderr, "tracer: %s\n", what);
        abort();
    }
}

/* --- what may fail, and how --- */

enum kind {
    READS = 1, /* may be cut short */
    LOOKS,
    WRITES,    /* may be cut short */
    GROWS,
    SYNCS,
    NAMES,     /* makes or changes a name */
    REMOVES,
    CLOSES,
    MEMORY,
};

static const struct {
    int64_t number;
    enum kind kind;
} calls[] = {
    {SYS_read, READS},          {SYS_pread64, READS},
    {SYS_getdents64, LOOKS},    {SYS_fstat, LOOKS},
    {SYS_newfstatat, LOOKS},    {SYS_statx, LOOKS},
    {SYS_fstatfs, LOOKS},       {SYS_lseek, LOOKS},
    {SYS_write, WRITES},        {SYS_pwrite64, WRITES},
    {SYS_fallocate, GROWS},     {SYS_ftruncate, GROWS},
    {SYS_copy_file_range, GROWS},
    {SYS_fsync, SYNCS},         {SYS_fdatasync, SYNCS},
    {SYS_mkdirat, NAMES},       {SYS_renameat, NAMES},
    {SYS_renameat2, NAMES},     {SYS_linkat, NAMES},
#ifdef SYS_rename
    {SYS_rename, NAMES},        {SYS_mkdir, NAMES},
    {SYS_unlink, REMOVES},      {SYS_rmdir, REMOVES},
#endif
    {SYS_unlinkat, REMOVES},    {SYS_close, CLOSES},
    {SYS_mmap, MEMORY},         {SYS_brk, MEMORY},
    {SYS_mremap, MEMORY},
};

static const struct {
    int error;
    unsigned kinds; /* 1 << enum kind */
} errors[] = {
    {EIO, 1 << READS | 1 << LOOKS | 1 << WRITES | 1 << GROWS | 1 << SYNCS |
              1 << NAMES | 1 << REMOVES | 1 << CLOSES},
    {ESTALE, 1 << READS | 1 << LOOKS | 1 << WRITES | 1 << GROWS | 1 << SYNCS |
                 1 << NAMES | 1 << REMOVES | 1 << CLOSES},
    {ENOSPC, 1 << WRITES | 1 << GROWS | 1 << SYNCS | 1 << NAMES | 1 << REMOVES |
                 1 << CLOSES},
    {EDQUOT, 1 << WRITES | 1 << GROWS | 1 << SYNCS | 1 << NAMES | 1 << CLOSES},
    {EROFS, 1 << WRITES | 1 << GROWS | 1 << SYNCS | 1 << NAMES | 1 << REMOVES},
    {ENOMEM, 1 << READS | 1 << LOOKS | 1 << WRITES | 1 << GROWS | 1 << NAMES |
                 1 << REMOVES | 1 << MEMORY},
    {EINTR, 1 << READS | 1 << WRITES | 1 << GROWS | 1 << SYNCS | 1 << CLOSES},
};

static enum kind kind_of(const struct tracer_call *call)
{
    if (call->number == SYS_openat) {
        return call->args[2] & (O_CREAT | O_WRONLY | O_RDWR) ? NAMES : READS;
    }
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        if (calls[i].number == call->number) {
            return calls[i].kind;
        }
    }
    return 0;
}

/* What the kernel says of eventfds and the like is not the disk's. */
static bool is_of_disk(const struct tracer_call *call, enum kind kind)
{
    bool has_fd = kind == READS || kind == WRITES || kind == GROWS ||
                  kind == SYNCS || kind == CLOSES;

    return !has_fd || call->number == SYS_openat || call->is_on_file;
}

/* Which only asks where the end of the heap is. */
static bool is_question(const struct tracer_call *call)
{
    return call->number == SYS_brk && call->args[0] == 0;
}

bool tracer_may_fail(const struct tracer_call *call, int error)
{
    enum kind kind = kind_of(call);

    if (error == TRACER_KILL) {
        return true;
    }
    if (!is_of_disk(call, kind) || is_question(call)) {
        return false;
    }
    if (error == TRACER_SHORT) {
        return (kind == WRITES || (kind == READS && call->number != SYS_openat)) &&
               call->args[2] > 1;
    }
    for (size_t i = 0; i < ARRAY_SIZE(errors) && kind; i++) {
        if (errors[i].error == error) {
            return errors[i].kinds >> kind & 1;
        }
    }
    return false;
}

#ifdef __x86_64__

/* --- one process --- */

struct thread {
    pid_t tid;
    bool is_new;
    bool is_failing; /* its call gets `error` when it comes back */
    struct tracer_call call;
};

struct tracing {
    pid_t child;
    const struct tracer_harm *harm;
    struct tracer_run *run;
    struct thread threads[MAX_THREADS];
    size_t n;
};

static struct thread *find(struct tracing *t, pid_t tid)
{
    for (size_t i = 0; i < t->n; i++) {
        if (t->threads[i].tid == tid) {
            return &t->threads[i];
        }
    }
    expect(t->n < MAX_THREADS, "too many threads");
    t->threads[t->n] = (struct thread){.tid = tid, .is_new = tid != t->child};
    return &t->threads[t->n++];
}

static void forget(struct tracing *t, pid_t tid)
{
    struct thread *th = find(t, tid);

    *th = t->threads[--t->n];
}

/* A brk() that fails leaves the end of the heap where it is and answers where that is,
 * never an errno value: glibc takes all that is not below the address it has asked for as
 * the new end, and after -ENOMEM malloc() writes where no memory is. So it becomes the
 * question, and gets its address back afterwards, with which who has called compares. */
static void spoil(struct thread *th, int error)
{
    struct user_regs_struct regs;

    if (ptrace(PTRACE_GETREGS, th->tid, NULL, &regs) < 0) {
        return; /* it was killed meanwhile */
    }
    if (error == TRACER_SHORT) {
        regs.rdx /= 2;
    } else if (th->call.number == SYS_brk) {
        th->is_failing = true;
        regs.rdi = 0;
    } else {
        th->is_failing = true;
        if (th->call.number != SYS_close) { /* which closes, whatever it says */
            regs.orig_rax = (unsigned long long)-1;
        }
    }
    ptrace(PTRACE_SETREGS, th->tid, NULL, &regs);
}

static bool is_on_file(const struct tracer_call *call)
{
    char link[64], first;

    snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)call->tid,
             (int)call->args[0]);
    return readlink(link, &first, 1) == 1 && first == '/';
}

static void enter(struct tracing *t, struct thread *th)
{
    const struct tracer_harm *h = t->harm;
    uint64_t n = ++t->run->n_calls;

    if (t->run->look) {
        t->run->look(t->run->arg, &th->call);
    }
    if (t->run->max_calls && n > t->run->max_calls) {
        t->run->is_stuck = true;
        kill(t->child, SIGKILL);
    }
    if (h->at == 0 || n < h->at || (n > h->at && !h->stays) ||
        !tracer_may_fail(&th->call, h->error)) {
        return;
    }
    t->run->n_harmed++;
    if (h->error == TRACER_KILL) {
        t->run->is_killed = true;
        kill(t->child, SIGKILL);
    } else {
        spoil(th, h->error);
    }
}

static void leave(struct tracing *t, struct thread *th)
{
    struct user_regs_struct regs;

    if (th->is_failing && ptrace(PTRACE_GETREGS, th->tid, NULL, &regs) == 0) {
        if (th->call.number == SYS_brk) {
            regs.rdi = th->call.args[0];
        } else {
            regs.rax = (unsigned long long)-t->harm->error;
        }
        ptrace(PTRACE_SETREGS, th->tid, NULL, &regs);
        th->call.result = (int64_t)regs.rax;
    }
    th->is_failing = false;
    if (t->run->look) {
        t->run->look(t->run->arg, &th->call);
    }
}

static void at_call(struct tracing *t, struct thread *th)
{
    struct ptrace_syscall_info info = {0};

    if (ptrace(PTRACE_GET_SYSCALL_INFO, th->tid, sizeof(info), &info) <= 0) {
        return;
    }
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        th->call = (struct tracer_call){.tid = th->tid,
                                        .number = (int64_t)info.entry.nr};
        for (size_t i = 0; i < 6; i++) {
            th->call.args[i] = info.entry.args[i];
        }
        th->call.is_on_file = is_on_file(&th->call);
        enter(t, th);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
        th->call.is_done = true;
        th->call.result = info.exit.rval;
        leave(t, th);
    }
}

/* The signal to go on with. */
static int stopped(struct tracing *t, pid_t tid, int status)
{
    struct thread *th = find(t, tid);
    int sig = WSTOPSIG(status);

    if (sig == (SIGTRAP | 0x80)) {
        at_call(t, th);
        return 0;
    }
    if (status >> 16) {
        return 0;
    }
    if (sig == SIGSTOP && th->is_new) {
        th->is_new = false;
        return 0;
    }
    return sig;
}

/* After its one harm nobody looks at calls any more, and each stop takes time; what it
 * fails with is to be put in its place still. */
static bool is_done_with(const struct tracing *t, const struct thread *th)
{
    return t->run->n_harmed > 0 && !t->harm->stays && !t->run->look && !th->is_failing;
}

static void follow(struct tracing *t)
{
    for (;;) {
        int status, sig;
        pid_t tid = waitpid(-1, &status, __WALL);

        if (tid < 0 && errno == EINTR) {
            continue;
        }
        if (tid < 0) {
            return;
        }
        if (!WIFSTOPPED(status)) {
            if (tid == t->child) {
                t->run->status = status;
            }
            forget(t, tid);
            continue;
        }
        sig = stopped(t, tid, status);
        ptrace(is_done_with(t, find(t, tid)) ? PTRACE_CONT : PTRACE_SYSCALL, tid, NULL,
               (void *)(intptr_t)sig);
    }
}

static _Noreturn void be_child(void (*body)(void *arg), void *arg)
{
    alarm(TIME_LIMIT_S);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0) {
        _exit(126);
    }
    raise(SIGSTOP);
    body(arg);
    _exit(0);
}

void tracer_run(void (*body)(void *arg), void *arg,
                const struct tracer_harm *harm, struct tracer_run *run)
{
    const intptr_t options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL |
                             PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                             PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;
    struct tracing t = {.harm = harm, .run = run};
    int status;

    run->n_calls = run->n_harmed = 0;
    run->is_killed = run->is_stuck = false;
    fflush(stdout);
    t.child = fork();
    expect(t.child >= 0, "no process");
    if (t.child == 0) {
        be_child(body, arg);
    }
    expect(waitpid(t.child, &status, __WALL) == t.child && WIFSTOPPED(status),
           "it cannot be traced");
    find(&t, t.child);
    ptrace(PTRACE_SETOPTIONS, t.child, NULL, (void *)options);
    ptrace(PTRACE_SYSCALL, t.child, NULL, NULL);
    follow(&t);
    if (WIFSIGNALED(run->status) && WTERMSIG(run->status) == SIGALRM) {
        run->is_stuck = true;
    }
}

int tracer_let(void (*body)(void *arg), void *arg)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    expect(child >= 0, "no process");
    if (child == 0) {
        alarm(TIME_LIMIT_S);
        body(arg);
        _exit(0);
    }
    expect(waitpid(child, &status, 0) == child, "it is not waited for");
    return status;
}

static void look_for_call(void *arg, const struct tracer_call *call)
{
    *(bool *)arg = *(bool *)arg || call->number == SYS_getppid;
}

static void do_call(void *arg)
{
    (void)arg;
    getppid();
}

/* Some containers, and valgrind, know no ptrace. */
static bool can_trace(void)
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

bool tracer_works(const char **ret_why)
{
    struct tracer_harm none = {0};
    bool is_seen = false;
    struct tracer_run run = {.look = look_for_call, .arg = &is_seen};

    *ret_why = "processes cannot be traced here";
    if (can_trace()) {
        tracer_run(do_call, NULL, &none, &run);
    }
    return is_seen;
}

#else

void tracer_run(void (*body)(void *arg), void *arg,
                const struct tracer_harm *harm, struct tracer_run *run)
{
    (void)body;
    (void)arg;
    (void)harm;
    (void)run;
    expect(false, "only on x86-64");
}

int tracer_let(void (*body)(void *arg), void *arg)
{
    (void)body;
    (void)arg;
    expect(false, "only on x86-64");
    return -1;
}

bool tracer_works(const char **ret_why)
{
    *ret_why = "registers of this kind of processor are not known to the tracer";
    return false;
}

#endif
