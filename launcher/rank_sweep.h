/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program of an MPI world leaves behind. Such a program is no descendant of
 * an agent, and mpirun kills only the group of the process that it started. So its
 * processes are known by an entry in their environment.
 */
#ifndef MUSTER_LAUNCHER_RANK_SWEEP_H
#define MUSTER_LAUNCHER_RANK_SWEEP_H

#include "base/error.h"

enum { RANK_LINGER_MS = 1000 };

/* Kills all processes with the entry `mark` until none is left, those that have
 * not gone by themselves after `linger_ms`. Gives up after 5 s: what is in an
 * uninterruptible wait goes when that wait ends. Who is silent (base/proc_env.h) is
 * left alone, and named on stderr. */
void rank_sweep(const char *mark, unsigned linger_ms);

/* Leaves a process behind that does so when this one ends, however it ends, and
 * then calls `last`, which may be NULL. It keeps nothing of this one open. */
int rank_guard(const char *mark, void last(const void *arg), const void *arg,
               struct error *e);

#endif
