/* SPDX-License-Identifier: Apache-2.0 */
/* What writing and reading of steps (steps.h) share. Private to steps*.c. */
#ifndef MUSTER_RENDEZVOUS_STEPS_PRIV_H
#define MUSTER_RENDEZVOUS_STEPS_PRIV_H

#include "rendezvous/steps.h"

#define STEPS_MAGIC "mstrstep"
#define STEPS_MAGIC_BYTES 8
#define STEPS_HEAD_BYTES (STEPS_MAGIC_BYTES + 8)
#define STEPS_MAX_TEXT 65536

/* What an event may carry beside its numbers. */
enum {
    STEPS_HAS_ORDER = 1,
    STEPS_HAS_FOLLOW = 2,
    STEPS_HAS_FOUND = 4,
    STEPS_HAS_FAILURE = 8,
    STEPS_HAS_REPORT = 16,
    STEPS_HAS_TEXT = 32,
    STEPS_HAS_ADDR = 64,
    STEPS_HAS_WHY = 128, /* not in older logs */
    STEPS_HAS_SAVED = STEPS_HAS_FOLLOW, /* of a lead's event; not in older logs either */
};

/* --- steps_put.c --- */

/* A record: its length is known when it is whole. */
size_t steps_begin(struct buf *b, enum steps_kind kind);
void steps_end(struct buf *b, size_t at);
void steps_put_order(struct buf *b, const struct order *o);
/* With the verdict, which orders do not carry. */
void steps_put_view(struct buf *b, const struct view *v);
void steps_put_failure(struct buf *b, const struct failure *f);
void steps_put_member_event(struct buf *b, const struct member_event *event);
void steps_put_heir_event(struct buf *b, const struct heir_event *event);
void steps_put_lead_event(struct buf *b, const struct lead_event *event);
void steps_put_heritage(struct buf *b, const struct heritage *h);

#endif
