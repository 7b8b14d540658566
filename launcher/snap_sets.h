/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lead has heard of parity of a save (launcher/snap_parity.h): which ranks it
 * is of, and who keeps it. Where the agent of a rank was lost, and nobody has a copy,
 * somebody of its group is to make that rank's snapshot again, as long as no more of
 * the group are lost than parity makes up for. No clock, no input or output.
 */
#ifndef MUSTER_LAUNCHER_SNAP_SETS_H
#define MUSTER_LAUNCHER_SNAP_SETS_H

#include "launcher/snap_parity.h"
#include "launcher/snap_tally.h"

#include <stdbool.h>
#include <stdint.h>

struct snap_set {
    struct snap_set *next;
    struct parity_group group;
    uint64_t whole;                        /* members whose parity is */
    uint32_t builders[PARITY_MAX_MEMBERS]; /* of each, from 1 on; 0: nobody */
};

/* Begin as zeros. */
struct snap_sets {
    struct snap_set *list;
    struct snap_set **of_rank;
    uint32_t n_ranks;
};

void snap_sets_release(struct snap_sets *s);
/* That agent keeps whole parity. False: it makes no sense, or says something else than
 * others have said; or there is no memory for it. */
bool snap_sets_take(struct snap_sets *s, uint32_t n_ranks, uint32_t agent,
                    const struct parity_group *g);
/* All others of its group keep parity of it. */
bool snap_sets_has(const struct snap_sets *s, uint32_t rank);
/* It outlives its node: somebody has a copy, or there is parity. */
bool snap_sets_outlives(const struct snap_sets *s, const struct snap_tally *t,
                        uint32_t rank);
/* One that stays in memory can be a checkpoint, if it went to the disk now: all of it is
 * there, or a copy of what is not, or that can be made again. */
bool snap_sets_can_be(const struct snap_sets *s, const struct snap_tally *t,
                      const struct snap_now *now);
/* Who could make that rank's again, if its agent is lost. False: nobody. */
bool snap_sets_builder(const struct snap_sets *s, const struct snap_now *now,
                       uint32_t rank, uint32_t *ret_agent);
/* Members of a group that are lost. */
uint64_t snap_sets_lost(const struct snap_set *set, const struct snap_now *now);
/* The next rank from *at on which nobody writes, nor has a copy, but which can be made
 * again: that agent is to, and counts as who writes from now on; or has been told so
 * already. False: none, and *at is the end. One that can not, for too many are lost,
 * is left in *ret_hopeless, which is NULL where there is none. */
bool snap_sets_rescue(struct snap_sets *s, struct snap_tally *t,
                      const struct snap_now *now, uint32_t *at, uint32_t *ret_agent,
                      const struct snap_set **ret_hopeless);

#endif
