/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/writer.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_SPARE = 16, /* buffers that are kept for what comes next */
    MAX_SPARE_BYTES = 256 << 10, /* each: larger ones are rare */
};

struct chunk {
    struct chunk *next;
    int fd;
    struct buf data;
};

struct writer {
    uv_thread_t thread;
    uv_mutex_t mutex;
    uv_cond_t more;
    uv_async_t *room;
    void (*on_room)(void *arg);
    void *arg;
    struct chunk *first, **last;
    struct chunk *spare;
    unsigned n_spare;
    size_t pending;
    int failed[3];
    bool is_watched; /* the loop has seen bytes that were not written */
    bool is_busy;    /* the thread is in a write */
    bool is_over;
};

/* 0, or an errno value. */
static int write_blocking(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);

        if (n >= 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};

            if (poll(&p, 1, -1) < 0 && errno != EINTR) {
                return errno;
            }
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

static void chunk_free(struct chunk *c)
{
    buf_release(&c->data);
    free(c);
}

static void free_all(struct chunk *c)
{
    while (c) {
        struct chunk *next = c->next;

        chunk_free(c);
        c = next;
    }
}

/* Memory that was just written from is warm, and the kernel need not clear it.
 * With the mutex held. */
static void put_aside(struct writer *w, struct chunk *c)
{
    if (w->n_spare == MAX_SPARE || c->data.cap > MAX_SPARE_BYTES) {
        chunk_free(c);
        return;
    }
    buf_clear(&c->data);
    c->next = w->spare;
    w->spare = c;
    w->n_spare++;
}

/* With the mutex held, but for the write itself. */
static void write_first(struct writer *w)
{
    struct chunk *c = w->first;
    int error = w->failed[c->fd];

    w->first = c->next;
    if (!w->first) {
        w->last = &w->first;
    }
    if (!error) {
        w->is_busy = true;
        uv_mutex_unlock(&w->mutex);
        error = write_blocking(c->fd, c->data.data, c->data.len);
        uv_mutex_lock(&w->mutex);
        w->is_busy = false;
    }
    w->failed[c->fd] = error;
    w->pending -= c->data.len;
    put_aside(w, c);
    if (!w->pending && w->is_watched && !w->is_over) {
        w->is_watched = false;
        uv_async_send(w->room);
    }
}

static void write_all(void *arg)
{
    struct writer *w = arg;

    uv_mutex_lock(&w->mutex);
    while (!w->is_over) {
        if (w->first) {
            write_first(w);
        } else {
            uv_cond_wait(&w->more, &w->mutex);
        }
    }
    uv_mutex_unlock(&w->mutex);
}

static void on_async(uv_async_t *a)
{
    struct writer *w = a->data;

    w->on_room(w->arg);
}

static void free_handle(uv_handle_t *h)
{
    free(h);
}

int writer_create(uv_loop_t *loop, void (*on_room)(void *arg), void *arg,
                  struct writer **ret, struct error *e)
{
    struct writer *w = calloc(1, sizeof(*w));
    int rc;

    if (!w || !(w->room = calloc(1, sizeof(*w->room)))) {
        free(w);
        return error_set(e, ENOMEM, "write output");
    }
    w->last = &w->first;
    w->on_room = on_room;
    w->arg = arg;
    uv_mutex_init(&w->mutex);
    uv_cond_init(&w->more);
    uv_async_init(loop, w->room, on_async);
    uv_unref((uv_handle_t *)w->room);
    w->room->data = w;
    rc = uv_thread_create(&w->thread, write_all, w);
    if (rc < 0) {
        uv_close((uv_handle_t *)w->room, free_handle);
        uv_cond_destroy(&w->more);
        uv_mutex_destroy(&w->mutex);
        free(w);
        return error_set(e, -rc, "write output: start a thread");
    }
    *ret = w;
    return 0;
}

void writer_destroy(struct writer *w)
{
    bool is_busy;

    if (!w) {
        return;
    }
    uv_mutex_lock(&w->mutex);
    w->is_over = true;
    is_busy = w->is_busy;
    uv_cond_signal(&w->more);
    uv_mutex_unlock(&w->mutex);
    uv_close((uv_handle_t *)w->room, free_handle);
    if (is_busy) {
        return; /* it still uses `w` */
    }
    uv_thread_join(&w->thread);
    free_all(w->first);
    free_all(w->spare);
    uv_cond_destroy(&w->more);
    uv_mutex_destroy(&w->mutex);
    free(w);
}

/* An empty chunk, or NULL. With the mutex held. */
static struct chunk *get_chunk(struct writer *w)
{
    struct chunk *c = w->spare;

    if (!c) {
        return calloc(1, sizeof(*c));
    }
    w->spare = c->next;
    w->n_spare--;
    c->next = NULL;
    return c;
}

void writer_take(struct writer *w, int fd, struct buf *b)
{
    struct chunk *c;

    uv_mutex_lock(&w->mutex);
    c = b->len ? get_chunk(w) : NULL;
    if (c) {
        struct buf empty = c->data;

        c->fd = fd;
        c->data = *b;
        *b = empty;
        *w->last = c;
        w->last = &c->next;
        w->pending += c->data.len;
    }
    uv_mutex_unlock(&w->mutex);
    uv_cond_signal(&w->more); /* the thread finds the mutex free */
    buf_clear(b);
}

size_t writer_pending(struct writer *w)
{
    size_t pending;

    uv_mutex_lock(&w->mutex);
    pending = w->pending;
    w->is_watched = pending > 0;
    uv_mutex_unlock(&w->mutex);
    return pending;
}

int writer_error(struct writer *w, int fd)
{
    int error;

    uv_mutex_lock(&w->mutex);
    error = w->failed[fd];
    uv_mutex_unlock(&w->mutex);
    return error;
}
