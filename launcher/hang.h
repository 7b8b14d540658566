/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a run hang, and who is behind? The lead's judgement of what the agents
 * see of their workers. Pure: time is an input.
 *
 * A rank shows progress by reports, by output, and by CPU time, and of these the
 * first one that it has ever shown counts: who reports is expected to report
 * again. Output alone is a weak promise (ranks that print a warning while they
 * start print nothing later), so such a rank is quiet only where it uses no CPU
 * time either, or where no rank of the run says anything any more, as in a
 * collective that spins. Who has shown neither is quiet where it uses no CPU
 * time.
 *
 * A rank that is quiet for the timeout makes the run one that hangs. Time is
 * counted by a clock of the run, which stands still while nobody could see
 * progress, or make it: while an agent does not tell what it sees (it was
 * stopped, its host is paused or overloaded), while this one was not asked for
 * its judgement, and while a worker is stopped or stuck in the kernel. So none
 * of these counts as a hang, of that worker or of those that wait for it.
 *
 * Then all stacks are wanted (HANG_DUMP), and when they are there, or have had
 * their time, somebody is blamed (HANG_BLAME): see hang_blame.c.
 */
#ifndef MUSTER_LAUNCHER_HANG_H
#define MUSTER_LAUNCHER_HANG_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HANG_DUMP_MS = 30000, /* for all stacks */
    HANG_WHY_BYTES = 256, /* as of a failure */
};

/* How often agents look, and the lead judges. */
uint64_t hang_interval_ms(uint64_t timeout_ms);

/* What its agent has seen of a rank. The first three are counts, of which only
 * changes matter. */
struct hang_seen {
    uint32_t reports, outputs, cpu;
    bool is_alive;
    int64_t step;     /* of its last report; -1: none */
    uint32_t turns;   /* so often its step was lower than the one before: programs may
                         count anew in each epoch */
    uint64_t entered; /* calls of muster's collectives; UINT64_MAX: it has
                         finished with them */
};

enum hang_action {
    HANG_NONE,
    HANG_DUMP,  /* once a generation: ask all agents for stacks */
    HANG_BLAME, /* hang_culprit() tells whom; again and again, in case the word
                   is lost */
};

enum hang_wait {
    HANG_WAIT_UNKNOWN,
    HANG_WAIT_NO,
    HANG_WAIT_YES, /* its stack is that of one who waits for others */
};

struct hang;

/* NULL without memory. */
struct hang *hang_create(uint64_t timeout_ms);
void hang_destroy(struct hang *h);
DEFINE_CLEANUP(hang);

/* All workers of a generation were started; n_procs[i] of them by node i. False
 * without memory: nothing is watched then. */
bool hang_start(struct hang *h, uint32_t generation, const uint16_t *n_procs,
                uint32_t n_nodes, uint64_t now_ms);
/* They are being stopped, or are gone. */
void hang_stop(struct hang *h);

/* What a node sees: of the ranks first .. first + n - 1. `is_held`: one of them
 * is stopped, or stuck in the kernel. Numbers that make no sense are ignored. */
void hang_see(struct hang *h, uint32_t node, uint32_t first,
              const struct hang_seen *seen, uint32_t n, bool is_held,
              uint64_t now_ms);
/* A rank has ended. */
void hang_end(struct hang *h, uint32_t rank);

/* The stack of a rank is kept. */
void hang_dumped(struct hang *h, uint32_t rank, enum hang_wait wait);
/* Somebody waits in the store for a key that `rank` has to set. */
void hang_missed(struct hang *h, uint32_t rank, const char *key);

enum hang_action hang_tick(struct hang *h, uint64_t now_ms);

/* After HANG_BLAME: the rank, and why it, in one line; likewise after HANG_DUMP
 * who is quiet, and for how long. */
uint32_t hang_culprit(const struct hang *h, char why[HANG_WHY_BYTES]);
void hang_word(const struct hang *h, char why[HANG_WHY_BYTES]);

uint32_t hang_generation(const struct hang *h);

#endif
