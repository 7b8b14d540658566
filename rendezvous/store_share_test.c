/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What relays keep of the keys: it is asked for once a node, and nobody ever reads
 * what has been changed.
 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/store_relay_bed.h"
#include "rendezvous/store_share.h"
#include "rendezvous/store_trunk.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

static void test_once(void)
{
    struct relay_bed b;
    struct store_conn *c[2], *other[1];
    _buf_ struct buf in = {0}, out = {0};

    relay_bed_make(&b, NULL);
    relay_bed_open(&b, 0, c, 2);
    relay_bed_open(&b, 1, other, 1);
    bed_req(&in, STORE_WAIT, "ns", N(1), "k");
    relay_bed_feed(&b, 0, c[0], &in);
    relay_bed_pump(&b, 3);
    relay_bed_set(&b, 1, other[0], "k", "value");
    relay_bed_set(&b, 1, other[0], "k2", "v");
    bed_take(b.nodes[0].s, c[0], &out);
    is_int((intmax_t)out.len, 1, "who has waited is told");
    bed_req(&in, STORE_GET, "s", "k");
    relay_bed_is_known(&b, 0, c[0], &in, 13, "what it has waited for");
    bed_req(&in, STORE_WAIT, "ns", N(1), "k");
    relay_bed_is_known(&b, 0, c[1], &in, 1, "a wait of another");
    bed_req(&in, STORE_CHECK, "ns", N(1), "k");
    relay_bed_is_known(&b, 0, c[1], &in, 1, "a check");
    ok(relay_bed_reads(&b, 0, c[1], "k2", "v"), "another key");
    bed_req(&in, STORE_MULTI_GET, "nss", N(2), "k2", "k");
    relay_bed_is_known(&b, 0, c[1], &in, 22, "both");
    bed_req(&in, STORE_GET, "s", "k");
    relay_bed_feed(&b, 1, other[0], &in);
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
    relay_bed_feed(&b, 0, c[0], &in);
    relay_bed_pump(&b, WHOLE);
    bed_req(&in, STORE_MULTI_SET, "nssss", N(2), "k", "1", "k", "2");
    relay_bed_ask(&b, 1, writer[0], &in, &out);
    bed_take(b.nodes[0].s, c[0], &out);
    is_int((intmax_t)out.len, 1, "who has waited is told");
    ok(relay_bed_reads(&b, 0, c[0], "k", "2"), "and reads the last value");
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
    relay_bed_set(&b, 2, writer[0], "k", "1");
    ok(relay_bed_reads(&b, 0, c[0], "k", "1") &&
       relay_bed_reads(&b, 1, slow[0], "k", "1"),
       "command %d: two nodes keep what is there", command);
    put_change(&in, command);
    bed_req(&in, STORE_NUM_KEYS, "");
    relay_bed_feed(&b, 2, writer[0], &in);
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
    relay_bed_feed(&b, 1, slow[0], &in);
    bed_take(b.nodes[1].s, slow[0], &out);
    is_int((intmax_t)out.len, 9, "which reads what is there");
    bed_req(&in, STORE_GET, "s", "k");
    relay_bed_feed(&b, 0, c[0], &in);
    relay_bed_up(&b.nodes[0], WHOLE);
    relay_bed_collect(&b);
    relay_bed_down(&b.nodes[0], WHOLE);
    bed_take(b.nodes[0].s, c[0], &out);
    ok(out.len == 9 && out.data[8] == '1', "as the other does");
    relay_bed_pump(&b, WHOLE);
    bed_take(b.nodes[2].s, writer[0], &out);
    ok(out.len >= 8, "then it is done");
    ok(relay_bed_reads(&b, 0, c[0], "k", after) &&
       relay_bed_reads(&b, 1, slow[0], "k", after) &&
       relay_bed_reads(&b, 2, writer[0], "k", after), "and all see it");
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
    relay_bed_set(&b, 0, c[0], "k", "1");
    ok(relay_bed_reads(&b, 0, c[0], "k", "1") &&
       relay_bed_reads(&b, 1, other[0], "k", "1"), "kept");
    bed_req(&in, STORE_SET, "ss", "k", "2");
    bed_req(&in, STORE_GET, "s", "k");
    bed_req(&in, STORE_PING, "u", 7u);
    relay_bed_feed(&b, 0, c[0], &in);
    bed_take(b.nodes[0].s, c[0], &out);
    is_int((intmax_t)out.len, 0, "nothing comes before a SET without an answer");
    relay_bed_pump(&b, WHOLE);
    bed_take(b.nodes[0].s, c[0], &out);
    ok(out.len == 13 && out.data[8] == '2', "a client reads what it has set");
    bed_req(&in, STORE_SET, "ss", "k", "3");
    relay_bed_feed(&b, 0, c[0], &in);
    store_close(b.nodes[0].s, c[0]);
    relay_bed_pump(&b, WHOLE);
    ok(relay_bed_reads(&b, 1, other[0], "k", "3"), "a SET is done, though its client goes");
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
        relay_bed_set(&b, 1, writer[0], "k", "1");
        ok(relay_bed_reads(&b, 0, c[0], "k", "1"), "one keeps it");
        bed_req(&in, STORE_DELETE_KEY, "s", "k");
        relay_bed_feed(&b, 1, writer[0], &in);
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
            ok(relay_bed_reads(&b, 0, c[0], "k", "1"), "without the writer, no change");
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
        relay_bed_set(&b, 1, writer[0], "k", text);
        right = right && relay_bed_reads(&b, 0, c[0], "k", text);
    }
    ok(right, "20 values, one after the other");
    is_int((intmax_t)store_trunk_debt(b.nodes[0].trunk).n_told, SHARE_MAX_CHANGES,
           "of which few were to be dropped");
    relay_bed_close(&b, 0, c, 1);
    relay_bed_close(&b, 1, writer, 1);
    relay_bed_end(&b);
}

int main(void)
{
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
    return tap_done();
}
