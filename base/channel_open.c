/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames whose payload lies open: who is on the way may read it, and cannot change it.
 * The head is a sealed frame of its own, and has the payload's tag; so the payload goes
 * from where it is to where it is wanted, with nothing around it, and is read once at
 * either end for its tag.
 */
#include <config.h>

#include "base/channel_priv.h"

#include "base/wire.h"

#include <errno.h>
#include <string.h>

/* --- sending --- */

static void put_head(struct buf *b, uint16_t type, size_t len,
                     const uint8_t tag[AEAD_TAG_BYTES])
{
    wire_put_u16(b, type);
    wire_put_u32(b, (uint32_t)len);
    buf_append(b, tag, AEAD_TAG_BYTES);
}

int channel_sign(struct channel *c, uint16_t type, const void *data, size_t len,
                 struct error *e)
{
    uint8_t tag[AEAD_TAG_BYTES];
    int rc;

    if (!c->keyed || c->is_private || len == 0) {
        return -EAGAIN;
    }
    if (len > CHANNEL_MAX_OPEN) {
        return error_text(e, EMSGSIZE, "a frame of %zu bytes is over the limit", len);
    }
    /* The head has the count before: it is what comes first. */
    if (!aead_sign(&c->tx, c->n_sent + 1, data, len, tag)) {
        return error_text(e, EIO, "%zu bytes could not be signed", len);
    }
    put_head(channel_begin(c, CHANNEL_OPEN), type, len, tag);
    rc = channel_end(c, e);
    c->n_sent += rc == 0 ? 1 : 2; /* what was signed for it uses a count up, come or not */
    return rc;
}

/* --- what comes --- */

int channel_open_begin(struct channel *c, const struct channel_frame *f,
                       struct error *e)
{
    struct channel_coming *o = &c->coming;
    struct wire_reader r = wire_reader(f->data, f->len);

    *o = (struct channel_coming){.type = wire_get_u16(&r), .len = wire_get_u32(&r)};
    if (f->len != r.at + AEAD_TAG_BYTES || o->len == 0 || o->len > CHANNEL_MAX_OPEN ||
        o->type == CHANNEL_OPEN) {
        return error_text(e, ERR_FORMAT, "the peer announced an open frame of %zu bytes",
                          o->len);
    }
    memcpy(o->tag, f->data + r.at, AEAD_TAG_BYTES);
    o->is_coming = true;
    o->to = channel_place_for(c, o->len);
    return 0;
}

/* Its owner may have done without it meanwhile, and have no such memory any more. */
static bool is_still_wanted(const struct channel *c)
{
    return channel_place_for(c, c->coming.len) == c->coming.to;
}

char *channel_open_room(const struct channel *c, size_t *len)
{
    const struct channel_coming *o = &c->coming;

    if (!o->is_coming || !o->to || o->got == o->len || c->in_at < c->in.len ||
        !is_still_wanted(c)) {
        return NULL;
    }
    *len = o->len - o->got;
    return o->to + o->got;
}

size_t channel_coming(const struct channel *c)
{
    size_t len = 0;

    channel_open_room(c, &len);
    return len;
}

/* What came with the head, or before it was known where it goes. */
static void take_in(struct channel *c)
{
    struct channel_coming *o = &c->coming;
    size_t here = c->in.len - c->in_at, left = o->len - o->got;
    size_t n = here < left ? here : left;

    if (n) {
        memcpy(o->to + o->got, c->in.data + c->in_at, n);
    }
    c->in_at += n;
    o->got += n;
}

static int finish(struct channel *c, const void *data, struct channel_frame *ret,
                  struct error *e)
{
    struct channel_coming *o = &c->coming;

    if (!aead_check(&c->rx, c->n_received, data, o->len, o->tag)) {
        return error_text(e, ERR_AUTH, "a frame was changed on its way");
    }
    c->n_received++;
    c->was_open = true;
    o->is_coming = false;
    *ret = (struct channel_frame){.type = o->type, .data = data, .len = o->len};
    return 1;
}

int channel_open_next(struct channel *c, struct channel_frame *ret, struct error *e)
{
    struct channel_coming *o = &c->coming;
    const char *data;

    if (!o->to) {
        if (c->in.len - c->in_at < o->len) {
            return 0;
        }
        data = c->in.data + c->in_at;
        c->in_at += o->len;
        return finish(c, data, ret, e);
    }
    if (!is_still_wanted(c)) {
        return error_text(e, ECANCELED, "what comes is not wanted any more");
    }
    take_in(c);
    return o->got < o->len ? 0 : finish(c, o->to, ret, e);
}
