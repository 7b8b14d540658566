/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What relays keep of the keys: it is asked for once a node, and nobody ever reads
 * what has been changed.
 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/store_frame.h"
#include "rendezvous/store_relay.h"
#include "rendezvous/store_relay_bed.h"
#include "rendezvous/store_share.h"
#include "rendezvous/store_trunk.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE = 1 << 30 };

static uint64_t requests(const struct store *s)
{
    struct store_stats stats;

    store_get_stats(s, &stats);
    return stats.n_requests;
}

static size_t used(const struct store *s)
{
    struct store_stats stats;

    store_get_stats(s, &stats);
    return stats.used_bytes;
}

static void feed(struct relay_bed *b, int i, struct store_conn *c,
                 struct buf *in)
{
    if (store_feed(b->nodes[i].s, c, in->data, in->len, NULL) < 0) {
        bail_out("a request fails");
    }
    buf_clear(in);
}

/* What is in `in`, and nothing goes over a trunk for it. */
static void is_known(struct relay_bed *b, int i, struct store_conn *c,
                     struct buf *in, size_t len, const char *name)
{
    uint64_t before = requests(b->lead);
    _buf_ struct buf out = {0};

    feed(b, i, c, in);
    bed_take(b->nodes[i].s, c, &out);
    is_int((intmax_t)out.len, (intmax_t)len, "%s: answered at the node", name);
    relay_bed_pump(b, WHOLE);
    is_int((intmax_t)(requests(b->lead) - before), 0, "without the keys");
}

static bool reads(struct relay_bed *b, int i, struct store_conn *c,
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

static void set(struct relay_bed *b, int i, struct store_conn *c,
                const char *key, const char *value)
{
    _buf_ struct buf in = {0}, out = {0};

    bed_req(&in, STORE_SET, "ss", key, value);
    relay_bed_ask(b, i, c, &in, &out);
}

static void test_once(void)
{
    struct relay_bed b;
    struct store_conn *c[2], *other[1];
    _buf_ struct buf in = {0}, out = {0};

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 0, c, 2);
    relay_bed_open(&b, 1, other, 1);
    bed_req(&in, STORE_WAIT, "ns", N(1), "k");
    feed(&b, 0, c[0], &in);
    relay_bed_pump(&b, 3);
    set(&b, 1, other[0], "k", "value");
    set(&b, 1, other[0], "k2", "v");
    bed_take(b.nodes[0].s, c[0], &out);
    is_int((intmax_t)out.len, 1, "who has waited is told");
    bed_req(&in, STORE_GET, "s", "k");
    is_known(&b, 0, c[0], &in, 13, "what it has waited for");
    bed_req(&in, STORE_WAIT, "ns", N(1), "k");
    is_known(&b, 0, c[1], &in, 1, "a wait of another");
    bed_req(&in, STORE_CHECK, "ns", N(1), "k");
    is_known(&b, 0, c[1], &in, 1, "a check");
    ok(reads(&b, 0, c[1], "k2", "v"), "another key");
    bed_req(&in, STORE_MULTI_GET, "nss", N(2), "k2", "k");
    is_known(&b, 0, c[1], &in, 22, "both");
    bed_req(&in, STORE_GET, "s", "k");
    feed(&b, 1, other[0], &in);
    bed_take(b.nodes[1].s, other[0], &out);
    is_int((intmax_t)out.len, 0, "another node has to ask");
    relay_bed_pump(&b, WHOLE);
    relay_bed_close(&b, 0, c, 2);
    relay_bed_close(&b, 1, other, 1);
    relay_bed_end(&b);
}

/* One request changes a key twice, for which others wait. */
static void test_twice(void)
{
    struct relay_bed b;
    struct store_conn *c[1], *writer[1];
    _buf_ struct buf in = {0}, out = {0};

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 0, c, 1);
    relay_bed_open(&b, 1, writer, 1);
    bed_req(&in, STORE_WAIT, "ns", N(1), "k");
    feed(&b, 0, c[0], &in);
    relay_bed_pump(&b, WHOLE);
    bed_req(&in, STORE_MULTI_SET, "nssss", N(2), "k", "1", "k", "2");
    relay_bed_ask(&b, 1, writer[0], &in, &out);
    bed_take(b.nodes[0].s, c[0], &out);
    is_int((intmax_t)out.len, 1, "who has waited is told");
    ok(reads(&b, 0, c[0], "k", "2"), "and reads the last value");
    relay_bed_close(&b, 0, c, 1);
    relay_bed_close(&b, 1, writer, 1);
    relay_bed_end(&b);
}

