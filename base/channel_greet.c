/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two ends get the keys of a session. Each sends a preamble: that it is of muster, the
 * version, what its side can do, and a public key that it has made for this. Both derive
 * the keys from the job's key, what the two public keys have in common, and all of both
 * preambles: who knows no job's key, or changes a bit on the way, has no frame opened.
 */
#include <config.h>

#include "base/channel_priv.h"

#include "base/wire.h"

#include <string.h>

enum {
    CAN_AT = CHANNEL_CAN_AT,
    PREAMBLE_BYTES = CHANNEL_PREAMBLE_BYTES,
    SESSION_KEY_BYTES = AEAD_KEY_BYTES,
};

/* Bits of what a preamble says that its side can do; others are for later. */
enum { CAN_AES = 1, CAN_GMAC = 2 };

static const char magic[4] = {'M', 'S', 'T', 'R'};

static uint8_t can_of(enum aead_cipher best)
{
    return best == AEAD_AES_256_GMAC ? CAN_AES | CAN_GMAC
         : best == AEAD_AES_256_GCM ? CAN_AES : 0;
}

/* The best one that both can. */
static enum aead_cipher choose(uint8_t near, uint8_t far)
{
    uint8_t both = near & far;

    return !(both & CAN_AES) ? AEAD_CHACHA20_POLY1305
         : both & CAN_GMAC ? AEAD_AES_256_GMAC : AEAD_AES_256_GCM;
}

void channel_greet(struct channel *c)
{
    uint8_t *p = c->preamble;

    randombytes_buf(c->secret, sizeof(c->secret));
    memcpy(p, magic, sizeof(magic));
    p[sizeof(magic)] = CHANNEL_VERSION >> 8;
    p[sizeof(magic) + 1] = CHANNEL_VERSION & 0xff;
    p[CAN_AT] = can_of(aead_best());
    crypto_scalarmult_base(p + CAN_AT + 1, c->secret);
    buf_append(&c->out, p, PREAMBLE_BYTES);
}

void channel_limit(struct channel *c, enum aead_cipher most)
{
    c->preamble[CAN_AT] &= can_of(most);
    c->out.data[CAN_AT] = (char)c->preamble[CAN_AT];
}

static int derive_keys(struct channel *c, const uint8_t *peer, struct error *e)
{
    uint8_t shared[crypto_scalarmult_BYTES];
    uint8_t keys[2 * SESSION_KEY_BYTES];
    crypto_generichash_state hash;
    enum aead_cipher cipher;
    static const char label[] = "muster-channel";

    if (crypto_scalarmult(shared, c->secret, peer + PREAMBLE_BYTES -
                                                 crypto_scalarmult_BYTES) < 0) {
        return error_text(e, ERR_AUTH, "the peer sent a weak public key");
    }
    crypto_generichash_init(&hash, c->job_key, sizeof(c->job_key),
                            sizeof(keys));
    crypto_generichash_update(&hash, (const uint8_t *)label, sizeof(label));
    crypto_generichash_update(&hash, shared, sizeof(shared));
    crypto_generichash_update(&hash, c->initiator ? c->preamble : peer,
                              PREAMBLE_BYTES);
    crypto_generichash_update(&hash, c->initiator ? peer : c->preamble,
                              PREAMBLE_BYTES);
    crypto_generichash_final(&hash, keys, sizeof(keys));
    cipher = choose(c->preamble[CAN_AT], peer[CAN_AT]);
    aead_init(&c->tx, cipher, keys + (c->initiator ? 0 : SESSION_KEY_BYTES));
    aead_init(&c->rx, cipher, keys + (c->initiator ? SESSION_KEY_BYTES : 0));
    sodium_memzero(&hash, sizeof(hash));
    sodium_memzero(keys, sizeof(keys));
    sodium_memzero(shared, sizeof(shared));
    sodium_memzero(c->secret, sizeof(c->secret));
    sodium_memzero(c->job_key, sizeof(c->job_key));
    return 0;
}

int channel_greeted(struct channel *c, struct error *e)
{
    struct wire_reader r = wire_reader(c->in.data, c->in.len);
    size_t n = c->in.len < sizeof(magic) ? c->in.len : sizeof(magic);
    int rc;

    if (n && memcmp(c->in.data, magic, n) != 0) {
        return error_text(e, ERR_FORMAT, "the peer does not speak muster's "
                          "control protocol");
    }
    if (c->in.len < sizeof(magic) + 2) {
        return 0;
    }
    r.at = sizeof(magic);
    rc = wire_get_u16(&r);
    if (rc != CHANNEL_VERSION) {
        return error_text(e, ERR_VERSION, "the peer speaks version %d of the "
                          "control protocol, this muster %d", rc,
                          CHANNEL_VERSION);
    }
    if (c->in.len < PREAMBLE_BYTES) {
        return 0;
    }
    rc = derive_keys(c, (const uint8_t *)c->in.data, e);
    if (rc < 0) {
        return rc;
    }
    c->in_at += PREAMBLE_BYTES;
    c->keyed = true;
    return 1;
}
