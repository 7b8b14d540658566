/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores that pass requests on over trunks, beside one that is asked directly:
 * clients must not be able to tell them apart.
 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/store_frame.h"
#include "rendezvous/store_relay.h"
#include "rendezvous/store_relay_bed.h"
#include "rendezvous/store_trunk.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PER_NODE = 3, N_CLIENTS = N_NODES * PER_NODE };

static void is_answer(const struct buf *got, const char *want, size_t len,
                      const char *name)
{
    struct buf w = {.data = (char *)want, .len = len};

    bed_is(got, &w, name);
}

static size_t lead_requests(const struct relay_bed *b)
{
    struct store_stats stats;

    store_get_stats(b->lead, &stats);
    return (size_t)stats.n_requests;
}

static size_t lead_waiting(const struct relay_bed *b)
{
    struct store_stats stats;

    store_get_stats(b->lead, &stats);
    return stats.n_waiting;
}

/* Waits for one key; sent, but not over the trunk yet. */
static void begin_wait(struct relay_bed *b, int i, struct store_conn *c,
                       const char *key)
{
    _buf_ struct buf in = {0};

    bed_req(&in, STORE_WAIT, "ns", N(1), key);
    if (store_feed(b->nodes[i].s, c, in.data, in.len, NULL) < 0) {
        bail_out("a wait fails");
    }
}

static void set_key(struct relay_bed *b, int i, struct store_conn *c, int command,
                    const char *key)
{
    _buf_ struct buf in = {0}, out = {0};

    bed_req(&in, command, "ss", key, "v");
    relay_bed_ask(b, i, c, &in, &out);
    is_int((intmax_t)out.len, 0, "no answer to that");
}

static void is_told(struct relay_bed *b, int i, struct store_conn *c, bool told,
                    const char *name)
{
    _buf_ struct buf out = {0};

    bed_take(b->nodes[i].s, c, &out);
    is_answer(&out, "", told ? 1 : 0, name);
}

static void count_key(void *arg, const char *key, size_t len)
{
    *(int *)arg += len == 1 && key[0] == 'k';
}

static void test_waits(void)
{
    int n_awaiting = 0;
    struct relay_bed b;
    struct store_conn *c[5], *other[1];
    size_t before;

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 0, c, 5);
    relay_bed_open(&b, 1, other, 1);
    before = lead_requests(&b);
    begin_wait(&b, 0, c[0], "k");
    begin_wait(&b, 0, c[1], "k");
    relay_bed_pump(&b, 7);
    begin_wait(&b, 0, c[2], "k");
    begin_wait(&b, 0, c[3], "k");
    begin_wait(&b, 0, c[4], "other");
    relay_bed_pump(&b, 7);
    is_int((intmax_t)(lead_requests(&b) - before), 3, "three waits of five");
    is_int((intmax_t)lead_waiting(&b), 3, "wait at the lead");
    store_awaited(b.lead, count_key, &n_awaiting);
    is_int(n_awaiting, 4, "which knows for how many");
    set_key(&b, 1, other[0], STORE_SET, "k");
    for (int i = 0; i < 4; i++) {
        is_told(&b, 0, c[i], true, "each is told");
    }
    is_told(&b, 0, c[4], false, "not who waits for another key");
    relay_bed_close(&b, 0, c, 5);
    is_int((intmax_t)lead_waiting(&b), 0, "a wait goes with its last client");
    relay_bed_close(&b, 1, other, 1);
    relay_bed_end(&b);
}

static void test_queue(void)
{
    struct relay_bed b;
    struct store_conn *c[3], *other[1];
    _buf_ struct buf in = {0}, out = {0};

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 0, c, 3);
    relay_bed_open(&b, 1, other, 1);
    for (int i = 0; i < 3; i++) {
        begin_wait(&b, 0, c[i], "q");
    }
    relay_bed_pump(&b, SIZE_MAX / 2);
    set_key(&b, 1, other[0], STORE_QUEUE_PUSH, "q");
    is_told(&b, 0, c[0], true, "an item is for the first");
    is_told(&b, 0, c[1], false, "and for no other");
    bed_req(&in, STORE_CANCEL_WAIT, "");
    relay_bed_ask(&b, 0, c[1], &in, &out);
    is_int((intmax_t)out.len, 1, "which gives up");
    set_key(&b, 1, other[0], STORE_QUEUE_PUSH, "q");
    is_told(&b, 0, c[2], true, "the next one is for the third");
    is_int((intmax_t)lead_waiting(&b), 0, "and nobody waits");
    relay_bed_close(&b, 0, c, 3);
    relay_bed_close(&b, 1, other, 1);
    relay_bed_end(&b);
}

