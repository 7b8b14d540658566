/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/link.h"

#include "base/cleanup.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum {
    STAGGER_MS = 250,       /* between attempts at a peer's addresses */
    HANDSHAKE_MS = 10000,   /* for strangers on a listener */
    LINGER_MS = 2000,       /* for what is queued when a link is closed */
    MAX_STRANGERS = 128,    /* connections not yet authenticated */
    MAX_TRYING = 8,         /* addresses of one peer */
    READ_BYTES = 64 * 1024,
};

/* One TCP connection of a link: while connecting there are several. */
struct conn {
    uv_tcp_t tcp;
    uv_connect_t request;
    struct link *link; /* NULL once nobody wants it */
};

struct link {
    uv_loop_t *loop;
    const struct link_ops *ops;
    void *ctx;
    struct link_listener *listener; /* whose stranger it is, or NULL */
    struct channel *channel;
    struct conn *conn;     /* the connection that won */
    struct conn *trying[MAX_TRYING];
    uv_timer_t *timer;     /* stagger and deadlines, later the linger */
    struct strlist addrs;  /* while connecting */
    size_t next_addr;
    uint16_t port;
    uint64_t deadline_ms;
    uint64_t heard_ms;
    char peer[ADDR_MAX];
    bool up;
    bool met;      /* the peer has shown that it knows the key */
    bool down;     /* failed; waits for its owner to close it */
    bool closing;  /* the owner is done with it */
    bool in_frames; /* inside the frame loop: free later */
    struct error error;
};

