/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of snapshots on this host that nobody can use any more: that of agents which
 * were killed, with their watch, while their run went on or ended elsewhere. Agents that
 * live clean up after themselves. Only the index of runs tells which are over; what it
 * does not know is left alone.
 */
#ifndef MUSTER_LAUNCHER_GC_MEMORY_H
#define MUSTER_LAUNCHER_GC_MEMORY_H

#include "base/error.h"

#include <stdbool.h>

struct gc_memory {
    bool dry_run;
    bool with_stopped; /* that of runs which could be resumed, too */
    void (*tell)(void *arg, const char *path); /* it is removed, or would be */
    void (*fail)(void *arg, const struct error *e);
    void *arg;
};

void gc_memory_collect(const struct gc_memory *gc);

#endif
