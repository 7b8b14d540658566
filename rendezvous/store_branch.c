/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/str.h"
#include "rendezvous/store_line.h"
#include "rendezvous/store_server_priv.h"

#include <errno.h>
#include <stdlib.h>

/* A trunk that has come from another node. */
struct store_branch {
    struct store_server *srv;
    struct store_trunk *trunk;
    struct store_line line;
    uint32_t rank; /* of the agent there */
    struct store_patience patience; /* of those who wait for it */
    bool is_held;  /* not read from */
    bool is_due;
    bool is_resumed; /* will be due: its answers are to be collected first */
    struct store_branch *next_due;
    struct store_branch *next;
};

static void unlink_from(struct store_branch **at, struct store_branch *b,
                        bool of_due)
{
    while (*at != b) {
        at = of_due ? &(*at)->next_due : &(*at)->next;
    }
    *at = of_due ? b->next_due : b->next;
}

static void drop(struct store_branch *b)
{
    unlink_from(&b->srv->branches, b, false);
    if (b->is_due) {
        unlink_from(&b->srv->due, b, true);
    }
    store_line_close(&b->line);
    store_trunk_destroy(b->trunk);
    free(b);
}

static void refuse(struct store_branch *b, const char *why)
{
    struct store_server *srv = b->srv;
    char peer[ADDR_MAX];

    str_copy(peer, sizeof(peer), link_peer(b->line.link));
    drop(b);
    store_server_tell_refused(srv, peer, why);
}

static void make_due(struct store_branch *b)
{
    if (!b->is_due) {
        b->is_due = true;
        b->next_due = b->srv->due;
        b->srv->due = b;
    }
}

static bool owes(const struct store_branch *b)
{
    struct store_debt d = store_trunk_debt(b->trunk);

    return d.n_told != d.n_dropped;
}

static void on_patience(uv_timer_t *timer)
{
    struct store_server *srv = timer->data;

    store_branches_look(srv);
    store_server_turn(srv);
}

static void be_patient(struct store_server *srv)
{
    uint64_t look_ms =
        srv->config.trunk_timeout_ms / STORE_PATIENCE_LOOKS + 1;

    if (!uv_is_active((uv_handle_t *)&srv->patience)) {
        uv_timer_start(&srv->patience, on_patience, look_ms, look_ms);
    }
}

static bool is_late(struct store_branch *b)
{
    struct store_debt d = store_trunk_debt(b->trunk);

    return !store_patience_look(&b->patience, &d);
}

void store_branches_look(struct store_server *srv)
{
    struct store_branch *b = srv->branches;
    bool any = false;

    while (b && !is_late(b)) {
        any = any || b->patience.n_looks;
        b = b->next;
    }
    if (b) {
        refuse(b, "does not say that it has dropped what has changed");
    } else if (!any) {
        uv_timer_stop(&srv->patience);
    }
}

void store_branch_collect(struct store_branch *b, struct store_conn *conn)
{
    if (store_trunk_collect(b->trunk, conn)) {
        make_due(b);
        if (owes(b)) {
            be_patient(b->srv);
        }
    } else {
        refuse(b, "no memory for the answers of its workers");
    }
}

/* False: it is gone. */
static bool send_out(struct store_branch *b)
{
    size_t len;
    char *data;
    ssize_t n = store_line_pump(&b->line);

    while (n >= 0 && !b->line.data) {
        store_trunk_sent(b->trunk, (size_t)n);
        data = store_trunk_take(b->trunk, &len);
        if (!data) {
            return true;
        }
        store_line_send(&b->line, data, len);
        n = store_line_pump(&b->line);
    }
    if (n >= 0) {
        store_trunk_sent(b->trunk, (size_t)n);
        return true;
    }
    drop(b);
    return false;
}

static void hold_if_behind(struct store_branch *b)
{
    if (b->is_held != store_trunk_held(b->trunk)) {
        b->is_held = !b->is_held;
        link_hold(b->line.link, b->is_held);
    }
}

/* Its answers have gone: the requests behind them are due. True if there are any, or
 * others may go on because it is closed. */
static bool resume(struct store_branch *b)
{
    struct error e = {0};

    hold_if_behind(b);
    if (b->is_held || !store_trunk_has_held(b->trunk)) {
        return false;
    }
    if (store_trunk_resume(b->trunk, &e) < 0) {
        refuse(b, e.text);
    } else {
        b->is_resumed = true;
    }
    return true;
}

bool store_branches_send(struct store_server *srv)
{
    bool more = false;

    while (srv->due) {
        struct store_branch *b = srv->due;

        srv->due = b->next_due;
        b->is_due = false;
        more = !send_out(b) || resume(b) || more; /* others may have waited for it */
    }
    for (struct store_branch *b = more ? srv->branches : NULL; b; b = b->next) {
        if (b->is_resumed) {
            b->is_resumed = false;
            make_due(b);
        }
    }
    return more;
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct store_branch *b = ctx;
    struct error e = {0};
    int rc;

    (void)l;
    rc = f->type == STORE_LINE_DATA
             ? store_trunk_feed(b->trunk, f->data, f->len, &e)
             : error_text(&e, EPROTO, "a frame of type %u on a trunk",
                          f->type);
    if (rc < 0) {
        refuse(b, e.text);
        return;
    }
    make_due(b);
    hold_if_behind(b);
}

static void on_down(struct link *l, bool closed, const struct error *why,
                    void *ctx)
{
    (void)l;
    (void)closed;
    (void)why; /* its node's agent is gone, or has ended a generation */
    drop(ctx);
}

static void on_drained(struct link *l, void *ctx)
{
    struct store_branch *b = ctx;
    struct store_server *srv = b->srv;

    (void)l;
    make_due(b);
    store_server_turn(srv);
}

static const struct link_ops branch_ops = {
    .on_frame = on_frame,
    .on_down = on_down,
    .on_drained = on_drained,
};

/* One that has come back before its last trunk was seen to go. */
static void drop_old(struct store_server *srv, uint32_t rank)
{
    struct store_branch *b = srv->branches;

    while (b && b->rank != rank) {
        b = b->next;
    }
    if (b) {
        drop(b);
    }
}

void store_server_add_trunk(struct store_server *srv, struct link *l,
                            uint32_t rank)
{
    struct store_branch *b = calloc(1, sizeof(*b));

    if (b) {
        b->trunk = store_trunk_create(srv->store, b);
    }
    if (!b || !b->trunk || srv->uplink) {
        if (b) {
            store_trunk_destroy(b->trunk);
        }
        free(b);
        link_close(l);
        return;
    }
    drop_old(srv, rank);
    b->srv = srv;
    b->rank = rank;
    b->line.link = l;
    b->next = srv->branches;
    srv->branches = b;
    link_adopt(l, &branch_ops, b);
    link_send(l, STORE_LINE_WELCOME, NULL, 0);
}

size_t store_server_trunks(const struct store_server *srv)
{
    size_t n = 0;

    for (const struct store_branch *b = srv->branches; b; b = b->next) {
        n++;
    }
    return n;
}

void store_branches_close(struct store_server *srv)
{
    while (srv->branches) {
        drop(srv->branches);
    }
}
