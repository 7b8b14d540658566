/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/link_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { STAGGER_MS = 250 }; /* between attempts at a peer's addresses */

void link_close_trying(struct link *l)
{
    for (size_t i = 0; i < LINK_MAX_TRYING; i++) {
        if (l->trying[i]) {
            link_close_conn(l->trying[i]);
            l->trying[i] = NULL;
        }
    }
}

static void try_next(struct link *l);

static void on_stagger(uv_timer_t *t)
{
    struct link *l = t->data;

    if (uv_now(l->loop) >= l->deadline_ms) {
        error_text(&l->error, ETIMEDOUT, "%s port %u does not answer",
                   l->addrs.items[0], l->port);
        link_fail(l, false);
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
    link_fail(l, false);
}

/* The link has its connection. */
static void win(struct link *l, struct conn *c)
{
    uint64_t now = uv_now(l->loop);

    link_close_trying(l);
    uv_timer_start(l->timer, on_mute,
                   l->deadline_ms > now ? l->deadline_ms - now : 0, 0);
    link_use_conn(l, c);
    l->ops->on_up(l, l->ctx);
}

static void on_connected(uv_connect_t *request, int status)
{
    struct conn *c = request->data;
    struct link *l = c->link;
    bool others = false;

    if (!l) {
        return;
    }
    for (size_t i = 0; i < LINK_MAX_TRYING; i++) {
        if (l->trying[i] == c) {
            l->trying[i] = NULL;
        }
        others = others || l->trying[i];
    }
    if (status == 0) {
        win(l, c);
        return;
    }
    link_close_conn(c);
    error_set(&l->error, -status, "connect to %s port %u",
              l->addrs.items[l->next_addr - 1], l->port);
    if (l->next_addr < l->addrs.n) {
        try_next(l);
    } else if (!others) {
        link_fail(l, true);
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
    if (l->next_addr >= l->addrs.n || l->next_addr >= LINK_MAX_TRYING) {
        return;
    }
    c = link_make_conn(l->loop, false, l);
    if (!c) {
        return;
    }
    c->request.data = c;
    if (addr_parse(l->addrs.items[l->next_addr], l->port, &sa, &l->error) <
            0 ||
        uv_tcp_connect(&c->request, &c->tcp, (struct sockaddr *)&sa,
                       on_connected) < 0) {
        link_close_conn(c);
    } else {
        l->trying[l->next_addr] = c;
    }
    l->next_addr++;
}

static void on_local(uv_timer_t *t)
{
    struct link *l = t->data;
    struct conn *c = l->trying[0];

    l->trying[0] = NULL;
    win(l, c);
}

/* Whether somebody on this host answers, which is known at once. */
static bool try_local(struct link *l, const struct link_local *at)
{
    int fd = link_local_connect(at);
    struct conn *c = fd < 0 ? NULL : link_make_conn(l->loop, true, l);

    if (!c || uv_pipe_open(&c->local, fd) < 0) {
        if (fd >= 0) {
            close(fd);
        }
        if (c) {
            link_close_conn(c);
        }
        return false;
    }
    l->trying[0] = c;
    uv_timer_start(l->timer, on_local, 0, 0);
    return true;
}

int link_connect(uv_loop_t *loop, const struct link_target *target,
                 const uint8_t key[CHANNEL_KEY_BYTES],
                 const struct link_ops *ops, void *ctx, struct link **ret,
                 struct error *e)
{
    const struct link_local at = {key, target->local_name, target->port};
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
    if (!at.name || !try_local(l, &at)) {
        try_next(l);
    }
    *ret = l;
    return 0;
}
