/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel against a peer that is made by hand, as its description says: what keys come
 * from, so that both ends cannot be wrong in the same way; and what a channel keeps.
 */
#include <config.h>

#include "base/channel_bed.h"
#include "base/channel_priv.h"

#include "base/cleanup.h"
#include "base/wire.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t key[CHANNEL_KEY_BYTES] = {1, 2, 3};

enum { PUBLIC_AT = CHANNEL_CAN_AT + 1, KEY_BYTES = AEAD_KEY_BYTES };

/* Who has no AES. */
struct by_hand {
    uint8_t secret[crypto_scalarmult_SCALARBYTES], preamble[CHANNEL_PREAMBLE_BYTES];
    struct aead tx, rx;
};

static void greet(struct by_hand *h)
{
    static const uint8_t head[] = {'M', 'S', 'T', 'R', CHANNEL_VERSION >> 8,
                                   CHANNEL_VERSION & 0xff, 0};

    memset(h, 0, sizeof(*h));
    for (size_t i = 0; i < sizeof(h->secret); i++) {
        h->secret[i] = (uint8_t)(7 * i + 1);
    }
    memcpy(h->preamble, head, sizeof(head));
    crypto_scalarmult_base(h->preamble + PUBLIC_AT, h->secret);
}

static void derive(struct by_hand *h, const uint8_t *other, bool initiates)
{
    uint8_t shared[crypto_scalarmult_BYTES], keys[2 * KEY_BYTES];
    crypto_generichash_state hash;

    if (crypto_scalarmult(shared, h->secret, other + PUBLIC_AT) < 0) {
        bail_out("a key");
    }
    crypto_generichash_init(&hash, key, sizeof(key), sizeof(keys));
    crypto_generichash_update(&hash, (const uint8_t *)"muster-channel", 15);
    crypto_generichash_update(&hash, shared, sizeof(shared));
    crypto_generichash_update(&hash, initiates ? h->preamble : other, CHANNEL_PREAMBLE_BYTES);
    crypto_generichash_update(&hash, initiates ? other : h->preamble, CHANNEL_PREAMBLE_BYTES);
    crypto_generichash_final(&hash, keys, sizeof(keys));
    aead_init(&h->tx, AEAD_CHACHA20_POLY1305, keys + (initiates ? 0 : KEY_BYTES));
    aead_init(&h->rx, AEAD_CHACHA20_POLY1305, keys + (initiates ? KEY_BYTES : 0));
}

/* Of type 7, the first one. */
static void seal(struct by_hand *h, const char *payload, struct buf *to)
{
    size_t len = strlen(payload) + 2;
    struct aead_text text = {.n_before = 4, .len = len};

    wire_put_u32(to, (uint32_t)(len + AEAD_TAG_BYTES));
    wire_put_u16(to, 7);
    buf_puts(to, payload);
    if (!buf_reserve(to, AEAD_TAG_BYTES)) {
        bail_out("memory");
    }
    text.at = (uint8_t *)to->data;
    if (!aead_seal(&h->tx, 0, &text)) {
        bail_out("it is not sealed");
    }
    to->len += AEAD_TAG_BYTES;
}

static void test_by_hand(bool initiates)
{
    _buf_ struct buf frame = {0};
    struct aead_text got = {.n_before = 4, .len = 2 + 4 + AEAD_TAG_BYTES};
    struct channel_frame f = {0};
    struct error e = {0};
    struct by_hand h;
    struct channel *c;
    struct buf *out;

    if (channel_create(key, !initiates, &c, &e) < 0) {
        bail_out("%s", e.text);
    }
    greet(&h);
    derive(&h, c->preamble, initiates);
    channel_send(c, 8, "back", 4, NULL);
    channel_feed(c, h.preamble, sizeof(h.preamble), NULL);
    is_int(channel_next(c, &f, &e), 0, "keys of who is called, or calls (%d)", initiates);
    seal(&h, "text", &frame);
    channel_feed(c, frame.data, frame.len, NULL);
    ok(channel_next(c, &f, &e) == 1 && f.type == 7 && f.len == 4 &&
           memcmp(f.data, "text", 4) == 0, "what a peer says by the description is opened");
    out = channel_output(c);
    got.at = (uint8_t *)out->data + CHANNEL_PREAMBLE_BYTES;
    ok(out->len == CHANNEL_PREAMBLE_BYTES + 4 + got.len && aead_open(&h.rx, 0, &got) &&
           memcmp(got.at + 4 + 2, "back", 4) == 0, "and opens what it is told");
    ok(sodium_is_zero(c->secret, sizeof(c->secret)) &&
           sodium_is_zero(c->job_key, sizeof(c->job_key)), "what keys were made of is wiped");
    ok(!c->early.data, "what waited for them is not kept");
    aead_release(&h.tx);
    aead_release(&h.rx);
    channel_destroy(c);
}