static void put_change(struct buf *in, int command)
{
    switch (command) {
    case STORE_SET:
    case STORE_APPEND:
        bed_req(in, command, "ss", "k", "2");
        break;
    case STORE_COMPARE_SET:
        bed_req(in, command, "sss", "k", "1", "2");
        break;
    case STORE_MULTI_SET:
        bed_req(in, command, "nssssss", N(3), "other", "x", "k", "3", "k", "2");
        break;
    case STORE_DELETE_KEY:
        bed_req(in, command, "s", "k");
        break;
    default: /* ADD, BARRIER */
        bed_req(in, command, "sn", "k", N(1));
    }
}

/* One node is slow to drop what changes. */
static void test_change(int command, const char *after)
{
    struct relay_bed b;
    struct store_conn *c[1], *slow[1], *writer[1];
    _buf_ struct buf in = {0}, out = {0};

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 0, c, 1);
    relay_bed_open(&b, 1, slow, 1);
    relay_bed_open(&b, 2, writer, 1);
    set(&b, 2, writer[0], "k", "1");
    ok(reads(&b, 0, c[0], "k", "1") && reads(&b, 1, slow[0], "k", "1"),
       "command %d: two nodes keep what is there", command);
    put_change(&in, command);
    bed_req(&in, STORE_NUM_KEYS, "");
    feed(&b, 2, writer[0], &in);
    for (int i = 0; i < 3; i++) {
        relay_bed_up(&b.nodes[2], WHOLE);
        relay_bed_up(&b.nodes[0], WHOLE);
        relay_bed_collect(&b);
        relay_bed_down(&b.nodes[2], WHOLE);
        relay_bed_down(&b.nodes[0], WHOLE);
    }
    bed_take(b.nodes[2].s, writer[0], &out);
    is_int((intmax_t)out.len, 0, "the change waits for the slow node");
    bed_req(&in, STORE_GET, "s", "k");
    feed(&b, 1, slow[0], &in);
    bed_take(b.nodes[1].s, slow[0], &out);
    is_int((intmax_t)out.len, 9, "which reads what is there");
    bed_req(&in, STORE_GET, "s", "k");
    feed(&b, 0, c[0], &in);
    relay_bed_up(&b.nodes[0], WHOLE);
    relay_bed_collect(&b);
    relay_bed_down(&b.nodes[0], WHOLE);
    bed_take(b.nodes[0].s, c[0], &out);
    ok(out.len == 9 && out.data[8] == '1', "as the other does");
    relay_bed_pump(&b, WHOLE);
    bed_take(b.nodes[2].s, writer[0], &out);
    ok(out.len >= 8, "then it is done");
    ok(reads(&b, 0, c[0], "k", after) && reads(&b, 1, slow[0], "k", after) &&
       reads(&b, 2, writer[0], "k", after), "and all see it");
    relay_bed_close(&b, 0, c, 1);
    relay_bed_close(&b, 1, slow, 1);
    relay_bed_close(&b, 2, writer, 1);
    relay_bed_end(&b);
}

/* What a client has asked for before is done before what it asks now. */
static void test_order(void)
{
    struct relay_bed b;
    struct store_conn *c[1], *other[1];
    _buf_ struct buf in = {0}, out = {0};

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 0, c, 1);
    relay_bed_open(&b, 1, other, 1);
    set(&b, 0, c[0], "k", "1");
    ok(reads(&b, 0, c[0], "k", "1") && reads(&b, 1, other[0], "k", "1"), "kept");
    bed_req(&in, STORE_SET, "ss", "k", "2");
    bed_req(&in, STORE_GET, "s", "k");
    bed_req(&in, STORE_PING, "u", 7u);
    feed(&b, 0, c[0], &in);
    bed_take(b.nodes[0].s, c[0], &out);
    is_int((intmax_t)out.len, 0, "nothing comes before a SET without an answer");
    relay_bed_pump(&b, WHOLE);
    bed_take(b.nodes[0].s, c[0], &out);
    ok(out.len == 13 && out.data[8] == '2', "a client reads what it has set");
    bed_req(&in, STORE_SET, "ss", "k", "3");
    feed(&b, 0, c[0], &in);
    store_close(b.nodes[0].s, c[0]);
    relay_bed_pump(&b, WHOLE);
    ok(reads(&b, 1, other[0], "k", "3"), "a SET is done, though its client goes");
    relay_bed_close(&b, 1, other, 1);
    relay_bed_end(&b);
}

