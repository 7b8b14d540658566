/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/link_priv.h"

#include "base/cleanup.h"
#include "base/loop_timer.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINGER_MS = 2000, /* for the peer to take what was sent before a close */
    READ_BYTES = 128 * 1024,
    LOCAL_BUFFER_BYTES = 1024 * 1024, /* the kernel may make it less */
    KEEP_BYTES = 256 * 1024, /* of an output that is empty */
};

struct write {
    uv_write_t request;
    struct conn *conn;
    char *data;
};

static void free_handle(uv_handle_t *h)
{
    free(h->data);
}

void link_close_conn(struct conn *c)
{
    c->link = NULL;
    if (!uv_is_closing(&c->handle)) {
        c->handle.data = c;
        uv_close(&c->handle, free_handle);
    }
}

void link_free(struct link *l)
{
    link_close_trying(l);
    if (l->conn) {
        link_close_conn(l->conn);
    }
    loop_timer_close(l->timer);
    channel_destroy(l->channel);
    strlist_release(&l->addrs);
    free(l);
}

/* The link fails by itself: tells the owner, or frees a stranger. */
void link_fail(struct link *l, bool closed)
{
    if (l->down || l->closing) {
        return;
    }
    l->down = true;
    link_close_trying(l);
    if (l->conn) {
        link_close_conn(l->conn);
        l->conn = NULL;
    }
    uv_timer_stop(l->timer);
    if (l->listener) {
        link_stranger_gone(l);
        l->closing = true;
        if (!l->in_frames) {
            link_free(l);
        }
        return;
    }
    l->ops->on_down(l, closed, &l->error, l->ctx);
}

static void tell_if_drained(struct link *l)
{
    if (l->tell_drained && !l->down && !l->closing && link_queued(l) == 0) {
        l->tell_drained = false;
        l->ops->on_drained(l, l->ctx);
    }
}

static void on_written(uv_write_t *request, int status)
{
    struct write *w = (struct write *)request->data;
    struct link *l = w->conn->link;

    free(w->data);
    free(w);
    /* UV_EPIPE: what the peer said before it went can still be read. */
    if (status < 0 && l && status != UV_ECANCELED && status != UV_EPIPE) {
        error_set(&l->error, -status, "send to %s", l->peer);
        link_fail(l, true);
    } else if (l) {
        tell_if_drained(l);
    }
}

static void on_flush_failed(uv_timer_t *t)
{
    link_fail(t->data, true);
}

void link_fail_soon(struct link *l)
{
    uv_timer_start(l->timer, on_flush_failed, 0, 0);
}

/* What the kernel did not take at once waits for it, from the byte `at` on. */
static int send_later(struct link *l, size_t at)
{
    struct buf *out = channel_output(l->channel);
    struct write *w = calloc(1, sizeof(*w));
    uv_buf_t b;
    int rc;

    if (!w) {
        /* It stays in the output until the next flush. */
        buf_consume(out, at);
        return 0;
    }
    b = uv_buf_init(out->data + at, (unsigned)(out->len - at));
    w->data = buf_take(out);
    w->conn = l->conn;
    w->request.data = w;
    rc = uv_write(&w->request, &l->conn->stream, &b, 1, on_written);
    if (rc < 0) {
        free(w->data);
        free(w);
    }
    return rc;
}

void link_flush(struct link *l)
{
    struct buf *out = channel_output(l->channel);
    uv_buf_t b;
    int n;

    if (!l->conn || out->len == 0) {
        return;
    }
    b = uv_buf_init(out->data, (unsigned)out->len);
    n = uv_try_write(&l->conn->stream, &b, 1);
    if (n >= 0 && (size_t)n == out->len) {
        if (out->cap > KEEP_BYTES) {
            buf_release(out);
        }
        buf_clear(out);
        return;
    }
    if (n >= 0 || n == UV_EAGAIN) {
        n = send_later(l, n > 0 ? (size_t)n : 0);
    }
    if (n == UV_EPIPE) {
        /* The peer has gone: what it said before can still be read, up to its
         * end. */
        buf_clear(out);
        return;
    }
    if (n < 0) {
        error_set(&l->error, -n, "send to %s", l->peer);
        link_fail_soon(l);
    }
}

