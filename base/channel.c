/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/channel_priv.h"

#include "base/cleanup.h"
#include "base/key.h"
#include "base/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    TAG_BYTES = AEAD_TAG_BYTES,
    LENGTH_BYTES = CHANNEL_LENGTH_BYTES,
    TYPE_BYTES = CHANNEL_TYPE_BYTES,
    KEEP_BYTES = 1024 * 1024, /* of a buffer that is empty */
};

int channel_create(const uint8_t key[CHANNEL_KEY_BYTES], bool initiator,
                   struct channel **ret, struct error *e)
{
    struct channel *c;

    if (sodium_init() < 0) {
        return error_text(e, EIO, "libsodium does not start");
    }
    c = secret_alloc(sizeof(*c)); /* keys are in it */
    if (!c) {
        return error_set(e, ENOMEM, "secure channel");
    }
    memcpy(c->job_key, key, sizeof(c->job_key));
    c->initiator = initiator;
    channel_greet(c);
    if (c->out.failed) {
        channel_destroy(c);
        return error_set(e, ENOMEM, "secure channel");
    }
    *ret = c;
    return 0;
}

void channel_destroy(struct channel *c)
{
    if (!c) {
        return;
    }
    aead_release(&c->tx);
    aead_release(&c->rx);
    buf_release(&c->in);
    buf_release(&c->early);
    buf_release(&c->out);
    secret_free(c);
}

void channel_make_private(struct channel *c)
{
    c->is_private = true;
}

bool channel_cipher(const struct channel *c, enum aead_cipher *ret)
{
    *ret = c->tx.cipher;
    return c->keyed;
}

static void put_length(struct buf *b, size_t at, size_t len)
{
    for (int i = 0; i < LENGTH_BYTES; i++) {
        b->data[at + (size_t)i] = (char)(len >> (8 * (LENGTH_BYTES - 1 - i)));
    }
}

/* Whether the next frame, after so many, is sealed. */
static bool is_sealed(const struct channel *c, uint64_t n_before)
{
    return !c->is_private || n_before == 0;
}

/* Completes the frame that begins at `at` and ends with the output: its type and
 * payload are sealed where they lie, or are to lie: its last bytes are still `away`. */
static int finish(struct channel *c, size_t at, const void *away, size_t n_away,
                  struct error *e)
{
    size_t len = c->out.len - at - LENGTH_BYTES;
    bool sealed = is_sealed(c, c->n_sent);
    size_t wire_len = len + (sealed ? TAG_BYTES : 0);
    struct aead_text text;

    if (!buf_reserve(&c->out, TAG_BYTES)) {
        return error_set(e, ENOMEM, "send %zu bytes", len);
    }
    put_length(&c->out, at, wire_len);
    if (sealed) {
        text = (struct aead_text){(uint8_t *)c->out.data + at, LENGTH_BYTES, len,
                                  (void *)(uintptr_t)away, n_away};
        if (!aead_seal(&c->tx, c->n_sent++, &text)) {
            return error_text(e, EIO, "%zu bytes could not be sealed", len);
        }
    } else {
        if (n_away) {
            memcpy(c->out.data + c->out.len - n_away, away, n_away);
        }
        c->n_sent++;
    }
    c->out.len = at + LENGTH_BYTES + wire_len;
    return 0;
}

static struct buf *queue_of(struct channel *c)
{
    return c->keyed ? &c->out : &c->early;
}

struct buf *channel_begin(struct channel *c, uint16_t type)
{
    struct buf *b = queue_of(c);

    c->begun_at = b->len;
    wire_put_u32(b, 0);
    wire_put_u16(b, type);
    return b;
}

static int end_begun(struct channel *c, struct buf *b, struct error *e)
{
    size_t len = b->len - c->begun_at - LENGTH_BYTES;

    if (b->failed) {
        return error_set(e, ENOMEM, "queue a frame");
    }
    if (len > CHANNEL_MAX_FRAME - TAG_BYTES) {
        return error_text(e, EMSGSIZE, "a frame of %zu bytes is over the limit",
                          len - TYPE_BYTES);
    }
    if (c->keyed) {
        return finish(c, c->begun_at, NULL, 0, e);
    }
    put_length(b, c->begun_at, len);
    return 0;
}

int channel_end(struct channel *c, struct error *e)
{
    struct buf *b = queue_of(c);
    int rc = end_begun(c, b, e);

    if (rc < 0) {
        b->failed = false;
        b->len = c->begun_at;
    }
    return rc;
}

/* As channel_end(), for what is not behind the beginning yet: it is sealed from where it
 * is. */
static int end_with(struct channel *c, const void *data, size_t len, struct error *e)
{
    int rc;

    if (buf_reserve(&c->out, len + TAG_BYTES)) {
        c->out.len += len;
        rc = finish(c, c->begun_at, data, len, e);
    } else {
        rc = error_set(e, ENOMEM, "send %zu bytes", len);
    }
    if (rc < 0) {
        c->out.failed = false;
        c->out.len = c->begun_at;
    }
    return rc;
}

int channel_send(struct channel *c, uint16_t type, const void *data,
                 size_t len, struct error *e)
{
    struct buf *b;

    if (len > CHANNEL_MAX_FRAME - TYPE_BYTES - TAG_BYTES) {
        return error_text(e, EMSGSIZE, "a frame of %zu bytes is over the limit",
                          len);
    }
    b = channel_begin(c, type);
    if (c->keyed) {
        return end_with(c, data, len, e);
    }
    buf_append(b, data, len);
    return channel_end(c, e);
}

