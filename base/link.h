/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links: authenticated, framed connections on a libuv loop (base/channel.h over
 * TCP or, between processes of one user on one host, a Unix socket). Everything
 * runs on the loop's thread.
 *
 * A link is made by link_connect(), which tries all addresses of the peer a
 * fraction of a second apart and keeps the first connection, or comes out of a
 * listener. It is up once the peer has shown that it knows the job key; before,
 * it has until a deadline, and no frame of it is seen by anybody.
 *
 * Callbacks may call any function here, link_close() of the same link included.
 * After link_close() none is called. on_down is called at most once, when the
 * link failed by itself; the owner still has to link_close() it.
 */
#ifndef MUSTER_BASE_LINK_H
#define MUSTER_BASE_LINK_H

#include "base/addr.h"
#include "base/channel.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct link;
struct link_listener;

enum { LINK_MAX_QUEUED = 64 * 1024 * 1024 };

struct link_ops {
    /* The connector's side: connected, our frames can be sent. Not called on
     * links from a listener. */
    void (*on_up)(struct link *l, void *ctx);
    void (*on_frame)(struct link *l, const struct channel_frame *f, void *ctx);
    /* What went wrong; `closed` is true when the peer's kernel closed. */
    void (*on_down)(struct link *l, bool closed, const struct error *why,
                    void *ctx);
    /* After link_tell_drained(); may be NULL for who never calls that. */
    void (*on_drained)(struct link *l, void *ctx);
    /* Where the payload of a large frame goes, see channel_set_place(). NULL: it never
     * goes elsewhere. Calls no function here, and is not called once the link is down. */
    void *(*place)(struct link *l, size_t len, void *ctx);
};

struct link_target {
    char *const *addrs; /* numeric, NULL-terminated; copied */
    uint16_t port;
    /* Or NULL: where who listens at that port is on this host, and has called
     * link_listener_open_local() with this name, the link needs no TCP. */
    const char *local_name;
    unsigned timeout_ms; /* until the peer's first frame has come */
};

/* Starts to connect. Outcome by callback: on_up or on_down. */
int link_connect(uv_loop_t *loop, const struct link_target *target,
                 const uint8_t key[CHANNEL_KEY_BYTES],
                 const struct link_ops *ops, void *ctx, struct link **ret,
                 struct error *e);

/* Listens on a port that the kernel chooses, on all interfaces or on loopback
 * alone. Connections wait until link_listener_open() gives the key. */
int link_listen(uv_loop_t *loop, bool loopback, struct link_listener **ret,
                struct error *e);
uint16_t link_listener_port(const struct link_listener *l);

/* From now on connections are taken. `on_peer` is called with the first frame
 * of each peer that knows the key; it takes the link over by link_adopt(), or
 * link_close()s it, before it returns. */
void link_listener_open(struct link_listener *l,
                        const uint8_t key[CHANNEL_KEY_BYTES],
                        void (*on_peer)(struct link *l,
                                        const struct channel_frame *first,
                                        void *ctx),
                        void *ctx);

/* Takes connections from processes of this user on this host at `name`, as well.
 * The key, which has to be there, makes it a name of the run. 0, or -errno:
 * peers come by TCP then. */
int link_listener_open_local(struct link_listener *l, const char *name);
void link_listener_close(struct link_listener *l);

/* Sets whom a link from a listener reports to. */
void link_adopt(struct link *l, const struct link_ops *ops, void *ctx);

/* Queues a frame; returns 0, -EPIPE on a link that is down, or -EMSGSIZE. A peer
 * that leaves LINK_MAX_QUEUED bytes unread has failed: -ENOBUFS, then on_down. */
int link_send(struct link *l, uint16_t type, const void *data, size_t len);
int link_send_buf(struct link *l, uint16_t type, const struct buf *b);

/* The same for bulk that may be read on its way, but not changed (channel_sign()): what the
 * kernel takes at once goes from where it is. */
int link_send_open(struct link *l, uint16_t type, const void *data, size_t len);

/* The same without a copy: the frame is appended to the buffer that link_begin()
 * returns, and is queued by link_end(); no other call on the link in between.
 * NULL where link_send() would not take it. */
struct buf *link_begin(struct link *l, uint16_t type);
int link_end(struct link *l);

/* Bytes that the kernel has not taken yet. */
size_t link_queued(const struct link *l);

/* Some are queued: on_drained is called, once, when none are. */
void link_tell_drained(struct link *l);

/* Reads no more from the peer, whose kernel keeps what it sends, or goes on with
 * it. Frames that have come already are told of all the same. */
void link_hold(struct link *l, bool hold);

/* Monotonic ms (loop time) of the last byte from the peer. */
uint64_t link_last_heard_ms(const struct link *l);

/* The peer's numeric address, as this side sees it, or "this host". */
const char *link_peer(const struct link *l);

/* Closes, after what is queued has been sent or 2 s. NULL is allowed. The link
 * must not be used afterwards. */
void link_close(struct link *l);

#endif
