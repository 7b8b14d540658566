/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of snapshots share: a loop with a directory, holds in it, what these say,
 * and threads that come no further.
 */
#ifndef MUSTER_LAUNCHER_SNAP_BED_H
#define MUSTER_LAUNCHER_SNAP_BED_H

#include "launcher/snap_hold.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct link;

/* The 32 digits of a save. */
#define UUID(digit) "0000000000000000000000000000000" #digit

/* What a hold has said, see snap_bed_config(). */
struct snap_said {
    int n_begun, n_written, n_failed;
    struct snap *snap; /* borrowed: of the last one that was begun */
    struct error error;
    uint64_t left; /* how much memory could be had */
};

/* More than the loop has threads: none is left for anybody else. */
enum { SNAP_JAM_WORKS = 128 };
struct snap_jam {
    uv_work_t works[SNAP_JAM_WORKS];
    uv_sem_t go;
};

/* A loop, and a directory of its own; both go. */
void snap_bed_open(const char *name, uv_loop_t *loop, char top[64]);
void snap_bed_close(uv_loop_t *loop, const char *top);
/* For at most a minute. */
bool snap_bed_run_until(uv_loop_t *loop, const int *count, int n);
void snap_bed_run_for(uv_loop_t *loop, unsigned ms);
/* One turn, for a loop that waits since `began_ms` (clock_mono_ms()) for what nothing counts:
 * the test ends where that is longer than a minute. */
void snap_bed_turn(uv_loop_t *loop, uint64_t began_ms);

/* Of a hold of 1 GiB that tells `said`; `dir` is borrowed. */
struct snap_hold_config snap_bed_config(uv_loop_t *loop, const char *dir,
                                        struct snap_said *said);
struct snap_hold *snap_bed_hold(const struct snap_hold_config *config);
/* A rank saves: memory is there, in said->snap, and nothing in it. */
void snap_bed_begin(uv_loop_t *loop, struct snap_hold *h, struct snap_said *said,
                    uint32_t rank, const char *uuid, uint64_t step,
                    const char *root, uint64_t bytes);

void snap_jam_begin(struct snap_jam *j, uv_loop_t *loop);
/* The loop has to run on before it is used again. */
void snap_jam_end(struct snap_jam *j);

/* The kernel keeps little of what a link sends (SO_SNDBUF), or gets (SO_RCVBUF). */
void snap_bed_narrow(struct link *l, int option);

#endif
