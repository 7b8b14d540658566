/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often a save is to reach each level, as ckpt/interval.h tells it of saves as such.
 * Pure: what was measured in, a plan out.
 *
 * A level is what a failure of its kind needs, where those below do not help:
 *
 *   memory    a worker dies
 *   partner   a node is lost
 *   disk      all nodes are, and the run is gone on with
 *   store     so is the filesystem
 *
 * Of level i, C seconds is what a save that goes there costs the program: of the first
 * one the time that it holds workers up, which each save does; of those above, by how
 * much steps are slower while it is on its way there (ckpt/slowdown.h). And M is how
 * far apart failures come that need level i or a higher one: their rates add up, and a
 * kind whose level is not there needs the next that is. Then T = sqrt(2 C M) with Daly's
 * terms, no less than the time that one takes to get there, and rounded to a multiple
 * of the level below, so that what is on the disk was with the partner, too: for which
 * the level below is no more seldom than is best above it.
 */
#ifndef MUSTER_CKPT_INTERVAL_LEVELS_H
#define MUSTER_CKPT_INTERVAL_LEVELS_H

#include "ckpt/interval.h"

#include <stdbool.h>

enum interval_level_id {
    INTERVAL_MEMORY,
    INTERVAL_PARTNER,
    INTERVAL_DISK,
    INTERVAL_STORE,
    INTERVAL_N_LEVELS,
};
const char *interval_level_name(enum interval_level_id id);

struct interval_levels_facts {
    struct interval first;  /* of saves: they reach the lowest level that is there */
    uint64_t n_failures;    /* of all kinds, */
    uint64_t n_nodes;       /* of nodes among them, */
    uint64_t n_runs;        /* and how often the run was gone on with */
    double ran_s;
    uint32_t n_workers;
    unsigned there;         /* 1 << level */
    double took_s[INTERVAL_N_LEVELS]; /* until one was there; 0: not known */
    unsigned slower_known;            /* 1 << level: it was measured, that ... */
    double slower[INTERVAL_N_LEVELS]; /* ... steps take longer meanwhile, 0.04: by 4 % */
};

struct interval_level {
    bool is_there;
    bool is_first;       /* where each save goes: it costs what it holds workers up */
    bool is_assumed;     /* the cost: none was measured */
    bool is_measured;    /* by steps: else a share of what it takes */
    uint64_t n_failures; /* that needed it, or a higher one */
    double cost_s, mtbf_s;
    double best_s;       /* T, before it is rounded */
    uint64_t saves;      /* one in so many goes there */
    double seconds;      /* one comes there so often */
};

/* Numbers that make no sense count as 0. */
void interval_levels(const struct interval_levels_facts *f,
                     struct interval_level ret[INTERVAL_N_LEVELS]);

/* "one save in 5, 5m30s: sqrt(2 x 0.2 s x 3d09h) = 5m43s, needed 0 times in 1d07h; 0.2 s
 * a save, of steps that are 4 % slower for 5.2 s" */
void interval_level_explain(const struct interval_levels_facts *f,
                            enum interval_level_id id, const struct interval_level *l,
                            char to[INTERVAL_TEXT_BYTES]);

#endif
