/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going on with a run whose directory was found there: a requeued job, or a
 * directory given once more. Generations go on counting, so that no file of an
 * earlier life is written again. Where that life did not end by itself (killed,
 * stopped, preempted), its checkpoint and its spent restarts count as well.
 */
#ifndef MUSTER_LAUNCHER_TAKEUP_H
#define MUSTER_LAUNCHER_TAKEUP_H

#include "base/error.h"
#include "launcher/run_config.h"
#include "launcher/rundir.h"

/* Whether the run in `dir`, which is locked, has come to its end: a run goes on
 * without its front end, and must not be started beside itself. -ERR_LOCKED where
 * it is alive. Where that cannot be seen on this host the next word of its lead is
 * waited for, at most STATUS_STALE_MS. */
int takeup_check(const struct rundir *dir, struct error *e);

/* Fills in what `dir` knows of its earlier life; nothing for a new directory, or
 * where no status was written. A status that cannot be read is an error. */
int takeup_run(const struct rundir *dir, struct run_config *config,
               struct error *e);

#endif
