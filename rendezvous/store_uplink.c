/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/str.h"
#include "rendezvous/store_line.h"
#include "rendezvous/store_server_priv.h"

#include <errno.h>
#include <stdlib.h>

enum {
    RETRY_MS = 200,
    CONNECT_MS = 10 * 1000,
    GIVE_UP_MS = 300 * 1000, /* as long as PyTorch's clients wait for a store */
};

struct store_uplink {
    struct store_server *srv;
    struct store_relay *relay;
    struct strlist addrs;
    struct store_upstream to; /* but for the addresses */
    struct store_line line; /* without a link between two tries, and at the end */
    bool is_up;
    bool is_lost;
    bool is_told; /* that it cannot be reached */
    uint64_t since_ms;
    uv_timer_t retry;
};

static void try_now(struct store_uplink *up);

static void on_retry(uv_timer_t *timer)
{
    try_now(timer->data);
}

static void lose(struct store_uplink *up)
{
    if (!up->is_lost) {
        up->is_lost = true;
        up->is_up = false;
        store_line_close(&up->line);
        store_server_lost(up->srv);
    }
}

/* There was no trunk yet. */
static void try_later(struct store_uplink *up, const char *why)
{
    const struct store_config *config = &up->srv->config;
    uint64_t tried_ms = uv_now(up->srv->loop) - up->since_ms;

    store_line_close(&up->line);
    if (tried_ms >= CONNECT_MS && !up->is_told && config->on_unreached) {
        up->is_told = true;
        config->on_unreached(config->ctx, why);
    }
    if (tried_ms >= GIVE_UP_MS) {
        lose(up);
    } else {
        uv_timer_start(&up->retry, on_retry, RETRY_MS, 0);
    }
}

void store_uplink_flush(struct store_uplink *up)
{
    size_t len;
    ssize_t n = up->is_up ? store_line_pump(&up->line) : -ENOTCONN;

    while (n >= 0 && !up->line.data) {
        char *data;

        store_relay_sent(up->relay, (size_t)n);
        data = store_relay_take(up->relay, &len);
        if (!data) {
            return;
        }
        store_line_send(&up->line, data, len);
        n = store_line_pump(&up->line);
    }
    if (n >= 0) {
        store_relay_sent(up->relay, (size_t)n);
    } else if (up->is_up) {
        lose(up);
    }
}

static void on_up(struct link *l, void *ctx)
{
    struct store_uplink *up = ctx;
    const struct store_hello hello = {up->to.rank, up->to.generation};
    _buf_ struct buf b = {0};

    store_hello_encode(&hello, &b);
    link_send_buf(l, STORE_LINE_HELLO, &b);
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct store_uplink *up = ctx;

    (void)l;
    if (f->type == STORE_LINE_WELCOME && !up->is_up) {
        up->is_up = true;
    } else if (f->type != STORE_LINE_DATA || !up->is_up ||
               store_relay_feed(up->relay, f->data, f->len, NULL) < 0) {
        lose(up);
    }
}

static void on_down(struct link *l, bool closed, const struct error *why,
                    void *ctx)
{
    struct store_uplink *up = ctx;
    struct error e = *why;

    (void)l;
    (void)closed;
    if (up->is_up) {
        lose(up);
    } else {
        try_later(up, e.text);
    }
}

static void on_drained(struct link *l, void *ctx)
{
    struct store_uplink *up = ctx;

    (void)l;
    store_server_turn(up->srv);
}

static const struct link_ops uplink_ops = {
    .on_up = on_up,
    .on_frame = on_frame,
    .on_down = on_down,
    .on_drained = on_drained,
};

static void try_now(struct store_uplink *up)
{
    struct link_target target = {.addrs = up->addrs.items,
                                 .port = up->to.port,
                                 .timeout_ms = CONNECT_MS};
    struct error e = {0};

    if (link_connect(up->srv->loop, &target, up->to.key, &uplink_ops, up,
                     &up->line.link, &e) < 0) {
        up->line.link = NULL;
        try_later(up, e.text);
    }
}

static void free_uplink(struct store_uplink *up)
{
    strlist_release(&up->addrs);
    free(up);
}

int store_uplink_open(struct store_server *srv,
                      const struct store_upstream *to, struct error *e)
{
    struct store_uplink *up = calloc(1, sizeof(*up));

    if (!up) {
        return error_set(e, ENOMEM, "store server");
    }
    strlist_add_all(&up->addrs, to->addrs);
    up->to = *to;
    up->to.addrs = NULL;
    up->relay = up->addrs.failed ? NULL : store_relay_create(srv->store);
    if (!up->relay) {
        free_uplink(up);
        return error_set(e, ENOMEM, "store server");
    }
    up->srv = srv;
    up->since_ms = uv_now(srv->loop);
    uv_timer_init(srv->loop, &up->retry);
    up->retry.data = up;
    srv->n_handles++;
    srv->uplink = up;
    try_now(up);
    return 0;
}

static void on_retry_closed(uv_handle_t *handle)
{
    struct store_uplink *up = handle->data;
    struct store_server *srv = up->srv;

    free_uplink(up);
    store_server_handle_gone(srv);
}

void store_uplink_close(struct store_uplink *up)
{
    if (up) {
        up->is_lost = true;
        store_line_close(&up->line);
        store_relay_destroy(up->relay);
        uv_close((uv_handle_t *)&up->retry, on_retry_closed);
    }
}