static void test_cancel(void)
{
    static const char canceled[] = {STORE_WAIT_CANCELED};
    struct relay_bed b;
    struct store_conn *c[2];
    _buf_ struct buf in = {0}, out = {0};

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 0, c, 2);
    begin_wait(&b, 0, c[0], "k");
    begin_wait(&b, 0, c[1], "k");
    relay_bed_pump(&b, 1);
    bed_req(&in, STORE_CANCEL_WAIT, "");
    relay_bed_ask(&b, 0, c[0], &in, &out);
    is_answer(&out, canceled, 1, "one gives up");
    is_int((intmax_t)lead_waiting(&b), 1, "the other does not");
    bed_req(&in, STORE_CANCEL_WAIT, "");
    relay_bed_ask(&b, 0, c[1], &in, &out);
    is_answer(&out, canceled, 1, "then it does");
    is_int((intmax_t)lead_waiting(&b), 0, "and nobody waits");
    bed_req(&in, STORE_BARRIER, "sn", "b", N(2));
    relay_bed_ask(&b, 0, c[0], &in, &out);
    is_int((intmax_t)lead_waiting(&b), 1, "a barrier");
    bed_req(&in, STORE_CANCEL_WAIT, "");
    relay_bed_ask(&b, 0, c[0], &in, &out);
    is_answer(&out, canceled, 1, "is given up");
    is_int((intmax_t)lead_waiting(&b), 0, "at the lead as well");
    relay_bed_close(&b, 0, c, 2);
    relay_bed_end(&b);
}

static void test_broken(void)
{
    struct relay_bed b;
    struct store_conn *c[2], *ready;
    _buf_ struct buf in = {0}, out = {0};
    bool broken = false;

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 0, c, 2);
    bed_req(&in, STORE_SET, "ss", "k", "no number");
    bed_req(&in, STORE_ADD, "sn", "k", N(1));
    store_feed(b.nodes[0].s, c[0], in.data, in.len, NULL);
    relay_bed_pump(&b, SIZE_MAX / 2);
    while ((ready = store_next_ready(b.nodes[0].s)) != NULL) {
        broken = broken || (ready == c[0] && store_conn_broken(ready));
    }
    ok(broken, "a wrong request is the end of its client");
    buf_clear(&in);
    bed_req(&in, STORE_NUM_KEYS, "");
    relay_bed_ask(&b, 0, c[1], &in, &out);
    is_int((intmax_t)out.len, 8, "and of no other");
    relay_bed_close(&b, 0, c, 2);
    relay_bed_end(&b);
}

/* Channels are used again, also when both sides close one at once. */
static void test_numbers(void)
{
    struct relay_bed b;
    struct store_conn *c[1];
    _buf_ struct buf in = {0}, out = {0};
    bool all = true;

    relay_bed_make(&b, NULL);
    for (int i = 0; i < 200 && all; i++) {
        relay_bed_open(&b, 0, c, 1);
        bed_req(&in, STORE_ADD, "sn", i % 3 ? "n" : "text", N(1));
        if (i % 3 == 0) {
            bed_req(&in, STORE_SET, "ss", "text", "x");
            bed_req(&in, STORE_ADD, "sn", "text", N(1));
        }
        store_feed(b.nodes[0].s, c[0], in.data, in.len, NULL);
        buf_clear(&in);
        if (i % 2) {
            relay_bed_up(&b.nodes[0], SIZE_MAX / 2);
        } else {
            relay_bed_pump(&b, SIZE_MAX / 2);
        }
        bed_take(b.nodes[0].s, c[0], &out);
        all = i % 3 == 0 || i % 2 || out.len == 8;
        relay_bed_close(&b, 0, c, 1);
    }
    ok(all, "200 clients, one after the other");
    relay_bed_end(&b);
}

static int feed_trunk(struct relay_bed *b, uint32_t channel, const char *data,
                      size_t len)
{
    _buf_ struct buf in = {0};

    store_frame_put(&in, channel, 0, (uint32_t)len);
    buf_append(&in, data, len);
    return store_trunk_feed(b->nodes[0].trunk, in.data, in.len, NULL);
}