/* Of those who were told to drop a key one is lost, and then the writer is. */
static void test_lost(void)
{
    struct relay_bed b;
    struct store_conn *c[1], *writer[1];
    _buf_ struct buf in = {0}, out = {0};

    relay_bed_make(&b, NULL);
    for (int i = 0; i < 2; i++) {
        relay_bed_open(&b, 0, c, 1);
        relay_bed_open(&b, 1, writer, 1);
        set(&b, 1, writer[0], "k", "1");
        ok(reads(&b, 0, c[0], "k", "1"), "one keeps it");
        bed_req(&in, STORE_DELETE_KEY, "s", "k");
        feed(&b, 1, writer[0], &in);
        relay_bed_up(&b.nodes[1], WHOLE);
        relay_bed_collect(&b);
        is_int((intmax_t)store_trunk_debt(b.nodes[0].trunk).n_told, 1, "and is told");
        is_int((intmax_t)store_trunk_debt(b.nodes[0].trunk).n_dropped, 0, "once");
        store_close(b.nodes[i].s, i ? writer[0] : c[0]);
        relay_bed_lose(&b, i);
        relay_bed_pump(&b, WHOLE);
        if (i == 0) {
            bed_take(b.nodes[1].s, writer[0], &out);
            ok(out.len == 8 && out.data[0] == 1, "the change does not wait for it");
            relay_bed_close(&b, 1, writer, 1);
        } else {
            ok(reads(&b, 0, c[0], "k", "1"), "without the writer, no change");
            relay_bed_close(&b, 0, c, 1);
        }
    }
    relay_bed_end(&b);
}

/* What changes again and again is not kept, and costs no words. */
static void test_often(void)
{
    struct relay_bed b;
    struct store_conn *c[1], *writer[1];
    char text[8];
    bool right = true;

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 0, c, 1);
    relay_bed_open(&b, 1, writer, 1);
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof(text), "%d", i);
        set(&b, 1, writer[0], "k", text);
        right = right && reads(&b, 0, c[0], "k", text);
    }
    ok(right, "20 values, one after the other");
    is_int((intmax_t)store_trunk_debt(b.nodes[0].trunk).n_told, SHARE_MAX_CHANGES,
           "of which few were to be dropped");
    relay_bed_close(&b, 0, c, 1);
    relay_bed_close(&b, 1, writer, 1);
    relay_bed_end(&b);
}

/* Who changes what is kept, again and again, without an answer, has to wait in the
 * end, at its own node. */
static void test_window(void)
{
    enum { N = 400 };
    struct relay_bed b;
    struct store_conn *c[1], *writer[1];
    _buf_ struct buf in = {0}, out = {0};
    char value[1001] = {0};
    size_t before;

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 0, c, 1);
    relay_bed_open(&b, 1, writer, 1);
    set(&b, 1, writer[0], "k", "1");
    ok(reads(&b, 0, c[0], "k", "1"), "one keeps it");
    memset(value, 'v', sizeof(value) - 1);
    for (int i = 0; i < N; i++) {
        value[0] = (char)('a' + i % 20);
        bed_req(&in, STORE_SET, "ss", "k", value);
    }
    before = used(b.lead);
    feed(&b, 1, writer[0], &in);
    relay_bed_up(&b.nodes[1], WHOLE);
    relay_bed_collect(&b);
    relay_bed_down(&b.nodes[1], WHOLE);
    ok(store_conn_held(writer[0]), "another changes it, and has to wait");
    ok(used(b.lead) - before < STORE_WINDOW_BYTES + 4096,
       "%zu bytes with it", used(b.lead) - before);
    for (int i = 0; store_conn_held(writer[0]) && i < N; i++) {
        relay_bed_pump(&b, WHOLE);
        store_resume(b.nodes[1].s, writer[0], NULL);
    }
    ok(!store_conn_held(writer[0]), "until it is dropped");
    ok(reads(&b, 1, writer[0], "k", value), "then all is done");
    is_int(store_conn_held(writer[0]), 0, "and nothing to wait for");
    bed_req(&in, STORE_GET, "s", "k");
    relay_bed_ask(&b, 0, c[0], &in, &out);
    is_int((intmax_t)out.len, 8 + 1000, "for nobody");
    relay_bed_close(&b, 0, c, 1);
    relay_bed_close(&b, 1, writer, 1);
    relay_bed_end(&b);
}