/* --- bounds --- */

static void test_largest(void)
{
    const size_t most = CHANNEL_MAX_FRAME - AEAD_TAG_BYTES - CHANNEL_TYPE_BYTES;
    struct channel_pair p = channel_pair_make(key, key);
    char *data = calloc(1, most + 1);
    struct channel_frame f;
    struct buf *b;

    channel_pair_meet(&p);
    channel_next(p.far, &f, NULL);
    for (size_t more = 0; data && more < 2; more++) {
        b = channel_begin(p.near, 5);
        buf_append(b, data, most + more);
        is_int(channel_end(p.near, NULL), more ? -EMSGSIZE : 0,
               more ? "a byte more is over the limit" : "the largest frame");
        channel_carry(p.near, p.far);
        is_int(channel_next(p.far, &f, NULL), !more, "comes, or nothing of it");
    }
    free(data);
    channel_pair_free(&p);
}

/* --- what is kept --- */

/* Frames of which always a part is there: what was taken is dropped. */
static void test_in_pieces(void)
{
    enum { FRAME = 1000, N = 300 };
    struct channel_pair p = channel_pair_make(key, key);
    static char data[FRAME];
    struct channel_frame f;
    struct buf *out = channel_output(p.near);
    int n = 0;

    channel_pair_meet(&p);
    channel_next(p.far, &f, NULL);
    for (int i = 0; i < N; i++) {
        channel_send(p.near, 5, data, sizeof(data), NULL);
    }
    channel_feed(p.far, out->data, FRAME / 2, NULL);
    for (size_t at = FRAME / 2, len; at < out->len; at += len) {
        len = out->len - at < FRAME ? out->len - at : FRAME;
        channel_feed(p.far, out->data + at, len, NULL);
        while (channel_next(p.far, &f, NULL) == 1) {
            n++;
        }
    }
    is_int(n, N, "frames that come in pieces");
    ok(p.far->in.cap < 20 * FRAME, "take no more memory than some of them: %zu", p.far->in.cap);
    channel_pair_free(&p);
}

static void test_large(void)
{
    enum { LARGE = 3 << 20, KEEP = 1 << 20 };
    struct channel_pair p = channel_pair_make(key, key);
    char *data = calloc(1, LARGE);
    struct channel_frame f;
    size_t len = 100;

    channel_pair_meet(&p);
    channel_next(p.far, &f, NULL);
    channel_send(p.near, 5, data, LARGE, NULL);
    channel_carry(p.near, p.far);
    ok(channel_next(p.far, &f, NULL) == 1 && f.len == LARGE, "a large frame");
    ok(channel_room(p.far, &len) && p.far->in.cap <= KEEP, "leaves no large buffer: %zu",
       p.far->in.cap);
    free(data);
    channel_pair_free(&p);
}

/* --- what has failed --- */

static void test_reasons(void)
{
    static const uint8_t other[CHANNEL_KEY_BYTES] = {1, 2, 4};
    struct channel_pair p = channel_pair_make(key, other);
    struct channel_frame f;
    struct error e = {0};

    channel_pair_meet(&p);
    is_int(channel_next(p.far, &f, &e), -ERR_AUTH, "who has another key");
    is_str(e.text, "the peer does not know this run's key", "is told from");
    channel_pair_free(&p);
    p = channel_pair_make(key, key);
    channel_pair_meet(&p);
    channel_next(p.far, &f, NULL);
    channel_send(p.near, 5, "text", 4, NULL);
    channel_output(p.near)->data[8] ^= 1;
    channel_carry(p.near, p.far);
    is_int(channel_next(p.far, &f, &e), -ERR_AUTH, "what was changed on the way");
    is_str(e.text, "a frame was changed on its way", "of one that has it");
    channel_pair_free(&p);
}

/* A count comes once: also where what was signed with it never left. */
static void test_counts(void)
{
    struct channel_pair p = channel_pair_make(key, key);
    struct channel_frame f;
    uint64_t before;

    channel_pair_meet(&p);
    channel_next(p.far, &f, NULL);
    before = p.near->n_sent;
    is_int(channel_sign(p.near, 5, "text", 4, NULL), 0, "something is signed");
    ok(p.near->n_sent == before + 2, "that is two counts: of its head, and of itself");
    channel_output(p.near)->failed = true;
    is_int(channel_sign(p.near, 5, "more", 4, NULL), -ENOMEM, "and there is no memory for more");
    ok(p.near->n_sent == before + 4, "of which the counts are used up as well");
    channel_pair_free(&p);
}

int main(void)
{
    test_by_hand(false);
    test_by_hand(true);
    test_largest();
    test_in_pieces();
    test_large();
    test_reasons();
    test_counts();
    return tap_done();
}
