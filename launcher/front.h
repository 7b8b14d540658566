/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front end of a run while it is going on: above the lead in the control
 * tree. It gives the lead the job, shows what comes back, passes on what the user
 * wants, keeps mpirun going, and knows how the run ended.
 *
 * Without an mpirun of its own (`mpirun ... muster run`, rank 0) it only shows.
 */
#ifndef MUSTER_LAUNCHER_FRONT_H
#define MUSTER_LAUNCHER_FRONT_H

#include "launcher/mpirun.h"
#include "launcher/run_config.h"
#include "launcher/rundir.h"

#include <stdbool.h>
#include <stdint.h>

struct front_config {
    const struct rundir *dir;
    const uint8_t *key;
    const struct run_config *run;
    bool loopback;               /* all agents are on this machine */
    bool is_quiet;               /* no progress line */
    const struct mpirun *mpirun; /* NULL: started by hand */
    bool own_step;               /* Slurm: agents live in a step of their own */
    struct mpirun_plan plan;     /* with it; `front` is filled in here */
    int port_fd;                 /* by hand: write the 16-bit port there */
};

/* Runs until the run is over, or until this process is told to leave it alone.
 * Returns the exit status of the run. */
int front_run(const struct front_config *config);

#endif
