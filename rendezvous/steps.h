/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log of what the protocol core of one agent was told and what it said to it: each
 * heir, member and lead from its begin on, with each event, and the actions that it
 * led to. An agent writes one where it is asked to (launcher/agent_steps.h);
 * rendezvous/replay.h steps the same code with it again.
 *
 * A head (magic, version, the rank of the agent), then records: a length of 32 bits,
 * a byte that says what it is, fields as in base/wire.h. What the core said is kept
 * as bytes, which are compared as such. A log may end anywhere: its agent was killed.
 *
 * Pure; all put functions append, and a failed allocation is remembered in the buffer.
 */
#ifndef MUSTER_RENDEZVOUS_STEPS_H
#define MUSTER_RENDEZVOUS_STEPS_H

#include "base/buf.h"
#include "base/error.h"
#include "rendezvous/heir.h"
#include "rendezvous/lead.h"
#include "rendezvous/member.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STEPS_VERSION 2
#define STEPS_MAX_RECORD (4u << 20)

enum steps_kind {
    STEPS_MEMBER_CREATE = 1,
    STEPS_MEMBER = 2,
    STEPS_HEIR_CREATE = 3,
    STEPS_HEIR = 4,
    STEPS_HEIR_GROW = 5,
    STEPS_LEAD_CREATE = 6, /* in the place of the one before */
    STEPS_LEAD = 7,
    STEPS_LEAD_GROW = 8,
    STEPS_CUT = 9, /* the log was full, or its disk too slow: nothing follows */
};

/* --- writing: whole records --- */

void steps_put_head(struct buf *b, uint32_t rank);
void steps_put_cut(struct buf *b);

void steps_put_member_create(struct buf *b, const struct member_config *c,
                             uint64_t now_ms);
void steps_put_heir_create(struct buf *b, const struct heir_config *c,
                           uint64_t now_ms);
void steps_put_lead_create(struct buf *b, const struct lead_config *c,
                           uint64_t now_ms);
/* heir_grow() and lead_add_nodes(); both arrays may be NULL. */
void steps_put_heir_grow(struct buf *b, uint32_t n, const uint32_t *node_of);
void steps_put_lead_grow(struct buf *b, uint32_t n, const char *const *names,
                         const uint32_t *node_of);

/* A step that was made: `rc` and `do_` are what it gave. */
void steps_put_member(struct buf *b, const struct member *m,
                      const struct member_event *event, int rc,
                      const struct member_actions *do_);
void steps_put_heir(struct buf *b, const struct heir *h,
                    const struct heir_event *event, int rc,
                    const struct heir_actions *do_);
void steps_put_lead(struct buf *b, const struct lead *l,
                    const struct lead_event *event, int rc,
                    const struct lead_actions *do_);

/* Of which the second half is, with a little of the state: */
void steps_put_member_outcome(struct buf *b, const struct member *m, int rc,
                              const struct member_actions *do_);
void steps_put_heir_outcome(struct buf *b, const struct heir *h, int rc,
                            const struct heir_actions *do_);
void steps_put_lead_outcome(struct buf *b, const struct lead *l, int rc,
                            const struct lead_actions *do_);

/* --- reading --- */

/* One record. What its kind says is set; its pointers are to what follows them, or
 * into the log. */
struct step {
    enum steps_kind kind;
    uint64_t now_ms; /* of a begin */
    struct member_config member_config;
    struct heir_config heir_config;
    struct lead_config lead_config;
    struct member_event member;
    struct heir_event heir;
    struct lead_event lead;
    uint32_t n_nodes; /* of GROW */
    size_t outcome_len;
    const void *outcome;

    /* owned */
    struct order order;
    struct report report;
    struct follow follow;
    struct view found;
    struct failure failure;
    struct heritage heritage;
    uint32_t *node_of;
    uint16_t *n_procs;
    bool *follows, *dead;
    uint32_t n_names;
    char **names;
    char *text, *addr;
};

struct steps_reader {
    const uint8_t *data; /* borrowed */
    size_t len, at;
    uint32_t rank;
    bool is_torn; /* it ends within a record */
};

/* 0; -ERR_FORMAT, -ERR_VERSION. */
int steps_open(const void *data, size_t len, struct steps_reader *ret,
               struct error *e);

/* 1 and a record, which is to be released; 0 at the end; -ERR_FORMAT, -ENOMEM. */
int steps_next(struct steps_reader *r, struct step *ret, struct error *e);
void step_release(struct step *s);
#define _step_ __attribute__((cleanup(step_release)))

/* The same record again, from what was read. */
void steps_put_again(struct buf *b, const struct step *s);

#endif
