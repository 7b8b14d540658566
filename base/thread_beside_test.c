/* SPDX-License-Identifier: Apache-2.0 */
/* A thread beside begins on another processor than who starts it, where there is one. */
#include <config.h>

#include "base/thread.h"

#include "base/clock.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static bool knows_no_processors;

int __real_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret)
{
    errno = EINVAL; /* as where there are more than a set has room for */
    return knows_no_processors ? -1 : __real_sched_getaffinity(pid, size, ret);
}

struct beside {
    atomic_int cpu; /* where it began; -1: it has not yet */
    sem_t may_end;
    bool takes_signals;
    cpu_set_t may_run; /* at its end */
};

static void *begin_beside(void *arg)
{
    struct beside *b = arg;
    sigset_t blocked;

    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    b->takes_signals = !sigismember(&blocked, SIGTERM);
    b->cpu = sched_getcpu();
    while (sem_wait(&b->may_end) < 0 && errno == EINTR) {
    }
    sched_getaffinity(0, sizeof(b->may_run), &b->may_run);
    return NULL;
}

/* Who starts it has something to do all the while, as who copies has. */
static int start_beside(struct beside *b)
{
    pthread_t t;
    uint64_t end = clock_mono_ms() + 10000;
    int rc;

    b->cpu = -1;
    sem_init(&b->may_end, 0, 0);
    rc = thread_start_beside(&t, begin_beside, b);
    while (rc == 0 && b->cpu < 0 && clock_mono_ms() < end) {
    }
    sem_post(&b->may_end);
    if (rc == 0) {
        pthread_join(t, NULL);
    }
    sem_destroy(&b->may_end);
    return rc;
}

static void *spin(void *arg)
{
    const atomic_bool *is_over = arg;

    while (!*is_over) {
    }
    return NULL;
}

static void run_on(int a, int b)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)a, &set);
    CPU_SET((size_t)b, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static int next_cpu(const cpu_set_t *set, int from)
{
    while (from < CPU_SETSIZE && !CPU_ISSET((size_t)from, set)) {
        from++;
    }
    return from;
}

/* Neither is idle: this one is where the first, and another thread where the second is. */
static void test_beside_busy(int first, int second)
{
    enum { TIMES = 20, MOST = 1000 };
    struct beside b = {0};
    atomic_bool is_over = false;
    cpu_set_t mine;
    pthread_t other;
    int n_looked = 0, n_beside = 0;

    run_on(second, second);
    if (pthread_create(&other, NULL, spin, &is_over) != 0) {
        bail_out("thread");
    }
    for (int i = 0; i < MOST && n_looked < TIMES; i++) {
        run_on(first, first);
        run_on(first, second);
        start_beside(&b);
        if (sched_getcpu() == first) { /* else this one was moved, as it may be */
            n_looked++;
            n_beside += b.cpu == second;
        }
    }
    is_over = true;
    pthread_join(other, NULL);
    ok(n_looked == TIMES && n_beside == n_looked,
       "a thread beside begins on another processor, though that is busy, too (%d of %d)",
       n_beside, n_looked);
    sched_getaffinity(0, sizeof(mine), &mine);
    ok(CPU_EQUAL(&mine, &b.may_run), "and may leave it for any that this one may have");
    ok(!b.takes_signals, "and takes no signals");
}

static void test_beside(void)
{
    struct beside b = {0};
    cpu_set_t all;
    int first, second;

    knows_no_processors = true;
    is_int(start_beside(&b), 0, "where nobody knows which processors there are");
    ok(b.cpu >= 0, "one is started as any other");
    knows_no_processors = false;
    sched_getaffinity(0, sizeof(all), &all);
    first = next_cpu(&all, 0);
    second = next_cpu(&all, first + 1);
    run_on(first, first);
    is_int(start_beside(&b), 0, "where there is one processor");
    is_int(b.cpu, first, "it is used by both");
    if (second < CPU_SETSIZE) {
        test_beside_busy(first, second);
    } else {
        skip("this process may run on one processor only");
    }
    sched_setaffinity(0, sizeof(all), &all);
}

int main(void)
{
    test_beside();
    return tap_done();
}
