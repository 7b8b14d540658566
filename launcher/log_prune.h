/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes logs of generations that are not to be kept (logs.generations), on a thread
 * of its own: a run directory may answer late, or never. The first generation is kept,
 * whose failure began all, the one that runs, and so many before that.
 */
#ifndef MUSTER_LAUNCHER_LOG_PRUNE_H
#define MUSTER_LAUNCHER_LOG_PRUNE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* `keep` 0: all. */
bool log_prune_keeps(int64_t generation, int64_t running, uint32_t keep);

/* Does it, and takes as long as the filesystem does. How many were removed, or a
 * negative code; others are removed all the same. */
int log_prune(const char *run_dir, int64_t running, uint32_t keep,
              struct error *e);

struct log_pruner;

/* 0 or -ENOMEM. `run_dir` is copied. */
int log_pruner_create(const char *run_dir, uint32_t keep,
                      struct log_pruner **ret, struct error *e);

/* That generation runs. While an earlier call is not over that one goes on with it. */
void log_pruner_start(struct log_pruner *p, int64_t running);

/* Waits so long at most for what is being removed, which ends with the process: a thread
 * that hangs frees the rest. NULL is allowed. */
void log_pruner_release(struct log_pruner *p, unsigned wait_ms);

#endif
