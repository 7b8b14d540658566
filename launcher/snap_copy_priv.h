/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of snap_copy*.c share. */
#ifndef MUSTER_LAUNCHER_SNAP_COPY_PRIV_H
#define MUSTER_LAUNCHER_SNAP_COPY_PRIV_H

#include "base/str.h"
#include "launcher/snap_copy.h"

/* What is signed, or sealed, and given to the kernel one after the other stays in a
 * processor's cache meanwhile, at both ends; with less at a time they wait for each other
 * more often. */
enum { COPY_CHUNK_BYTES = 1 << 20 };

/* On its way to another agent, or waiting for its turn. */
struct copy_out {
    struct copy_out *next;
    struct snap_copy *copy;
    struct link *link;
    struct snap_hold *hold; /* that has it */
    bool is_begun;          /* its turn has come */
    bool is_asked;          /* who gets it has asked for it: nobody else is told */
    uint32_t rank, to;
    char uuid[COMMIT_UUID_BYTES];
    struct strlist addrs;
    uint16_t port;
    uint64_t at, room;
    uint64_t moved_ms; /* when it last came further */
};

/* On its way here. */
struct copy_in {
    struct copy_in *next;
    struct snap_copy *copy;
    struct link *link;
    uint64_t question;
    bool is_ready;
    bool is_wanted; /* we have asked for it: on_fetched() comes */
    bool is_whole;
    uint32_t from;
    struct snap_head head;
    uint64_t at, room;
    uint64_t moved_ms;
};

struct snap_copy {
    struct snap_copy_config config;
    uint8_t key[CHANNEL_KEY_BYTES];
    struct snap_hold *copies;
    struct copy_out *outs; /* the first one is sent */
    struct copy_in *ins;
    struct copy_out *waits; /* for what is being made */
    uint64_t n_questions;
    uv_timer_t *pace;  /* the next chunk */
    uv_timer_t *watch; /* that they come further */
};

/* The watch is on while anything is on its way. */
void copy_watch(struct snap_copy *c);

/* --- snap_copy_send.c --- */

void copy_send_next(struct snap_copy *c);
void copy_out_end(struct copy_out *o, const struct error *e);
void copy_outs_forget(struct snap_copy *c);
void copy_pump(struct copy_out *o);

/* Bytes of a snapshot, as a frame: nobody can read them on the way if `hides`. As
 * link_send(). */
int copy_send_bytes(struct link *l, bool hides, uint16_t type, const void *data,
                    size_t len);

/* A link whose first frame is a WANT. */
void copy_out_asked(struct snap_copy *c, struct link *l,
                    const struct channel_frame *first);

/* --- snap_copy_take.c --- */

/* Says so, where `e` is there. */
void copy_refuse(struct link *l, const struct error *e);
/* Gets memory for what in->head says. */
int copy_in_begin(struct copy_in *in, struct error *e);

void copy_in_end(struct copy_in *in, const struct error *e);
void copy_ins_forget(struct snap_copy *c);

/* --- snap_copy.c: messages --- */

void copy_want_encode(uint32_t rank, const char *uuid, struct buf *b);
bool copy_want_decode(const struct channel_frame *f, uint32_t *ret_rank,
                      char ret_uuid[COMMIT_UUID_BYTES]);
/* What a REFUSED says. */
void copy_refused_decode(const struct channel_frame *f, struct error *ret);

void copy_offer_encode(const struct snap_head *h, uint32_t from, struct buf *b);
/* False for what encoding could not have written, or makes no sense. */
bool copy_offer_decode(const struct channel_frame *f, struct snap_head *ret,
                       uint32_t *ret_from);

#endif
