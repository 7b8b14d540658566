/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the lead's side of saves share: a lead that hears what agents say, and what
 * it says and does for that. Nothing is on a disk, and time stands still: the linker's hand
 * makes both up, see Makefile.am.inc.
 */
#ifndef MUSTER_LAUNCHER_LEAD_SNAP_BED_H
#define MUSTER_LAUNCHER_LEAD_SNAP_BED_H

#include "launcher/agent_snap_lead_priv.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define UUID_A "aaa00000000000000000000000000000"
#define UUID_B "bbb00000000000000000000000000000"
#define UUID_C "ccc00000000000000000000000000000"
#define UUID_D "ddd00000000000000000000000000000"
#define UUID_E "eee00000000000000000000000000000"
#define UUID_F "fff00000000000000000000000000000"

/* All levels that a save may wait for a word of. */
enum { BED_WAITS = 1 << INTERVAL_MEMORY | 1 << INTERVAL_PARTNER | 1 << INTERVAL_DISK };

/* What the last thread was told. */
struct bed_order {
    int n;
    struct snap_commit facts; /* what it points to may be gone, but for: */
    char uuid[COMMIT_UUID_BYTES], pinned[STEP_NAME_BYTES], copied[STEP_NAME_BYTES];
    char source[STEP_NAME_BYTES], verified[STEP_NAME_BYTES], checking[STEP_NAME_BYTES];
    char avoided[AVOID_LINES_BYTES];
};

struct lead_snap_bed {
    struct agent agent; /* first */
    struct lead_snap *lead;
    char said[16384]; /* to others since that was cleared, an object a line ... */
    char heard[16384]; /* ... and to this agent, which is to be the same */
    char noted[4096]; /* in the journal, likewise */

    /* What the lead is answered. */
    uint64_t now_ms;
    uint32_t started, lost, also_lost; /* a generation, agents */
    uint32_t lost_from;                /* all agents from that one on */
    uint64_t every_ms[INTERVAL_N_LEVELS];
    char pinned[PATH_MAX + 128], copied[PATH_MAX + 128], source[PATH_MAX + 128];
    char resume[PATH_MAX + 128], avoided[128];
    int64_t resume_step;

    /* What it has told. */
    int n_saved, n_failed, n_quiet, n_took[INTERVAL_N_LEVELS];
    char path[PATH_MAX + 128], failed[STEP_NAME_BYTES], why[256];
    int64_t saved_step;
    bool is_new, is_busy[INTERVAL_N_LEVELS];
    double took;
    uint64_t saving_step;
    uint32_t saving_written, saving_ranks;
    int64_t held_step;
    uint32_t held_ranks;
    struct status_held held[STATUS_MAX_HELD];
    size_t n_held;

    /* How threads end, and what they were told. */
    int commit_code, reread_code;
    bool was_there, is_last, is_due, lacks_best;
    bool has_no_lease;    /* nor can have one */
    /* What there is in place of a lease; NULL: a true one. */
    struct snap_lease *(*lease)(const char *root, const struct lease_note *own);
    unsigned room_for; /* more of its size */
    bool copies; /* what is saved is copied at once */
    void (*answer)(struct lead_snap_bed *b); /* this agent's, to the next word; once */
    struct bed_order commit, tidy;
    int n_saved_when_tidied;
    int n_reread, n_left; /* readers that were told that theirs has gone */
    int n_freed;          /* leads */
};

/* Once a program. */
struct lead_snap_bed *lead_snap_bed_make(void);
void lead_snap_bed_free(struct lead_snap_bed *b);
/* Another lead, who knows nothing; all that is above begins anew. */
void lead_snap_bed_open(struct lead_snap_bed *b);
void lead_snap_bed_close(struct lead_snap_bed *b);
/* The lead looks at what is due, as every two seconds. */
void lead_snap_bed_look(struct lead_snap_bed *b);
/* Until no thread is at work. */
void lead_snap_bed_run(struct lead_snap_bed *b);

/* What an agent says of a rank; what is 0 or NULL is as is usual. */
struct bed_word {
    const char *uuid, *root; /* the run directory */
    int step, generation, token;   /* 10, 1, 1 */
    uint32_t rank, ranks;    /* 0, 2 */
    enum snap_stage stage;   /* held */
    int again, waits, code;
    const char *why;
    bool is_wanted, moves, is_copy;
    uint32_t from; /* whose copy it is */
};
void lead_snap_bed_say(struct lead_snap_bed *b, uint32_t agent, struct bed_word w);
/* Of each rank, by the agent of that number. */
void lead_snap_bed_say_all(struct lead_snap_bed *b, struct bed_word w);
/* Whether that is part of what was said since, to others and to this agent. */
bool lead_snap_bed_has_said(const struct lead_snap_bed *b, const char *part);
void lead_snap_bed_hush(struct lead_snap_bed *b);

#endif
