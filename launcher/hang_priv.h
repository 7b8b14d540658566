/* SPDX-License-Identifier: Apache-2.0 */
/* What hang.c and hang_blame.c share. */
#ifndef MUSTER_LAUNCHER_HANG_PRIV_H
#define MUSTER_LAUNCHER_HANG_PRIV_H

#include "launcher/hang.h"

enum { HANG_KEY_BYTES = 96 };

struct hang_rank {
    struct hang_seen seen;
    uint32_t node;
    /* When that was new, by the clock of the run. */
    uint64_t reported_ms, printed_ms, worked_ms;
    bool is_dumped;
    enum hang_wait wait;
    uint32_t n_missed; /* who wait for a key of it */
    char key[HANG_KEY_BYTES];
};

struct hang_node {
    uint64_t seen_ms; /* by the caller's clock; 0: not yet */
    bool is_held;
    uint32_t n_alive; /* as far as is known */
};

enum hang_phase { HANG_IDLE, HANG_WATCHING, HANG_DUMPING, HANG_BLAMING };

struct hang {
    uint64_t timeout_ms;
    uint64_t interval_ms;
    enum hang_phase phase;
    uint32_t generation;
    uint64_t until_ms; /* by the caller's clock: all were seen until then */
    uint64_t dump_ms;  /* likewise, when stacks were asked for */
    uint64_t clock_ms; /* of the run */
    uint64_t said_ms;  /* when anybody last reported or printed */
    uint32_t quiet;    /* the rank that made it a hang, */
    uint64_t quiet_ms; /* by this, at that time */
    const char *lacks; /* what it did not show */
    struct hang_rank *ranks;
    uint32_t n_ranks;
    struct hang_node *nodes;
    uint32_t n_nodes;
};

#endif
