/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/aead.h"
#include "base/channel_bed.h"
#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t key_a[CHANNEL_KEY_BYTES] = {1, 2, 3};
static const uint8_t key_b[CHANNEL_KEY_BYTES] = {1, 2, 4};
/* Differs from key_a in its last bit alone. */
static const uint8_t key_c[CHANNEL_KEY_BYTES] = {
    1, 2, 3, [CHANNEL_KEY_BYTES - 1] = 1};

/* What each can, beside what this processor has. */
static enum aead_cipher near_most, far_most;

static struct channel_pair make_pair(const uint8_t *near_key, const uint8_t *far_key)
{
    struct channel_pair p = channel_pair_make(near_key, far_key);

    channel_limit(p.near, near_most);
    channel_limit(p.far, far_most);
    return p;
}

static void test_round_trip(void)
{
    struct channel_pair p = make_pair(key_a, key_a);
    struct channel_frame f;
    struct error e = {0};
    char *big = calloc(1, 1 << 20);

    channel_send(p.near, 7, "early", 5, &e);
    channel_carry(p.near, p.far);
    is_int(channel_next(p.far, &f, &e), 0, "a preamble is no frame");
    channel_carry(p.far, p.near);
    is_int(channel_next(p.near, &f, &e), 0, "nor the answer's");
    channel_carry(p.near, p.far);
    is_int(channel_next(p.far, &f, &e), 1, "the early frame follows");
    is_int(f.type, 7, "type");
    ok(f.len == 5 && memcmp(f.data, "early", 5) == 0, "payload");
    ok(channel_authenticated(p.far), "the peer knows the key");
    channel_send(p.far, 8, NULL, 0, &e);
    channel_send(p.far, 9, big, 1 << 20, &e);
    channel_carry(p.far, p.near);
    is_int(channel_next(p.near, &f, &e), 1, "an empty frame");
    is_int((intmax_t)f.len, 0, "is empty");
    is_int(channel_next(p.near, &f, &e), 1, "a large frame");
    is_int((intmax_t)f.len, 1 << 20, "whole");
    is_int(channel_next(p.near, &f, &e), 0, "then nothing");
    is_int(channel_send(p.near, 1, big, CHANNEL_MAX_FRAME, &e), -EMSGSIZE,
           "over the limit");
    free(big);
    channel_pair_free(&p);
}

/* One frame from near to far, byte by byte, byte `flip` xor'ed with `bits`. */
static int send_flipped(const uint8_t *near_key, const uint8_t *far_key,
                        size_t flip, uint8_t bits, size_t *ret_len,
                        struct error *e)
{
    struct channel_pair p = make_pair(near_key, far_key);
    struct channel_frame f;
    struct buf wire = {0};
    int rc = 0;

    channel_send(p.near, 7, "text", 4, NULL);
    channel_carry(p.far, p.near);
    buf_append(&wire, channel_output(p.near)->data,
               channel_output(p.near)->len);
    buf_clear(channel_output(p.near));
    channel_next(p.near, &f, NULL);
    buf_append(&wire, channel_output(p.near)->data,
               channel_output(p.near)->len);
    if (flip < wire.len) {
        wire.data[flip] = (char)(wire.data[flip] ^ bits);
    }
    for (size_t i = 0; rc == 0 && i < wire.len; i++) {
        channel_feed(p.far, wire.data + i, 1, NULL);
        rc = channel_next(p.far, &f, e);
    }
    *ret_len = wire.len;
    buf_release(&wire);
    channel_pair_free(&p);
    return rc;
}

static void test_every_flip(void)
{
    struct error e = {0};
    size_t len;
    int passed = 0;

    is_int(send_flipped(key_a, key_a, SIZE_MAX, 0, &len, &e), 1,
           "byte by byte, unchanged");
    /* The highest bit of a public key is the one that the curve ignores. */
    for (size_t i = 0; i < 2 * len; i++) {
        size_t n;

        passed += send_flipped(key_a, key_a, i / 2, i % 2 ? 0x80 : 0x40, &n,
                               &e) == 1;
    }
    is_int(passed, 0, "no frame opens with any of %zu bytes changed", len);
    is_int(send_flipped(key_a, key_b, SIZE_MAX, 0, &len, &e), -ERR_AUTH,
           "another key");
    like(e.text, "does not know this run's key", "says so");
    is_int(send_flipped(key_a, key_c, SIZE_MAX, 0, &len, &e), -ERR_AUTH,
           "another key by one bit");
    is_int(send_flipped(key_a, key_a, 5, 0x40, &len, &e), -ERR_VERSION,
           "a later version");
    like(e.text, "version", "says so");
    is_int(send_flipped(key_a, key_a, 5, CHANNEL_VERSION, &len, &e),
           -ERR_VERSION, "an earlier version");
    is_int(send_flipped(key_a, key_a, 0, 0x40, &len, &e), -ERR_FORMAT,
           "another protocol");
    /* Nobody on the way makes two do with less than they have, or with more. */
    is_int(send_flipped(key_a, key_a, 6, 1, &len, &e), -ERR_AUTH,
           "whether one side has AES");
}

