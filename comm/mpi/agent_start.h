/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the agent of a run on this host, or starts it under muster-watch. To be
 * called before MPI_Init: nothing that MPI made is inherited then.
 *
 * Who holds the lock <runtime dir>/<tag>/agent-<index>.lock decides: watch and
 * agent inherit it and keep it for life, so while it is held an agent lives (or
 * is still being swept up after), and when it is free there is none.
 */
#ifndef MUSTER_COMM_MPI_AGENT_START_H
#define MUSTER_COMM_MPI_AGENT_START_H

#include "base/error.h"

/* A connected descriptor (base/seqsock.h), or a negative code. Waits at most
 * `timeout_ms`. */
int agent_find_or_start(const char *tag, unsigned index, unsigned timeout_ms,
                        struct error *e);

/* For who lost the connection to the agent. 1 when it is dead and so is its
 * watch, which should have swept up after it: *ret_lock is then the caller's, so
 * that nobody starts a new one before it has done that. 0 when one of them lives,
 * or left in order. Waits at most `timeout_ms` for a watch to finish. */
int agent_is_dead(const char *tag, unsigned index, unsigned timeout_ms,
                  int *ret_lock);

/* Removes what a dead agent left in the directory of the run, and the directory,
 * if nobody else lives there. */
void agent_remove_leftovers(const char *tag);

#endif
