/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What relays keep of the keys, in any order in which things come, with nodes lost.
 * Values only grow here, so that who reads must see at least what anybody knew before
 * it asked, and all that it has written itself.
 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/store_relay_bed.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PER_NODE = 3, N_CLIENTS = N_NODES * PER_NODE, N_STEPS = 6000,
       AGE = 200, AT_ONCE = 4, N_KEYS = AT_ONCE * (N_STEPS / AGE + 1) };

struct register_ {
    unsigned n_written; /* perhaps */
    unsigned known;     /* to somebody */
};

struct client {
    struct store_conn *conn;
    unsigned key;
    bool is_asking, is_reading;
    unsigned least; /* of what it asks for */
    unsigned own[N_KEYS];
    struct buf out;
};

struct history {
    struct relay_bed b;
    struct register_ keys[N_KEYS];
    struct client clients[N_CLIENTS];
    unsigned state, n_asked;
};

/* A number, by ADD, where the key is even, else a text that grows. */
static void begin(struct history *h, int i, unsigned key)
{
    struct client *c = &h->clients[i];
    struct register_ *reg = &h->keys[key];
    bool writes = relay_bed_random(&h->state, 12) == 0 || reg->n_written == 0;
    _buf_ struct buf in = {0};
    char name[16];

    snprintf(name, sizeof(name), "k%u", key);
    c->key = key;
    c->is_asking = true;
    c->is_reading = !writes || key % 2;
    if (writes) {
        reg->n_written++;
        c->own[key]++;
        if (key % 2) {
            bed_req(&in, STORE_APPEND, "ss", name, "x");
        } else {
            bed_req(&in, STORE_ADD, "sn", name, N(1));
        }
    }
    if (c->is_reading) {
        bed_req(&in, STORE_GET, "s", name);
    }
    h->n_asked += 1 + (writes && c->is_reading);
    c->least = reg->known > c->own[key] ? reg->known : c->own[key];
    relay_bed_feed(&h->b, i % N_NODES, c->conn, &in);
}

/* The value in an answer, once it is whole. */
static bool parse(const struct client *c, unsigned *ret)
{
    uint64_t n;

    if (c->out.len < sizeof(n)) {
        return false;
    }
    memcpy(&n, c->out.data, sizeof(n));
    if (c->is_reading && c->out.len < sizeof(n) + n) {
        return false;
    }
    *ret = (unsigned)n;
    if (c->is_reading && c->key % 2 == 0) {
        _buf_ struct buf text = {0};

        buf_append(&text, c->out.data + sizeof(n), n);
        buf_putc(&text, '\0');
        *ret = (unsigned)atoi(text.data);
    }
    return true;
}

static bool take(struct history *h, int i)
{
    struct client *c = &h->clients[i];
    struct register_ *reg = &h->keys[c->key];
    _buf_ struct buf part = {0};
    unsigned value;

    bed_take(h->b.nodes[i % N_NODES].s, c->conn, &part);
    buf_append(&c->out, part.data ? part.data : "", part.len);
    if (!c->is_asking || !parse(c, &value)) {
        return true;
    }
    c->is_asking = false;
    buf_clear(&c->out);
    if (value < c->least || value > reg->n_written) {
        diag("client %d reads %u of k%u, where %u is known and %u written", i,
             value, c->key, c->least, reg->n_written);
        return false;
    }
    reg->known = value > reg->known ? value : reg->known;
    return true;
}

static void lose(struct history *h, int node)
{
    for (int i = node; i < N_CLIENTS; i += N_NODES) {
        store_close(h->b.nodes[node].s, h->clients[i].conn);
    }
    relay_bed_lose(&h->b, node);
    for (int i = node; i < N_CLIENTS; i += N_NODES) {
        struct client *c = &h->clients[i];

        c->conn = bed_open(h->b.nodes[node].s);
        c->is_asking = false;
        buf_clear(&c->out);
        memset(c->own, 0, sizeof(c->own)); /* what it wrote may be lost */
    }
}

static bool step(struct history *h, int at)
{
    int i = (int)relay_bed_random(&h->state, N_CLIENTS);
    size_t bytes = 1 + relay_bed_random(&h->state, 40);
    unsigned key = (unsigned)(at / AGE) * AT_ONCE +
                   relay_bed_random(&h->state, AT_ONCE);
    bool right = true;

    switch (relay_bed_random(&h->state, 4)) {
    case 0:
        relay_bed_up(&h->b.nodes[i % N_NODES], bytes);
        break;
    case 1:
        relay_bed_collect(&h->b);
        relay_bed_down(&h->b.nodes[i % N_NODES], bytes);
        break;
    case 2:
        if (relay_bed_random(&h->state, 100) == 0) {
            lose(h, i % N_NODES);
        }
        break;
    default:
        if (!h->clients[i].is_asking) {
            begin(h, i, key);
        }
    }
    for (i = 0; i < N_CLIENTS && right; i++) {
        right = take(h, i);
    }
    return right;
}

static void test_random(unsigned seed, const struct store_limits *limits)
{
    struct history *h = calloc(1, sizeof(*h));
    bool right = true;
    int at = 0;

    if (!h) {
        bail_out("no memory");
    }
    h->state = seed;
    relay_bed_make(&h->b, limits);
    for (int i = 0; i < N_CLIENTS; i++) {
        h->clients[i].conn = bed_open(h->b.nodes[i % N_NODES].s);
    }
    for (; at < N_STEPS && right; at++) {
        right = step(h, at);
    }
    ok(right, "seed %u: nobody reads what has changed, %d steps", seed, at);
    relay_bed_pump(&h->b, WHOLE);
    for (int i = 0; i < N_CLIENTS; i++) {
        right = take(h, i) && !h->clients[i].is_asking && right;
        store_close(h->b.nodes[i % N_NODES].s, h->clients[i].conn);
        buf_release(&h->clients[i].out);
    }
    ok(right, "and all are answered");
    ok(relay_bed_requests(h->b.lead) < h->n_asked / 10 * 9,
       "%llu requests of %u at the keys",
       (unsigned long long)relay_bed_requests(h->b.lead), h->n_asked);
    relay_bed_pump(&h->b, WHOLE);
    relay_bed_end(&h->b);
    free(h);
}

int main(void)
{
    const struct store_limits small = {.kept_bytes = 400};

    for (unsigned seed = 1; seed <= 8; seed++) {
        test_random(seed, seed % 2 ? NULL : &small);
    }
    return tap_done();
}
