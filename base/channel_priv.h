/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of a channel share. Private to channel*.c.
 *
 *   channel.c        frames that are sealed
 *   channel_greet.c  the handshake: how both get the keys
 *   channel_open.c   frames that are only signed: their payload lies open
 */
#ifndef MUSTER_BASE_CHANNEL_PRIV_H
#define MUSTER_BASE_CHANNEL_PRIV_H

#include "base/channel.h"

#include "base/aead.h"

#include <sodium.h>

enum {
    CHANNEL_CAN_AT = 4 + 2, /* in a preamble */
    CHANNEL_PREAMBLE_BYTES = CHANNEL_CAN_AT + 1 + crypto_scalarmult_BYTES,
    CHANNEL_LENGTH_BYTES = 4,
    CHANNEL_TYPE_BYTES = 2,
    CHANNEL_AWAY_BYTES = 32 * 1024, /* for less it does not pay to ask where they go */
    CHANNEL_OPEN = 0xffff,          /* the type of the head of an open frame */
    /* As it is on the wire: length, type, what open_head() writes, tag. */
    CHANNEL_OPEN_HEAD_BYTES = CHANNEL_LENGTH_BYTES + CHANNEL_TYPE_BYTES + 2 + 4 +
                              AEAD_TAG_BYTES + AEAD_TAG_BYTES,
};

/* An open frame whose head has come. */
struct channel_coming {
    bool is_coming;
    uint16_t type;
    size_t len, got; /* of the payload; what is at `to` already */
    uint8_t tag[AEAD_TAG_BYTES];
    char *to;        /* where it is wanted, or NULL: it gathers in `in` */
};

struct channel {
    struct aead tx, rx;
    channel_place_f *place;
    void *place_ctx;
    uint8_t job_key[CHANNEL_KEY_BYTES];
    uint8_t secret[crypto_scalarmult_SCALARBYTES];
    uint8_t preamble[CHANNEL_PREAMBLE_BYTES]; /* ours */
    uint64_t n_sent;
    uint64_t n_received;
    bool initiator;
    bool is_private;
    bool keyed;         /* the peer's preamble has come */
    bool authenticated; /* a frame of the peer has opened */
    bool was_open;      /* the frame that came last: its like may follow */
    bool is_room_away;  /* channel_room() gave a part of coming.to */
    struct channel_coming coming;
    struct buf in;
    size_t in_at;    /* bytes of `in` that were taken */
    /* Frames queued before the handshake, as they will be sent but for the seal:
     * length (of type and payload), type, payload. */
    struct buf early;
    struct buf out;
    size_t begun_at; /* where the frame under way begins, in one of those */
};

/* Where the owner wants so many bytes, or NULL. */
static inline void *channel_place_for(const struct channel *c, size_t len)
{
    return c->place && c->authenticated && len >= CHANNEL_AWAY_BYTES
               ? c->place(c->place_ctx, len) : NULL;
}

/* --- channel_greet.c --- */

/* Makes the preamble, and queues it: c->out.failed tells. */
void channel_greet(struct channel *c);
/* 1 when the peer's preamble was taken, which gives the keys; 0 when it is not whole yet. */
int channel_greeted(struct channel *c, struct error *e);

/* --- channel_open.c --- */

/* Takes the head of an open frame, which has come as `f`. -ERR_FORMAT. */
int channel_open_begin(struct channel *c, const struct channel_frame *f,
                       struct error *e);
/* As channel_next(), while one is coming. */
int channel_open_next(struct channel *c, struct channel_frame *ret, struct error *e);
/* As channel_room(); NULL: none of it goes past `in`. */
char *channel_open_room(const struct channel *c, size_t *len);

#endif
