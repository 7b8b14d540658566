/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_relay_bed.h"

#include "base/cleanup.h"
#include "rendezvous/store_relay.h"
#include "rendezvous/store_trunk.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

static void join_node(struct relay_bed *b, struct relay_node *n)
{
    n->relay = store_relay_create(n->s);
    n->trunk = store_trunk_create(b->lead, n);
    if (!n->relay || !n->trunk) {
        bail_out("no memory");
    }
}

void relay_bed_make(struct relay_bed *b, const struct store_limits *limits)
{
    b->lead = bed_store(limits);
    for (int i = 0; i < N_NODES; i++) {
        b->nodes[i].s = bed_store(limits);
        join_node(b, &b->nodes[i]);
    }
}

void relay_bed_lose(struct relay_bed *b, int i)
{
    store_trunk_destroy(b->nodes[i].trunk);
    store_relay_destroy(b->nodes[i].relay);
    join_node(b, &b->nodes[i]);
}

void relay_bed_end(struct relay_bed *b)
{
    struct store_stats stats;

    for (int i = 0; i < N_NODES; i++) {
        store_trunk_destroy(b->nodes[i].trunk);
        store_relay_destroy(b->nodes[i].relay);
        store_get_stats(b->nodes[i].s, &stats);
        is_int((intmax_t)stats.used_bytes, 0, "node %d holds nothing", i);
        is_int((intmax_t)stats.n_waiting, 0, "and nobody waits there");
        store_destroy(b->nodes[i].s);
    }
    store_get_stats(b->lead, &stats);
    is_int((intmax_t)stats.n_conns, 0, "the lead has no connection left");
    store_clear(b->lead);
    store_get_stats(b->lead, &stats);
    is_int((intmax_t)stats.used_bytes, 0, "and holds nothing");
    store_destroy(b->lead);
}

bool relay_bed_up(struct relay_node *n, size_t step)
{
    struct error e = {0};
    size_t len, at = 0;
    _free_ char *data = store_relay_take(n->relay, &len);

    if (!data) {
        return false;
    }
    while (at < len) {
        size_t part = len - at < step ? len - at : step;

        if (store_trunk_feed(n->trunk, data + at, part, &e) < 0) {
            bail_out("up: %s", e.text);
        }
        at += part;
    }
    store_relay_sent(n->relay, len);
    return true;
}

bool relay_bed_down(struct relay_node *n, size_t step)
{
    struct error e = {0};
    size_t len;
    _free_ char *data = store_trunk_take(n->trunk, &len);

    for (size_t at = 0; data && at < len; at += step) {
        size_t part = len - at < step ? len - at : step;

        if (store_relay_feed(n->relay, data + at, part, &e) < 0) {
            bail_out("down: %s", e.text);
        }
    }
    store_trunk_sent(n->trunk, len);
    if (store_trunk_resume(n->trunk, &e) < 0) {
        bail_out("resume: %s", e.text);
    }
    return data != NULL;
}

void relay_bed_collect(struct relay_bed *b)
{
    struct store_conn *c;

    while ((c = store_next_ready(b->lead)) != NULL) {
        if (store_conn_trunk(c) &&
            !store_trunk_collect(store_conn_trunk(c), c)) {
            bail_out("no memory");
        }
    }
}

void relay_bed_pump(struct relay_bed *b, size_t step)
{
    bool any = true;

    while (any) {
        any = false;
        for (int i = 0; i < N_NODES; i++) {
            any = relay_bed_up(&b->nodes[i], step) || any;
        }
        relay_bed_collect(b);
        for (int i = 0; i < N_NODES; i++) {
            any = relay_bed_down(&b->nodes[i], step) || any;
        }
    }
}

int relay_bed_ask(struct relay_bed *b, int i, struct store_conn *c,
                  struct buf *in, struct buf *out)
{
    int rc = store_feed(b->nodes[i].s, c, in->data, in->len, NULL);

    buf_clear(in);
    relay_bed_pump(b, SIZE_MAX / 2);
    bed_take(b->nodes[i].s, c, out);
    return rc;
}

void relay_bed_open(struct relay_bed *b, int i, struct store_conn **c,
                    int n)
{
    for (int k = 0; k < n; k++) {
        c[k] = bed_open(b->nodes[i].s);
    }
}

void relay_bed_close(struct relay_bed *b, int i, struct store_conn **c,
                     int n)
{
    for (int k = 0; k < n; k++) {
        store_close(b->nodes[i].s, c[k]);
    }
    relay_bed_pump(b, SIZE_MAX / 2);
}

unsigned relay_bed_random(unsigned *state, unsigned n)
{
    *state = *state * 1103515245u + 12345u;
    return (*state >> 16) % n;
}

uint64_t relay_bed_requests(const struct store *s)
{
    struct store_stats stats;

    store_get_stats(s, &stats);
    return stats.n_requests;
}

size_t relay_bed_used(const struct store *s)
{
    struct store_stats stats;

    store_get_stats(s, &stats);
    return stats.used_bytes;
}

void relay_bed_feed(struct relay_bed *b, int i, struct store_conn *c,
                    struct buf *in)
{
    if (store_feed(b->nodes[i].s, c, in->data, in->len, NULL) < 0) {
        bail_out("a request fails");
    }
    buf_clear(in);
}

void relay_bed_is_known(struct relay_bed *b, int i, struct store_conn *c,
                        struct buf *in, size_t len, const char *name)
{
    uint64_t before = relay_bed_requests(b->lead);
    _buf_ struct buf out = {0};

    relay_bed_feed(b, i, c, in);
    bed_take(b->nodes[i].s, c, &out);
    is_int((intmax_t)out.len, (intmax_t)len, "%s: answered at the node", name);
    relay_bed_pump(b, WHOLE);
    is_int((intmax_t)(relay_bed_requests(b->lead) - before), 0,
           "without the keys");
}

bool relay_bed_reads(struct relay_bed *b, int i, struct store_conn *c,
                     const char *key, const char *value)
{
    _buf_ struct buf in = {0}, out = {0};

    bed_req(&in, STORE_GET, "s", key);
    relay_bed_ask(b, i, c, &in, &out);
    if (out.len != 8 + strlen(value) ||
        memcmp(out.data + 8, value, strlen(value)) != 0) {
        diag("%s is %.*s, not %s", key, out.len > 8 ? (int)out.len - 8 : 0,
             out.len > 8 ? out.data + 8 : "", value);
        return false;
    }
    return true;
}

void relay_bed_set(struct relay_bed *b, int i, struct store_conn *c,
                   const char *key, const char *value)
{
    _buf_ struct buf in = {0}, out = {0};

    bed_req(&in, STORE_SET, "ss", key, value);
    relay_bed_ask(b, i, c, &in, &out);
}
