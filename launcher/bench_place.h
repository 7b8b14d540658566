/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory for a measurement with a run in it, which is there for no longer than the
 * process that measures, however that ends: a child of it, the keeper, waits until that
 * process and its run are gone, and takes away the directory, and what the run left in
 * memory and for its sockets. Where keeper and process are killed together the next one
 * in the same place does it.
 *
 *   DIR/.muster-bench-XXXXXX/lock    held by process and keeper
 *                            run/    the run
 *                            ...     whatever is measured
 */
#ifndef MUSTER_LAUNCHER_BENCH_PLACE_H
#define MUSTER_LAUNCHER_BENCH_PLACE_H

#include "base/error.h"

#include <limits.h>
#include <sys/types.h>

struct bench_place {
    char path[PATH_MAX];
    int held; /* who has it open is waited for: to be inherited by the run */
    int lock;
    pid_t keeper;
};

/* Takes away first what killed ones have left in `dir`. Forks, so there are no threads
 * before it. On failure nothing is left. */
int bench_place_make(const char *dir, struct bench_place *ret, struct error *e);

/* Waits until it is gone. -EBUSY: somebody of the run does not end, and the keeper goes
 * on waiting. */
int bench_place_remove(struct bench_place *p, struct error *e);

#endif
