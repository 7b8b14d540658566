/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent, of rank 0, whose workers ask for snapshots, and two nodes that may have
 * them. What the agent says to others is counted in place of being said: the test is
 * linked with --wrap, see Makefile.am.inc.
 */
#ifndef MUSTER_LAUNCHER_FETCH_BED_H
#define MUSTER_LAUNCHER_FETCH_BED_H

#include "launcher/agent_snap_priv.h"
#include "launcher/snap_bed.h"
#include "launcher/snap_copy_priv.h"

enum {
    FETCH_GENERATION = 3, /* of the workers that ask */
    FETCH_STEP = 10, /* that they ask for */
    FETCH_ROOM = 3 * SNAP_PAGE_BYTES,
    FETCH_LONG_ROOM = 64 << 20, /* it takes many turns of the loop */
    FETCH_PATIENT_MS = 300000,
};

/* One that may have it. */
struct fetch_node {
    struct snap_hold *hold;
    struct snap_said said;
    struct snap_copy *copy;
    struct link_listener *listener;
    struct link *mute; /* whom it does not answer */
    bool is_mute;
    int n_asked;
};

/* What the agent has done. */
struct fetch_did {
    int n_wants, n_answers, n_found;
    int n_coming; /* of those found: of which not all was there yet */
    char want[256]; /* the last one, as it was said */
    uint64_t answered_ms;
    int n_notes;
    char note[256];
};

struct fetch_bed {
    struct agent agent; /* first: what it says is put down in `did` */
    struct agent_snap snap;
    struct snap_said said; /* of what the agent's own ranks save */
    struct fetch_node nodes[2]; /* agents 1 and 2 */
    char top[64];
    struct fetch_did did;
};

void fetch_bed_open(struct fetch_bed *b);
void fetch_bed_close(struct fetch_bed *b);
bool fetch_bed_run_until(struct fetch_bed *b, const int *count, int n);

/* A rank has saved on nodes[i], -1: here. */
void fetch_bed_save(struct fetch_bed *b, int i, uint32_t rank, const char *uuid,
                    uint64_t bytes);
/* The lead says who has it; `ranks` as in lead_snap_want(). */
void fetch_bed_tell(struct fetch_bed *b, const char *uuid, int generation,
                    const char *ranks);
/* The same, with all that it says: "path":..., and so on. */
void fetch_bed_tell_all(struct fetch_bed *b, const char *told);
/* A rank asks. */
void fetch_bed_begin(struct fetch_bed *b, uint32_t rank, const char *uuid);
/* Some of it has come. */
void fetch_bed_wait_under_way(struct fetch_bed *b);
/* Nothing is on its way any more. */
void fetch_bed_settle(struct fetch_bed *b);

#endif
