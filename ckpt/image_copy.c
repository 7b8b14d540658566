/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/image.h"

#include "base/pages.h"
#include "base/thread.h"
#include "ckpt/digest.h"
#include "ckpt/streamed.h"
#include "ckpt/strided.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

enum {
    MAX_THREADS = 64,
    STREAM_BYTES = 32 << 20, /* little of an image of that size stays in a cache until
                                anybody reads it */
};

static struct strided memory_of(const struct image_piece *p)
{
    return (struct strided){p->tensor.dtype, p->tensor.n_dims, p->tensor.shape, p->strides,
                            (void *)p->data};
}

static int read_device(const struct image_piece *p, uint64_t at, uint64_t len,
                       void *to, struct error *e)
{
    int rc = device_get(p->device, to, (const char *)p->data + at, len, e);

    return rc < 0 && e ? error_wrap(e, "tensor '%.100s'", p->name) : rc;
}

/* Most lie in memory as they do in the file. */
static int read_piece(const struct image_piece *p, uint64_t at, uint64_t len, void *to,
                      copy_f *copy, struct error *e)
{
    struct strided s;

    if (p->device) {
        return read_device(p, at, len, to, e);
    }
    if (p->strides) {
        s = memory_of(p);
        strided_get(&s, at, len, to);
    } else {
        copy(to, (const char *)p->data + at, len);
    }
    return 0;
}

/* The first piece that ends behind that byte; empty ones are in between. */
static size_t first_behind(const struct image *im, uint64_t at)
{
    size_t low = 0, high = im->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct image_piece *p = &im->pieces[middle];

        if (p->tensor.end > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static int read_by(copy_f *copy, const struct image *im, uint64_t at, size_t len, void *to,
                   struct error *e)
{
    uint64_t end = at + len;
    char *next = to;
    int rc = 0;

    if (at < im->header.len) {
        size_t n = im->header.len - at < len ? im->header.len - at : len;

        memcpy(next, im->header.data + at, n);
        next += n;
        at += n;
    }
    for (size_t i = first_behind(im, at); i < im->n && at < end && rc == 0; i++) {
        const struct image_piece *p = &im->pieces[i];
        uint64_t from = at - p->tensor.begin;
        uint64_t n = p->tensor.end < end ? p->tensor.end - at : end - at;

        if (p->tensor.end > p->tensor.begin) {
            rc = read_piece(p, from, n, next, copy, e);
            next += n;
            at += n;
        }
    }
    return rc;
}

int image_read(const struct image *im, uint64_t at, size_t len, void *to,
               struct error *e)
{
    return read_by(near_copy, im, at, len, to, e);
}

/* --- all of it --- */

static void keep_failure(struct image_copy *c, const struct error *e)
{
    pthread_mutex_lock(&c->lock);
    if (!c->error.code) {
        c->error = *e;
    }
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->next, c->n_blocks); /* the others need not go on */
}

static int read_for_fill(void *arg, uint64_t at, size_t len, void *to, struct error *e)
{
    const struct image_copy *c = arg;

    return image_read(c->image, at - c->fill_at, len, to, e);
}

static bool has_device(const struct image *im, uint64_t at, size_t len)
{
    for (size_t i = first_behind(im, at); i < im->n && im->pieces[i].tensor.begin < at + len; i++) {
        if (im->pieces[i].device) {
            return true;
        }
    }
    return false;
}

static int copy_block(struct image_copy *c, uint64_t at, size_t len, struct error *e)
{
    const struct fill_source source = {read_for_fill, c, has_device(c->image, at, len)};
    int rc;

    if (c->fill) {
        return fill_piece(c->fill, c->fill_at + at, len, &source, e);
    }
    if (c->is_untouched) {
        pages_take(c->to + at, len);
    }
    if (c->image->bytes < STREAM_BYTES) {
        return image_read(c->image, at, len, c->to + at, e);
    }
    rc = read_by(streamed_put, c->image, at, len, c->to + at, e);
    streamed_end();
    return rc;
}

/* Whatever other threads are at. */
static void count_block(struct image_copy *c, uint64_t i)
{
    uint64_t n;

    if (!c->is_there) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->is_there[i] = true;
    n = atomic_load_explicit(c->n_there, memory_order_relaxed);
    while (n < c->n_blocks && c->is_there[n]) {
        n++;
    }
    atomic_store_explicit(c->n_there, n, memory_order_release);
    pthread_mutex_unlock(&c->lock);
}

static bool enter(struct image_copy *c)
{
    bool may_enter;

    pthread_mutex_lock(&c->lock);
    may_enter = !c->is_over;
    c->n_inside += may_enter;
    pthread_mutex_unlock(&c->lock);
    return may_enter;
}

static void leave(struct image_copy *c)
{
    pthread_mutex_lock(&c->lock);
    if (--c->n_inside == 0) {
        pthread_cond_signal(&c->left);
    }
    pthread_mutex_unlock(&c->lock);
}

/* Before so many of them who waits for this processor goes first. */
static void copy_blocks(struct image_copy *c, unsigned n_polite)
{
    uint64_t i;

    if (!enter(c)) {
        return;
    }
    while ((i = atomic_fetch_add(&c->next, 1)) < c->n_blocks) {
        uint64_t at = i * DIGEST_BLOCK_BYTES, left = c->image->bytes - at;
        size_t n = left < DIGEST_BLOCK_BYTES ? left : DIGEST_BLOCK_BYTES;
        struct error e = {0};

        if (n_polite > 0) {
            n_polite--;
            sched_yield();
        }
        if (copy_block(c, at, n, &e) < 0) {
            keep_failure(c, &e);
        } else {
            count_block(c, i);
        }
    }
    leave(c);
}

/* Whoever brings to the disk what is there begins just now, too, by a thread that is new to
 * the kernel, and where all processors copy would wait for a time slice to end: some
 * milliseconds, in which a disk writes as many megabytes. */
static void *help(void *arg)
{
    enum { POLITE_BLOCKS = 3 };
    struct image_copy *c = arg;

    copy_blocks(c, c->is_there ? POLITE_BLOCKS : 0);
    return NULL;
}

void image_copy_begin(struct image_copy *c, const struct image *im, void *to,
                      bool is_untouched)
{
    c->image = im;
    c->to = to;
    c->is_untouched = is_untouched;
    c->fill = NULL;
    c->n_there = NULL;
    c->is_there = NULL;
    c->n_blocks = digest_n_blocks(im->bytes);
    c->error = (struct error){0};
    c->n_inside = 0;
    c->is_over = false;
    /* Not destroyed at the end: who helps may come behind it. */
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->left, NULL);
    atomic_store(&c->next, 0);
}

