/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of an agent in the directory of its run on this host, beside its sockets:
 *
 *   agent-N.lock  held for as long as it and its muster-watch live
 *   agent-N.log   what it has to say to nobody in particular
 *   agent-N.run   where the directory of the run is, for who tidies up after it
 */
#ifndef MUSTER_LAUNCHER_AGENT_FILES_H
#define MUSTER_LAUNCHER_AGENT_FILES_H

#include "base/error.h"

#include <stddef.h>

struct agent;

/* Once it knows. */
void agent_files_tell_run(const struct agent *a);

/* The file in which an agent of `dir` tells it, in PATH_MAX bytes; and what is told
 * there, -ENOENT where it never knew. */
int agent_files_run_path(const char *dir, unsigned index, char *to, struct error *e);
int agent_files_run(const char *told, char *to, size_t size, struct error *e);

/* The last thing that it does. Its files stay where it leaves memory to a run that goes
 * on, for muster-watch to have them tidied up when that is over (launcher/tidy.h). */
void agent_files_remove(const struct agent *a);

#endif