static void deliver(struct link *l, const struct channel_frame *f)
{
    if (!l->met) {
        l->met = true;
        uv_timer_stop(l->timer);
    }
    if (l->listener) {
        link_introduce(l, f);
    } else {
        l->ops->on_frame(l, f, l->ctx);
    }
}

static void take_frames(struct link *l)
{
    struct channel_frame f;
    int rc = 0;

    l->in_frames = true;
    while (!l->down && !l->closing &&
           (rc = channel_next(l->channel, &f, &l->error)) == 1) {
        deliver(l, &f);
    }
    l->in_frames = false;
    if (l->closing && !l->conn) {
        link_free(l);
        return;
    }
    if (l->closing) {
        return;
    }
    if (rc < 0 && !l->down) {
        error_wrap(&l->error, "%s", l->peer);
        link_fail(l, false);
        return;
    }
    if (!l->down) {
        link_flush(l);
        tell_if_drained(l);
    }
}

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *b)
{
    const struct conn *c = h->data;
    size_t len = READ_BYTES;

    (void)size;
    b->base = c->link ? channel_room(c->link->channel, &len) : NULL;
    b->len = b->base ? len : 0;
}

static void finish_close(struct link *l)
{
    if (l->conn) {
        link_close_conn(l->conn);
        l->conn = NULL;
    }
    if (!l->in_frames) {
        link_free(l);
    }
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct conn *c = s->data;
    struct link *l = c->link;

    (void)b;
    if (!l) {
        return;
    }
    if (l->closing) {
        if (n < 0) {
            finish_close(l); /* the peer has seen our end */
        }
        return;
    }
    if (n > 0) {
        l->heard_ms = uv_now(l->loop);
        channel_fed(l->channel, (size_t)n);
        take_frames(l);
        if (c->link) {
            link_await_bulk(c);
        }
    } else if (n == UV_EOF) {
        error_text(&l->error, ECONNRESET, "%s closed the connection", l->peer);
        link_fail(l, true);
    } else if (n < 0) {
        error_set(&l->error, (int)-n, "receive from %s", l->peer);
        link_fail(l, true);
    }
}

static void tune(uv_tcp_t *tcp)
{
    uv_os_fd_t fd;
    unsigned unacked_ms = 20000;

    uv_tcp_nodelay(tcp, 1);
    uv_tcp_keepalive(tcp, 1, 10);
    if (uv_fileno((uv_handle_t *)tcp, &fd) == 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms,
                   sizeof(unacked_ms));
    }
}

/* More than a frame of output fits, so that neither side waits for each. */
static void tune_local(uv_pipe_t *local)
{
    uv_os_fd_t fd;
    int size = LOCAL_BUFFER_BYTES;

    if (uv_fileno((uv_handle_t *)local, &fd) == 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    }
}

static void name_peer(struct link *l)
{
    struct sockaddr_storage sa;
    int len = sizeof(sa);

    if (uv_tcp_getpeername(&l->conn->tcp, (struct sockaddr *)&sa, &len) == 0) {
        addr_format((struct sockaddr *)&sa, l->peer, NULL);
    }
}

void link_use_conn(struct link *l, struct conn *c)
{
    l->conn = c;
    if (c->is_local) {
        tune_local(&c->local);
        channel_make_private(l->channel);
        str_copy(l->peer, sizeof(l->peer), "this host");
    } else {
        tune(&c->tcp);
        name_peer(l);
    }
    l->heard_ms = uv_now(l->loop);
    uv_read_start(&c->stream, on_alloc, on_read);
    link_flush(l);
}

struct conn *link_make_conn(uv_loop_t *loop, bool is_local, struct link *l)
{
    struct conn *c = calloc(1, sizeof(*c));
    int rc;

    if (!c) {
        return NULL;
    }
    rc = is_local ? uv_pipe_init(loop, &c->local, 0)
                  : uv_tcp_init(loop, &c->tcp);
    if (rc < 0) {
        free(c);
        return NULL;
    }
    c->is_local = is_local;
    c->handle.data = c;
    c->link = l;
    return c;
}

static void *place(void *ctx, size_t len)
{
    struct link *l = ctx;

    return !l->down && !l->closing && l->ops && l->ops->place
               ? l->ops->place(l, len, l->ctx) : NULL;
}