void image_copy_begin_fill(struct image_copy *c, const struct image *im, struct fill *fill,
                           uint64_t fill_at)
{
    image_copy_begin(c, im, NULL, false);
    c->fill = fill;
    c->fill_at = fill_at;
}

void image_copy_tell(struct image_copy *c, _Atomic uint64_t *n_there, bool *is_there)
{
    c->n_there = n_there;
    c->is_there = is_there;
}

void image_copy_help(struct image_copy *c, unsigned n_threads, void (*first)(void *arg),
                     void *arg)
{
    pthread_t threads[MAX_THREADS];
    uint64_t next = atomic_load(&c->next);
    uint64_t left = next < c->n_blocks ? c->n_blocks - next : 0;
    unsigned n = 0;

    n_threads = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
    while (n + 1 < n_threads && n + 1 < left &&
           thread_start_beside(&threads[n], help, c) == 0) {
        n++;
    }
    if (first) {
        first(arg);
    }
    copy_blocks(c, 0);
    while (n > 0) {
        pthread_join(threads[--n], NULL);
    }
}

int image_copy_end(struct image_copy *c, struct error *e)
{
    pthread_mutex_lock(&c->lock);
    c->is_over = true;
    while (c->n_inside > 0) {
        pthread_cond_wait(&c->left, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    if (c->error.code && e) {
        *e = c->error;
    }
    return -c->error.code;
}
