/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent whose two workers save. Memory, threads and files are real; the workers' sockets,
 * the order, other agents and the time are the linker's hand: the test is linked with --wrap,
 * see Makefile.am.inc, and what is said to all of them is put down here.
 */
#ifndef MUSTER_LAUNCHER_SAVES_BED_H
#define MUSTER_LAUNCHER_SAVES_BED_H

#include "launcher/agent_snap_priv.h"
#include "launcher/snap_bed.h"

enum {
    SAVES_FIRST = 4, /* rank */
    SAVES_N = 2,
    SAVES_WORLD = 8,
    SAVES_GENERATION = 3,
    SAVES_IMAGE = 5000,
    SAVES_ROOM = 8 * SNAP_PAGE_BYTES,
    SAVES_CONNECTION = 70, /* of the first of the workers */
};

/* What a worker was answered last. */
struct saves_answered {
    int n;
    struct worker_socket *socket;
    uint64_t connection;
    struct worker_snap snap;
    int fd; /* or -1 */
    char uuid_of[SAVES_N][WORKER_UUID_SIZE]; /* of each worker */
};

/* What one was told last. */
struct saves_told {
    int n;
    struct worker_socket *socket;
    struct worker_snap_status status;
};

struct saves_bed {
    struct agent agent;
    struct crew crew;
    struct crew_worker workers[SAVES_N];
    char root[160];
    struct order order;
    uint64_t now_ms;
    /* What the agent finds. */
    bool fetches; /* it may come from another node */
    struct agent_snap *settles; /* as soon as it is to go to the disk */
    uint64_t n_written;         /* bytes, of a hold ... */
    const struct snap_hold *asked_of;
    /* What it did. */
    char told[1024]; /* the lead, last */
    int n_told, n_notes, n_finished, n_fetches, n_forgot, n_sent, n_flushed;
    int n_ahead_begun, n_ahead_ended, n_drained, n_made_ahead;
    struct saves_answered answered;
    struct saves_told worker;
};

/* Of the test, which defines it: the linker's hand knows no other one. */
extern struct saves_bed saves_bed;

void saves_bed_open(struct saves_bed *b);
void saves_bed_close(struct saves_bed *b);
/* What it finds and did until now is as it was in the beginning, but for order and time. */
void saves_bed_forget(struct saves_bed *b);
/* A case: it comes to `n` in time. */
void saves_bed_run_until(struct saves_bed *b, const int *count, int n);
/* A case: no worker waits for an answer. */
void saves_bed_wait_answered(struct saves_bed *b);

/* A worker's, only ever told apart. */
struct worker_socket *saves_bed_socket(unsigned local_rank);
/* What a worker says, on its connection. */
void saves_bed_begin(struct saves_bed *b, uint32_t local_rank, uint64_t step, const char *uuid,
                     uint64_t bytes);
void saves_bed_done(struct saves_bed *b, uint32_t local_rank, const char *uuid,
                    uint64_t part_bytes);
/* Its image and its part are there; how long the part is. */
uint64_t saves_bed_fill(struct saves_bed *b, uint32_t rank, uint64_t step, const char *uuid);
/* All of that. */
void saves_bed_save(struct saves_bed *b, uint32_t local_rank, uint64_t step, const char *uuid);

/* One that is in memory, as far as the agent knows; it owns it. */
struct saved *saves_bed_add(struct saves_bed *b, uint32_t rank, const char *uuid);
/* Nothing is on its way any more. */
void saves_bed_settle(struct agent_snap *p);

#endif
