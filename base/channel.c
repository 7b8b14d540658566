/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/channel.h"

#include "base/cleanup.h"
#include "base/key.h"
#include "base/wire.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum {
    PREAMBLE_BYTES = 4 + 2 + crypto_scalarmult_BYTES,
    TAG_BYTES = crypto_aead_chacha20poly1305_ietf_ABYTES,
    NONCE_BYTES = crypto_aead_chacha20poly1305_ietf_NPUBBYTES,
    SESSION_KEY_BYTES = crypto_aead_chacha20poly1305_ietf_KEYBYTES,
    LENGTH_BYTES = 4,
    TYPE_BYTES = 2,
};

static const char magic[4] = {'M', 'S', 'T', 'R'};

struct channel {
    uint8_t job_key[CHANNEL_KEY_BYTES];
    uint8_t secret[crypto_scalarmult_SCALARBYTES];
    uint8_t preamble[PREAMBLE_BYTES]; /* ours */
    uint8_t tx_key[SESSION_KEY_BYTES];
    uint8_t rx_key[SESSION_KEY_BYTES];
    uint64_t n_sent;
    uint64_t n_received;
    bool initiator;
    bool keyed;         /* the peer's preamble has come */
    bool authenticated; /* a frame of the peer has opened */
    struct buf in;
    size_t in_at; /* bytes of `in` that were taken; dropped by the next feed */
    struct buf plain;
    struct buf early; /* frames queued before the handshake: length, type, data */
    struct buf out;
};

int channel_create(const uint8_t key[CHANNEL_KEY_BYTES], bool initiator,
                   struct channel **ret, struct error *e)
{
    struct channel *c;
    struct buf preamble = {0};
    uint8_t public_key[crypto_scalarmult_BYTES];

    if (sodium_init() < 0) {
        return error_text(e, EIO, "libsodium does not start");
    }
    c = secret_alloc(sizeof(*c)); /* keys are in it */
    if (!c) {
        return error_set(e, ENOMEM, "secure channel");
    }
    memcpy(c->job_key, key, sizeof(c->job_key));
    c->initiator = initiator;
    randombytes_buf(c->secret, sizeof(c->secret));
    crypto_scalarmult_base(public_key, c->secret);
    buf_append(&preamble, magic, sizeof(magic));
    wire_put_u16(&preamble, CHANNEL_VERSION);
    buf_append(&preamble, public_key, sizeof(public_key));
    if (!preamble.failed) {
        memcpy(c->preamble, preamble.data, PREAMBLE_BYTES);
    }
    buf_append(&c->out, c->preamble, PREAMBLE_BYTES);
    if (preamble.failed || c->out.failed) {
        buf_release(&preamble);
        channel_destroy(c);
        return error_set(e, ENOMEM, "secure channel");
    }
    buf_release(&preamble);
    *ret = c;
    return 0;
}

void channel_destroy(struct channel *c)
{
    if (!c) {
        return;
    }
    buf_release(&c->in);
    buf_release(&c->plain);
    buf_release(&c->early);
    buf_release(&c->out);
    secret_free(c);
}

static void make_nonce(uint64_t count, uint8_t nonce[NONCE_BYTES])
{
    memset(nonce, 0, NONCE_BYTES);
    for (int i = 0; i < 8; i++) {
        nonce[NONCE_BYTES - 1 - i] = (uint8_t)(count >> (8 * i));
    }
}

/* Appends the sealed frame to the output. */
static int seal(struct channel *c, uint16_t type, const void *data, size_t len,
                struct error *e)
{
    _buf_ struct buf plain = {0};
    uint8_t nonce[NONCE_BYTES];
    unsigned long long sealed_len;
    size_t cipher_len = TYPE_BYTES + len + TAG_BYTES;
    size_t header_at = c->out.len;
    char *to;

