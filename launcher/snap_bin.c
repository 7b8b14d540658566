/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_bin.h"

#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LITTLE_BYTES = 16 << 20 }; /* a few milliseconds */

struct waste {
    struct waste *next;
    struct snap *snap; /* NULL: only a file */
    bool is_cut;
    int fd;
    uint64_t bytes;
};

struct snap_bin {
    atomic_uint n_users;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something was given back */
    struct waste *first, **end;
    uint64_t bytes;
    uint64_t n_put, n_gone;
    bool has_thread; /* to be joined ... */
    bool is_busy;    /* ... which looks for more before it ends */
    pthread_t thread;
};

static void give_back(const struct waste *w)
{
    if (w->snap && w->is_cut) {
        snap_cut(w->snap);
    }
    snap_destroy(w->snap);
    if (w->fd >= 0) {
        close(w->fd);
    }
}

static void *empty(void *arg)
{
    struct snap_bin *b = arg;

    pthread_mutex_lock(&b->lock);
    while (b->first) {
        struct waste *w = b->first;

        b->first = w->next;
        b->end = b->first ? b->end : &b->first;
        pthread_mutex_unlock(&b->lock);
        give_back(w);
        pthread_mutex_lock(&b->lock);
        b->bytes -= w->bytes;
        b->n_gone++;
        pthread_cond_broadcast(&b->changed);
        free(w);
    }
    b->is_busy = false;
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* Locked. A thread that has found nothing more ends at once: it is not waited for here. */
static void start(struct snap_bin *b)
{
    if (b->is_busy) {
        return;
    }
    if (b->has_thread) {
        pthread_join(b->thread, NULL);
    }
    b->is_busy = true;
    b->has_thread = thread_start(&b->thread, empty, b) == 0;
}

static void put(struct snap_bin *b, const struct waste *what)
{
    struct waste *w = what->bytes >= LITTLE_BYTES ? malloc(sizeof(*w)) : NULL;
    bool is_here = !w;

    if (w) {
        *w = *what;
        pthread_mutex_lock(&b->lock);
        *b->end = w;
        b->end = &w->next;
        b->bytes += w->bytes;
        b->n_put++;
        start(b);
        is_here = !b->has_thread;
        pthread_mutex_unlock(&b->lock);
        if (is_here) {
            empty(b);
        }
    } else {
        give_back(what);
    }
}

void snap_bin_put(struct snap_bin *b, struct snap *s, bool is_cut)
{
    if (s) {
        put(b, &(struct waste){.snap = s, .is_cut = is_cut, .fd = -1,
                               .bytes = snap_bytes_there(s)});
    }
}

void snap_bin_put_file(struct snap_bin *b, int fd)
{
    struct stat st;

    if (fd >= 0) {
        put(b, &(struct waste){.fd = fd, .bytes = fstat(fd, &st) == 0
                                                      ? (uint64_t)st.st_blocks * 512 : 0});
    }
}

uint64_t snap_bin_bytes(struct snap_bin *b)
{
    uint64_t bytes;

    pthread_mutex_lock(&b->lock);
    bytes = b->bytes;
    pthread_mutex_unlock(&b->lock);
    return bytes;
}

void snap_bin_wait(struct snap_bin *b)
{
    uint64_t n;

    pthread_mutex_lock(&b->lock);
    n = b->n_put;
    while (b->n_gone < n) {
        pthread_cond_wait(&b->changed, &b->lock);
    }
    pthread_mutex_unlock(&b->lock);
}

struct snap_bin *snap_bin_create(void)
{
    struct snap_bin *b = calloc(1, sizeof(*b));

    if (b) {
        pthread_mutex_init(&b->lock, NULL);
        pthread_cond_init(&b->changed, NULL);
        b->end = &b->first;
        b->n_users = 1;
    }
    return b;
}

struct snap_bin *snap_bin_ref(struct snap_bin *b)
{
    atomic_fetch_add(&b->n_users, 1);
    return b;
}

void snap_bin_unref(struct snap_bin *b)
{
    if (!b || atomic_fetch_sub(&b->n_users, 1) > 1) {
        return;
    }
    if (b->has_thread) {
        pthread_join(b->thread, NULL);
    }
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b);
}
