/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/channel.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t key_a[CHANNEL_KEY_BYTES] = {1, 2, 3};
static const uint8_t key_b[CHANNEL_KEY_BYTES] = {1, 2, 4};

struct pair {
    struct channel *near, *far;
};

static struct pair make_pair(const uint8_t *near_key, const uint8_t *far_key)
{
    struct pair p = {0};

    if (channel_create(near_key, true, &p.near, NULL) < 0 ||
        channel_create(far_key, false, &p.far, NULL) < 0) {
        bail_out("channel_create");
    }
    return p;
}

static void free_pair(struct pair *p)
{
    channel_destroy(p->near);
    channel_destroy(p->far);
}

/* Moves what one has to send to the other. */
static void carry(struct channel *from, struct channel *to)
{
    struct buf *out = channel_output(from);

    channel_feed(to, out->data, out->len, NULL);
    buf_clear(out);
}

static void test_round_trip(void)
{
    struct pair p = make_pair(key_a, key_a);
    struct channel_frame f;
    struct error e = {0};
    char *big = calloc(1, 1 << 20);

    channel_send(p.near, 7, "early", 5, &e);
    carry(p.near, p.far);
    is_int(channel_next(p.far, &f, &e), 0, "a preamble is no frame");
    carry(p.far, p.near);
    is_int(channel_next(p.near, &f, &e), 0, "nor the answer's");
    carry(p.near, p.far);
    is_int(channel_next(p.far, &f, &e), 1, "the early frame follows");
    is_int(f.type, 7, "type");
    ok(f.len == 5 && memcmp(f.data, "early", 5) == 0, "payload");
    ok(channel_authenticated(p.far), "the peer knows the key");
    channel_send(p.far, 8, NULL, 0, &e);
    channel_send(p.far, 9, big, 1 << 20, &e);
    carry(p.far, p.near);
    is_int(channel_next(p.near, &f, &e), 1, "an empty frame");
    is_int((intmax_t)f.len, 0, "is empty");
    is_int(channel_next(p.near, &f, &e), 1, "a large frame");
    is_int((intmax_t)f.len, 1 << 20, "whole");
    is_int(channel_next(p.near, &f, &e), 0, "then nothing");
    is_int(channel_send(p.near, 1, big, CHANNEL_MAX_FRAME, &e), -EMSGSIZE,
           "over the limit");
    free(big);
    free_pair(&p);
}

/* One frame from near to far, byte by byte, with byte `flip` changed. */
static int send_flipped(const uint8_t *near_key, const uint8_t *far_key,
                        size_t flip, size_t *ret_len, struct error *e)
{
    struct pair p = make_pair(near_key, far_key);
    struct channel_frame f;
    struct buf wire = {0};
    int rc = 0;

    channel_send(p.near, 7, "text", 4, NULL);
    carry(p.far, p.near);
    buf_append(&wire, channel_output(p.near)->data,
               channel_output(p.near)->len);
    buf_clear(channel_output(p.near));
    channel_next(p.near, &f, NULL);
    buf_append(&wire, channel_output(p.near)->data,
               channel_output(p.near)->len);
    if (flip < wire.len) {
        wire.data[flip] ^= 0x40;
    }
    for (size_t i = 0; rc == 0 && i < wire.len; i++) {
        channel_feed(p.far, wire.data + i, 1, NULL);
        rc = channel_next(p.far, &f, e);
    }
    *ret_len = wire.len;
    buf_release(&wire);
    free_pair(&p);
    return rc;
}

static void test_every_flip(void)
{
    struct error e = {0};
    size_t len;
    int passed = 0;

    is_int(send_flipped(key_a, key_a, SIZE_MAX, &len, &e), 1,
           "byte by byte, unchanged");
    for (size_t i = 0; i < len; i++) {
        size_t n;

        passed += send_flipped(key_a, key_a, i, &n, &e) == 1;
    }
    is_int(passed, 0, "no frame opens with any of %zu bytes changed", len);
    is_int(send_flipped(key_a, key_b, SIZE_MAX, &len, &e), -ERR_AUTH,
           "another key");
    like(e.text, "does not know this run's key", "says so");
    is_int(send_flipped(key_a, key_a, 5, &len, &e), -ERR_VERSION,
           "another version");
    like(e.text, "version", "says so");
    is_int(send_flipped(key_a, key_a, 0, &len, &e), -ERR_FORMAT,
           "another protocol");
}

static void test_replay(void)
{
    struct pair p = make_pair(key_a, key_a);
    struct channel_frame f;
    struct buf again = {0};
    struct error e = {0};

    carry(p.near, p.far);
    channel_next(p.far, &f, NULL);
    carry(p.far, p.near);
    channel_next(p.near, &f, NULL);
    channel_send(p.near, 7, "pay", 3, NULL);
    buf_append(&again, channel_output(p.near)->data,
               channel_output(p.near)->len);
    carry(p.near, p.far);
    is_int(channel_next(p.far, &f, &e), 1, "once");
    channel_feed(p.far, again.data, again.len, NULL);
    is_int(channel_next(p.far, &f, &e), -ERR_AUTH, "the same bytes twice");
    buf_release(&again);
    free_pair(&p);
}

static void test_first_frame_is_small(void)
{
    struct pair p = make_pair(key_a, key_a);
    struct channel_frame f;
    struct error e = {0};
    static const uint8_t huge[4] = {0x00, 0x10, 0, 0};

    carry(p.near, p.far);
    channel_next(p.far, &f, NULL);
    channel_feed(p.far, huge, sizeof(huge), NULL);
    is_int(channel_next(p.far, &f, &e), -ERR_FORMAT,
           "a stranger cannot make us wait for a megabyte");
    free_pair(&p);
}

int main(void)
{
    test_round_trip();
    test_every_flip();
    test_replay();
    test_first_frame_is_small();
    return tap_done();
}
