/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stranger, and somebody on the way, can do to a secure channel. The
 * first byte says which: raw bytes into a fresh channel; or two channels that
 * shake hands, and the rest of the input overwrites, cuts or feeds in pieces
 * what one sends, by any cipher, sealed or open. Nothing but the frames that were sent
 * may ever come out.
 */
#include <config.h>

#include "base/channel.h"
#include "base/cleanup.h"
#include "tests/lib/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t key[CHANNEL_KEY_BYTES] = {1, 2, 3};

static struct channel *make(bool initiator)
{
    struct channel *c = NULL;

    expect(channel_create(key, initiator, &c, NULL) == 0);
    return c;
}

/* Without the key nobody gets a frame through. */
static void try_stranger(const uint8_t *data, size_t size)
{
    struct channel *c = make(false);
    struct channel_frame f;
    struct error e = {0};
    size_t step = size ? data[0] % 7 + 1 : 1;
    int rc = 0;

    for (size_t at = 0; at < size && rc == 0; at += step) {
        size_t n = size - at < step ? size - at : step;

        expect(channel_feed(c, data + at, n, NULL) == 0);
        rc = channel_next(c, &f, &e);
    }
    expect(rc <= 0 && !channel_authenticated(c));
    channel_destroy(c);
}

static void move(struct channel *from, struct channel *to)
{
    struct buf *out = channel_output(from);

    expect(channel_feed(to, out->data, out->len, NULL) == 0);
    buf_clear(out);
}

/* Pairs of bytes: where (in 256ths), and what to xor there. */
static void spoil(struct buf *b, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i + 1 < size && i < 32; i += 2) {
        b->data[(size_t)data[i] * b->len / 256] ^= (char)data[i + 1];
    }
}

enum { LARGE = 40000 }; /* it is opened elsewhere */

/* What somebody on the way says of the length comes here, too. */
static void *place(void *ctx, size_t len)
{
    return len <= LARGE ? ctx : NULL;
}

/* Of frame n: the first one is not large, or no stranger may send it. */
static size_t len_of(size_t n, const uint8_t *data, size_t size)
{
    return n > 0 && size > 0 && data[size - 1] & 2 ? LARGE : size;
}

/* Frame n, which lies open where the input wants that. */
static void send_frame(struct channel *c, size_t n, const uint8_t *text,
                       const uint8_t *data, size_t size)
{
    size_t len = len_of(n, data, size);

    if (size > 0 && data[size - 1] & 4 && n % 2 == 1) {
        expect(channel_sign(c, (uint16_t)n, text, len, NULL) == 0);
        buf_append(channel_output(c), text, len);
    } else {
        expect(channel_send(c, (uint16_t)n, text, len, NULL) == 0);
    }
}

static void try_meddler(const uint8_t *data, size_t size)
{
    struct channel *a = make(true), *b = make(false);
    uint8_t least = size > 0 ? data[size - 1] % 3 : 0;
    static uint8_t text[LARGE], away[LARGE];
    struct channel_frame f;
    struct error e = {0};
    size_t got = 0, n;
    struct buf *out;

    channel_limit(b, (enum aead_cipher)(AEAD_AES_256_GMAC - least));
    channel_set_place(b, place, away);
    for (size_t at = 0; size > 0 && at < LARGE; at += size) {
        memcpy(text + at, data, LARGE - at < size ? LARGE - at : size);
    }
    move(a, b);
    move(b, a);
    expect(channel_next(a, &f, &e) == 0 && channel_next(b, &f, &e) == 0);
    for (n = 0; n < 4; n++) {
        send_frame(a, n, text, data, size);
    }
    out = channel_output(a);
    spoil(out, data, size);
    move(a, b);
    while (channel_next(b, &f, &e) == 1) {
        expect(f.type == got && f.len == len_of(got, data, size) &&
               memcmp(f.data, text, f.len) == 0);
        got++;
    }
    expect(got <= n);
    channel_destroy(a);
    channel_destroy(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && size < 4096) {
        (data[0] & 1 ? try_stranger : try_meddler)(data + 1, size - 1);
    }
    return 0;
}