struct link_listener {
    uv_loop_t *loop;
    uv_tcp_t tcp;
    uint8_t key[CHANNEL_KEY_BYTES];
    bool open;
    bool pending; /* connections wait for link_listener_open() */
    bool closing;
    bool closed; /* by libuv: freed once no stranger refers to it */
    unsigned n_strangers;
    void (*on_peer)(struct link *l, const struct channel_frame *first,
                    void *ctx);
    void *ctx;
    uint16_t port;
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

static void close_conn(struct conn *c)
{
    c->link = NULL;
    if (!uv_is_closing((uv_handle_t *)&c->tcp)) {
        c->tcp.data = c;
        uv_close((uv_handle_t *)&c->tcp, free_handle);
    }
}

static void free_timer(uv_handle_t *h)
{
    free(h);
}

static void close_trying(struct link *l)
{
    for (size_t i = 0; i < MAX_TRYING; i++) {
        if (l->trying[i]) {
            close_conn(l->trying[i]);
            l->trying[i] = NULL;
        }
    }
}

static void link_free(struct link *l)
{
    close_trying(l);
    if (l->conn) {
        close_conn(l->conn);
    }
    if (l->timer) {
        uv_timer_stop(l->timer);
        l->timer->data = NULL;
        uv_close((uv_handle_t *)l->timer, free_timer);
    }
    channel_destroy(l->channel);
    strlist_release(&l->addrs);
    free(l);
}

static void listener_free(struct link_listener *ll)
{
    sodium_memzero(ll->key, sizeof(ll->key));
    free(ll);
}

static void stranger_gone(struct link *l)
{
    struct link_listener *from = l->listener;

    l->listener = NULL;
    if (from && --from->n_strangers == 0 && from->closed) {
        listener_free(from);
    }
}

/* The link fails by itself: tells the owner, or frees a stranger. */
static void fail(struct link *l, bool closed)
{
    if (l->down || l->closing) {
        return;
    }
    l->down = true;
    close_trying(l);
    if (l->conn) {
        close_conn(l->conn);
        l->conn = NULL;
    }
    uv_timer_stop(l->timer);
    if (l->listener) {
        stranger_gone(l);
        l->closing = true;
        if (!l->in_frames) {
            link_free(l);
        }
        return;
    }
    l->ops->on_down(l, closed, &l->error, l->ctx);
}

static void on_written(uv_write_t *request, int status)
{
    struct write *w = (struct write *)request->data;
    struct link *l = w->conn->link;

    free(w->data);
    free(w);
    if (status < 0 && l && status != UV_ECANCELED) {
        error_set(&l->error, -status, "send to %s", l->peer);
        fail(l, true);
    }
}

static void on_flush_failed(uv_timer_t *t)
{
    fail(t->data, true);
}

/* Gives what the channel has for the peer to the kernel. Never calls back: a
 * failure is told from the loop. */
static void flush(struct link *l)
{
    struct buf *out = channel_output(l->channel);
    struct write *w;
    uv_buf_t b;
    int rc;

    if (!l->conn || out->len == 0) {
        return;
    }
    w = calloc(1, sizeof(*w));
    if (!w) {
        return; /* it stays in the output until the next flush */
    }
    b = uv_buf_init(out->data, (unsigned)out->len);
    w->data = buf_take(out);
    w->conn = l->conn;
    w->request.data = w;
    rc = uv_write(&w->request, (uv_stream_t *)&l->conn->tcp, &b, 1,
                  on_written);
    if (rc < 0) {
        free(w->data);
        free(w);
        error_set(&l->error, -rc, "send to %s", l->peer);
        uv_timer_start(l->timer, on_flush_failed, 0, 0);
    }
}

static void deliver(struct link *l, const struct channel_frame *f)
{
    struct link_listener *from = l->listener;

    if (!l->met) {
        l->met = true;
        uv_timer_stop(l->timer);
    }
    if (!from) {
        l->ops->on_frame(l, f, l->ctx);
        return;
    }
    if (from->closing) {
        link_close(l);
        return;
    }
    stranger_gone(l);
    l->up = true;
    from->on_peer(l, f, from->ctx);
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
        fail(l, false);
        return;
    }
    if (!l->down) {
        flush(l);
    }
}

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *b)
{
    (void)h;
    (void)size;
    b->base = malloc(READ_BYTES);
    b->len = b->base ? READ_BYTES : 0;
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct conn *c = s->data;
    struct link *l = c->link;
    _free_ char *data = b->base;

    if (!l || l->closing) {
        return;
    }
    if (n > 0) {
        l->heard_ms = uv_now(l->loop);
        if (channel_feed(l->channel, data, (size_t)n, &l->error) < 0) {
            fail(l, false);
            return;
        }
        take_frames(l);
    } else if (n == UV_EOF) {
        error_text(&l->error, ECONNRESET, "%s closed the connection", l->peer);
        fail(l, true);
    } else if (n < 0) {
        error_set(&l->error, (int)-n, "receive from %s", l->peer);
        fail(l, true);
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

static void name_peer(struct link *l)
{
    struct sockaddr_storage sa;
    int len = sizeof(sa);

    if (uv_tcp_getpeername(&l->conn->tcp, (struct sockaddr *)&sa, &len) == 0) {
        addr_format((struct sockaddr *)&sa, l->peer, NULL);
    }
}

static void use_conn(struct link *l, struct conn *c)
{
    l->conn = c;
    tune(&c->tcp);
    name_peer(l);
    l->heard_ms = uv_now(l->loop);
    uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    flush(l);
}

static struct conn *conn_create(uv_loop_t *loop, struct link *l)
{
    struct conn *c = calloc(1, sizeof(*c));

    if (c && uv_tcp_init(loop, &c->tcp) < 0) {
        free(c);
        return NULL;
    }
    if (c) {
        c->tcp.data = c;
        c->link = l;
    }
    return c;
}

static struct link *link_create(uv_loop_t *loop, const uint8_t *key,
                                bool initiator, struct error *e)
{
    struct link *l = calloc(1, sizeof(*l));

    if (!l) {
        error_set(e, ENOMEM, "make a link");
        return NULL;
    }
    l->loop = loop;
    l->timer = calloc(1, sizeof(*l->timer));
    if (!l->timer || channel_create(key, initiator, &l->channel, e) < 0) {
        free(l->timer);
        free(l);
        error_set(e, ENOMEM, "make a link");
        return NULL;
    }
    uv_timer_init(loop, l->timer);
    l->timer->data = l;
    str_copy(l->peer, sizeof(l->peer), "?");
    return l;
}

/* --- connecting --- */

static void try_next(struct link *l);

static void on_stagger(uv_timer_t *t)
{
    struct link *l = t->data;

    if (uv_now(l->loop) >= l->deadline_ms) {
        error_text(&l->error, ETIMEDOUT, "%s port %u does not answer",
                   l->addrs.items[0], l->port);
        fail(l, false);
        return;
    }
    try_next(l);
}

/* The kernel there has taken the connection, and nobody comes for it. */
static void on_mute(uv_timer_t *t)
{
    struct link *l = t->data;

    error_text(&l->error, ETIMEDOUT, "%s port %u does not answer", l->peer,
               l->port);
    fail(l, false);
}

static void on_connected(uv_connect_t *request, int status)
{
    struct conn *c = request->data;
    struct link *l = c->link;
    bool others = false;

    if (!l) {
        return;
    }
    for (size_t i = 0; i < MAX_TRYING; i++) {
        if (l->trying[i] == c) {
            l->trying[i] = NULL;
        }
        others = others || l->trying[i];
    }
    if (status == 0) {
        uint64_t now = uv_now(l->loop);

        close_trying(l);
        uv_timer_start(l->timer, on_mute,
                       l->deadline_ms > now ? l->deadline_ms - now : 0, 0);
        use_conn(l, c);
        l->up = true;
        l->ops->on_up(l, l->ctx);
        return;
    }
    close_conn(c);
    error_set(&l->error, -status, "connect to %s port %u",
              l->addrs.items[l->next_addr - 1], l->port);
    if (l->next_addr < l->addrs.n) {
        try_next(l);
    } else if (!others) {
        fail(l, true);
    }
}

/* Starts the attempt at the next address; the first that connects wins. */
static void try_next(struct link *l)
{
    uint64_t now = uv_now(l->loop);
    uint64_t left = l->deadline_ms > now ? l->deadline_ms - now : 0;
    bool more = l->next_addr + 1 < l->addrs.n;
    struct sockaddr_storage sa;
    struct conn *c;

    uv_timer_start(l->timer, on_stagger,
                   more && left > STAGGER_MS ? STAGGER_MS : left, 0);
    if (l->next_addr >= l->addrs.n || l->next_addr >= MAX_TRYING) {
        return;
    }
    c = conn_create(l->loop, l);
    if (!c) {
        return;
    }
    c->request.data = c;
    if (addr_parse(l->addrs.items[l->next_addr], l->port, &sa, &l->error) <
            0 ||
        uv_tcp_connect(&c->request, &c->tcp, (struct sockaddr *)&sa,
                       on_connected) < 0) {
        close_conn(c);
    } else {
        l->trying[l->next_addr] = c;
    }
    l->next_addr++;
}

int link_connect(uv_loop_t *loop, const struct link_target *target,
                 const uint8_t key[CHANNEL_KEY_BYTES],
                 const struct link_ops *ops, void *ctx, struct link **ret,
                 struct error *e)
{
    struct link *l = link_create(loop, key, true, e);

    if (!l) {
        return -ENOMEM;
    }
    l->ops = ops;
    l->ctx = ctx;
    l->port = target->port;
    strlist_add_all(&l->addrs, target->addrs);
    if (l->addrs.failed || l->addrs.n == 0) {
        link_free(l);
        return error_text(e, EINVAL, "no address to connect to");
    }
    uv_update_time(loop);
    l->deadline_ms = uv_now(loop) + target->timeout_ms;
    try_next(l);
    *ret = l;
    return 0;
}

/* --- listening --- */

static void on_stranger_late(uv_timer_t *t)
{
    struct link *l = t->data;

    error_text(&l->error, ETIMEDOUT, "%s said nothing", l->peer);
    fail(l, false);
}

static void accept_one(struct link_listener *ll)
{
    struct conn *c = conn_create(ll->loop, NULL);
    struct link *l;

    if (!c) {
        return;
    }
    if (uv_accept((uv_stream_t *)&ll->tcp, (uv_stream_t *)&c->tcp) < 0 ||
        ll->n_strangers >= MAX_STRANGERS) {
        close_conn(c);
        return;
    }
    l = link_create(ll->loop, ll->key, false, NULL);
    if (!l) {
        close_conn(c);
        return;
    }
    l->listener = ll;
    ll->n_strangers++;
    c->link = l;
    uv_timer_start(l->timer, on_stranger_late, HANDSHAKE_MS, 0);
    use_conn(l, c);
}

static void on_connection(uv_stream_t *s, int status)
{
    struct link_listener *ll = s->data;

    if (status < 0) {
        return;
    }
    if (!ll->open) {
        ll->pending = true; /* libuv calls again only after an accept */
        return;
    }
    accept_one(ll);
}

static void free_listener(uv_handle_t *h)
{
    struct link_listener *ll = h->data;

    ll->closed = true;
    if (ll->n_strangers == 0) {
        listener_free(ll);
    }
}

static int bind_any(uv_tcp_t *tcp, bool loopback)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in v4 = {.sin_family = AF_INET};

    if (!loopback && uv_tcp_bind(tcp, (struct sockaddr *)&v6, 0) == 0) {
        return 0;
    }
    v4.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
    return uv_tcp_bind(tcp, (struct sockaddr *)&v4, 0);
}

int link_listen(uv_loop_t *loop, bool loopback, struct link_listener **ret,
                struct error *e)
{
    struct link_listener *ll = calloc(1, sizeof(*ll));
    struct sockaddr_storage sa;
    int len = sizeof(sa);
    char text[ADDR_MAX];
    int rc;

    if (!ll) {
        return error_set(e, ENOMEM, "make a listener");
    }
    ll->loop = loop;
    uv_tcp_init(loop, &ll->tcp);
    ll->tcp.data = ll;
    rc = bind_any(&ll->tcp, loopback);
    rc = rc < 0 ? rc : uv_listen((uv_stream_t *)&ll->tcp, 1024, on_connection);
    rc = rc < 0 ? rc : uv_tcp_getsockname(&ll->tcp, (struct sockaddr *)&sa,
                                          &len);
    if (rc < 0) {
        uv_close((uv_handle_t *)&ll->tcp, free_listener);
        return error_set(e, -rc, "listen for control connections");
    }
    addr_format((struct sockaddr *)&sa, text, &ll->port);
    *ret = ll;
    return 0;
}

uint16_t link_listener_port(const struct link_listener *ll)
{
    return ll->port;
}

void link_listener_open(struct link_listener *ll,
                        const uint8_t key[CHANNEL_KEY_BYTES],
                        void (*on_peer)(struct link *l,
                                        const struct channel_frame *first,
                                        void *ctx),
                        void *ctx)
{
    memcpy(ll->key, key, sizeof(ll->key));
    ll->on_peer = on_peer;
    ll->ctx = ctx;
    ll->open = true;
    if (ll->pending) {
        ll->pending = false;
        accept_one(ll);
    }
}

void link_listener_close(struct link_listener *ll)
{
    if (!ll || ll->closing) {
        return;
    }
    ll->closing = true;
    /* Strangers that are left fall to their timers. */
    ll->open = false;
    uv_close((uv_handle_t *)&ll->tcp, free_listener);
}

void link_adopt(struct link *l, const struct link_ops *ops, void *ctx)
{
    l->ops = ops;
    l->ctx = ctx;
}

/* --- using --- */

int link_send(struct link *l, uint16_t type, const void *data, size_t len)
{
    int rc;

    if (l->down || l->closing) {
        return -EPIPE;
    }
    if (link_queued(l) + len > (size_t)LINK_MAX_QUEUED) {
        error_text(&l->error, ENOBUFS, "%s does not read", l->peer);
        uv_timer_start(l->timer, on_flush_failed, 0, 0);
        return -ENOBUFS;
    }
    rc = channel_send(l->channel, type, data, len, NULL);
    if (rc == 0 && !l->in_frames) {
        flush(l);
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
        n += uv_stream_get_write_queue_size((uv_stream_t *)&l->conn->tcp);
    }
    return n;
}

uint64_t link_last_heard_ms(const struct link *l)
{
    return l->heard_ms;
}

const char *link_peer(const struct link *l)
{
    return l->peer;
}

static void finish_close(struct link *l)
{
    if (l->conn) {
        close_conn(l->conn);
        l->conn = NULL;
    }
    if (!l->in_frames) {
        link_free(l);
    }
}

static void on_linger(uv_timer_t *t)
{
    finish_close(t->data);
}

static void on_shut(uv_shutdown_t *request, int status)
{
    const struct conn *c = request->data;
    struct link *l = c->link;

    (void)status;
    free(request);
    if (l) {
        finish_close(l);
    }
}

void link_close(struct link *l)
{
    uv_shutdown_t *request;

    if (!l || l->closing) {
        return;
    }
    if (l->conn && !l->down) {
        flush(l);
    }
    l->closing = true;
    stranger_gone(l);
    uv_timer_stop(l->timer);
    request = l->conn && link_queued(l) ? calloc(1, sizeof(*request)) : NULL;
    if (!request) {
        finish_close(l);
        return;
    }
    /* The shutdown completes once all that is queued was written. */
    request->data = l->conn;
    uv_timer_start(l->timer, on_linger, LINGER_MS, 0);
    if (uv_shutdown(request, (uv_stream_t *)&l->conn->tcp, on_shut) < 0) {
        free(request);
        finish_close(l);
    }
}
