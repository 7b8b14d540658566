/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a snapshot in memory to files of a checkpoint: the image with the digests of
 * its blocks found on the way, then the part that has them. The first who comes
 * makes the step's directory; whoever comes later joins. The disk is what takes the time:
 * it has the first blocks while the last ones are still being copied into the snapshot, and
 * digests are found while it is at work. Blocks: for a thread.
 */
#ifndef MUSTER_CKPT_DRAIN_H
#define MUSTER_CKPT_DRAIN_H

#include "base/buf.h"
#include "base/error.h"
#include "ckpt/io.h"
#include "ckpt/snap.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DRAIN_STALL_MS = 2000 };

/* Shared with other threads. */
struct drain_progress {
    _Atomic uint64_t bytes; /* that were handed to the disk, some of them twice */
    _Atomic bool cancel;    /* set it, and drain_run() ends soon: -ECANCELED */
    _Atomic bool is_full;   /* of what is_filling: all of it is there, the part, too */
    _Atomic bool may_get_room; /* others may go soon from a disk that is full: as long as it is
                                  set it is waited for, for a minute at most */
};

struct drain {
    struct io *io;
    int root; /* the directory of the checkpoints, open */
    const struct snap *snap;
    const char *file, *part_file; /* names in the step's directory */
    /* Another node began to write them, and was lost: what it has left goes, and what it
     * may write yet, as it was not lost, is not waited for. */
    bool is_instead;
    /* A worker fills it still, and counts how far it is (snap_n_filled()): what is there is
     * written meanwhile. Of the head only the image's bytes are known, until it is full.
     * -ETIME: nothing has come for DRAIN_STALL_MS. */
    bool is_filling;
    /* It has all processors for that, and the program waits for it: digests are found once it
     * is full, and the disk alone is ahead. */
    bool is_crowded;
    /* The part with the digests of all blocks in it, as it is written (part.h). */
    int (*finish)(const void *part, size_t len, const uint64_t *blocks,
                  size_t n_blocks, struct buf *ret, struct error *e);
    struct drain_progress *progress;
};

/* Both files are on the disk, with their names, when this returns 0. Else nothing
 * of them is left, if that can be; but what others have written in their place stays, and
 * so does what is a checkpoint, or about to be one: -EEXIST. A file that the disk has failed
 * (-EIO) is removed, and written anew once. `ret` is of the image. */
int drain_run(const struct drain *d, struct digest *ret, struct error *e);

#endif
