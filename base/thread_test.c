/* SPDX-License-Identifier: Apache-2.0 */
/* This program has a syscall() of its own, which can refuse a table to a thread. */
#include <config.h>

#include "base/thread.h"
#include "base/waker.h"
#include "tests/lib/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool refuses;

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
    if (!real) {
        real = (long (*)(long, ...))(uintptr_t)dlsym(RTLD_NEXT, "syscall");
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
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
    int keep, others[2];
    bool has_keep, has_others[2], has_stdio[3];
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
    start(&s, &t);
    ok(s.has_stdio[0] && s.has_stdio[1] && s.has_stdio[2], "it has 0, 1, 2");
    ok(s.has_keep, "and what it is to have");
    ok(!s.has_others[0], "nothing of what is below that");
    ok(!s.has_others[1], "or above");
    ok(!s.takes_signals, "and takes no signals");
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

/* --- beside --- */

static int here; /* the processor that this program takes itself to run on */
static cpu_set_t at_first; /* where a thread may begin, before it may run on any */
static bool is_set; /* or it may run anywhere from its start on */
static bool is_refused;

int __wrap_sched_getcpu(void);
int __real_pthread_setaffinity_np(pthread_t t, size_t size, const cpu_set_t *set);
int __wrap_pthread_setaffinity_np(pthread_t t, size_t size, const cpu_set_t *set);
int __real_pthread_attr_setaffinity_np(pthread_attr_t *attr, size_t size, const cpu_set_t *set);
int __wrap_pthread_attr_setaffinity_np(pthread_attr_t *attr, size_t size, const cpu_set_t *set);

int __wrap_sched_getcpu(void)
{
    return here;
}

int __wrap_pthread_setaffinity_np(pthread_t t, size_t size, const cpu_set_t *set)
{
    is_set = pthread_getaffinity_np(t, sizeof(at_first), &at_first) == 0;
    return __real_pthread_setaffinity_np(t, size, set);
}

int __wrap_pthread_attr_setaffinity_np(pthread_attr_t *attr, size_t size, const cpu_set_t *set)
{
    return is_refused ? ENOMEM : __real_pthread_attr_setaffinity_np(attr, size, set);
}

struct beside {
    sem_t may_end;
    bool takes_signals, has_run;
    cpu_set_t may_run; /* at its end */
};

static void *run_beside(void *arg)
{
    struct beside *b = arg;
    sigset_t blocked;

    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    b->takes_signals = !sigismember(&blocked, SIGTERM);
    while (sem_wait(&b->may_end) < 0 && errno == EINTR) {
    }
    sched_getaffinity(0, sizeof(b->may_run), &b->may_run);
    b->has_run = true;
    return NULL;
}

static struct beside start_beside(int cpu)
{
    struct beside b = {.has_run = false};
    pthread_t t;

    here = cpu;
    is_set = false;
    sem_init(&b.may_end, 0, 0);
    if (thread_start_beside(&t, run_beside, &b) == 0) {
        sem_post(&b.may_end);
        pthread_join(t, NULL);
    }
    sem_destroy(&b.may_end);
    return b;
}

static int next_cpu(const cpu_set_t *set, int from)
{
    while (from < CPU_SETSIZE && !CPU_ISSET((size_t)from, set)) {
        from++;
    }
    return from;
}

static void run_on(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static void test_beside_many(const cpu_set_t *all, int first)
{
    struct beside b = start_beside(first);
    cpu_set_t others = *all;

    CPU_CLR((size_t)first, &others);
    ok(is_set && CPU_EQUAL(&at_first, &others), "a thread beside begins on another processor");
    ok(CPU_EQUAL(all, &b.may_run), "and may leave it for any that this one may have");
    ok(!b.takes_signals, "it takes no signals");
    is_refused = true;
    b = start_beside(first);
    is_refused = false;
    ok(b.has_run && !is_set, "where that cannot be asked for it runs all the same");
}

static void test_beside(void)
{
    cpu_set_t all;
    int first;

    sched_getaffinity(0, sizeof(all), &all);
    first = next_cpu(&all, 0);
    if (CPU_COUNT(&all) > 1) {
        test_beside_many(&all, first);
    } else {
        skip("this process may run on one processor only");
    }
    ok(start_beside(-1).has_run && !is_set, "so it does where nobody knows which one this is");
    run_on(first);
    ok(start_beside(first).has_run && !is_set, "and on the only one, where there is one");
    sched_setaffinity(0, sizeof(all), &all);
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

int main(void)
{
    test_apart();
    test_nothing_kept();
    test_refused();
    test_call();
    test_within();
    test_beside();
    test_waker();
    return tap_done();
}
