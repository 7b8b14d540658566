/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/link_priv.h"

#include "base/key.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Who keeps opening connections must not keep out those who know the key. So a new
 * stranger takes the place of the oldest one, and only so many are taken in one
 * turn of the loop: a peer, which shows the key within two turns of its own, has
 * shown it before it would be the oldest. The others wait in the kernel.
 */
enum {
    HANDSHAKE_MS = 10000, /* for strangers to show the key */
    MAX_STRANGERS = 128,
    MAX_TAKEN = 16, /* in one turn */
    NO_MEMORY_MS = 100,
};

static void free_if_over(struct link_listener *ll)
{
    if (ll->n_handles == 0 && ll->n_strangers == 0) {
        key_drop(ll->key);
        free(ll);
    }
}

static void add_stranger(struct link_listener *ll, struct link *l)
{
    l->listener = ll;
    l->older = ll->newest;
    *(ll->newest ? &ll->newest->newer : &ll->oldest) = l;
    ll->newest = l;
    ll->n_strangers++;
}

void link_stranger_gone(struct link *l)
{
    struct link_listener *from = l->listener;

    if (!from) {
        return;
    }
    *(l->older ? &l->older->newer : &from->oldest) = l->newer;
    *(l->newer ? &l->newer->older : &from->newest) = l->older;
    l->listener = NULL;
    from->n_strangers--;
    free_if_over(from);
}

void link_introduce(struct link *l, const struct channel_frame *f)
{
    struct link_listener *from = l->listener;

    if (from->closing) {
        link_close(l);
        return;
    }
    link_stranger_gone(l);
    from->on_peer(l, f, from->ctx);
}

static void on_stranger_late(uv_timer_t *t)
{
    struct link *l = t->data;

    error_text(&l->error, ETIMEDOUT, "%s said nothing", l->peer);
    link_fail(l, false);
}

static void on_turn(uv_timer_t *t);

static bool accept_conn(uv_stream_t *from, struct conn *c)
{
    uv_os_fd_t fd;

    return uv_accept(from, &c->stream) == 0 &&
           (!c->is_local || (uv_fileno(&c->handle, &fd) == 0 &&
                             link_local_is_own(fd)));
}

static bool *pending_of(struct link_listener *ll, const uv_stream_t *from)
{
    return from == (uv_stream_t *)&ll->local ? &ll->local_pending
                                             : &ll->pending;
}

static void accept_one(struct link_listener *ll, uv_stream_t *from)
{
    bool is_local = from == (uv_stream_t *)&ll->local;
    struct conn *c = link_make_conn(ll->loop, is_local, NULL);
    struct link *l;

    *pending_of(ll, from) = !c;
    if (!c) {
        uv_timer_start(&ll->turn, on_turn, NO_MEMORY_MS, 0);
        return;
    }
    if (!accept_conn(from, c)) {
        link_close_conn(c);
        return;
    }
    l = link_create(ll->loop, ll->key, false, NULL);
    if (!l) {
        link_close_conn(c);
        return;
    }
    if (ll->n_strangers >= MAX_STRANGERS) {
        error_text(&ll->oldest->error, EBUSY, "too many strangers");
        link_fail(ll->oldest, false);
    }
    add_stranger(ll, l);
    c->link = l;
    uv_timer_start(l->timer, on_stranger_late, HANDSHAKE_MS, 0);
    link_use_conn(l, c);
}

static void accept_pending(struct link_listener *ll)
{
    if (ll->pending && ll->open) {
        accept_one(ll, (uv_stream_t *)&ll->tcp);
    }
    if (ll->local_pending && ll->open) {
        accept_one(ll, (uv_stream_t *)&ll->local);
    }
}

static void on_turn(uv_timer_t *t)
{
    struct link_listener *ll = t->data;

    ll->n_taken = 0;
    accept_pending(ll);
}

static void on_connection(uv_stream_t *s, int status)
{
    struct link_listener *ll = s->data;

    if (status < 0) {
        return;
    }
    uv_timer_start(&ll->turn, on_turn, 0, 0);
    if (!ll->open || ll->n_taken >= MAX_TAKEN) {
        *pending_of(ll, s) = true; /* libuv calls again only after an accept */
        return;
    }
    ll->n_taken++;
    accept_one(ll, s);
}

static void on_handle_closed(uv_handle_t *h)
{
    struct link_listener *ll = h->data;

    ll->n_handles--;
    free_if_over(ll);
}

static void close_handles(struct link_listener *ll)
{
    uv_close((uv_handle_t *)&ll->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&ll->turn, on_handle_closed);
    if (ll->has_local) {
        uv_close((uv_handle_t *)&ll->local, on_handle_closed);
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
    uv_timer_init(loop, &ll->turn);
    ll->tcp.data = ll;
    ll->turn.data = ll;
    ll->n_handles = 2;
    rc = bind_any(&ll->tcp, loopback);
    rc = rc < 0 ? rc : uv_listen((uv_stream_t *)&ll->tcp, 1024, on_connection);
    rc = rc < 0 ? rc : uv_tcp_getsockname(&ll->tcp, (struct sockaddr *)&sa,
                                          &len);
    if (rc < 0) {
        close_handles(ll);
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
    ll->key = key_hold(key);
    ll->on_peer = on_peer;
    ll->ctx = ctx;
    ll->open = ll->key; /* without memory peers wait, as before */
    accept_pending(ll);
}

int link_listener_open_local(struct link_listener *ll, const char *name)
{
    const struct link_local at = {ll->key, name, ll->port};
    int fd = ll->open ? link_local_listen(&at) : -EINVAL;
    int rc;

    if (fd < 0) {
        return fd;
    }
    uv_pipe_init(ll->loop, &ll->local, 0);
    ll->local.data = ll;
    ll->has_local = true;
    ll->n_handles++;
    rc = uv_pipe_open(&ll->local, fd);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    return uv_listen((uv_stream_t *)&ll->local, 16, on_connection);
}

void link_listener_close(struct link_listener *ll)
{
    if (!ll || ll->closing) {
        return;
    }
    ll->closing = true;
    /* Strangers that are left fall to their timers. */
    ll->open = false;
    close_handles(ll);
}
