/* SPDX-License-Identifier: Apache-2.0 */
/* A thread beside begins on another processor than who starts it, where there is one. */
#include <config.h>

#include "base/thread.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>

static int here; /* the processor that this program takes itself to run on */
static cpu_set_t at_first; /* where a thread may begin, before it may run on any */
static bool is_set; /* or it may run anywhere from its start on */
static bool is_refused, knows_no_processors;

int __wrap_sched_getcpu(void);
int __real_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret);
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

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret)
{
    errno = EINVAL; /* as where there are more than a set has room for */
    return knows_no_processors ? -1 : __real_sched_getaffinity(pid, size, ret);
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
    knows_no_processors = true;
    ok(start_beside(first).has_run && !is_set, "or which ones there are");
    knows_no_processors = false;
    run_on(first);
    ok(start_beside(first).has_run && !is_set, "and on the only one, where there is one");
    sched_setaffinity(0, sizeof(all), &all);
}

int main(void)
{
    test_beside();
    return tap_done();
}
