/* SPDX-License-Identifier: Apache-2.0 */
/* A lead of VIEW_BED_N nodes, where others may take the lead. For tests. */
#ifndef MUSTER_RENDEZVOUS_VIEW_BED_H
#define MUSTER_RENDEZVOUS_VIEW_BED_H

#include "rendezvous/lead_bed.h"

enum { VIEW_BED_N = 4, VIEW_BED_LEASE_MS = 1000, VIEW_BED_SLACK_MS = 50 };

struct lead_config view_bed_config(uint32_t min_nodes);
/* Generation 1 runs on all nodes. */
void view_bed_open(struct bench *t, uint32_t min_nodes, bool shared);
void view_bed_say(struct bench *t, uint32_t rank, enum report_state state,
                  uint32_t generation, uint32_t floor);
/* The first n of them. */
void view_bed_say_each(struct bench *t, uint32_t n, enum report_state state,
                       uint32_t generation, uint32_t floor);
void view_bed_say_all(struct bench *t, enum report_state state, uint32_t generation,
                      uint32_t floor);
/* What became of the claim. */
void view_bed_answer(struct bench *t, enum heir_outcome outcome);

#endif
