/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers of the tree's tests that know the key and do as they like: children,
 * parents, and front ends.
 */
#ifndef MUSTER_RENDEZVOUS_TREE_BED_ROGUE_H
#define MUSTER_RENDEZVOUS_TREE_BED_ROGUE_H

#include "base/link.h"
#include "rendezvous/tree_bed.h"
#include "rendezvous/tree_msg.h"

struct rogue {
    struct link *link;
    bool down;
    bool welcome;
    bool is_asked_again;
    int n_beats;
    uint64_t ages[3]; /* of the first beats */
    uint64_t stamp;
    uint32_t n_pieces[BED_NODES]; /* of output, by node */
    size_t n_output;  /* bytes of output frames */
    size_t owed;      /* those without credit yet */
    bool in_order;    /* set it first: pieces begin with their number */
};

/* As a child: says to `to` who it is, and waits for the answer. */
void rogue_say(struct world *w, struct rogue *r, uint32_t to,
               enum tree_type type, const struct tree_hello *h);
void rogue_join(struct world *w, struct rogue *r, uint32_t to, uint32_t rank);
void rogue_leave(struct rogue *r);

/* A beat of its own, of one that has heard nothing. */
void rogue_beat(struct rogue *r, uint64_t stamp);
/* As a parent: an answer to one, of no view and at time 0. */
void rogue_word(struct link *l, uint64_t stamp, uint64_t age_ms);

/* As a parent: of a listener's, with the rogue as ctx. Welcomes whoever comes,
 * the newest alone. */
void rogue_accept(struct link *l, const struct channel_frame *first,
                  void *ctx);
/* As the front end: listens, and the lead joins, which will look for it. */
struct link_listener *rogue_be_front(struct world *w, struct rogue *r);

/* A link_ops.on_down. */
void rogue_on_down(struct link *l, bool closed, const struct error *why,
                   void *ctx);

/* Conditions: the last rogue that has spoken; the lead and its front end. */
bool rogue_is_down(struct world *w);
bool rogue_lead_has_front(struct world *w);

#endif
