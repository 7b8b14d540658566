/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of snap_parity*.c share. */
#ifndef MUSTER_LAUNCHER_SNAP_PARITY_PRIV_H
#define MUSTER_LAUNCHER_SNAP_PARITY_PRIV_H

#include "launcher/snap_parity.h"

#include "launcher/snap_copy_priv.h"

enum {
    PARITY_CHUNK_BYTES = 1 << 20,
    PARITY_MAX_SEGS = PARITY_MAX_MEMBERS,
};

/* Bytes of a snapshot (kept 0), or of the parity of that number, from 1 on. */
struct parity_seg {
    uint8_t kept;
    uint64_t at, len;
};

/* Digests of pieces, by stripe. */
struct parity_sums {
    unsigned n;
    uint32_t stripes[PARITY_MAX_SEGS];
    uint64_t sums[PARITY_MAX_SEGS];
};

struct parity_want {
    char uuid[COMMIT_UUID_BYTES];
    uint32_t rank; /* whose snapshot, or PARITY_NO_RANK */
    uint32_t lost; /* whose is made again */
    unsigned n;
    struct parity_seg segs[PARITY_MAX_SEGS];
};

/* A snapshot on its way to the others of the group. */
struct parity_out {
    struct parity_out *next;
    struct snap_parity *parity;
    struct parity_group group;
    unsigned me;
    uint32_t rank;
    char uuid[COMMIT_UUID_BYTES];
    bool is_begun, is_pinned;
    unsigned n_sending, n_left; /* ways */
};

/* Bytes on their way to another agent. */
struct parity_way {
    struct parity_way *next;
    struct snap_parity *parity;
    struct link *link;
    struct parity_out *out; /* NULL: it has asked */
    unsigned to;            /* member */
    struct parity_want what;
    uint32_t stripes[PARITY_MAX_SEGS]; /* of an out: of what it sends */
    unsigned i;             /* ... of what is sent now */
    uint64_t at;
    uint64_t sum;
    struct parity_sums sums;
    bool is_eager, is_sent;
    uint64_t turn, moved_ms;
};

struct parity_memory {
    unsigned char *at;
    uint64_t room;
};

enum parity_coming { PARITY_NONE = 0, PARITY_COMING, PARITY_THERE };

/* Parity that is kept here of one set of a save. */
struct parity_kept {
    struct parity_kept *next;
    struct parity_group group;
    unsigned me;
    char uuid[COMMIT_UUID_BYTES];
    uint64_t step;
    uint32_t generation;
    struct snap_head *heads; /* of all members that have come */
    uint8_t coming[PARITY_MAX_MEMBERS];
    uint64_t sums[PARITY_MAX_MEMBERS][PARITY_MAX]; /* of what was added */
    struct parity_memory memory[PARITY_MAX];
    bool is_whole, is_settled;
};

/* Pieces on their way here. */
struct parity_in {
    struct parity_in *next;
    struct snap_parity *parity;
    struct link *link;
    struct parity_kept *kept;
    unsigned from; /* member */
    unsigned k;    /* of the parity to which it is added now */
    uint64_t at, sum;
    bool is_over;  /* all has come: it waits for the others */
    uint64_t moved_ms;
};

/* What one member is to give. */
struct parity_ask {
    struct parity_ask *next;
    struct parity_build *build;
    struct link *link; /* NULL: this one */
    unsigned member;
    struct parity_want want;
    uint64_t to[PARITY_MAX_SEGS]; /* in the snapshot */
    uint8_t factors[PARITY_MAX_SEGS];
    unsigned i;
    uint64_t at;
    bool is_over;
    uint64_t moved_ms;
};

/* A snapshot that is made again. */
struct parity_build {
    struct parity_build *next;
    struct snap_parity *parity;
    uint64_t question;
    struct snap_head head;
    unsigned member;
    uint64_t gone;
    bool is_begun, is_ready, is_ordered;
    struct parity_ask *asks;
    uint64_t has_sum; /* stripes */
    uint64_t sums[PARITY_MAX_MEMBERS];
};

struct snap_parity {
    struct snap_parity_config config;
    uint8_t key[CHANNEL_KEY_BYTES];
    struct parity_out *outs; /* the first ones are begun */
    struct parity_way *ways;
    struct parity_kept *kept;
    struct parity_in *ins;
    struct parity_build *builds; /* the first one is on its way */
    uint64_t bytes; /* of all memory */
    uint64_t n_turns, n_questions;
    uv_timer_t *pace, *watch;
};

/* --- snap_parity.c --- */

