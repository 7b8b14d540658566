/* SPDX-License-Identifier: Apache-2.0 */
/* The bed of the heir's tests: one heir among HEIR_BED_N, and what it is told. */
#ifndef MUSTER_RENDEZVOUS_HEIR_BED_H
#define MUSTER_RENDEZVOUS_HEIR_BED_H

#include "rendezvous/heir.h"

enum {
    HEIR_BED_N = 4,
    HEIR_BED_LEASE_MS = 1000,
    HEIR_BED_SLACK_MS = 50,
    HEIR_BED_SETTLE_MS = 100,
};

/* An heir under test, and what it last said. Zeroed, it is empty. */
struct heir_bed {
    struct heir *h;
    struct heir_actions a;
    uint64_t now_ms;
    uint64_t n_orders; /* made so far: no two have the same serial */
    uint64_t n_follows;
    uint16_t n_procs[HEIR_BED_N]; /* of orders to run: one each */
};

/* A new heir takes the place of the one before. min_nodes of 0: nobody else leads. */
void heir_bed_open(struct heir_bed *t, uint32_t rank, uint32_t min_nodes);
/* Bound to node 0 in view 1, in generation 1, heard of just now. */
void heir_bed_open_bound(struct heir_bed *t, uint32_t rank, uint32_t min_nodes,
                         bool shared);
void heir_bed_close(struct heir_bed *t);

/* Each is a case of the test: the event is taken. */
void heir_bed_step(struct heir_bed *t, struct heir_event event);
void heir_bed_tick(struct heir_bed *t, uint64_t ms);
void heir_bed_give(struct heir_bed *t, struct order o);
/* A word of the lead of `view`. */
void heir_bed_hear(struct heir_bed *t, uint32_t view, uint64_t stamp_ms,
                   uint64_t age_ms);
/* `rank` follows, out of view 1 or another. */
void heir_bed_follow(struct heir_bed *t, uint32_t rank, uint64_t ago_ms,
                     uint32_t generation);
void heir_bed_follow_from(struct heir_bed *t, uint32_t view, uint32_t rank,
                          uint64_t ago_ms, uint32_t generation);

/* The next order of who leads view `number`. */
struct order heir_bed_order(struct heir_bed *t, uint32_t number, uint32_t lead,
                            bool shared, uint32_t generation, enum order_step what);

#endif
