/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks are slow: by how long their steps take, against the other ranks'.
 * Pure.
 *
 * Of each rank the last SLOW_WINDOW step times count, by their median, so that
 * neither one slow step nor a checkpoint now and then makes a rank slow; the first
 * SLOW_SKIP, which compile and warm up, are left out. A rank is slow when that is
 * SLOW_AT_PERCENT of the median over ranks or more, and no longer slow below
 * SLOW_UNTIL_PERCENT. Where ranks wait for each other within a step, all take
 * the same time by the clock: then only what they report as `step_time`, their own
 * work without the waiting, tells them apart.
 */
#ifndef MUSTER_LAUNCHER_SLOW_H
#define MUSTER_LAUNCHER_SLOW_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SLOW_WINDOW = 16,
    SLOW_SKIP = 3,
    SLOW_ENOUGH = 8, /* step times of a rank, to say anything of it */
    SLOW_AT_PERCENT = 150,
    SLOW_UNTIL_PERCENT = 125,
};

struct slow;

/* NULL without memory. */
struct slow *slow_create(uint32_t n_ranks);
void slow_destroy(struct slow *s);
DEFINE_CLEANUP(slow);

/* A step of `rank` took so long. What is no time is ignored. */
void slow_add(struct slow *s, uint32_t rank, double seconds);

/* A rank that has become slow, or is so no longer. */
struct slow_change {
    uint32_t rank;
    uint32_t percent; /* of the median; 0: not slow any more */
    double own_s, median_s;
};

/* Looks at all ranks, and writes the changes since the last look, at most `max`;
 * the rest comes with the next one. Returns how many. */
size_t slow_look(struct slow *s, struct slow_change *ret, size_t max);

/* By the last look: the rank whose steps take longest, against the median; its
 * `percent` is 0 where that is not known. */
struct slow_change slow_worst(const struct slow *s);

#endif