static size_t left(const struct store *s, const struct store_limits *limits)
{
    return limits->memory_bytes - used(s);
}

/* Where there is room for a request, and not for the word that it needs, what was kept
 * is dropped all the same, and there is room again. */
static void test_full(void)
{
    enum { KEY = 500, WHOLE_REQUEST = 1 + 8 + KEY };
    const struct store_limits limits = {.memory_bytes = 64 * 1024};
    struct relay_bed b;
    struct store_conn *c[1], *writer;
    _buf_ struct buf in = {0}, out = {0};
    char key[KEY + 1] = {0}, filler[32];

    relay_bed_make(&b, &limits);
    relay_bed_open(&b, 0, c, 1);
    memset(key, 'k', KEY);
    set(&b, 0, c[0], key, "1");
    ok(reads(&b, 0, c[0], key, "1"), "one keeps it");
    writer = bed_open(b.lead);
    for (int i = 0; left(b.lead, &limits) > 2 * WHOLE_REQUEST - 10; i++) {
        snprintf(filler, sizeof(filler), "filler %d", i);
        bed_req(&in, STORE_SET, "ss", filler, "");
        bed_ask(b.lead, writer, &in, &out);
    }
    bed_req(&in, STORE_DELETE_KEY, "s", key);
    is_int(store_feed(b.lead, writer, in.data, in.len, NULL), 0,
           "a request with %zu bytes left", left(b.lead, &limits));
    relay_bed_up(&b.nodes[0], WHOLE);
    relay_bed_collect(&b);
    relay_bed_down(&b.nodes[0], WHOLE);
    relay_bed_up(&b.nodes[0], WHOLE);
    ok(store_conn_due(writer), "what it changes is dropped");
    store_resume(b.lead, writer, NULL);
    bed_take(b.lead, writer, &out);
    ok(out.len == 8 && out.data[0] == 1, "and then changed");
    store_close(b.lead, writer);
    relay_bed_close(&b, 0, c, 1);
    relay_bed_end(&b);
}

static void test_memory(void)
{
    enum { N = 100 };
    const struct store_limits limits = {.kept_bytes = 4096};
    struct relay_bed b;
    struct store_conn *c[1];
    _free_ char *large = calloc(1, SHARE_MAX_BYTES + 2);
    _buf_ struct buf in = {0};
    char key[8], value[101];
    bool right = true;
    size_t most = 0, at_lead;

    relay_bed_make(&b, &limits);
    relay_bed_open(&b, 0, c, 1);
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        set(&b, 0, c[0], key, value);
    }
    at_lead = used(b.lead);
    for (int i = 0; i < 3 * N; i++) {
        snprintf(key, sizeof(key), "k%d", i % N);
        right = right && reads(&b, 0, c[0], key, value);
        most = used(b.nodes[0].s) > most ? used(b.nodes[0].s) : most;
    }
    ok(right, "more keys than a node keeps");
    ok(most <= limits.kept_bytes, "of which it keeps as many as it may");
    ok(used(b.lead) <= at_lead + 64 * 100, "and the keys' side knows of those");
    snprintf(key, sizeof(key), "k%d", N - 1);
    bed_req(&in, STORE_GET, "s", key);
    is_known(&b, 0, c[0], &in, 108, "the last that was read");
    memset(large, 'l', SHARE_MAX_BYTES + 1);
    set(&b, 0, c[0], "k0", large);
    ok(reads(&b, 0, c[0], "k0", large) && reads(&b, 0, c[0], "k0", large),
       "a large value");
    ok(used(b.nodes[0].s) <= limits.kept_bytes, "is not kept");
    relay_bed_close(&b, 0, c, 1);
    relay_bed_end(&b);
}

static int say_up(struct relay_bed *b, int command, const char *key)
{
    _buf_ struct buf word = {0}, in = {0};

    bed_req(&word, command, "s", key);
    store_frame_put(&in, STORE_CONTROL_CHANNEL, 0, (uint32_t)word.len);
    buf_append(&in, word.data, word.len);
    return store_trunk_feed(b->nodes[0].trunk, in.data, in.len, NULL);
}

