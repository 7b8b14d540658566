/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/link_priv.h"

#include "base/key.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum {
    HANDSHAKE_MS = 10000, /* for strangers to show the key */
    MAX_STRANGERS = 128,
};

static void listener_free(struct link_listener *ll)
{
    key_drop(ll->key);
    free(ll);
}

void link_stranger_gone(struct link *l)
{
    struct link_listener *from = l->listener;

    l->listener = NULL;
    if (from && --from->n_strangers == 0 && from->closed) {
        listener_free(from);
    }
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

static void accept_one(struct link_listener *ll)
{
    struct conn *c = link_make_conn(ll->loop, NULL);
    struct link *l;

    if (!c) {
        return;
    }
    if (uv_accept((uv_stream_t *)&ll->tcp, (uv_stream_t *)&c->tcp) < 0 ||
        ll->n_strangers >= MAX_STRANGERS) {
        link_close_conn(c);
        return;
    }
    l = link_create(ll->loop, ll->key, false, NULL);
    if (!l) {
        link_close_conn(c);
        return;
    }
    l->listener = ll;
    ll->n_strangers++;
    c->link = l;
    uv_timer_start(l->timer, on_stranger_late, HANDSHAKE_MS, 0);
    link_use_conn(l, c);
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
    ll->key = key_hold(key);
    ll->on_peer = on_peer;
    ll->ctx = ctx;
    ll->open = ll->key; /* without memory peers wait, as before */
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