struct link *link_create(uv_loop_t *loop, const uint8_t *key,
                                bool initiator, struct error *e)
{
    struct link *l = calloc(1, sizeof(*l));

    if (!l) {
        error_set(e, ENOMEM, "make a link");
        return NULL;
    }
    l->loop = loop;
    l->timer = loop_timer_create(loop, l);
    if (!l->timer || channel_create(key, initiator, &l->channel, e) < 0) {
        loop_timer_close(l->timer);
        free(l);
        error_set(e, ENOMEM, "make a link");
        return NULL;
    }
    channel_set_place(l->channel, place, l);
    str_copy(l->peer, sizeof(l->peer), "?");
    return l;
}

/* --- using --- */

void link_adopt(struct link *l, const struct link_ops *ops, void *ctx)
{
    l->ops = ops;
    l->ctx = ctx;
}

int link_check_room(struct link *l, size_t len)
{
    if (l->down || l->closing) {
        return -EPIPE;
    }
    if (link_queued(l) + len > (size_t)LINK_MAX_QUEUED) {
        error_text(&l->error, ENOBUFS, "%s does not read", l->peer);
        link_fail_soon(l);
        return -ENOBUFS;
    }
    return 0;
}

int link_send(struct link *l, uint16_t type, const void *data, size_t len)
{
    int rc = link_check_room(l, len);

    rc = rc < 0 ? rc : channel_send(l->channel, type, data, len, NULL);
    if (rc == 0 && !l->in_frames) {
        link_flush(l);
    }
    return rc;
}

struct buf *link_begin(struct link *l, uint16_t type)
{
    return link_check_room(l, 0) == 0 ? channel_begin(l->channel, type) : NULL;
}

int link_end(struct link *l)
{
    int rc = channel_end(l->channel, NULL);

    if (rc == 0 && !l->in_frames) {
        link_flush(l);
    }
    return rc;
}

int link_send_buf(struct link *l, uint16_t type, const struct buf *b)
{
    return b->failed ? -ENOMEM : link_send(l, type, b->data, b->len);
}

size_t link_queued(const struct link *l)
{
    size_t n = channel_output(l->channel)->len;

    if (l->conn) {
        n += uv_stream_get_write_queue_size(&l->conn->stream);
    }
    return n;
}

void link_tell_drained(struct link *l)
{
    l->tell_drained = true;
}

void link_hold(struct link *l, bool hold)
{
    if (l->held == hold || !l->conn || l->down || l->closing) {
        return;
    }
    l->held = hold;
    if (hold) {
        uv_read_stop(&l->conn->stream);
    } else {
        uv_read_start(&l->conn->stream, on_alloc, on_read);
    }
}

uint64_t link_last_heard_ms(const struct link *l)
{
    return l->heard_ms;
}

const char *link_peer(const struct link *l)
{
    return l->peer;
}

static void on_linger(uv_timer_t *t)
{
    finish_close(t->data);
}

static void on_shut(uv_shutdown_t *request, int status)
{
    const struct conn *c = request->data;
    struct link *l = c->link;

    free(request);
    if (l && status < 0) {
        finish_close(l);
    }
}

/* What the peer sends meanwhile is read and dropped: a socket that is closed with
 * something unread resets the connection, and the peer would lose what it has not
 * read of ours. So this end goes when the peer's end has come. */
void link_close(struct link *l)
{
    bool is_stranger;
    uv_shutdown_t *request;

    if (!l || l->closing) {
        return;
    }
    if (l->conn && !l->down) {
        link_flush(l);
    }
    is_stranger = l->listener;
    link_hold(l, false);
    l->closing = true;
    link_stranger_gone(l);
    uv_timer_stop(l->timer);
    request = l->conn && (!is_stranger || link_queued(l))
                  ? calloc(1, sizeof(*request)) : NULL;
    if (!request) {
        finish_close(l);
        return;
    }
    request->data = l->conn;
    uv_timer_start(l->timer, on_linger, LINGER_MS, 0);
    if (uv_shutdown(request, &l->conn->stream, on_shut) < 0) {
        free(request);
        finish_close(l);
    }
}
