/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A filesystem for tests that keeps apart what programs see and what is on the
 * disk. At a loss of power each write that was not synced may be there, or not, or
 * in part, or as zeros; of each directory any of the changes that were not synced
 * may have come, whatever came before. That is more than real filesystems do.
 */
#ifndef MUSTER_CKPT_DISK_MODEL_H
#define MUSTER_CKPT_DISK_MODEL_H

#include "base/cleanup.h"
#include "ckpt/io.h"

#include <stdbool.h>
#include <stdint.h>

struct disk;

/* Faults of the program that are planted, to see that a test finds them. */
enum disk_plant {
    DISK_SOUND = 0,
    DISK_NO_FILE_SYNC = 1,  /* files are never synced */
    DISK_NO_DIR_SYNC = 2,   /* directories are never synced */
    DISK_RENAME_FIRST = 3,  /* a file is synced only once something was renamed */
};

struct disk *disk_create(enum disk_plant plant);
void disk_destroy(struct disk *d);
DEFINE_CLEANUP(disk);

struct io *disk_io(struct disk *d);
/* The descriptor of the empty directory that it begins with. */
int disk_root(const struct disk *d);

/* What its clock says from now on; 0 in the beginning. */
void disk_set_time(struct disk *d, int64_t ns);

/* How many calls that change something, or sync, there have been. */
uint64_t disk_n_calls(const struct disk *d);

/* From call number `at` on (the first is 1) nothing happens any more, as after a
 * SIGKILL: every call fails. 0: never. */
void disk_stop_at(struct disk *d, uint64_t at);
/* Call number `at` fails with that errno; all from then on if `stays`. A write
 * that fails has written half. */
void disk_fail_at(struct disk *d, uint64_t at, int error, bool stays);

/* The program is gone, and starts again: all descriptors but the root's are
 * closed, calls work, nothing is lost. */
void disk_restart(struct disk *d);
/* And the power was gone, too: what is left is chosen by the seed. */
void disk_lose_power(struct disk *d, uint64_t seed);

/* Changes one bit of a file; false where there is no such file or byte. */
bool disk_flip(struct disk *d, const char *dir, const char *name, uint64_t bit);
/* How many descriptors are open beside the root's. */
unsigned disk_n_open(const struct disk *d);

#endif
