/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to a host of a run: srun where the run is in a Slurm job, else ssh, or
 * what stands for it, as the front end went.
 */
#ifndef MUSTER_LAUNCHER_REMOTE_H
#define MUSTER_LAUNCHER_REMOTE_H

#include "base/error.h"
#include "base/str.h"
#include "launcher/front_record.h"

#include <stdbool.h>

struct remote {
    const char *host;
    const struct front_record *was; /* or NULL: nothing is known of it */
    const char *srun;               /* its path; NULL: it is not to be used */
    const char *job_name;           /* of the step that srun makes */
    bool on_terminal;
};

/* Appends the command that runs `command` there, word by word as it is. */
int remote_argv(const struct remote *r, const struct strlist *command,
                struct strlist *to, struct error *e);

#endif
