/* SPDX-License-Identifier: Apache-2.0 */
/* The bed of the lead's tests: one lead, and what its nodes tell it. */
#ifndef MUSTER_RENDEZVOUS_LEAD_BED_H
#define MUSTER_RENDEZVOUS_LEAD_BED_H

#include "rendezvous/lead.h"

enum { BED_MAX_NODES = 5 };

/* A lead under test, what it last said, and the serials of the reports that
 * nodes have sent. */
struct bench {
    struct lead *lead;
    struct lead_actions a;
    uint64_t now_ms;
    uint64_t serial;
};

/* Two restarts on failure; names for the first two nodes. */
struct lead_config bed_config(uint32_t n_nodes);
void bed_open(struct bench *t, const struct lead_config *config);

int bed_step(struct bench *t, struct lead_event event);
int bed_tick(struct bench *t, uint64_t ms);

/* A report, completed with what nodes always say; the same state of nodes 0 to
 * n - 1; all that it takes until the workers of `generation` run. */
int bed_tell(struct bench *t, struct report r);
void bed_tell_all(struct bench *t, uint32_t n, enum report_state state,
                  uint32_t generation);
void bed_run_to(struct bench *t, uint32_t n, uint32_t generation);
/* A worker of `rank` fails with `code`. */
int bed_fail(struct bench *t, uint32_t rank, uint32_t generation,
             uint8_t code, uint64_t wall_ms, uint32_t age_ms);

/* Of what the lead last said: a note, or NULL; whether this is its order. */
const struct lead_note *bed_note(const struct bench *t,
                                 enum lead_note_type type);
bool bed_ordered(const struct bench *t, enum order_step step,
                 uint32_t generation);

#endif
