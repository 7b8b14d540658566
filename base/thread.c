/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int create(pthread_t *ret, const pthread_attr_t *how, void *(*body)(void *arg), void *arg)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(ret, how, body, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

int thread_start(pthread_t *ret, void *(*body)(void *arg), void *arg)
{
    return create(ret, NULL, body, arg);
}

static int create_on(pthread_t *ret, const cpu_set_t *set, void *(*body)(void *arg), void *arg)
{
    pthread_attr_t how;
    int rc = pthread_attr_init(&how);

    if (rc) {
        return rc;
    }
    rc = pthread_attr_setaffinity_np(&how, sizeof(*set), set);
    rc = rc ? rc : create(ret, &how, body, arg);
    pthread_attr_destroy(&how);
    return rc;
}

int thread_start_beside(pthread_t *ret, void *(*body)(void *arg), void *arg)
{
    cpu_set_t all, others;
    int here = sched_getcpu();

    if (here < 0 || sched_getaffinity(0, sizeof(all), &all) < 0) {
        return thread_start(ret, body, arg);
    }
    others = all;
    CPU_CLR((size_t)here, &others);
    if (CPU_COUNT(&others) == 0 || create_on(ret, &others, body, arg) != 0) {
        return thread_start(ret, body, arg);
    }
    pthread_setaffinity_np(*ret, sizeof(all), &all); /* it stays there, and may leave */
    return 0;
}

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { IS_WATCHED = true };
#else
enum { IS_WATCHED = false };
#endif

struct apart {
    void *(*body)(void *arg);
    void *arg;
    int keep;
    bool has_own;
    sem_t is_ready;
};

/* In one call the kernel makes the new table without what is closed there. Copies of
 * those below `keep` live for a moment, while whoever started us waits. */
static bool leave_table(int keep)
{
    enum { UNSHARE = 1 << 1 }; /* CLOSE_RANGE_UNSHARE, absent in old headers */

    if (IS_WATCHED || syscall(SYS_close_range, keep > 2 ? keep + 1u : 3u, ~0U,
                              UNSHARE) < 0) {
        return false;
    }
    if (keep > 3) {
        syscall(SYS_close_range, 3U, keep - 1u, 0);
    }
    return true;
}

static void *run_apart(void *arg)
{
    struct apart *a = arg;
    void *(*body)(void *) = a->body;
    void *body_arg = a->arg;

    a->has_own = leave_table(a->keep);
    sem_post(&a->is_ready); /* `a` is gone */
    return body(body_arg);
}

static int start(pthread_t *ret, struct apart *a)
{
    int rc;

    sem_init(&a->is_ready, 0, 0);
    rc = thread_start(ret, run_apart, a);
    while (rc == 0 && sem_wait(&a->is_ready) < 0 && errno == EINTR) {
    }
    sem_destroy(&a->is_ready);
    return rc;
}

int thread_start_apart(pthread_t *ret, void *(*body)(void *arg), void *arg,
                       int keep)
{
    struct apart a = {.body = body, .arg = arg, .keep = keep};

    return start(ret, &a);
}

struct call {
    void (*body)(void *arg);
    void *arg;
};

static void *call(void *arg)
{
    const struct call *c = arg;

    c->body(c->arg);
    return NULL;
}

void thread_apart(void (*body)(void *arg), void *arg, int keep)
{
    struct call c = {body, arg};
    pthread_t thread;

    if (thread_start_apart(&thread, call, &c, keep) != 0) {
        body(arg); /* better than not at all */
        return;
    }
    pthread_join(thread, NULL);
}

/* Owned by two: whoever is the last to leave frees it. */
struct patient {
    struct call call;
    sem_t is_done;
    atomic_bool has_returned; /* what it did before is seen by who sees that */
    atomic_bool is_left;
};

static void leave(struct patient *p)
{
    if (atomic_exchange(&p->is_left, true)) {
        sem_destroy(&p->is_done);
        free(p);
    }
}

static void *run_patient(void *arg)
{
    struct patient *p = arg;

    p->call.body(p->call.arg);
    atomic_store(&p->has_returned, true);
    sem_post(&p->is_done);
    leave(p);
    return NULL;
}

static bool wait_done(struct patient *p, unsigned ms)
{
    struct timespec until;
    int rc;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    do {
        rc = sem_clockwait(&p->is_done, CLOCK_MONOTONIC, &until);
    } while (rc < 0 && errno == EINTR);
    return rc == 0 && atomic_load(&p->has_returned);
}

bool thread_call_within(void (*body)(void *arg), void *arg, unsigned ms)
{
    struct patient *p = calloc(1, sizeof(*p));
    pthread_t thread;
    bool is_done;

    if (p) {
        p->call = (struct call){body, arg};
        sem_init(&p->is_done, 0, 0);
    }
    if (!p || thread_start(&thread, run_patient, p) != 0) {
        free(p);
        body(arg);
        return true;
    }
    pthread_detach(thread);
    is_done = wait_done(p, ms);
    leave(p);
    return is_done;
}

static void *do_nothing(void *arg)
{
    return arg;
}

bool thread_can_be_apart(void)
{
    struct apart a = {.body = do_nothing, .keep = -1};
    pthread_t thread;

    if (start(&thread, &a) != 0) {
        return false;
    }
    pthread_join(thread, NULL);
    return a.has_own;
}
