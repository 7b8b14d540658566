/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of muster shell: taking the place of a worker on this host, and the
 * ways to another one. Both end in an exec, and return only on failure, with the
 * exit status that fits: as a shell's where the program cannot be run.
 */
#ifndef MUSTER_LAUNCHER_SHELL_H
#define MUSTER_LAUNCHER_SHELL_H

#include "base/error.h"
#include "base/str.h"
#include "launcher/front_record.h"
#include "launcher/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Becomes `argv`, or a shell where that is empty, with environment, directory,
 * umask, limits and binding of the worker. */
int shell_enter(const char *run_id, int64_t rank, const struct strlist *argv,
                struct error *e);

/* Where a worker is, and how one goes there. */
struct shell_way {
    const char *run_id;
    int64_t rank;
    const char *host;
    const struct front_record *was; /* or NULL */
    const struct strlist *argv;
    bool on_terminal;
};

/* The host of that node as its user calls it, which is what can be reached, where `was`
 * (or NULL) tells; else as it calls itself. Borrowed from either. */
const char *shell_way_host(const struct front_record *was, const struct run_status *s,
                           int node);

/* The command that goes there, appended: srun where the run is in a Slurm job
 * and this host has srun, else ssh. */
int shell_way_argv(const struct shell_way *way, const char *muster,
                   const char *srun, struct strlist *to, struct error *e);
int shell_go(const struct shell_way *way, struct error *e);

#endif