/* Somebody has something to do in the loop's next turn. */
void parity_go_on(struct snap_parity *c);
void parity_watch(struct snap_parity *c);
bool parity_is_stuck(const struct snap_parity *c, uint64_t moved_ms, unsigned times);
/* PARITY_MAX_MEMBERS: it is none. */
unsigned parity_member(const struct parity_group *g, uint32_t agent);
unsigned parity_member_of_rank(const struct parity_group *g, uint32_t rank);
uint64_t parity_image_bytes(const struct snap_head *h);
/* The digest of chunks one after the other. */
uint64_t parity_sum(uint64_t before, const void *chunk, size_t len);

/* --- snap_parity_codec.c: messages; decoding is false for what makes no sense --- */

void parity_offer_encode(const struct parity_group *g, const struct snap_head *h,
                         uint32_t from, struct buf *b);
bool parity_offer_decode(const struct channel_frame *f, struct parity_group *ret_g,
                         struct snap_head *ret_h, uint32_t *ret_from);
void parity_want_encode(const struct parity_want *w, struct buf *b);
bool parity_want_decode(const struct channel_frame *f, struct parity_want *ret);
void parity_sums_encode(const struct parity_sums *s, struct buf *b);
bool parity_sums_decode(const struct channel_frame *f, struct parity_sums *ret);

/* --- snap_parity_send.c --- */

void parity_outs_start(struct snap_parity *c);
/* All that is on its way to others. */
void parity_outs_forget(struct snap_parity *c);
/* It has come to its end, as `e` says, or (NULL) all others have it: on_sent(). */
void parity_out_end(struct parity_out *o, const struct error *e);

/* --- snap_parity_way.c --- */

int parity_way_connect(struct parity_way *w, struct error *e);
void parity_way_free(struct parity_way *w);
/* For `e`, or (NULL) because all has gone; that may be the end of its out, and of others
 * then. */
void parity_way_end(struct parity_way *w, const struct error *e);
void parity_ways_pump(struct snap_parity *c);
void parity_ways_watch(struct snap_parity *c, const struct error *late);
/* A link whose first frame is a WANT. */
void parity_asked(struct snap_parity *c, struct link *l,
                  const struct channel_frame *first);

/* --- snap_parity_keep.c --- */

struct parity_kept *parity_kept_find(const struct snap_parity *c, const char *uuid,
                                     uint32_t rank);
void parity_kept_free(struct snap_parity *c, struct parity_kept *k,
                      const struct error *e);
/* Of a new set or save, for which the oldest one of the set may go. NULL: no memory. */
struct parity_kept *parity_kept_add(struct snap_parity *c, const struct parity_group *g,
                                    const struct snap_head *h);
/* Memory of at least so many bytes; what is new of it is zero. */
int parity_kept_grow(struct snap_parity *c, struct parity_memory *m, uint64_t bytes,
                     struct error *e);
/* Digests of what was added of a member. */
void parity_kept_sums(const struct parity_kept *k, unsigned member,
                      struct parity_sums *ret);
/* on_whole(); it may be settled by that. */
void parity_kept_tell(struct snap_parity *c, const struct parity_kept *k);

/* --- snap_parity_take.c --- */

/* What it has added stays in the sum. */
void parity_in_end(struct parity_in *in, const struct error *e);
/* A link whose first frame is an OFFER. */
void parity_offered(struct snap_parity *c, struct link *l,
                    const struct channel_frame *first);
void parity_ins_watch(struct snap_parity *c, const struct error *late);

/* --- snap_parity_build.c --- */

void parity_builds_go_on(struct snap_parity *c);
void parity_builds_watch(struct snap_parity *c, const struct error *late);
void parity_builds_forget(struct snap_parity *c);
/* The memory that it is made in, while it is; its bytes behind the page. */
unsigned char *parity_build_target(const struct parity_build *b);
/* Digests of its pieces, from who has added those. */
void parity_build_sums(struct parity_build *b, const struct parity_sums *s);
/* Once more without that one, where it can be done; else it ends, and `a` with it. */
void parity_build_without(struct parity_ask *a, const struct error *e);
/* One of them has given all: it may be over. */
void parity_build_look(struct parity_build *b);

/* --- snap_parity_plan.c --- */

/* Makes all of the build's asks. -ENODATA: too many are gone; -ENOMEM. */
int parity_plan(struct parity_build *b, const struct parity_kept *k, struct error *e);

/* --- snap_parity_ask.c --- */

int parity_ask_connect(struct parity_ask *a, const struct parity_kept *k,
                       struct error *e);
/* A chunk of what this agent has itself. */
void parity_ask_here(struct parity_ask *a);

#endif
