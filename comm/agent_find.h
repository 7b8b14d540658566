/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the agent of a run on this host, or starts it under muster-watch. To be
 * called before MPI_Init: nothing that MPI made is inherited then. (What is started
 * after it, muster-watch, keeps nothing open.)
 *
 * Who holds the lock <runtime dir>/<tag>/agent-<index>.lock decides: the agent
 * inherits it and keeps it for life, so while it is held an agent lives, and when
 * it is free there is none.
 *
 * Where a batch system kills all processes of a step with the step, the agents
 * must not be started by muster-mpi, which lives in mpirun's: a keeper that lives
 * in a step of the agents' own starts them, when it is asked over
 * <runtime dir>/<tag>/keeper.
 */
#ifndef MUSTER_COMM_AGENT_FIND_H
#define MUSTER_COMM_AGENT_FIND_H

#include "base/error.h"

#include <stdbool.h>

/* A connected descriptor (base/seqsock.h), or a negative code. Waits at most
 * `timeout_ms`. */
int agent_find_or_start(const char *tag, unsigned index, unsigned timeout_ms,
                        struct error *e);

/* The same where a keeper is on this host: one that is missing is started by
 * it. */
int agent_find_kept(const char *tag, unsigned index, unsigned timeout_ms,
                    struct error *e);

/* For who lost the connection to the agent. 1 when it is dead: *ret_lock is then the
 * caller's, so that nobody starts a new one before that has swept up after it. 0 when it
 * lives, or left in order. Waits at most `timeout_ms` for one that is about to end. */
int agent_is_dead(const char *tag, unsigned index, unsigned timeout_ms,
                  int *ret_lock);

/* For who tidies up after an agent: whether no other one has its place. *ret_lock then
 * keeps others out until the caller closes it; -1 where there is no lock any more. */
bool agent_is_gone(const char *tag, unsigned index, int *ret_lock);

/* Starts who tidies up after an agent that is dead, once its run is over
 * (launcher/tidy.h): for where its watch may be dead, too, which else does. */
int agent_tidy_after(const char *tag, unsigned index, struct error *e);

/* Removes what a dead agent left in the directory of the run, and the directory,
 * if nobody else lives there. */
void agent_remove_leftovers(const char *tag);

/* The keeper's side: a listening descriptor; *ret_lock is to be kept open for
 * life. -EEXIST where another keeper of this run lives. What it leaves goes by
 * agent_remove_leftovers(), when both are closed. */
int agent_keeper_open(const char *tag, int *ret_lock, struct error *e);

/* Answers one question, when the listener is readable: the muster-watch of the
 * agent becomes a child of the caller. Blocks until that agent is ready. 1; 0 if
 * nothing was asked. */
int agent_keeper_serve(int listener, const char *tag, unsigned timeout_ms,
                       struct error *e);

#endif
