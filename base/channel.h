/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A secure channel over any byte stream, without I/O of its own: bytes from the
 * peer go in, frames come out, and what has to be sent gathers in an output
 * buffer. Both sides know the 32-byte job key.
 *
 * Each side sends a preamble: "MSTR", a 16-bit protocol version, a byte of what it
 * can do (1: AES-256-GCM, 2: signs by it as well), a fresh X25519 public key. The two
 * session keys are the halves of
 *   BLAKE2b-512(key = job key, "muster-channel" || shared secret ||
 *               initiator's preamble || responder's preamble)
 * so that without the job key no frame can be made or read, an old recording
 * replays into nothing, and a key that leaks later opens no old recording.
 * A frame is a 32-bit length and that many bytes of AES-256-GCM where both can do
 * that, else of ChaCha20-Poly1305 (base/aead.h), the nonce being the count of frames
 * sent before it; inside are a 16-bit type and the payload. The length is
 * authenticated as well. Who changes on the way what a side can do changes the keys.
 * Until the peer's first frame has opened, frames are held to CHANNEL_MAX_FIRST bytes.
 *
 * Bulk may lie open (channel_sign()): a frame of the type 0xffff has its 16-bit type, its
 * 32-bit length and its tag (aead_sign()) for the next count; behind that frame come so
 * many bytes as they are. They can be read on their way, and neither changed, left out
 * nor put in.
 *
 * On a stream that is private by itself (channel_make_private()) only the first
 * frame each way is sealed, which shows the key; those after it are a length, a
 * type and the payload, as they are.
 */
#ifndef MUSTER_BASE_CHANNEL_H
#define MUSTER_BASE_CHANNEL_H

#include "base/aead.h"
#include "base/buf.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CHANNEL_VERSION = 4,
    CHANNEL_KEY_BYTES = 32,
    CHANNEL_MAX_FIRST = 8 * 1024,
    CHANNEL_MAX_FRAME = 4 * 1024 * 1024,
    CHANNEL_MAX_OPEN = 4 * 1024 * 1024, /* the payload of an open frame */
};

struct channel;

struct channel_frame {
    uint16_t type;
    const uint8_t *data; /* valid until the next call on the channel */
    size_t len;
};

/* `initiator` is the side that connected. The preamble lies in the output. */
int channel_create(const uint8_t key[CHANNEL_KEY_BYTES], bool initiator,
                   struct channel **ret, struct error *e);
void channel_destroy(struct channel *c);

/* The kernel sees to it that nobody else reads or changes the stream: a Unix
 * socket between processes of one user. Both sides have to say so, before the
 * first byte comes. */
void channel_make_private(struct channel *c);

/* It does without the ciphers behind that one, as on a processor that has none: for tests,
 * and before anything is sent or comes. */
void channel_limit(struct channel *c, enum aead_cipher most);
/* What frames are sealed and signed with. False: that is not settled yet. */
bool channel_cipher(const struct channel *c, enum aead_cipher *ret);

/* Where the payload of a frame that has come goes, in place of the channel's own memory:
 * `len` bytes, of 32 KiB and more. Neither they nor their number are known by then to be
 * of somebody with the key: they may be used only when channel_next() has said so. NULL:
 * into its own. Asked for inside channel_next() and, while an open frame comes piece by
 * piece, channel_room(), again each time: another answer than the first one ends the
 * channel, for nobody has use for half of it. It uses no channel. */
typedef void *channel_place_f(void *ctx, size_t len);
void channel_set_place(struct channel *c, channel_place_f *place, void *ctx);

/* Queues a frame. Before the handshake is done frames are kept and follow it.
 * -EMSGSIZE over the limit. */
int channel_send(struct channel *c, uint16_t type, const void *data,
                 size_t len, struct error *e);

/* The same without a copy: the payload is appended to the buffer that
 * channel_begin() returns, then channel_end() makes a frame of it, or drops it
 * and returns what went wrong. Nothing else may be called in between. */
struct buf *channel_begin(struct channel *c, uint16_t type);
int channel_end(struct channel *c, struct error *e);

/* The head of an open frame, for whose payload the caller sees to it that the `len` bytes
 * at `data` (CHANNEL_MAX_OPEN at most, and not none) are sent behind what is in the
 * output, before anything else is. -EAGAIN where that is not to be had: before the
 * handshake is done, and on a private stream, where nothing is sealed anyway. */
int channel_sign(struct channel *c, uint16_t type, const void *data, size_t len,
                 struct error *e);

/* Bytes waiting to be sent: the caller sends and consumes them. */
struct buf *channel_output(struct channel *c);

/* Takes bytes from the peer. -ENOMEM. */
int channel_feed(struct channel *c, const void *data, size_t len,
                 struct error *e);

/* The same without a copy: room for `len` bytes, or as many as are said there, or NULL
 * without memory, and how many have been put there. */
char *channel_room(struct channel *c, size_t *len);
void channel_fed(struct channel *c, size_t len);

/* How much of an open frame is still to come that goes where it is wanted; 0: none is known
 * to. Asks for the place, as channel_room() does. */
size_t channel_coming(const struct channel *c);

/* 1 and a frame; 0 when more bytes are needed; -ERR_VERSION, -ERR_FORMAT or
 * -ERR_AUTH, after which the channel is dead. */
int channel_next(struct channel *c, struct channel_frame *ret,
                 struct error *e);

/* True once a frame of the peer was opened: it knows the key. */
bool channel_authenticated(const struct channel *c);

#endif