/* Who only sends back what it got knows no key, whichever end it plays. */
static void test_reflection(void)
{
    for (int initiator = 0; initiator < 2; initiator++) {
        struct channel *c = NULL;
        struct channel_frame f;
        struct error e = {0};

        channel_create(key_a, initiator, &c, NULL);
        channel_send(c, 7, "text", 4, NULL);
        channel_carry(c, c);
        is_int(channel_next(c, &f, &e), 0, "our own preamble comes back");
        channel_carry(c, c);
        is_int(channel_next(c, &f, &e), -ERR_AUTH, "our own frame does not "
               "open");
        channel_destroy(c);
    }
}

/* A point of small order makes a secret that everybody knows. */
static void test_weak_key(void)
{
    struct channel *c = NULL;
    struct channel_frame f;
    struct error e = {0};
    char preamble[4 + 2 + 1 + 32] = {'M', 'S', 'T', 'R', 0, CHANNEL_VERSION};

    channel_create(key_a, false, &c, NULL);
    channel_feed(c, preamble, sizeof(preamble), NULL);
    is_int(channel_next(c, &f, &e), -ERR_AUTH, "a weak public key");
    channel_destroy(c);
}

static void test_replay(void)
{
    struct channel_pair p = make_pair(key_a, key_a);
    struct channel_frame f;
    struct buf again = {0};
    struct error e = {0};

    channel_carry(p.near, p.far);
    channel_next(p.far, &f, NULL);
    channel_carry(p.far, p.near);
    channel_next(p.near, &f, NULL);
    channel_send(p.near, 7, "pay", 3, NULL);
    buf_append(&again, channel_output(p.near)->data,
               channel_output(p.near)->len);
    channel_carry(p.near, p.far);
    is_int(channel_next(p.far, &f, &e), 1, "once");
    channel_feed(p.far, again.data, again.len, NULL);
    is_int(channel_next(p.far, &f, &e), -ERR_AUTH, "the same bytes twice");
    buf_release(&again);
    channel_pair_free(&p);
}

/* Lengths that a peer announces, before and after it has shown that it knows
 * the key; a type and a tag are 18 bytes. */
