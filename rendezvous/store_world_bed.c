/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_world_bed.h"

#include "base/cleanup.h"
#include "rendezvous/store_bed.h"
#include "tests/lib/tap.h"

#include <string.h>

unsigned world_draw(struct world *w, unsigned n)
{
    w->state = w->state * 1103515245u + 12345u;
    return (w->state >> 16) % n;
}

struct store *world_store(struct world *w, const struct player *p)
{
    return p->node == LEAD ? w->keys : w->nodes[p->node].s;
}

static void join(struct world *w, struct node *n)
{
    n->relay = store_relay_create(n->s);
    n->trunk = store_trunk_create(w->keys, n);
    if (!n->relay || !n->trunk) {
        bail_out("no memory");
    }
}

void world_begin(struct world *w, unsigned seed,
                 const struct store_limits *limits)
{
    memset(w, 0, sizeof(*w));
    w->state = seed * 2654435761u;
    w->keys = bed_store(limits);
    for (int i = 0; i < N_NODES; i++) {
        w->nodes[i].s = bed_store(limits);
        join(w, &w->nodes[i]);
    }
}

static void end_node(struct node *n)
{
    store_relay_destroy(n->relay);
    store_trunk_destroy(n->trunk);
    buf_release(&n->up);
    buf_release(&n->down);
}

void world_rejoin(struct world *w, struct node *n)
{
    end_node(n);
    join(w, n);
}

static bool holds_nothing(const struct store *s)
{
    struct store_stats stats;

    store_get_stats(s, &stats);
    return stats.used_bytes == 0 && stats.n_waiting == 0 && stats.n_conns == 0;
}

bool world_end(struct world *w)
{
    bool clean = true;

    for (int i = 0; i < N_NODES; i++) {
        end_node(&w->nodes[i]);
        clean = clean && holds_nothing(w->nodes[i].s);
        store_destroy(w->nodes[i].s);
    }
    store_clear(w->keys);
    clean = clean && holds_nothing(w->keys);
    store_destroy(w->keys);
    return clean;
}

void world_collect(struct world *w)
{
    struct store_conn *c;

    while ((c = store_next_ready(w->keys)) != NULL) {
        if (store_conn_broken(c)) {
            bail_out("a connection is broken");
        }
        if (store_conn_trunk(c)) {
            if (!store_trunk_collect(store_conn_trunk(c), c)) {
                bail_out("no memory");
            }
        } else if (store_conn_due(c) && store_resume(w->keys, c, NULL) < 0) {
            bail_out("a request that waited fails");
        }
    }
}

bool world_up(struct node *n, size_t most)
{
    struct error e = {0};
    size_t len;
    _free_ char *data = store_relay_take(n->relay, &len);

    if (data) {
        buf_append(&n->up, data, len);
        store_relay_sent(n->relay, len);
    }
    len = n->up.len < most ? n->up.len : most;
    if (len && store_trunk_feed(n->trunk, n->up.data, len, &e) < 0) {
        bail_out("up: %s", e.text);
    }
    buf_consume(&n->up, len);
    return len > 0;
}

bool world_down(struct node *n, size_t most)
{
    struct error e = {0};
    size_t len;
    _free_ char *data = store_trunk_take(n->trunk, &len);

    if (data) {
        buf_append(&n->down, data, len);
        store_trunk_sent(n->trunk, len);
    }
    if (store_trunk_has_held(n->trunk) &&
        store_trunk_resume(n->trunk, &e) < 0) {
        bail_out("resume: %s", e.text);
    }
    len = n->down.len < most ? n->down.len : most;
    if (len && store_relay_feed(n->relay, n->down.data, len, &e) < 0) {
        bail_out("down: %s", e.text);
    }
    buf_consume(&n->down, len);
    return len > 0;
}
