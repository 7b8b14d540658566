/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parity of snapshots in memory of a group of nodes (ckpt/parity.h), for who has no
 * memory for whole copies. One set has one rank of each node of the group, or none of
 * a node that has fewer. An agent sends each other node of the group the pieces of
 * which that keeps parity; pieces are added up as they come, so that nobody keeps
 * anything but parity. Over a link for each two nodes and snapshot:
 *
 *   sender      OFFER   whose, of which save, how large, and of which set
 *   receiver    READY   there is memory, or REFUSED (of SNAP_COPY_*) with the reason
 *   sender      DATA    the pieces one after the other
 *               END     the digest of each
 *   receiver    DONE    when all of the set have come: its parity is whole
 *
 * A sum of which a part is missing cannot be repaired: who goes away in the middle
 * spoils it, and the save has no parity.
 *
 * Who makes the snapshot of a lost node again asks all others for what it takes:
 *
 *   asks        WANT    ranges of a snapshot, and of parities
 *   has         READY   or REFUSED
 *               DATA    one after the other
 *               END     the digests of the pieces of the lost one that it has added
 *
 * and adds that up in memory for a copy, which counts when the digests say so.
 * Everything runs on the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_SNAP_PARITY_H
#define MUSTER_LAUNCHER_SNAP_PARITY_H

#include "base/link.h"
#include "base/str.h"
#include "ckpt/parity.h"
#include "launcher/snap_hold.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SNAP_PARITY_OFFER = 90, /* beside SNAP_COPY_* */
    SNAP_PARITY_READY = 91,
    SNAP_PARITY_DATA = 92,
    SNAP_PARITY_END = 93,
    SNAP_PARITY_DONE = 94,
    SNAP_PARITY_WANT = 95,
};

#define PARITY_NO_RANK UINT32_MAX

/* Of member i: which agent, and which rank of it. */
struct parity_group {
    struct parity shape;
    uint32_t index; /* of the set: which of the ranks of each node */
    uint32_t agents[PARITY_MAX_MEMBERS];
    uint32_t ranks[PARITY_MAX_MEMBERS]; /* or PARITY_NO_RANK */
};

struct snap_parity;

struct snap_parity_config {
    uv_loop_t *loop;
    const uint8_t *key;       /* copied */
    struct snap_hold *own;    /* sent from; borrowed */
    struct snap_hold *copies; /* for what is made again; borrowed. Its on_begun calls
                                 snap_parity_begun() for questions with
                                 SNAP_PARITY_QUESTION */
    uint32_t agent;           /* this one */
    bool hides;               /* nobody can read on the way what this one sends */
    unsigned stuck_ms;        /* without progress */

    /* Where an agent listens. False: nowhere. */
    bool (*find)(void *arg, uint32_t agent, struct strlist *addrs, uint16_t *port);
    /* All others of the group have what it takes of that rank, and of all others; or
     * (`e->code`) not all. Never from inside snap_parity_send(). */
    void (*on_sent)(void *arg, uint32_t rank, const char *uuid, const struct error *e);
    /* The parity of that set is whole here. `head` is that of one of its ranks. */
    void (*on_whole)(void *arg, const struct snap_head *head,
                     const struct parity_group *g);
    /* What became of snap_parity_build(): it is in `copies`, whole, or (`e->code`) it
     * is not. `from` had it. */
    void (*on_built)(void *arg, const struct snap_head *head, uint32_t from,
                     bool is_ordered, const struct error *e);
    void *arg;
};

#define SNAP_PARITY_QUESTION (UINT64_C(1) << 63)

int snap_parity_create(const struct snap_parity_config *config,
                       struct snap_parity **ret, struct error *e);
/* NULL is allowed. */
void snap_parity_destroy(struct snap_parity *c);

/* That save of a rank, which is pinned meanwhile. -ENOENT, -ENOMEM. */
int snap_parity_send(struct snap_parity *c, uint32_t rank, const char *uuid,
                     const struct parity_group *g, struct error *e);
/* Whose is made again, for whom, and from what. */
struct snap_parity_order {
    uint32_t rank;
    const char *uuid;
    const uint32_t *lost; /* agents that are gone; n_lost of them */
    size_t n_lost;
    bool is_ordered; /* on_built() says it again; true where any who has asked did so */
};
/* Makes a snapshot again. on_built() never comes from inside this call; it comes once
 * where it was on its way. -ENOENT: there is no whole parity of it here. */
int snap_parity_build(struct snap_parity *c, const struct snap_parity_order *order,
                      struct error *e);
/* There is whole parity of it here; of which group. NULL: there is none. */
const struct parity_group *snap_parity_find(const struct snap_parity *c, uint32_t rank,
                                            const char *uuid);
void snap_parity_begun(struct snap_parity *c, uint64_t question, const struct snap *s,
                       const struct error *e);

/* on_whole() again, of each that is not settled. */
void snap_parity_tell(struct snap_parity *c);
/* The save is part of a checkpoint, or came to nothing. */
void snap_parity_settle(struct snap_parity *c, const char *uuid, bool is_kept);
/* Its memory goes: somebody else needs it. */
void snap_parity_drop(struct snap_parity *c);

/* Takes over a link whose first frame is SNAP_PARITY_OFFER or SNAP_PARITY_WANT. */
void snap_parity_take(struct snap_parity *c, struct link *l,
                      const struct channel_frame *first);

#endif