static void test_lengths(void)
{
    static const struct {
        bool known;
        uint32_t len;
        int rc;
        const char *what;
    } cases[] = {
        {false, 0, -ERR_FORMAT, "no bytes"},
        {false, 17, -ERR_FORMAT, "less than a type and a tag"},
        {false, 18, 0, "the least"},
        {false, CHANNEL_MAX_FIRST, 0, "the most of a stranger"},
        {false, CHANNEL_MAX_FIRST + 1, -ERR_FORMAT, "more than that"},
        {true, CHANNEL_MAX_FIRST + 1, 0, "the same of a peer"},
        {true, CHANNEL_MAX_FRAME, 0, "the most of a peer"},
        {true, CHANNEL_MAX_FRAME + 1, -ERR_FORMAT, "more than that"},
        {true, UINT32_MAX, -ERR_FORMAT, "all there can be"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct channel_pair p = make_pair(key_a, key_a);
        struct channel_frame f;
        struct error e = {0};
        uint32_t len = cases[i].len;
        const uint8_t head[] = {(uint8_t)(len >> 24), (uint8_t)(len >> 16),
                                (uint8_t)(len >> 8), (uint8_t)len};

        channel_carry(p.near, p.far);
        channel_next(p.far, &f, NULL);
        channel_carry(p.far, p.near);
        channel_next(p.near, &f, NULL);
        if (cases[i].known) {
            channel_send(p.near, 7, "x", 1, NULL);
            channel_carry(p.near, p.far);
            is_int(channel_next(p.far, &f, &e), 1, "a peer");
        }
        channel_feed(p.far, head, sizeof(head), NULL);
        is_int(channel_next(p.far, &f, &e), cases[i].rc, "%s", cases[i].what);
        channel_pair_free(&p);
    }
}

/* What may be sent may be taken. */
static void test_largest(void)
{
    struct channel_pair p = make_pair(key_a, key_a);
    size_t most = CHANNEL_MAX_FRAME - 18;
    char *data = calloc(1, most + 1);
    struct channel_frame f;
    struct error e = {0};

    channel_pair_meet(&p);
    is_int(channel_send(p.near, 8, data, most + 1, &e), -EMSGSIZE,
           "a byte more than can be taken");
    is_int(channel_send(p.near, 8, data, most, &e), 0, "as much as can be");
    channel_carry(p.near, p.far);
    is_int(channel_next(p.far, &f, &e), 1, "the first");
    is_int(channel_next(p.far, &f, &e), 1, "the largest");
    is_int((intmax_t)f.len, (intmax_t)most, "whole");
    free(data);
    channel_pair_free(&p);
}

/* On a private stream the first frame each way shows the key; those after it
 * are as they are. */
static void test_private(void)
{
    struct channel_pair p = make_pair(key_a, key_a);
    struct channel_frame f;
    struct error e = {0};
    struct buf *out;

    channel_make_private(p.near);
    channel_make_private(p.far);
    channel_send(p.near, 1, "first frame", 11, &e);
    channel_send(p.near, 2, "second frame", 12, &e);
    channel_carry(p.near, p.far);
    channel_carry(p.far, p.near);
    channel_next(p.far, &f, &e);
    channel_next(p.near, &f, &e);
    out = channel_output(p.near);
    ok(!memmem(out->data, out->len, "first frame", 11), "the first is sealed");
    ok(memmem(out->data, out->len, "second frame", 12), "the second is not");
    channel_carry(p.near, p.far);
    is_int(channel_next(p.far, &f, &e), 1, "the first comes");
    is_int(channel_next(p.far, &f, &e), 1, "the second comes");
    ok(f.type == 2 && f.len == 12 && memcmp(f.data, "second frame", 12) == 0,
       "as it was sent");
    channel_send(p.near, 3, NULL, 0, &e);
    channel_carry(p.near, p.far);
    ok(channel_next(p.far, &f, &e) == 1 && f.type == 3 && f.len == 0,
       "an empty frame");
    channel_feed(p.far, "\0\0\0\1x", 5, NULL);
    is_int(channel_next(p.far, &f, &e), -ERR_FORMAT, "less than a type");
    channel_pair_free(&p);
}

static void test_private_wrong_key(void)
{
    struct channel_pair p = make_pair(key_b, key_a);
    struct channel_frame f;
    struct error e = {0};

    channel_make_private(p.near);
    channel_make_private(p.far);
    channel_send(p.near, 1, "x", 1, &e);
    channel_carry(p.far, p.near);
    channel_next(p.near, &f, &e);
    channel_carry(p.near, p.far);
    is_int(channel_next(p.far, &f, &e), -ERR_AUTH, "another key, in private");
    channel_pair_free(&p);
}

/* A frame that is appended in pieces; one that gets too long is dropped, and what
 * is before and after it is whole. */
static void test_in_place(void)
{
    struct channel_pair p = make_pair(key_a, key_a);
    char *big = calloc(1, CHANNEL_MAX_FRAME);
    struct channel_frame f;
    struct error e = {0};
    struct buf *b;

    b = channel_begin(p.near, 4);
    buf_puts(b, "ear");
    buf_puts(b, "ly");
    is_int(channel_end(p.near, &e), 0, "before the handshake");
    channel_carry(p.near, p.far);
    channel_carry(p.far, p.near);
    channel_next(p.far, &f, &e);
    channel_next(p.near, &f, &e);
    b = channel_begin(p.near, 5);
    buf_append(b, big, CHANNEL_MAX_FRAME);
    is_int(channel_end(p.near, &e), -EMSGSIZE, "too long");
    b = channel_begin(p.near, 6);
    buf_puts(b, "late");
    is_int(channel_end(p.near, &e), 0, "after it");
    channel_carry(p.near, p.far);
    ok(channel_next(p.far, &f, &e) == 1 && f.type == 4 && f.len == 5 &&
       memcmp(f.data, "early", 5) == 0, "the first");
    ok(channel_next(p.far, &f, &e) == 1 && f.type == 6 && f.len == 4 &&
       memcmp(f.data, "late", 4) == 0, "the last");
    is_int(channel_next(p.far, &f, &e), 0, "and no other");
    free(big);
    channel_pair_free(&p);
}

struct place {
    char at[1 << 16];
    size_t len; /* asked for last */
    int n_asked;
    bool is_none;
};

static void *place_at(void *ctx, size_t len)
{
    struct place *p = ctx;

    p->n_asked++;
    p->len = len;
    return p->is_none || len > sizeof(p->at) ? NULL : p->at;
}

/* Sends a frame, of which a byte is changed behind the first ones; what comes of it. */
static int send_large(struct channel_pair *p, size_t len, size_t flip,
                      struct channel_frame *ret, struct error *e)
{
    _free_ char *data = malloc(len);
    struct buf *out = channel_output(p->near);

    memset(data, 'd', len);
    channel_send(p->near, 5, data, len, NULL);
    if (flip) {
        out->data[flip] ^= 1;
    }
    channel_carry(p->near, p->far);
    return channel_next(p->far, ret, e);
}

/* A large frame goes to where the owner wants it, and is none there either that was
 * changed on its way. */
static void test_place(void)
{
    static const char expected[1 << 16] = {[0 ... (1 << 16) - 1] = 'd'};
    static struct place at;
    struct channel_pair p = make_pair(key_a, key_a);
    struct channel_frame f;
    struct error e = {0};

    memset(&at, 0, sizeof(at));
    channel_set_place(p.far, place_at, &at);
    channel_pair_meet(&p);
    is_int(send_large(&p, 1, 0, &f, &e), 1, "the first frame");
    channel_next(p.far, &f, &e);
    is_int(send_large(&p, 32767, 0, &f, &e), 1, "one that is not large");
    is_int(at.n_asked, 0, "nobody is asked where they go");
    is_int(send_large(&p, sizeof(at.at), 0, &f, &e), 1, "a large one");
    ok(f.data == (void *)at.at && f.len == sizeof(at.at) && f.type == 5 &&
       memcmp(at.at, expected, f.len) == 0, "is where it is wanted");
    is_int((intmax_t)at.len, sizeof(at.at), "for which its payload counts");
    ok(send_large(&p, sizeof(at.at) + 1, 0, &f, &e) == 1 &&
       f.data != (void *)at.at && f.len == sizeof(at.at) + 1 &&
       memcmp(f.data, expected, sizeof(at.at)) == 0, "one that does not fit is not");
    at.is_none = true;
    ok(send_large(&p, sizeof(at.at), 0, &f, &e) == 1 && f.data != (void *)at.at,
       "nor where it is not wanted");
    at.is_none = false;
    is_int(send_large(&p, sizeof(at.at), 5000, &f, &e), -ERR_AUTH,
           "nor is one that was changed");
    channel_pair_free(&p);
}

static enum aead_cipher lesser(enum aead_cipher a, enum aead_cipher b)
{
    return a < b ? a : b;
}

/* The best one that both have is taken. */
static void test_cipher(void)
{
    enum aead_cipher want = lesser(aead_best(), lesser(near_most, far_most)), near, far;
    struct channel_pair p = make_pair(key_a, key_a);
    struct channel_frame f;

    ok(!channel_cipher(p.near, &near), "not before it is known what both can");
    channel_pair_meet(&p);
    is_int(channel_next(p.far, &f, NULL), 1, "a frame comes");
    ok(channel_cipher(p.near, &near) && channel_cipher(p.far, &far) && near == want &&
       far == want, "cipher %d of %d and %d", want, near_most, far_most);
    channel_pair_free(&p);
}

static void test_all(void)
{
    test_cipher();
    test_place();
    test_private();
    test_private_wrong_key();
    test_in_place();
    test_round_trip();
    test_every_flip();
    test_replay();
    test_reflection();
    test_weak_key();
    test_lengths();
    test_largest();
}

int main(void)
{
    for (near_most = AEAD_CHACHA20_POLY1305; near_most <= AEAD_AES_256_GMAC; near_most++) {
        for (far_most = AEAD_CHACHA20_POLY1305; far_most <= AEAD_AES_256_GMAC; far_most++) {
            test_all();
        }
    }
    return tap_done();
}
