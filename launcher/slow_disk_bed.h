/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of a hold and its disk share: one that takes a block, and no other before it is
 * let, and that fails where it is told to.
 */
#ifndef MUSTER_LAUNCHER_SLOW_DISK_BED_H
#define MUSTER_LAUNCHER_SLOW_DISK_BED_H

#include "ckpt/io.h"
#include "launcher/hold_bed.h"

#include <stdatomic.h>
#include <sys/stat.h>

struct slow_disk {
    struct io_ops ops;
    struct io io;
    atomic_bool may_write;
    atomic_int n_blocks;
    atomic_int n_made, n_closed; /* directories, and what was open */
    atomic_int n_shared; /* writes to files that children would have as well */
    uint32_t order[4];   /* ranks, as they got there */
    int n_order;
    /* Some syncs of files fail, as of a disk that could not write. */
    atomic_int n_syncs;
    atomic_int first_bad, n_bad; /* from that one on, the first is 1 */
    struct stat bad_file;        /* the last one of which it did */
};

/* Of the test, which defines it. */
extern struct slow_disk slow_disk;

/* What is above begins anew. hold_bed_close() closes it. */
void slow_disk_open(struct hold_bed *b);
/* A case: a thread has counted that far. */
void slow_disk_wait(atomic_int *count, int n, const char *what);
void slow_disk_wait_block(void);
/* A save whose writing has begun, and goes no further than its first block. */
void slow_disk_save(struct hold_bed *b, uint32_t rank, uint64_t step, const char *uuid,
                    const char *what);
/* On the disk, of the save UUID(1) of step 1; "": its directory. */
bool slow_disk_has(const struct hold_bed *b, const char *file);

#endif
