/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches that are neither Open MPI's nor Slurm's with PMIx: mpiexec of MPICH and
 * of Intel MPI, MVAPICH's, flux run. Their processes are told their places in ways
 * that muster-mpi, which is linked with Open MPI, does not know.
 */
#ifndef MUSTER_LAUNCHER_OTHER_LAUNCH_H
#define MUSTER_LAUNCHER_OTHER_LAUNCH_H

#include "base/error.h"

/* -ERR_USAGE where this process is one of several of such a launch: each of them
 * would start a run of its own. */
int other_launch_check(struct error *e);

#endif
