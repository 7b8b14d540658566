/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This program has a syscall() of its own, which can refuse a table to a thread, or keep whoever
 * waits for that waiting; and there may be no threads.
 */
#include <config.h>

#include "base/thread.h"
#include "base/waker.h"
#include "tests/lib/mapped.h"
#include "tests/lib/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool refuses;
static bool disturbs; /* who waits, by a signal, before the table is made */
static pthread_t waiting;
static atomic_int n_tables;

/* So that what waits is there, and what it does next is done. */
static void pause_ms(unsigned ms)
{
    usleep(ms * 1000);
}

static void disturb(void)
{
    pause_ms(20);
    pthread_kill(waiting, SIGUSR1);
    pause_ms(20);
}

long syscall(long number, ...)
{
    static long (*real)(long number, ...);
    va_list ap;
    long a[6];

    va_start(ap, number);
    for (size_t i = 0; i < 6; i++) {
        a[i] = va_arg(ap, long);
    }
    va_end(ap);
    if (number == SYS_close_range && refuses) {
        errno = EPERM;
        return -1;
    }
    if (number == SYS_close_range && disturbs) {
        disturb();
    }
    n_tables += number == SYS_close_range;
    if (!real) {
        real = (long (*)(long, ...))(uintptr_t)dlsym(RTLD_NEXT, "syscall");
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static bool has_no_threads;

int __real_pthread_create(pthread_t *ret, const pthread_attr_t *how, void *(*body)(void *arg),
                          void *arg);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *how, void *(*body)(void *arg),
                          void *arg);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *how, void *(*body)(void *arg),
                          void *arg)
{
    return has_no_threads ? EAGAIN : __real_pthread_create(ret, how, body, arg);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* What a thread sees, and opens, of its own table. */
struct seen {
    int keep, others[2], next; /* that one is the one before what is kept */
    bool has_keep, has_next, has_others[2], has_stdio[3];
    int own;
    sem_t is_there, may_end;
    const struct waker *waker;
    pid_t tid;
    bool takes_signals;
};

static void look(struct seen *s)
{
    sigset_t blocked;

    s->tid = gettid();
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    s->takes_signals = !sigismember(&blocked, SIGTERM);
    s->has_keep = s->keep >= 0 && is_open(s->keep);
    s->has_next = s->next > 0 && is_open(s->next);
    for (int i = 0; i < 2; i++) {
        s->has_others[i] = is_open(s->others[i]);
    }
    for (int i = 0; i < 3; i++) {
        s->has_stdio[i] = is_open(i);
    }
}

static void *live(void *arg)
{
    struct seen *s = arg;

    look(s);
    s->own = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    sem_post(&s->is_there);
    while (sem_wait(&s->may_end) < 0 && errno == EINTR) {
    }
    if (s->waker) {
        waker_send(s->waker);
    }
    close(s->own);
    return NULL;
}

static void start(struct seen *s, pthread_t *t)
{
    sem_init(&s->is_there, 0, 0);
    sem_init(&s->may_end, 0, 0);
    is_int(thread_start_apart(t, live, s, s->keep), 0, "started");
    while (sem_wait(&s->is_there) < 0 && errno == EINTR) {
    }
}

static void end(struct seen *s, pthread_t t)
{
    sem_post(&s->may_end);
    pthread_join(t, NULL);
    sem_destroy(&s->is_there);
    sem_destroy(&s->may_end);
}

/* Is `fd` here what the thread has opened under that number? */
static bool sees_own(int fd)
{
    struct stat zero, st;

    return stat("/dev/zero", &zero) == 0 && fstat(fd, &st) == 0 &&
           is_same(&zero, &st);
}

static void make_pipe(int p[2])
{
    if (pipe2(p, O_CLOEXEC) < 0) {
        bail_out("pipe");
    }
}

/* Its reader hears at once that nobody writes any more. */
static bool is_at_end(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}

/* They are its own thread's that starts one. */
static bool takes_signals(void)
{
    sigset_t blocked;

    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    return !sigismember(&blocked, SIGTERM) && !sigismember(&blocked, SIGUSR1);
}

static void test_apart(void)
{
    int low[2], high[2], keep = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct seen s = {.keep = -1};
    pthread_t t;

    if (!thread_can_be_apart()) {
        skip("no table of its own for a thread here");
        return;
    }
    make_pipe(low);
    make_pipe(high);
    s.keep = fcntl(keep, F_DUPFD_CLOEXEC, high[1] + 1);
    close(high[0]);
    high[0] = fcntl(low[0], F_DUPFD_CLOEXEC, s.keep + 1);
    s.others[0] = low[1];
    s.others[1] = high[0];
    s.next = s.keep - 1 == high[1] ? high[1] : 0;
    start(&s, &t);
    ok(s.has_stdio[0] && s.has_stdio[1] && s.has_stdio[2], "it has 0, 1, 2");
    ok(s.has_keep, "and what it is to have");
    ok(!s.has_others[0] && !s.has_next, "nothing of what is below that");
    ok(!s.has_others[1], "or above");
    ok(!s.takes_signals && takes_signals(), "and takes no signals, as before who started it does");
    ok(s.own >= 3 && !sees_own(s.own), "what it opens is its own");
    ok(is_open(low[1]) && is_open(s.keep) && is_open(high[0]),
       "here all is as it was");
    close(low[1]);
    ok(is_at_end(low[0]), "and nothing that is closed here lives on there");
    end(&s, t);
    close(keep);
    close(s.keep);
    close(low[0]);
    close(high[0]);
    close(high[1]);
}

/* The first one behind 0, 1, 2. */
static void test_first_kept(void)
{
    struct seen s = {.keep = 3};
    int was = fcntl(3, F_DUPFD_CLOEXEC, 10), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    pthread_t t;

    if (!thread_can_be_apart()) {
        skip("no table of its own for a thread here");
        return;
    }
    s.others[0] = fcntl(null, F_DUPFD_CLOEXEC, 4);
    s.others[1] = fcntl(null, F_DUPFD_CLOEXEC, 5);
    if (null != 3) {
        dup3(null, 3, O_CLOEXEC);
    }
    start(&s, &t);
    ok(s.has_keep && !s.has_others[0] && !s.has_others[1], "3 may be the one to keep");
    end(&s, t);
    close(s.others[0]);
    close(s.others[1]);
    close(null);
    close(3);
    if (was >= 0) {
        dup3(was, 3, O_CLOEXEC);
        close(was);
    }
}

static void test_nothing_kept(void)
{
    struct seen s = {.keep = -1};
    pthread_t t;

    if (!thread_can_be_apart()) {
        skip("no table of its own for a thread here");
        return;
    }
    make_pipe(s.others);
    start(&s, &t);
    ok(s.has_stdio[2] && !s.has_others[0] && !s.has_others[1],
       "without one to keep it has 0, 1, 2 alone");
    is_int(s.own, 3, "and opens the next one");
    end(&s, t);
    close(s.others[0]);
    close(s.others[1]);
}

static void test_refused(void)
{
    struct seen s = {.keep = -1};
    pthread_t t;

    make_pipe(s.others);
    refuses = true;
    ok(!thread_can_be_apart(), "a kernel that refuses is noticed");
    start(&s, &t);
    refuses = false;
    ok(s.has_others[0] && s.has_others[1] && sees_own(s.own),
       "refused by the kernel, it has the table of all");
    end(&s, t);
    close(s.others[0]);
    close(s.others[1]);
}

static void look_around(void *arg)
{
    look(arg);
}

static void test_call(void)
{
    struct seen s = {.keep = -1};

    make_pipe(s.others);
    thread_apart(look_around, &s, -1);
    ok(s.tid && s.tid != gettid(), "called by another thread, to its end");
    ok(s.has_others[0] == !thread_can_be_apart() &&
           s.has_others[1] == s.has_others[0], "apart, where that can be");
    close(s.others[0]);
    close(s.others[1]);
}

/* One that ends when it is told to. */
struct slow {
    sem_t may_end, is_over;
    pid_t tid;
};

static void be_slow(void *arg)
{
    struct slow *s = arg;

    s->tid = gettid();
    while (sem_wait(&s->may_end) < 0 && errno == EINTR) {
    }
    sem_post(&s->is_over);
}

static void test_within(void)
{
    struct slow s = {0};

    sem_init(&s.may_end, 0, 1);
    sem_init(&s.is_over, 0, 0);
    ok(thread_call_within(be_slow, &s, 60000), "who ends in time is waited for");
    ok(s.tid && s.tid != gettid(), "and is another thread");
    is_int(sem_trywait(&s.is_over), 0, "which has ended");
    ok(!thread_call_within(be_slow, &s, 20), "who does not is left behind");
    sem_post(&s.may_end);
    while (sem_wait(&s.is_over) < 0 && errno == EINTR) {
    }
    ok(true, "and goes on by itself");
    sem_destroy(&s.may_end);
    sem_destroy(&s.is_over);
}

/* Some time, with a signal for whoever waits. */
static void be_brief(void *arg)
{
    disturb();
    *(bool *)arg = true;
}

/* However the end of the wait falls among seconds. */
static void test_within_brief(void)
{
    static const unsigned patience_ms[] = {60000, 60999};

    for (int i = 0; i < 2; i++) {
        bool is_done = false;

        ok(thread_call_within(be_brief, &is_done, patience_ms[i]) && is_done,
           "a signal ends no wait of %u ms", patience_ms[i]);
    }
}

static void do_nothing(void *arg)
{
    (void)arg;
}

static void test_gone(void)
{
    enum { TIMES = 200, MOST_BYTES = 400 << 20 }; /* a stack has 8 MB */
    unsigned long long before;
    unsigned n = 0;

    thread_call_within(do_nothing, NULL, 60000);
    before = mapped_bytes();
    for (int i = 0; i < TIMES; i++) {
        n += thread_call_within(do_nothing, NULL, 60000);
        (void)thread_can_be_apart();
    }
    ok(n == TIMES && mapped_bytes() < before + MOST_BYTES,
       "of threads that are over nothing stays: %lld bytes", (long long)(mapped_bytes() - before));
}

static void *no_body(void *arg)
{
    return arg;
}

static void note_thread(void *arg)
{
    *(pid_t *)arg = gettid();
}

/* There may be too many, or no memory for one. */
static void test_no_threads(void)
{
    pid_t by = 0;
    pthread_t t;

    has_no_threads = true;
    is_int(thread_start(&t, no_body, NULL), EAGAIN, "no thread is to be had");
    is_int(thread_start_beside(&t, no_body, NULL), EAGAIN, "nor one beside");
    is_int(thread_start_apart(&t, no_body, NULL, -1), EAGAIN, "nor apart");
    ok(!thread_can_be_apart(), "which is known");
    ok(takes_signals(), "signals come as before");
    thread_apart(note_thread, &by, -1);
    is_int(by, gettid(), "what is to be called apart is called here");
    by = 0;
    ok(thread_call_within(note_thread, &by, 0), "so is what is waited for, to its end");
    is_int(by, gettid(), "by this thread");
    has_no_threads = false;
}

/* Whatever wakes who waits for it. */
static void test_disturbed(void)
{
    pthread_t t;

    if (!thread_can_be_apart()) {
        skip("no table of its own for a thread here");
        return;
    }
    n_tables = 0;
    disturbs = true;
    is_int(thread_start_apart(&t, no_body, NULL, -1), 0, "a thread is started amid signals");
    is_int(n_tables, 1, "it has its table then");
    disturbs = false;
    pthread_join(t, NULL);
}


/* --- */

static void on_wake(void *arg)
{
    ++*(int *)arg;
}

static void test_waker(void)
{
    uv_loop_t *loop = uv_default_loop();
    struct waker *w = NULL;
    struct seen s = {.keep = -1};
    int n = 0;
    pthread_t t;

    is_int(waker_create(loop, on_wake, &n, &w, NULL), 0, "a waker");
    ok(!uv_loop_alive(loop), "holds no loop at first");
    waker_hold_loop(w, true);
    ok(uv_loop_alive(loop), "but on request");
    uv_run(loop, UV_RUN_NOWAIT);
    is_int(n, 0, "nobody has sent anything");
    s.keep = waker_fd(w);
    s.waker = w;
    start(&s, &t);
    ok(s.has_keep, "its descriptor goes to a thread");
    sem_post(&s.may_end);
    uv_run(loop, UV_RUN_ONCE);
    is_int(n, 1, "which wakes the loop");
    end(&s, t);
    waker_send(w);
    waker_send(w);
    uv_run(loop, UV_RUN_ONCE);
    is_int(n, 2, "once for all that was sent until then");
    uv_run(loop, UV_RUN_NOWAIT);
    is_int(n, 2, "and not again");
    waker_send(w);
    waker_destroy(w);
    uv_run(loop, UV_RUN_DEFAULT);
    is_int(n, 2, "nor once it is destroyed");
    ok(!is_open(s.keep), "when its descriptor is closed");
    waker_destroy(NULL);
    uv_loop_close(loop);
}

static void on_signal(int signal)
{
    (void)signal;
}

int main(void)
{
    const struct sigaction act = {.sa_handler = on_signal};

    waiting = pthread_self();
    sigaction(SIGUSR1, &act, NULL);
    test_apart();
    test_first_kept();
    test_nothing_kept();
    test_refused();
    test_call();
    test_within();
    test_within_brief();
    test_gone();
    test_no_threads();
    test_disturbed();
    test_waker();
    return tap_done();
}