static int feed_sharing(struct relay_bed *b, uint32_t channel, uint32_t n)
{
    _buf_ struct buf in = {0};

    store_frame_put(&in, channel, n, 1);
    buf_putc(&in, STORE_WAIT);
    return store_trunk_feed(b->nodes[0].trunk, in.data, in.len, NULL);
}

static int feed_relay(struct relay_bed *b, uint32_t channel, const char *data,
                      size_t len)
{
    _buf_ struct buf in = {0};

    store_frame_put(&in, channel, 0, (uint32_t)len);
    buf_append(&in, data, len);
    return store_relay_feed(b->nodes[0].relay, in.data, in.len, NULL);
}

static void test_hostile(void)
{
    struct relay_bed b;
    struct store_conn *c[1];
    size_t len;

    relay_bed_make(&b, NULL);
    is_int(feed_trunk(&b, STORE_MAX_CHANNELS, "x", 1), -EPROTO, "no such channel");
    is_int(feed_trunk(&b, UINT32_MAX, "", 0), -EPROTO, "nor that one");
    is_int(feed_trunk(&b, 0, "", 0), -EPROTO, "a close of nothing");
    is_int(feed_sharing(&b, 5, STORE_MAX_CHANNELS + 1), -EPROTO,
           "more who wait than there can be");
    is_int(feed_trunk(&b, 5, "\xff", 1), 0, "a bad command closes its channel");
    is_int(feed_trunk(&b, 5, "\x07", 1), 0, "what comes behind is ignored");
    is_int(feed_trunk(&b, 5, "", 0), 0, "until it is closed");
    is_int(feed_trunk(&b, 5, "", 0), -EPROTO, "which it is once");
    is_int(feed_relay(&b, 0, "x", 1), -EPROTO, "an answer to nobody");
    is_int(feed_relay(&b, 77, "", 0), -EPROTO, "a close of nobody");
    relay_bed_open(&b, 0, c, 1);
    begin_wait(&b, 0, c[0], "k");
    free(store_relay_take(b.nodes[0].relay, &len));
    store_relay_sent(b.nodes[0].relay, len);
    is_int(feed_relay(&b, 0, "\x07", 1), -EPROTO, "what ends no wait");
    store_close(b.nodes[0].s, c[0]);
    relay_bed_end(&b);
}

/* The same at random, at the nodes and directly */

struct twin {
    int node;
    struct store_conn *there;
    struct store_conn *here;
};

static void put_random(struct buf *in, unsigned *state, int node)
{
    static const int commands[] = {
        STORE_SET, STORE_COMPARE_SET, STORE_GET, STORE_ADD, STORE_CHECK,
        STORE_WAIT, STORE_NUM_KEYS, STORE_DELETE_KEY, STORE_APPEND,
        STORE_MULTI_GET, STORE_MULTI_SET, STORE_CANCEL_WAIT, STORE_PING,
        STORE_QUEUE_PUSH, STORE_QUEUE_POP, STORE_QUEUE_LEN, STORE_BARRIER};
    int command = commands[relay_bed_random(state, ARRAY_SIZE(commands))];
    char k[8], n[8], q[8];

    snprintf(k, sizeof(k), "k%u", relay_bed_random(state, 4));
    snprintf(n, sizeof(n), "n%u", relay_bed_random(state, 3));
    /* Whose turn it is at a queue may differ where several nodes wait. */
    snprintf(q, sizeof(q), "q%d", node);
    switch (command) {
    case STORE_SET:
    case STORE_APPEND:
        bed_req(in, command, "ss", k, "value");
        break;
    case STORE_COMPARE_SET:
        bed_req(in, command, "sss", k, "value", "w");
        break;
    case STORE_ADD:
        bed_req(in, command, "sn", n, N(relay_bed_random(state, 5)));
        break;
    case STORE_BARRIER:
        bed_req(in, command, "sn", n, N(40));
        break;
    case STORE_CHECK:
    case STORE_MULTI_GET:
        bed_req(in, command, "nss", N(2), k, n);
        break;
    case STORE_WAIT:
        bed_req(in, command, "ns", N(1), relay_bed_random(state, 3) ? k : q);
        break;
    case STORE_MULTI_SET:
        bed_req(in, command, "nssss", N(2), k, "1", "k9", "2");
        break;
    case STORE_NUM_KEYS:
    case STORE_CANCEL_WAIT:
        bed_req(in, command, "");
        break;
    case STORE_PING:
        bed_req(in, command, "u", 7u);
        break;
    case STORE_QUEUE_PUSH:
        bed_req(in, command, "ss", q, "item");
        break;
    case STORE_QUEUE_POP:
    case STORE_QUEUE_LEN:
        bed_req(in, command, "s", q);
        break;
    default:
        bed_req(in, command, "s", relay_bed_random(state, 2) ? k : n);
    }
}

