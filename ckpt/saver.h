/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether whoever began a save that ranks write themselves is still at it. Rank 0 locks the
 * directory (ckpt/held.h), and once it has the lock it puts a file there, which says on which
 * host and by which mount. The file goes only after COMMIT has come. So one without COMMIT that
 * has the file, and that can be locked, is what a program left that was killed: the kernel
 * takes the lock away from who dies.
 *
 * A lock is seen by all who have the same mount of the same boot of a host, whatever filesystem
 * it is. Elsewhere it may be seen, or not: there it takes, besides, that nothing has changed for
 * an hour, by the filesystem's clock. Where directories cannot be locked there is no such file,
 * and nobody knows. Ranks of other hosts may still write, whose lock is not seen: that comes to
 * nothing, as it is rank 0 that commits.
 */
#ifndef MUSTER_CKPT_SAVER_H
#define MUSTER_CKPT_SAVER_H

#include "base/error.h"
#include "ckpt/io.h"
#include "ckpt/step.h"

#include <stdint.h>

#define SAVER_STILL_NS (INT64_C(3600) * 1000000000)
#define SAVER_NO_TIME INT64_MIN /* what changed when is not to be asked */

enum { SAVER_BOOT_BYTES = 64 };

enum saver_state {
    SAVER_UNKNOWN, /* or it is none that a rank writes, or is a checkpoint */
    SAVER_AT_IT,
    SAVER_ENDED,
};

/* That rank 0 is at it, which has `held` (held_take()). `boot` is the caller's, "" at first,
 * and spares the next save a file. What fails here is no failure of the save: nobody knows of
 * it then. */
void saver_mark(struct step_save *s, int held, char boot[SAVER_BOOT_BYTES]);

/* Of the directory of that name in `root`; `now_ns` is the filesystem's time. A lock is had
 * for a moment. */
enum saver_state saver_look(struct io *io, int root, const char *name, int64_t now_ns);

/* Removes it if its saver has ended, and has it locked meanwhile. 1; 0: it stays; or a
 * negative code, as of step_remove_all(). */
int saver_remove(struct io *io, int root, const char *name, struct error *e);

#endif
