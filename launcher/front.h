/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front end of a run while it is going on: above the lead in the control
 * tree. It gives the lead the job, shows what comes back, passes on what the user
 * wants, keeps mpirun going, and knows how the run ended.
 *
 * Where mpirun was started by hand (`mpirun ... muster run`, rank 0) it only
 * shows. One that takes over a run (`muster attach`) has the lead come to it,
 * and leaves the MPI world alone as long as that lives.
 */
#ifndef MUSTER_LAUNCHER_FRONT_H
#define MUSTER_LAUNCHER_FRONT_H

#include "launcher/front_record.h"
#include "launcher/mpirun.h"
#include "launcher/run_config.h"
#include "launcher/rundir.h"
#include "launcher/status.h"

#include <stdbool.h>
#include <stdint.h>

/* What muster attach knows of the run that it takes over. */
struct front_attach {
    const struct front_record *was;  /* what the last front end left */
    const struct run_status *status; /* and the lead */
    const char *why_no_mpirun;       /* where config.mpirun is NULL */
};

struct front_config {
    const struct rundir *dir;    /* locked */
    const uint8_t *key;
    const struct run_config *run; /* of muster attach: job and detach_ms only */
    bool loopback;               /* the lead is on this machine */
    bool is_quiet;               /* no progress line */
    bool by_hand;                /* mpirun was started by hand, above us */
    const struct front_attach *attach; /* or NULL */
    const struct mpirun *mpirun; /* NULL: this process runs none */
    bool own_step;               /* Slurm: agents live in a step of their own */
    struct mpirun_plan plan;     /* with it; `front` is filled in here */
    const bool *absent;          /* by host of it: does not answer. NULL: none */
    const char *cwd;             /* where the run was started */
    int port_fd;                 /* by hand: write the 16-bit port there */
};

/* Runs until the run is over, or until this process is told to leave it alone.
 * Returns the exit status of the run, or what is told of the reason to leave. */
int front_run(const struct front_config *config);

#endif
