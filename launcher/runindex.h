/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which runs this user has: $XDG_STATE_HOME/muster/runs/<name>/<id> is a link to
 * the run directory, and its own time says which is newest. Links need no lock
 * and no rewriting, whoever adds one. rundir.h has the reading side.
 */
#ifndef MUSTER_LAUNCHER_RUNINDEX_H
#define MUSTER_LAUNCHER_RUNINDEX_H

#include "launcher/rundir.h"

/* Enters a run, or makes it the newest again. A failure is ignored: the index
 * is a convenience, and a home directory may be read-only. */
void runindex_add(const struct rundir *r);

/* Forgets one; the directory stays as it is. */
void runindex_remove(const struct rundir_entry *entry);

/* Whether a run of any name, other than the one at `path`, has this id. */
bool runindex_has(const char *id, const char *path);

/* While the descriptor is open nobody else has one: for choosing an id that is
 * free. Waits a few seconds; -1 where there can be no lock, or nobody gives it
 * up. */
int runindex_guard(void);

#endif