static bool same_answers(struct relay_bed *b, struct store *direct,
                         struct twin *twins)
{
    bool same = true;

    for (int i = 0; i < N_CLIENTS; i++) {
        _buf_ struct buf there = {0}, here = {0};

        bed_take(b->nodes[twins[i].node].s, twins[i].there, &there);
        bed_take(direct, twins[i].here, &here);
        if (there.len != here.len ||
            (here.len > 0 && memcmp(there.data, here.data, here.len) != 0)) {
            diag("client %d: %zu bytes there, %zu here", i, there.len,
                 here.len);
            same = false;
        }
    }
    return same;
}

static void open_twin(struct relay_bed *b, struct store *direct, struct twin *t)
{
    t->there = bed_open(b->nodes[t->node].s);
    t->here = bed_open(direct);
}

static void close_twin(struct relay_bed *b, struct store *direct, struct twin *t)
{
    store_close(b->nodes[t->node].s, t->there);
    store_close(direct, t->here);
}

/* One step of a client: a few requests at once, or a new client. */
static void step(struct relay_bed *b, struct store *direct, struct twin *t,
                 unsigned *state)
{
    unsigned n = 1 + relay_bed_random(state, 10) / 7;
    _buf_ struct buf in = {0};

    if (relay_bed_random(state, 30) == 0) {
        close_twin(b, direct, t);
        open_twin(b, direct, t);
        return;
    }
    while (n-- > 0) {
        put_random(&in, state, t->node);
    }
    if (store_feed(b->nodes[t->node].s, t->there, in.data, in.len, NULL) < 0 ||
        store_feed(direct, t->here, in.data, in.len, NULL) < 0) {
        bail_out("a random request fails");
    }
}

static void test_random(unsigned seed, const struct store_limits *limits)
{
    struct relay_bed b;
    struct store *direct = bed_store(limits);
    struct twin twins[N_CLIENTS];
    unsigned state = seed;
    bool same = true;
    int steps = 0;

    relay_bed_make(&b, limits);
    for (int i = 0; i < N_CLIENTS; i++) {
        twins[i].node = i % N_NODES;
        open_twin(&b, direct, &twins[i]);
    }
    for (; steps < 3000 && same; steps++) {
        step(&b, direct, &twins[relay_bed_random(&state, N_CLIENTS)], &state);
        relay_bed_pump(&b, 1 + relay_bed_random(&state, 40));
        same = same_answers(&b, direct, twins);
    }
    ok(same, "seed %u: the same answers, %d steps", seed, steps);
    for (int i = 0; i < N_CLIENTS; i++) {
        close_twin(&b, direct, &twins[i]);
    }
    relay_bed_pump(&b, SIZE_MAX / 2);
    relay_bed_end(&b);
    store_destroy(direct);
}

/* Many large answers at once: a trunk that is behind holds all its channels. */
static void test_held(void)
{
    const struct store_limits limits = {.pipeline_bytes = 100};
    struct relay_bed b;
    struct store_conn *c[2];
    _buf_ struct buf in = {0}, out = {0};
    size_t got = 0;

    relay_bed_make(&b, &limits);
    relay_bed_open(&b, 0, c, 2);
    for (int i = 0; i < 50; i++) {
        bed_req(&in, STORE_QUEUE_PUSH, "ss", "q", "an item of a queue");
    }
    for (int i = 0; i < 50; i++) {
        bed_req(&in, STORE_QUEUE_POP, "s", "q");
    }
    store_feed(b.nodes[0].s, c[0], in.data, in.len, NULL);
    for (int i = 0; i < 200; i++) {
        relay_bed_pump(&b, SIZE_MAX / 2);
        bed_take(b.nodes[0].s, c[0], &out);
        got += out.len;
        store_resume(b.nodes[0].s, c[0], NULL);
    }
    is_int((intmax_t)got, 50 * (8 + 8 + 18), "all answers come in the end");
    relay_bed_close(&b, 0, c, 2);
    relay_bed_end(&b);
}

int main(void)
{
    test_waits();
    test_queue();
    test_cancel();
    test_broken();
    test_numbers();
    test_hostile();
    test_held();
    for (unsigned seed = 1; seed <= 8; seed++) {
        test_random(seed, NULL);
    }
    return tap_done();
}
