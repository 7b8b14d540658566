/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of copies share: two agents on one loop, of which one has saves, and the
 * other one gets them. */
#ifndef MUSTER_LAUNCHER_COPY_BED_H
#define MUSTER_LAUNCHER_COPY_BED_H

#include "launcher/copy_said.h"
#include "launcher/snap_bed.h"

enum {
    COPY_ROOM = (5 << 20) + 3 * SNAP_PAGE_BYTES,
    COPY_LONG_ROOM = 32 << 20, /* it takes many turns of the loop */
    COPY_STUCK_MS = 1500,
};

struct copy_bed {
    uv_loop_t loop;
    char top[64], dir[2][96];
    struct snap_hold *own, *copies;
    struct snap_said said; /* by own */
    struct snap_copy *from, *to;
    struct link_listener *listener;
    struct copy_said copied;
    struct snap_jam jam;
};

/* Nobody is given up in it; `budget` is that of the copies. */
void copy_bed_open(struct copy_bed *b, uint64_t budget);
void copy_bed_close(struct copy_bed *b);
/* From now on who makes no progress for so long is given up. */
void copy_bed_give_up_after(struct copy_bed *b, unsigned stuck_ms);
/* Whether nobody can read on the way what is sent. */
void copy_bed_hide(struct copy_bed *b, bool hides);
bool copy_bed_run_until(struct copy_bed *b, const int *count, int n);

/* A rank saves; `fill` is in all of it. */
void copy_bed_save(struct copy_bed *b, uint32_t rank, const char *uuid,
                   uint64_t step, uint64_t bytes, int fill);
int copy_bed_send(struct copy_bed *b, uint32_t rank, const char *uuid);
/* A long one of rank 0, of which some has come. */
void copy_bed_send_half(struct copy_bed *b);
int copy_bed_fetch(struct copy_bed *b, uint32_t rank, const char *uuid);
/* Both have it, byte by byte. */
bool copy_bed_is_same(struct copy_bed *b, uint32_t rank, const char *uuid);

#endif
