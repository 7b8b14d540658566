/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory the snapshots of a node may take, and where they are. Shared
 * memory has a size of its own (64 MiB in many pods), and counts against the limit
 * of the cgroup, as that of the workers does.
 */
#ifndef MUSTER_LAUNCHER_SNAP_BUDGET_H
#define MUSTER_LAUNCHER_SNAP_BUDGET_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snap_budget {
    uint64_t bytes;
    char why[128]; /* "what is free in /dev/shm" */
};

/* As things are now, with `own` bytes more, which snapshots have already. */
void snap_budget_find(uint64_t own, struct snap_budget *ret);

/* Of a run: "/dev/shm/muster-<uid>-<run id>". */
int snap_dir(const char *run_id, char *to, size_t size, struct error *e);

/* Calls `f` with the run id of each that this user has. It may remove that one. */
void snap_dir_each(void (*f)(void *arg, const char *run_id), void *arg);

/* Removes what a run has left there. 0, also if there is nothing. */
int snap_dir_remove(const char *run_id, struct error *e);

/* What one of its agents has left, by its number on this host (launcher/snap_hold.h:
 * "<kind>-<agent>-<rank>-<which>"), and the directory with the last of it. */
void snap_dir_remove_agent(const char *run_id, unsigned agent);
/* Bytes of memory that it takes. */
uint64_t snap_dir_agent_bytes(const char *run_id, unsigned agent);
bool snap_dir_has_agent(const char *run_id, unsigned agent);

#endif
