/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of a lead and its saves share: its threads and files are real, and what it says
 * and is told to hold is seen by the linker's hand, see Makefile.am.inc, which also passes the
 * time.
 */
#ifndef MUSTER_LAUNCHER_LEAD_FILES_BED_H
#define MUSTER_LAUNCHER_LEAD_FILES_BED_H

#include "launcher/agent_snap_lead_priv.h"

#include <stdbool.h>
#include <stdint.h>

enum { NOBODY = -1 };

#define UUID_A "00000000000000000000000000000aaa"
#define UUID_B "00000000000000000000000000000bbb"
#define UUID_C "00000000000000000000000000000ccc"
#define UUID_D "00000000000000000000000000000ddd"
#define UUID_E "00000000000000000000000000000eee"
#define UUID_F "00000000000000000000000000000fff"
#define UUID_G "00000000000000000000000000000ff0"

struct lead_files {
    struct agent agent;
    struct lead_snap *lead;
    uint64_t passed_ms; /* more than have */
    /* What it is answered. */
    uint32_t lost; /* an agent */
    uint64_t every_ms;
    /* What it has told. */
    unsigned n_quiet, n_saved;
    char failed[STEP_NAME_BYTES]; /* the last one that was given up */
    uint32_t saving; /* ranks of the oldest save that is on its way */
    int n_shown;
    int64_t held_step;
    uint32_t held_ranks;
    size_t n_held;
    struct status_held held[4];
    int n_took[INTERVAL_N_LEVELS];
    bool is_busy[INTERVAL_N_LEVELS];
    bool gives_way; /* nothing is to be read of what is on the disk */
    /* What it has said last of who has what; ... */
    char where[512];
    int n_said;
    /* ... and where one goes, or that it has no place any more; how often it has said that
     * UUID_F has failed; ... */
    char gone[512];
    int n_gone, n_failed;
    /* ... and of what is to be made again. */
    char rebuild[512];
};

/* Of the test, which defines it: the linker's hand knows no other one. */
extern struct lead_files lead_files;

void lead_files_open(struct lead_files *b);
void lead_files_close(struct lead_files *b);
/* Another lead, who has heard nothing. */
void lead_files_next(struct lead_files *b);
void lead_files_turn(struct lead_files *b, int n);
/* The lead looks at what is due, as every two seconds. */
void lead_files_look(struct lead_files *b);
/* A case: no save is on its way any more, nor is a thread at work. */
void lead_files_settle(struct lead_files *b);

/* What an agent says of a rank, of a save of two ranks, each of an agent of its own. */
void lead_files_say(struct lead_files *b, const char *uuid, uint32_t rank,
                    enum snap_stage stage);
/* Of four ranks; `from`: whose copy it is, or NOBODY. */
void lead_files_say_of(struct lead_files *b, const char *uuid, int step, uint32_t rank,
                       uint32_t agent, json_int_t from);
/* That it keeps parity of those ranks. */
void lead_files_say_parity(struct lead_files *b, const char *uuid, uint32_t agent,
                           const char *members, int parities);
/* Four ranks, of agents 0 to 3. */
#define LEAD_FILES_FOUR "[[0,0],[1,1],[2,2],[3,3]]"

/* An agent asks who has that save. */
void lead_files_want(struct lead_files *b, const char *uuid, int generation);
/* Whether the answer ends with these ranks. */
bool lead_files_is_said(const struct lead_files *b, const char *ranks);
/* Whether the last word on where one goes is that of this one, to these levels. */
bool lead_files_is_gone(const struct lead_files *b, const char *uuid, int levels);

#endif
