/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a save, by the lead's agent: a checkpoint, or nothing. Two leads may come
 * to commit the same one, one after the other: who finds that it is a checkpoint
 * already says so. One that was stopped, and goes on when another one leads already,
 * changes nothing.
 */
#ifndef MUSTER_LAUNCHER_SNAP_COMMIT_H
#define MUSTER_LAUNCHER_SNAP_COMMIT_H

#include "base/error.h"
#include "ckpt/gather.h"
#include "ckpt/io.h"
#include "ckpt/retain.h"
#include "launcher/office.h"
#include "launcher/snap_lease.h"
#include "launcher/snap_strays.h"

#include <stdbool.h>
#include <stdint.h>

struct snap_commit {
    const char *root;     /* the directory of checkpoints */
    struct gather gather; /* what it is */
    uint32_t n_written;   /* ranks that have said so */
    struct retain_rule rule; /* which checkpoints stay */
    const char *best;     /* by the metric of that name, too; NULL for none */
    const char *pinned;   /* the name of one that stays; NULL or "" for none */
    const char *copied;   /* and of another one */
    const char *source;   /* one that workers are starting from; stays, too */
    const char *avoided;  /* from which nobody starts (ckpt/avoided.h): they stay, and
                             count for nothing; or NULL */
    uint64_t busy_from;   /* other saves are on their way, none of a step below it ... */
    uint64_t known_ms;    /* ... that was heard of by then, by clock_mono_ms(); ... */
    struct snap_strays *strays; /* ... others may be. NULL: none is */
    const struct office *office; /* asked before each change; NULL: it lasts */
    struct snap_lease *lease; /* that no other run saves there; NULL: none does */

    /* The newest one that was read again, to the last byte, and was right: it stays, and
     * as long as it is "" all that are whole do. NULL: nobody reads them again. */
    const char *verified;
    const char *checking; /* one that is being read; stays, too. NULL or "" for none */
    bool *ret_was_there;  /* it was a checkpoint before, or another lead has made it one.
                             NULL: not asked */
    bool *ret_is_last;    /* of those of its step in `root` it is the one that counts
                             (step_compare()). NULL: not asked */
    bool *ret_is_due;     /* those that are kept anyway lack such a one. NULL: not asked */
    bool *ret_awaits;     /* some stay only until one of those that are kept anyway was read
                             again. NULL: not asked */
    bool *ret_lacks_best; /* some go, and none has the metric `best`. NULL: not asked */
};

/* 0: it is a checkpoint. Else it is removed; `why` is what it has failed of already, or
 * NULL: then -ECONNABORTED says that some rank has not written it. But where it has a
 * COMMIT, or nobody can tell, all of it stays: -ERR_FORMAT for one that is damaged, or why
 * it cannot be read. -EBUSY: another run saves there. With -ESTALE it is neither: the
 * office is over, and what it becomes is another one's. Blocks: for a thread. */
int snap_commit(const struct snap_commit *c, struct io *io,
                const struct error *why, struct error *e);
/* Once it is one: whether its filesystem has less left than `n` more of its size. */
bool snap_is_short(const struct snap_commit *c, struct io *io, unsigned n);
/* Once it is one: removes what `rule` does not want, with what was begun and never
 * finished before that. Nobody has to wait for it: large files take long to go. Blocks,
 * too. */
void snap_tidy(const struct snap_commit *c, struct io *io);

#endif
