/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk with a filesystem whose every write is recorded (dm-log-writes), and that comes
 * back as it was at any of them, with or without what had not been flushed by then.
 * Needs root and modules of the kernel: brd (two ram disks), loop, dm_log_writes and
 * the filesystem.
 */
#ifndef MUSTER_TESTS_LIB_LOST_DISK_H
#define MUSTER_TESTS_LIB_LOST_DISK_H

#include "base/error.h"
#include "tests/lib/write_log.h"

/* What is left of the writes since the last flush, by blocks of 4 KiB. One with FUA is
 * on the disk. */
enum lost_left { LEFT_ALL, LEFT_NONE, LEFT_SOME };

struct lost_disk;

/* Makes the filesystem, "ext4" or "xfs"; what belongs to it is kept in the existing
 * directory `dir`, best in memory. It is mounted on `mountpoint`, whose string the caller
 * keeps. */
int lost_disk_create(const char *type, const char *dir, const char *mountpoint,
                     struct lost_disk **ret, struct error *e);
void lost_disk_destroy(struct lost_disk *d);

/* Mounts the empty filesystem, and records from now on. */
int lost_disk_record(struct lost_disk *d, struct error *e);
/* Puts a mark, one word, in the log. */
int lost_disk_mark(struct lost_disk *d, const char *text, struct error *e);
/* Unmounts it. The log is valid until the next recording. */
int lost_disk_stop(struct lost_disk *d, const struct write_log **ret_log,
                   struct error *e);

/* Whether that is another state after the first `n` entries than if all were left. */
bool lost_disk_differs(const struct lost_disk *d, size_t n, enum lost_left left);

/* Mounts a disk that lost its power after the first `n` entries: since the recording `n`
 * has never become less. */
int lost_disk_mount(struct lost_disk *d, size_t n, enum lost_left left,
                    struct error *e);
int lost_disk_unmount(struct lost_disk *d, struct error *e);

#endif
