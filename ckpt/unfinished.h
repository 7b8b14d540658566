/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is left of saves that came to no end: directories of checkpoints without COMMIT, whose
 * program was killed, or is still at it. Nothing in them says which: a program that saves
 * without an agent may be anywhere. But it writes, and so who says for how long nobody may
 * have written says what may go.
 */
#ifndef MUSTER_CKPT_UNFINISHED_H
#define MUSTER_CKPT_UNFINISHED_H

#include "base/error.h"
#include "ckpt/io.h"
#include "ckpt/lease.h"

#include <stdbool.h>
#include <stdint.h>

struct unfinished {
    uint64_t bytes;     /* of its files */
    int64_t changed_ns; /* when it, or a file in it, was changed last, by the filesystem's
                           clock */
};

/* Of the directory of that name in `root`. 0; -ENOENT: it has gone, or is a checkpoint by now;
 * other negative codes: somebody may be at it. */
int unfinished_look(struct io *io, int root, const char *name, struct unfinished *ret,
                    struct error *e);

/* The filesystem's clock, which that of this host need not be: `root` is changed now. */
int unfinished_clock(struct io *io, int root, int64_t *ret_ns);

/* Whether a run's agents save there, by a file of theirs that was renewed lately (ckpt/lease.h):
 * 1, with its name; 0; or a negative code: nobody can tell. */
int unfinished_has_run(struct io *io, int root, int64_t now_ns, char ret[LEASE_NAME_BYTES],
                       struct error *e);

#endif
