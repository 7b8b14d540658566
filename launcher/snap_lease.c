/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_lease.h"

#include "base/cleanup.h"
#include "base/thread.h"
#include "ckpt/lease.h"
#include "ckpt/snap.h"
#include "launcher/office_io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct snap_lease {
    char root[SNAP_ROOT_BYTES];
    const struct office *office;
    _Atomic bool is_hurried;
    _Atomic bool is_asking;
    _Atomic bool is_alone;
    pthread_t thread;

    pthread_mutex_t asks; /* of `lease`, which may take long */
    struct lease lease;

    pthread_mutex_t lock; /* of what follows, never for long */
    pthread_cond_t woken;
    unsigned n_drops, n_dropped; /* asked for, and done */
    bool is_over, has_ended;
};

/* --- the thread --- */

static void renew(struct snap_lease *l, bool drops)
{
    _close_ int root = open(l->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct office_io guarded;

    if (root < 0) {
        return;
    }
    office_io_begin(&guarded, io_system(), l->office);
    pthread_mutex_lock(&l->asks);
    if (drops) {
        lease_drop(&l->lease, &guarded.io, root);
    } else {
        l->lease.own.is_alone = l->is_alone;
        lease_adopt(&l->lease, &guarded.io, root, NULL); /* who commits is told, if not */
    }
    pthread_mutex_unlock(&l->asks);
}

static bool is_dropping(const struct snap_lease *l)
{
    return l->n_dropped != l->n_drops;
}

/* Until it is time, or something is to be done. */
static void sleep_on(struct snap_lease *l)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LEASE_RENEW_MS / 1000;
    while (!l->is_over && !is_dropping(l) &&
           pthread_cond_timedwait(&l->woken, &l->lock, &until) == 0) {
    }
}

static void *run(void *arg)
{
    struct snap_lease *l = arg;

    pthread_mutex_lock(&l->lock);
    while (!l->is_over || is_dropping(l)) {
        unsigned n = l->n_drops; /* before one that comes later it may be held anew */
        bool drops = n != l->n_dropped;

        pthread_mutex_unlock(&l->lock);
        renew(l, drops);
        pthread_mutex_lock(&l->lock);
        l->n_dropped = n;
        sleep_on(l);
    }
    l->has_ended = true;
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* --- who asks --- */

static void init_wake(struct snap_lease *l)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&l->asks, NULL);
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->woken, &attr);
    pthread_condattr_destroy(&attr);
}

static void release(struct snap_lease *l)
{
    pthread_mutex_destroy(&l->asks);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->woken);
    free(l);
}

int snap_lease_create(const char *root, const struct lease_note *own,
                      const struct office *office, struct snap_lease **ret, struct error *e)
{
    struct snap_lease *l = calloc(1, sizeof(*l));
    int rc;

    if (!l) {
        return error_set(e, ENOMEM, "save into %s", root);
    }
    snprintf(l->root, sizeof(l->root), "%s", root);
    l->office = office;
    l->is_alone = own->is_alone;
    lease_init(&l->lease, own, lease_world(&l->is_hurried));
    init_wake(l);
    rc = thread_start_apart(&l->thread, run, l, -1);
    if (rc != 0) {
        release(l);
        return error_set(e, rc, "no thread for %s", root);
    }
    *ret = l;
    return 0;
}

const char *snap_lease_root(const struct snap_lease *l)
{
    return l->root;
}

void snap_lease_alone(struct snap_lease *l, bool is_alone)
{
    l->is_alone = is_alone;
}

int snap_lease_hold(struct snap_lease *l, struct io *io, int root, struct error *e)
{
    int rc;

    l->is_asking = true;
    pthread_mutex_lock(&l->asks);
    l->lease.own.is_alone = l->is_alone;
    rc = lease_hold(&l->lease, io, root, e);
    pthread_mutex_unlock(&l->asks);
    l->is_asking = false;
    return rc < 0 ? error_wrap(e, "%s", l->root) : 0;
}

bool snap_lease_is_asking(const struct snap_lease *l)
{
    return l->is_asking;
}

void snap_lease_hurry(struct snap_lease *l)
{
    l->is_hurried = true;
}

void snap_lease_drop(struct snap_lease *l)
{
    pthread_mutex_lock(&l->lock);
    l->n_drops++;
    pthread_cond_signal(&l->woken);
    pthread_mutex_unlock(&l->lock);
}

bool snap_lease_is_dropping(struct snap_lease *l)
{
    bool is_still;

    pthread_mutex_lock(&l->lock);
    is_still = is_dropping(l);
    pthread_mutex_unlock(&l->lock);
    return is_still;
}

bool snap_lease_end(struct snap_lease *l)
{
    bool has_ended;

    pthread_mutex_lock(&l->lock);
    l->is_over = true;
    has_ended = l->has_ended;
    pthread_cond_signal(&l->woken);
    pthread_mutex_unlock(&l->lock);
    if (has_ended) {
        pthread_join(l->thread, NULL);
        release(l);
    }
    return has_ended;
}
