/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of a hold share: one agent's, and a directory for checkpoints. */
#ifndef MUSTER_LAUNCHER_HOLD_BED_H
#define MUSTER_LAUNCHER_HOLD_BED_H

#include "ckpt/snap.h"
#include "launcher/snap_bed.h"

enum { HOLD_ROOM = 8 * SNAP_PAGE_BYTES };

struct hold_bed {
    uv_loop_t loop;
    char top[64], dir[96], root[96];
    struct snap_hold *hold;
    struct snap_said said;
    struct snap_jam jam;
};

void hold_bed_open(struct hold_bed *b, uint64_t budget);
void hold_bed_close(struct hold_bed *b);
/* In place of b->hold. `name`: of copies; NULL: the agent's own. */
void hold_bed_make(struct hold_bed *b, uint64_t budget, const char *name);

/* One fails that has not come to `n` in a minute. */
void hold_bed_run_until(struct hold_bed *b, const int *count, int n);
/* Until all threads have come to their end. */
void hold_bed_run_works(struct hold_bed *b);

/* A save of a rank is begun: 0, and on_begun() has come, or its error. */
int hold_bed_begin(struct hold_bed *b, uint32_t rank, uint64_t step,
                   const char *uuid, uint64_t room);
/* The same, for who waits on. */
void hold_bed_begin_later(struct hold_bed *b, uint32_t rank, uint64_t step,
                          const char *uuid, uint64_t room);
/* And it is filled. */
int hold_bed_save(struct hold_bed *b, uint32_t rank, uint64_t step,
                  const char *uuid);
/* The same, which is not written before somebody asks for it. */
int hold_bed_stay(struct hold_bed *b, uint32_t rank, uint64_t step,
                  const char *uuid);
/* There is such a file in memory. */
bool hold_bed_has(const struct hold_bed *b, const char *name);

#endif
