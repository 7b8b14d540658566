/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of snapshots that nobody needs any more. To give 1 GB of small pages back takes
 * the kernel 0.1 s and more, and an agent whose loop stands still for the time that its
 * word is good counts as lost: so a thread does it. Little is given back at once.
 */
#ifndef MUSTER_LAUNCHER_SNAP_BIN_H
#define MUSTER_LAUNCHER_SNAP_BIN_H

#include "base/cleanup.h"
#include "ckpt/snap.h"

#include <stdbool.h>
#include <stdint.h>

struct snap_bin;

/* NULL: no memory. */
struct snap_bin *snap_bin_create(void);
/* Who else uses it. The last one who leaves it waits until it is empty. NULL is allowed. */
struct snap_bin *snap_bin_ref(struct snap_bin *b);
void snap_bin_unref(struct snap_bin *b);

/* Takes `s`, which may be NULL. Its name has gone; with `is_cut` what others have mapped of
 * it goes, too. */
void snap_bin_put(struct snap_bin *b, struct snap *s, bool is_cut);
/* Takes the last descriptor of a file, which has no name any more. */
void snap_bin_put_file(struct snap_bin *b, int fd);

/* What is still to be given back: as good as free for who waits for it. Any thread. */
uint64_t snap_bin_bytes(struct snap_bin *b);
/* Returns when all that was put in by now is given back. Any thread but the loop's. */
void snap_bin_wait(struct snap_bin *b);

#endif
