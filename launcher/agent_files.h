/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of an agent in the directory of its run on this host, beside its sockets:
 *
 *   agent-N.lock  held for as long as it lives
 *   agent-N.log   what it has to say to nobody in particular
 *   agent-N.run   of which run it is, for who tidies up after it
 */
#ifndef MUSTER_LAUNCHER_AGENT_FILES_H
#define MUSTER_LAUNCHER_AGENT_FILES_H

#include "base/error.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct agent;

struct agent_run {
    char id[128];
    char dir[PATH_MAX]; /* of the run */
    uint64_t lease_ms;  /* how long a lead is silent before it counts as lost */
};

/* Once it has its job. */
void agent_files_tell_run(const struct agent *a);

/* The file in which an agent of `dir` tells it, in PATH_MAX bytes; and what is told
 * there: -ERR_FORMAT where that is strange. */
int agent_files_told(const char *dir, unsigned index, char *to, struct error *e);
int agent_files_read(const char *told, struct agent_run *ret, struct error *e);

/* The last thing that it does. Its files stay where it leaves memory to a run that goes
 * on: who tidies up then reads there whose it is (launcher/tidy.h). */
void agent_files_remove(const struct agent *a);

#endif
