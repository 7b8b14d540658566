/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/crowd.h"

#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#define MAX_THREADS 64

enum { FEW_THREADS = 4 };

struct row {
    const struct crowd *crowd;
    size_t n;
    atomic_size_t next;
    atomic_bool has_failed;
    pthread_mutex_t lock; /* of what follows */
    int rc;
    struct error error;
};

static void fail(struct row *r, int rc, const struct error *e)
{
    bool is_first;

    pthread_mutex_lock(&r->lock);
    is_first = r->rc == 0;
    if (is_first) {
        r->rc = rc;
        r->error = *e;
    }
    pthread_mutex_unlock(&r->lock);
    atomic_store(&r->has_failed, true);
    if (is_first && r->crowd->stop) {
        r->crowd->stop(r->crowd->stop_arg);
    }
}

static void *help(void *arg)
{
    struct row *r = arg;
    size_t i;

    while (!atomic_load(&r->has_failed) &&
           (i = atomic_fetch_add(&r->next, 1)) < r->n) {
        struct error e = {0};
        int rc = r->crowd->work(r->crowd->arg, i, &e);

        if (rc < 0) {
            fail(r, rc, &e);
        }
    }
    return NULL;
}

int crowd_run(const struct crowd *c, size_t n, struct error *e)
{
    struct row r = {.crowd = c, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[MAX_THREADS];
    size_t want = c->n_threads < n ? c->n_threads : n, started = 0;

    /* Fewer than wanted are enough: this thread does the rest. */
    while (started + 1 < want && started < MAX_THREADS &&
           thread_start_beside(&threads[started], help, &r) == 0) {
        started++;
    }
    help(&r);
    while (started) {
        pthread_join(threads[--started], NULL);
    }
    pthread_mutex_destroy(&r.lock);
    if (r.rc < 0 && e) {
        *e = r.error;
    }
    return r.rc;
}

unsigned crowd_n_threads(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    return (unsigned)(n < FEW_THREADS ? n : FEW_THREADS);
}
