/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view: who leads, and who else is in it. Views are numbered from 1; many
 * generations may run in one. Another lead, or members more or fewer, are another
 * view, which has to be won against whoever else may want it:
 *
 *   shared    the run directory decides: views/<number> is created once. Any side
 *             with as many nodes as the job needs may try.
 *   majority  there is nobody to ask: only a side with more than half of all who
 *             were there at the start, or just half with the lowest of them. Two
 *             such sides have a member in common, who knows of both; so nobody is
 *             ever left out of the count, the dead neither. Numbers are of one rank.
 */
#ifndef MUSTER_RENDEZVOUS_VIEW_H
#define MUSTER_RENDEZVOUS_VIEW_H

#include "base/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define VIEW_TEXT_BYTES 1024
#define VIEW_NO_SIDE UINT32_MAX

struct view {
    uint32_t number;  /* 0: none */
    uint32_t lead;    /* a rank */
    bool shared;      /* the run directory decides who has the next one */
    uint32_t n_nodes; /* ranks below that are in it ... */
    uint32_t n_out;   /* ... but for these */
    uint32_t *out;    /* n_out of them, rising; owned */
    /* In the arbiter's file only: the run ends, with this verdict. */
    bool has_verdict;
    uint8_t status;
    char reason[VIEW_TEXT_BYTES];
};

void view_release(struct view *v);
#define _view_ __attribute__((cleanup(view_release)))

/* A deep copy; what `to` was is released. 0 or -ENOMEM, and it stays then. */
int view_copy(struct view *to, const struct view *from);

bool view_has(const struct view *v, uint32_t rank);

/* Makes `v` have those of n ranks for which in[] is true. 0 or -ENOMEM. */
int view_set(struct view *v, const bool *in, uint32_t n);

/* What orders carry of it: all but the verdict. Reading sets r->bad where it does
 * not make sense; -ENOMEM, and `v` must be released then. */
void view_put(struct buf *b, const struct view *v);
int view_get(struct wire_reader *r, struct view *v);

/* Who decides which side goes on. */
struct view_rule {
    bool on;            /* false: only the lead's side ever does */
    uint32_t min_nodes; /* that the job needs; 0: all members */
    /* The rank of the first agent of the same node for each of n_nodes ranks;
     * NULL: each is a node of its own. */
    const uint32_t *node_of;
};

/* The number of the view after `number` that `rank` may have. */
uint32_t view_next_number(uint32_t number, uint32_t rank, bool shared);

/* Whether the members of `v` for which in[] is true could go on by themselves. */
bool view_may_go_on(const struct view_rule *rule, const struct view *v,
                    const bool *in);

/* How many agents a side needs at least that goes on without the lead of `v`, or
 * VIEW_NO_SIDE if there can be none; dead[] (or NULL) are on no side. */
uint32_t view_rival_size(const struct view_rule *rule, const struct view *v,
                         const bool *dead);

#endif
