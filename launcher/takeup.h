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

/* Fills in what `dir` knows of its earlier life; nothing for a new directory, or
 * where no status was written. A status that cannot be read is an error. */
int takeup_run(const struct rundir *dir, struct run_config *config,
               struct error *e);

#endif
