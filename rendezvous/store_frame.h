/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many clients of a store over one connection, a trunk: what an agent that
 * forwards (store_relay.h) and the store of rank 0's node (store_trunk.h) say to
 * each other.
 *
 * There are frames both ways: channel, number and length, 32 bits each,
 * big-endian, and so many bytes. On a channel runs what would run on a connection
 * of its own, in the new dialect and without its VALIDATE. Down, the number
 * counts the requests of the channel that were answered or need no answer.
 *
 * Up, the number of a channel's first frame is 0, or the channel is for one wait
 * that so many clients share. Then STORE_STOP_WAITING is for all of them, and the
 * end of the channel; STORE_STOP_WAITING_ONE, for an item of a queue, is for one; a
 * CANCEL_WAIT says that they are one fewer, and is not answered. It may come when
 * the channel has just ended, as may a close, which is answered.
 *
 * On STORE_CONTROL_CHANNEL, which nobody opens or closes, are words: about what
 * is kept (store_share.h), both ways; and down MORE{channel}, for each
 * STORE_CREDIT_BYTES that are done of what a client has asked for. With
 * STORE_WINDOW_BYTES under way it has to wait, or what has to wait at the other end
 * would pile up there: that cannot hold the trunk, as what it waits for may be behind.
 *
 * Length 0 closes a channel. Who gets that answers with the same, unless it has
 * said it already; then the channel's number is free again.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_FRAME_H
#define MUSTER_RENDEZVOUS_STORE_FRAME_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STORE_FRAME_BYTES = 12,
    STORE_MAX_CHANNELS = 65536, /* numbers from 0 */
    STORE_WINDOW_BYTES = 128 * 1024,
    STORE_CREDIT_BYTES = STORE_WINDOW_BYTES / 2,
};

#define STORE_CONTROL_CHANNEL UINT32_MAX

struct store_frame {
    uint32_t channel;
    uint32_t number;
    uint32_t len;
};

void store_frame_put(struct buf *b, uint32_t channel, uint32_t number,
                     uint32_t len);

/* Frames in a stream of bytes, whose payload is not kept; zero-initialised
 * before the first byte. */
struct store_frames {
    uint8_t header[STORE_FRAME_BYTES];
    size_t n_header;
    struct store_frame frame;
    size_t left; /* of its payload */
};

/* The next part of a frame in the *len bytes at *data, which it moves on: true,
 * and where the part is and how long (0: a frame without payload); false when it
 * needs more bytes. */
bool store_frames_next(struct store_frames *f, const char **data, size_t *len,
                       const char **ret_part, size_t *ret_len);

#endif
