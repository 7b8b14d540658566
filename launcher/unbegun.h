/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a run of which no node was ever heard: agents write the status of a run,
 * and where mpirun started none, hosts did not answer, or the user gave up before, there
 * is nobody else to say that it is over, and why.
 */
#ifndef MUSTER_LAUNCHER_UNBEGUN_H
#define MUSTER_LAUNCHER_UNBEGUN_H

#include "base/error.h"
#include "launcher/rundir.h"

/* Of one that is locked by this process: the status that it exits with, and why. A run
 * that has begun once keeps what its lead has written, and one that was made to be
 * suspended is that. 0, or a negative code; -ETIMEDOUT where the directory does not
 * answer. */
int unbegun_end(const struct rundir *dir, int status, const char *reason,
                struct error *e);

#endif