struct buf *channel_output(struct channel *c)
{
    return &c->out;
}

char *channel_room(struct channel *c, size_t *len)
{
    char *away = channel_open_room(c, len);

    c->is_room_away = away != NULL;
    if (away) {
        return away;
    }
    /* Where open frames come one after the other, no more than the head of the next one:
     * what is behind it goes elsewhere. */
    if (c->was_open && c->in_at == c->in.len && *len > CHANNEL_OPEN_HEAD_BYTES) {
        *len = CHANNEL_OPEN_HEAD_BYTES;
    }
    /* What was taken is dropped when that costs nothing, or room is needed. */
    if (c->in_at == c->in.len || c->in.cap < c->in.len + *len + 1) {
        buf_consume(&c->in, c->in_at);
        c->in_at = 0;
    }
    if (!c->in.len && c->in.cap > KEEP_BYTES) {
        buf_release(&c->in);
    }
    return buf_reserve(&c->in, *len);
}

void channel_fed(struct channel *c, size_t len)
{
    *(c->is_room_away ? &c->coming.got : &c->in.len) += len;
}

int channel_feed(struct channel *c, const void *data, size_t len,
                 struct error *e)
{
    const char *at = data;

    while (len > 0) {
        size_t n = len;
        char *to = channel_room(c, &n);

        if (!to) {
            return error_set(e, ENOMEM, "receive %zu bytes", len);
        }
        n = n < len ? n : len;
        memcpy(to, at, n);
        channel_fed(c, n);
        at += n;
        len -= n;
    }
    return 0;
}

static int send_early(struct channel *c, struct error *e)
{
    struct wire_reader r = wire_reader(c->early.data, c->early.len);
    int rc = 0;

    while (rc == 0 && r.at < r.len) {
        size_t len, at = c->out.len;
        const void *text = wire_get_bytes(&r, CHANNEL_MAX_FRAME, &len);

        wire_put_bytes(&c->out, text, len);
        rc = c->out.failed ? error_set(e, ENOMEM, "send %zu bytes", len)
                           : finish(c, at, NULL, 0, e);
    }
    buf_release(&c->early);
    return rc;
}

void channel_set_place(struct channel *c, channel_place_f *place, void *ctx)
{
    c->place = place;
    c->place_ctx = ctx;
}

static int open_sealed(struct channel *c, uint8_t *frame, size_t *len,
                       uint8_t **ret_away, struct error *e)
{
    struct aead_text text = {frame, LENGTH_BYTES, *len, NULL, 0};
    size_t n = *len - TYPE_BYTES - TAG_BYTES;

    text.away = channel_place_for(c, n);
    text.n_away = text.away ? n : 0;
    if (!aead_open(&c->rx, c->n_received, &text)) {
        return error_text(e, ERR_AUTH, c->authenticated
                          ? "a frame was changed on its way"
                          : "the peer does not know this run's key");
    }
    *len -= TAG_BYTES;
    *ret_away = text.away;
    return 0;
}

/* The frame of `len` bytes behind its length, opened where it lies. */
static int open_frame(struct channel *c, size_t len, struct channel_frame *ret,
                      struct error *e)
{
    uint8_t *text = (uint8_t *)c->in.data + c->in_at + LENGTH_BYTES, *away = NULL;

    c->in_at += LENGTH_BYTES + len;
    if (is_sealed(c, c->n_received)) {
        int rc = open_sealed(c, text - LENGTH_BYTES, &len, &away, e);

        if (rc < 0) {
            return rc;
        }
    }
    c->n_received++;
    c->authenticated = true;
    ret->type = (uint16_t)(text[0] << 8 | text[1]);
    ret->data = away ? away : text + TYPE_BYTES;
    ret->len = len - TYPE_BYTES;
    return 1;
}

static int next_frame(struct channel *c, struct channel_frame *ret, struct error *e)
{
    struct wire_reader r;
    size_t len, least = TYPE_BYTES;
    int rc;

    if (!c->keyed) {
        rc = channel_greeted(c, e);
        if (rc <= 0) {
            return rc;
        }
        rc = send_early(c, e);
        if (rc < 0) {
            return rc;
        }
    }
    if (c->in.len - c->in_at < LENGTH_BYTES) {
        return 0;
    }
    r = wire_reader(c->in.data + c->in_at, c->in.len - c->in_at);
    len = wire_get_u32(&r);
    least += is_sealed(c, c->n_received) ? TAG_BYTES : 0;
    if (len < least || len > (c->authenticated ? (size_t)CHANNEL_MAX_FRAME
                                               : (size_t)CHANNEL_MAX_FIRST)) {
        return error_text(e, ERR_FORMAT, "the peer announced a frame of %zu "
                          "bytes", len);
    }
    if (c->in.len - c->in_at < LENGTH_BYTES + len) {
        return 0;
    }
    c->was_open = false;
    return open_frame(c, len, ret, e);
}

int channel_next(struct channel *c, struct channel_frame *ret, struct error *e)
{
    int rc;

    if (!c->coming.is_coming) {
        rc = next_frame(c, ret, e);
        if (rc <= 0 || ret->type != CHANNEL_OPEN) {
            return rc;
        }
        rc = channel_open_begin(c, ret, e);
        if (rc < 0) {
            return rc;
        }
    }
    return channel_open_next(c, ret, e);
}

bool channel_authenticated(const struct channel *c)
{
    return c->authenticated;
}
