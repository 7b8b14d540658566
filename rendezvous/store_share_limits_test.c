/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What relays keep of the keys costs no more memory than it may, and changing it is
 * held up where there is none.
 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/store_frame.h"
#include "rendezvous/store_relay_bed.h"
#include "rendezvous/store_share.h"
#include "rendezvous/store_trunk.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

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
    relay_bed_set(&b, 1, writer[0], "k", "1");
    ok(relay_bed_reads(&b, 0, c[0], "k", "1"), "one keeps it");
    memset(value, 'v', sizeof(value) - 1);
    for (int i = 0; i < N; i++) {
        value[0] = (char)('a' + i % 20);
        bed_req(&in, STORE_SET, "ss", "k", value);
    }
    before = relay_bed_used(b.lead);
    relay_bed_feed(&b, 1, writer[0], &in);
    relay_bed_up(&b.nodes[1], WHOLE);
    relay_bed_collect(&b);
    relay_bed_down(&b.nodes[1], WHOLE);
    ok(store_conn_held(writer[0]), "another changes it, and has to wait");
    ok(relay_bed_used(b.lead) - before < STORE_WINDOW_BYTES + 4096,
       "%zu bytes with it", relay_bed_used(b.lead) - before);
    for (int i = 0; store_conn_held(writer[0]) && i < N; i++) {
        relay_bed_pump(&b, WHOLE);
        store_resume(b.nodes[1].s, writer[0], NULL);
    }
    ok(!store_conn_held(writer[0]), "until it is dropped");
    ok(relay_bed_reads(&b, 1, writer[0], "k", value), "then all is done");
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
    return limits->memory_bytes - relay_bed_used(s);
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
    relay_bed_set(&b, 0, c[0], key, "1");
    ok(relay_bed_reads(&b, 0, c[0], key, "1"), "one keeps it");
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
    size_t most = 0, at_lead, at_node;

    relay_bed_make(&b, &limits);
    relay_bed_open(&b, 0, c, 1);
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        relay_bed_set(&b, 0, c[0], key, value);
    }
    at_lead = relay_bed_used(b.lead);
    for (int i = 0; i < 3 * N; i++) {
        snprintf(key, sizeof(key), "k%d", i % N);
        right = right && relay_bed_reads(&b, 0, c[0], key, value);
        at_node = relay_bed_used(b.nodes[0].s);
        most = at_node > most ? at_node : most;
    }
    ok(right, "more keys than a node keeps");
    ok(most <= limits.kept_bytes, "of which it keeps as many as it may");
    ok(relay_bed_used(b.lead) <= at_lead + 64 * 100,
       "and the keys' side knows of those");
    snprintf(key, sizeof(key), "k%d", N - 1);
    bed_req(&in, STORE_GET, "s", key);
    relay_bed_is_known(&b, 0, c[0], &in, 108, "the last that was read");
    memset(large, 'l', SHARE_MAX_BYTES + 1);
    relay_bed_set(&b, 0, c[0], "k0", large);
    ok(relay_bed_reads(&b, 0, c[0], "k0", large) &&
       relay_bed_reads(&b, 0, c[0], "k0", large), "a large value");
    ok(relay_bed_used(b.nodes[0].s) <= limits.kept_bytes, "is not kept");
    relay_bed_close(&b, 0, c, 1);
    relay_bed_end(&b);
}

int main(void)
{
    test_window();
    test_full();
    test_memory();
    return tap_done();
}
