/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/waker.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct waker {
    uv_poll_t poll;
    int fd;
    void (*on_wake)(void *arg);
    void *arg;
};

static void on_readable(uv_poll_t *p, int status, int events)
{
    struct waker *w = p->data;
    uint64_t n;

    (void)status;
    (void)events;
    if (read(w->fd, &n, sizeof(n)) == (ssize_t)sizeof(n)) {
        w->on_wake(w->arg);
    }
}

int waker_create(uv_loop_t *loop, void (*on_wake)(void *arg), void *arg,
                 struct waker **ret, struct error *e)
{
    struct waker *w = calloc(1, sizeof(*w));
    int rc;

    if (!w) {
        return error_set(e, ENOMEM, "be told by a thread");
    }
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = w->fd < 0 ? -errno : uv_poll_init(loop, &w->poll, w->fd);
    if (rc < 0) {
        if (w->fd >= 0) {
            close(w->fd);
        }
        free(w);
        return error_set(e, -rc, "be told by a thread");
    }
    w->on_wake = on_wake;
    w->arg = arg;
    w->poll.data = w;
    uv_poll_start(&w->poll, UV_READABLE, on_readable);
    uv_unref((uv_handle_t *)&w->poll);
    *ret = w;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct waker *w = h->data;

    close(w->fd);
    free(w);
}

void waker_destroy(struct waker *w)
{
    if (w) {
        uv_close((uv_handle_t *)&w->poll, on_closed);
    }
}

void waker_hold_loop(struct waker *w, bool holds)
{
    if (holds) {
        uv_ref((uv_handle_t *)&w->poll);
    } else {
        uv_unref((uv_handle_t *)&w->poll);
    }
}

/* It can fail only where very many have been sent and not been heard. */
void waker_send(const struct waker *w)
{
    uint64_t one = 1;
    ssize_t n = write(w->fd, &one, sizeof(one));

    (void)n;
}

int waker_fd(const struct waker *w)
{
    return w->fd;
}
