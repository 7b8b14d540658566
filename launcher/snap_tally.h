/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lead has heard of a save, by rank, and what is to be done with it. Whether
 * a save can become a checkpoint is told in the end by what is on the disk: of a rank
 * whose agent was lost it may be there, although nobody has said so. Here is when it
 * is time to look: once nobody is writing any more, and nobody will begin to. No
 * clock, no input or output. Where the agent of a rank was lost, who has a copy writes
 * instead of it.
 */
#ifndef MUSTER_LAUNCHER_SNAP_TALLY_H
#define MUSTER_LAUNCHER_SNAP_TALLY_H

#include <stdbool.h>
#include <stdint.h>

/* How far a rank has come with a save. */
enum snap_stage {
    SNAP_STAGE_NONE = 0,
    SNAP_STAGE_HELD = 1,
    SNAP_STAGE_WRITTEN = 2,
    SNAP_STAGE_FAILED = 3,
};

enum {
    /* Agents say every 2 s what is not settled. */
    SNAP_TALLY_SETTLE_MS = 7000, /* a lead that is new has heard all of them then */
    SNAP_TALLY_FAILED_MS = 1000, /* for those who are about to hand over what failed */
    SNAP_TALLY_LOST_MS = 10000,  /* for an agent that was lost to come back */
    SNAP_TALLY_SILENT_MS = 60000, /* without a word of anybody */
    SNAP_TALLY_STALE_MS = 600000, /* workers run, and some do not hand over */
};

enum { SNAP_TALLY_HOLDERS = 2 }; /* of one rank, at most */

struct snap_tally {
    uint32_t generation; /* of the workers that save */
    uint32_t n_ranks, n_held, n_written, n_failed;
    uint8_t *stages;
    uint32_t *agents; /* that have said so */
    uint32_t *copies; /* agents that have a copy, counted from 1; 0: none */
    uint64_t heard_ms; /* a word */
    uint64_t news_ms;  /* a word that said more than those before */
};

enum snap_fate {
    SNAP_FATE_WAIT,
    SNAP_FATE_COMMIT, /* or, where something is missing on the disk, remove */
    SNAP_FATE_REMOVE,
};

struct snap_now {
    uint64_t ms;
    uint32_t started; /* the newest generation whose workers were started: none of
                         an older one is alive */
    bool is_passed;      /* all ranks have handed over one that came later: who has
                            not handed this one over never will */
    bool is_ending;      /* no worker is alive, nor will be */
    bool is_parked;      /* nobody writes it: it stays in memory */
    bool (*is_lost)(void *arg, uint32_t agent);
    void *arg;
};

/* 0 or -ENOMEM. */
int snap_tally_init(struct snap_tally *t, uint32_t generation, uint32_t n_ranks,
                    uint64_t now_ms);
void snap_tally_release(struct snap_tally *t);
/* Ranks that are none are left aside, and stages that a rank has passed. */
void snap_tally_take(struct snap_tally *t, uint32_t rank, uint32_t agent,
                     enum snap_stage stage, uint64_t now_ms);
/* That agent has a copy of what `from` holds of a rank. */
void snap_tally_copied(struct snap_tally *t, uint32_t rank, uint32_t from,
                       uint32_t agent, uint64_t now_ms);
/* The next rank from *at on which nobody writes but who has a copy, for its own agent
 * was lost: that one is to write it, and counts as who writes from now on. False: none,
 * and *at is the end. */
bool snap_tally_rescue(struct snap_tally *t, const struct snap_now *now,
                       uint32_t *at, uint32_t *ret_agent);
/* Agents that are there and have it in memory, as far as was heard: who has saved it,
 * or writes it instead, then who has a copy. How many. */
unsigned snap_tally_holders(const struct snap_tally *t, const struct snap_now *now,
                            uint32_t rank, uint32_t ret[SNAP_TALLY_HOLDERS]);
/* Ranks one after the other that the same agents have in memory. */
struct snap_run {
    uint32_t first, end;
    unsigned n;
    uint32_t agents[SNAP_TALLY_HOLDERS]; /* see snap_tally_holders() */
};
/* The next ones from r->end on, 0 at first. False: there are no more ranks. */
bool snap_tally_next_run(const struct snap_tally *t, const struct snap_now *now,
                         struct snap_run *r);
enum snap_fate snap_tally_judge(const struct snap_tally *t,
                                const struct snap_now *now);
/* All ranks have handed it over, none has failed, and all that write are there: as
 * things are it will be a checkpoint. */
bool snap_tally_is_sure(const struct snap_tally *t, const struct snap_now *now);

#endif
