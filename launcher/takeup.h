/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going on with a run whose directory was found there: a requeued job, or a
 * directory given once more. Generations go on counting, so that no file of an
 * earlier life is written again. Where that life did not end by itself (killed,
 * stopped, preempted), its checkpoint, its spent restarts, the nodes that it lost or
 * excluded and the time that it ran count as well.
 */
#ifndef MUSTER_LAUNCHER_TAKEUP_H
#define MUSTER_LAUNCHER_TAKEUP_H

#include "base/error.h"
#include "launcher/run_config.h"
#include "launcher/rundir.h"

/* Whether the run in `dir`, which is locked, may be started. A run goes on without
 * its front end, and must not be started beside itself: -ERR_LOCKED where it is
 * alive; where that cannot be seen on this host the next word of its lead is waited
 * for, at most STATUS_STALE_MS. Of one that had not begun when its front end was lost
 * the mpirun on this host, which waits for that, is ended, and said so on stderr. One
 * that was suspended stays so until somebody wants it to go on (`resumes`):
 * -ERR_SUSPENDED; and one that has succeeded is not resumed: -EEXIST. */
int takeup_check(const struct rundir *dir, bool resumes, struct error *e);

/* Fills in what `dir` knows of its earlier life; nothing for a new directory. Where
 * there is no status only generations and starts go on counting, from takeup_left().
 * `resumes`: one that has failed gives its checkpoint as well, with a new budget. A
 * status that cannot be read is an error, and so (-ERR_DEADLINE) is a run that has used
 * up the time of the job, config->job. */
int takeup_run(const struct rundir *dir, bool resumes,
               struct run_config *config, struct error *e);

/* What other files tell of an earlier life, whatever its status says. */
struct takeup_left {
    uint32_t generation, start; /* the last ones; 0: none */
};

/* A directory that cannot be listed is an error. */
int takeup_left(const struct rundir *dir, struct takeup_left *ret, struct error *e);

#endif