    wire_put_u16(&plain, type);
    buf_append(&plain, data, len);
    wire_put_u32(&c->out, (uint32_t)cipher_len);
    to = buf_reserve(&c->out, cipher_len);
    if (plain.failed || !to) {
        return error_set(e, ENOMEM, "send %zu bytes", len);
    }
    make_nonce(c->n_sent++, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(
        (uint8_t *)to, &sealed_len, (const uint8_t *)plain.data, plain.len,
        (const uint8_t *)c->out.data + header_at, LENGTH_BYTES, NULL, nonce,
        c->tx_key);
    c->out.len += sealed_len;
    return 0;
}

int channel_send(struct channel *c, uint16_t type, const void *data,
                 size_t len, struct error *e)
{
    if (len > CHANNEL_MAX_FRAME - TYPE_BYTES - TAG_BYTES) {
        return error_text(e, EMSGSIZE, "a frame of %zu bytes is over the limit",
                          len);
    }
    if (c->keyed) {
        return seal(c, type, data, len, e);
    }
    wire_put_u16(&c->early, type);
    wire_put_bytes(&c->early, data, len);
    return c->early.failed ? error_set(e, ENOMEM, "queue a frame") : 0;
}

struct buf *channel_output(struct channel *c)
{
    return &c->out;
}

int channel_feed(struct channel *c, const void *data, size_t len,
                 struct error *e)
{
    buf_consume(&c->in, c->in_at);
    c->in_at = 0;
    buf_append(&c->in, data, len);
    return c->in.failed ? error_set(e, ENOMEM, "receive %zu bytes", len) : 0;
}

static int derive_keys(struct channel *c, const uint8_t *peer, struct error *e)
{
    uint8_t shared[crypto_scalarmult_BYTES];
    uint8_t keys[2 * SESSION_KEY_BYTES];
    crypto_generichash_state hash;
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
    memcpy(c->tx_key, keys + (c->initiator ? 0 : SESSION_KEY_BYTES),
           SESSION_KEY_BYTES);
    memcpy(c->rx_key, keys + (c->initiator ? SESSION_KEY_BYTES : 0),
           SESSION_KEY_BYTES);
    sodium_memzero(&hash, sizeof(hash));
    sodium_memzero(keys, sizeof(keys));
    sodium_memzero(shared, sizeof(shared));
    sodium_memzero(c->secret, sizeof(c->secret));
    sodium_memzero(c->job_key, sizeof(c->job_key));
    return 0;
}

static int send_early(struct channel *c, struct error *e)
{
    struct wire_reader r = wire_reader(c->early.data, c->early.len);
    int rc = 0;

    while (rc == 0 && r.at < r.len) {
        uint16_t type = wire_get_u16(&r);
        size_t len;
        const void *data = wire_get_bytes(&r, CHANNEL_MAX_FRAME, &len);

        rc = seal(c, type, data, len, e);
    }
    buf_release(&c->early);
    return rc;
}

/* 1 when the preamble was taken, 0 when it is not whole yet. */
static int take_preamble(struct channel *c, struct error *e)
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
    rc = send_early(c, e);
    return rc < 0 ? rc : 1;
}

static int open_frame(struct channel *c, size_t cipher_len,
                      struct channel_frame *ret, struct error *e)
{
    const uint8_t *from = (const uint8_t *)c->in.data + c->in_at;
    uint8_t nonce[NONCE_BYTES];
    unsigned long long plain_len;
    char *to;

    buf_clear(&c->plain);
    to = buf_reserve(&c->plain, cipher_len);
    if (!to) {
        return error_set(e, ENOMEM, "receive %zu bytes", cipher_len);
    }
    make_nonce(c->n_received++, nonce);
    if (crypto_aead_chacha20poly1305_ietf_decrypt(
            (uint8_t *)to, &plain_len, NULL, from + LENGTH_BYTES, cipher_len,
            from, LENGTH_BYTES, nonce, c->rx_key) < 0) {
        return error_text(e, ERR_AUTH, c->authenticated
                          ? "a frame was changed on its way"
                          : "the peer does not know this run's key");
    }
    c->plain.len = plain_len;
    c->authenticated = true;
    c->in_at += LENGTH_BYTES + cipher_len;
    ret->type = (uint16_t)((uint8_t)to[0] << 8 | (uint8_t)to[1]);
    ret->data = (const uint8_t *)to + TYPE_BYTES;
    ret->len = plain_len - TYPE_BYTES;
    return 1;
}

int channel_next(struct channel *c, struct channel_frame *ret, struct error *e)
{
    struct wire_reader r;
    size_t cipher_len;
    int rc;

    if (!c->keyed) {
        rc = take_preamble(c, e);
        if (rc <= 0) {
            return rc;
        }
    }
    if (c->in.len - c->in_at < LENGTH_BYTES) {
        return 0;
    }
    r = wire_reader(c->in.data + c->in_at, c->in.len - c->in_at);
    cipher_len = wire_get_u32(&r);
    if (cipher_len < TYPE_BYTES + TAG_BYTES ||
        cipher_len > (c->authenticated ? (size_t)CHANNEL_MAX_FRAME
                                       : (size_t)CHANNEL_MAX_FIRST)) {
        return error_text(e, ERR_FORMAT, "the peer announced a frame of %zu "
                          "bytes", cipher_len);
    }
    if (c->in.len - c->in_at < LENGTH_BYTES + cipher_len) {
        return 0;
    }
    return open_frame(c, cipher_len, ret, e);
}

bool channel_authenticated(const struct channel *c)
{
    return c->authenticated;
}