static int say_down(struct relay_bed *b, const void *data, size_t len)
{
    _buf_ struct buf in = {0};

    store_frame_put(&in, STORE_CONTROL_CHANNEL, 0, (uint32_t)len);
    buf_append(&in, data, len);
    return store_relay_feed(b->nodes[0].relay, in.data, in.len, NULL);
}

/* A word that makes no sense ends its trunk. */
static void is_wrong(struct relay_bed *b, int rc, const char *name)
{
    is_int(rc, -EPROTO, "%s", name);
    relay_bed_lose(b, 0);
}

static void test_words_up(void)
{
    struct relay_bed b;
    struct store_conn *c[1], *other[1];

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 1, other, 1);
    set(&b, 1, other[0], "k", "1");
    is_wrong(&b, say_up(&b, STORE_DROP, "k"), "drops what it does not keep");
    is_wrong(&b, say_up(&b, STORE_FORGOT, "none"), "nor is there");
    is_wrong(&b, say_up(&b, STORE_QUEUE_LEN, "k"), "says what is no word");
    is_wrong(&b, say_up(&b, 77, "k"), "nor a request");
    is_wrong(&b, say_up(&b, STORE_KEEP, ""), "not even the begin of a word");
    relay_bed_open(&b, 0, c, 1);
    ok(reads(&b, 0, c[0], "k", "1"), "kept");
    is_int(say_up(&b, STORE_FORGOT, "k"), 0, "may be forgotten");
    store_close(b.nodes[0].s, c[0]);
    is_wrong(&b, say_up(&b, STORE_FORGOT, "k"), "once");
    relay_bed_open(&b, 0, c, 1);
    ok(reads(&b, 0, c[0], "k", "1"), "kept");
    store_close(b.nodes[0].s, c[0]);
    is_wrong(&b, say_up(&b, STORE_DROP, "k"), "drops what it was not told to");
    relay_bed_close(&b, 1, other, 1);
    relay_bed_end(&b);
}

static void test_words_down(void)
{
    struct relay_bed b;
    _buf_ struct buf word = {0};
    size_t len;

    relay_bed_make(&b, NULL);
    bed_req(&word, STORE_QUEUE_POP, "s", "k");
    is_wrong(&b, say_down(&b, word.data, word.len), "no word");
    is_wrong(&b, say_down(&b, "\xff", 1), "no request");
    is_wrong(&b, say_down(&b, "\x0d\0\0\0", 5), "more of what nobody asked for");
    buf_clear(&word);
    bed_req(&word, STORE_DROP, "s", "none");
    for (size_t i = 0; i < word.len; i++) {
        is_int(say_down(&b, word.data + i, 1), 0, "a word in bytes");
    }
    free(store_relay_take(b.nodes[0].relay, &len));
    is_int((intmax_t)len - STORE_FRAME_BYTES, (intmax_t)word.len,
           "is answered, also where nothing is kept");
    store_relay_sent(b.nodes[0].relay, len);
    relay_bed_end(&b);
}

/* Any order in which things come, with nodes lost: values only grow here, so that
 * who reads must see at least what anybody knew before it asked, and all that it
 * has written itself. */

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
    feed(&h->b, i % N_NODES, c->conn, &in);
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
    ok(requests(h->b.lead) < h->n_asked / 10 * 9, "%llu requests of %u at the keys",
       (unsigned long long)requests(h->b.lead), h->n_asked);
    relay_bed_pump(&h->b, WHOLE);
    relay_bed_end(&h->b);
    free(h);
}

int main(void)
{
    const struct store_limits small = {.kept_bytes = 400};

    test_once();
    test_change(STORE_SET, "2");
    test_change(STORE_COMPARE_SET, "2");
    test_change(STORE_ADD, "2");
    test_change(STORE_DELETE_KEY, "");
    test_change(STORE_APPEND, "12");
    test_change(STORE_MULTI_SET, "2");
    test_change(STORE_BARRIER, "2");
    test_twice();
    test_order();
    test_lost();
    test_often();
    test_window();
    test_full();
    test_memory();
    test_words_up();
    test_words_down();
    for (unsigned seed = 1; seed <= 8; seed++) {
        test_random(seed, seed % 2 ? NULL : &small);
    }
    return tap_done();
}
