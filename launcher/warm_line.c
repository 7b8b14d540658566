/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/warm_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>

struct warm_line {
    uv_poll_t poll;
    struct warm *warm;
    int fd; /* -1 once closed */
    warm_line_f *f;
    void *arg;
};

static void on_closed(uv_handle_t *h)
{
    struct warm_line *l = h->data;
    struct warm *w = l->warm;

    free(l);
    warm_handle_closed(w);
}

/* One message. False if there is none, or it was the last one. */
static bool take_one(struct warm_line *l)
{
    _seqsock_msg_ struct seqsock_msg m;
    int rc;

    seqsock_msg_init(&m);
    rc = l->fd < 0 ? -EAGAIN : seqsock_recv(l->fd, &m);
    if (rc == -EAGAIN) {
        return false;
    }
    l->f(l->arg, rc > 0 ? &m : NULL);
    return rc > 0;
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    take_one(h->data);
}

void warm_line_drain(struct warm_line *l)
{
    /* Its memory stays until the loop has turned. */
    while (l && take_one(l)) {
    }
}

int warm_line_open(struct warm *w, warm_line_f *f, void *arg,
                   struct warm_line **ret, int *ret_fd, struct error *e)
{
    struct warm_line *l = calloc(1, sizeof(*l));
    int pair[2];
    int rc;

    if (!l) {
        return error_set(e, ENOMEM, "open a line to Python");
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        rc = error_set(e, errno, "open a line to Python");
        free(l);
        return rc;
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    *l = (struct warm_line){.warm = w, .fd = pair[0], .f = f, .arg = arg};
    rc = uv_poll_init(w->config.loop, &l->poll, l->fd);
    if (rc < 0) {
        close(pair[0]);
        close(pair[1]);
        free(l);
        return error_set(e, -rc, "open a line to Python");
    }
    w->n_handles++;
    l->poll.data = l;
    uv_poll_start(&l->poll, UV_READABLE, on_readable);
    uv_unref((uv_handle_t *)&l->poll);
    *ret = l;
    *ret_fd = pair[1];
    return 0;
}

int warm_line_send(struct warm_line *l, enum warm_message type,
                   const struct buf *data, const int *fds, size_t n_fds)
{
    return l && l->fd >= 0
               ? seqsock_send(l->fd, (uint16_t)type, data, fds, n_fds)
               : -EPIPE;
}

void warm_line_close(struct warm_line *l)
{
    if (!l || l->fd < 0) {
        return;
    }
    uv_poll_stop(&l->poll);
    uv_close((uv_handle_t *)&l->poll, on_closed);
    close_fd(&l->fd);
}
