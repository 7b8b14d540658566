/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between a node and the store with the keys: a word that makes no sense ends the
 * trunk, and harms nobody.
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
    relay_bed_set(&b, 1, other[0], "k", "1");
    is_wrong(&b, say_up(&b, STORE_DROP, "k"), "drops what it does not keep");
    is_wrong(&b, say_up(&b, STORE_FORGOT, "none"), "nor is there");
    is_wrong(&b, say_up(&b, STORE_QUEUE_LEN, "k"), "says what is no word");
    is_wrong(&b, say_up(&b, 77, "k"), "nor a request");
    is_wrong(&b, say_up(&b, STORE_KEEP, ""), "not even the begin of a word");
    relay_bed_open(&b, 0, c, 1);
    ok(relay_bed_reads(&b, 0, c[0], "k", "1"), "kept");
    is_int(say_up(&b, STORE_FORGOT, "k"), 0, "may be forgotten");
    store_close(b.nodes[0].s, c[0]);
    is_wrong(&b, say_up(&b, STORE_FORGOT, "k"), "once");
    relay_bed_open(&b, 0, c, 1);
    ok(relay_bed_reads(&b, 0, c[0], "k", "1"), "kept");
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

int main(void)
{
    test_words_up();
    test_words_down();
    return tap_done();
}
