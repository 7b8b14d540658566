/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/habits.h"

#include "base/cleanup.h"

#include <string.h>

#define TOTAL "--nproc-per-node on each of --nnodes"

static const struct habit habits[] = {
    {"N", "nnodes", "--nnodes, or --nproc-per-node for that of mpirun"},
    {"np", "nproc-per-node", TOTAL},
    {"ntasks", "nproc-per-node", TOTAL},
    {"num-proc", "nproc-per-node", TOTAL},
    {"num-processes", "nproc-per-node", TOTAL},
    {"gpus-per-node", "nproc-per-node", "--nproc-per-node"},
    {"npernode", "nproc-per-node", "--nproc-per-node"},
    {"nproc", "nproc-per-node", "--nproc-per-node"},
    {"ntasks-per-node", "nproc-per-node", "--nproc-per-node"},
    {"num-gpus", "nproc-per-node", "--nproc-per-node"},
    {"perhost", "nproc-per-node", "--nproc-per-node"},
    {"ppn", "nproc-per-node", "--nproc-per-node"},
    {"nodes", "nnodes", "--nnodes"},
    {"num-machines", "nnodes", "--nnodes"},
    {"num-nodes", "nnodes", "--nnodes"},
    {"host", "hosts", "--hosts"},
    {"nodelist", "hosts", "--hosts"},
    {"w", "hosts", "--hosts"},
    {"machinefile", "hostfile", "--hostfile"},
    {"env", "set", "--set env.NAME=VALUE, and workers have your environment"},
    {"export", "set", "--set env.NAME=VALUE, and workers have your environment"},
    {"x", "set", "--set env.NAME=VALUE, and workers have your environment"},
    {"chdir", "set", "--set workdir=DIR"},
    {"wdir", "set", "--set workdir=DIR"},
    {"time", "set", "--set limits.deadline=TIME"},
    {"label", "log-prefix", "--log-prefix"},
    {"tag-output", "log-prefix", "--log-prefix"},
    {"bind-to", "mpirun", "for MPI programs: -- mpirun --bind-to ... PROGRAM"},
    {"map-by", "mpirun", "for MPI programs: -- mpirun --map-by ... PROGRAM"},
    {"mca", "mpirun", "for MPI programs: -- mpirun --mca ... PROGRAM"},
};

const struct habit *habit_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(habits); i++) {
        if (strcmp(habits[i].name, name) == 0) {
            return &habits[i];
        }
    }
    return NULL;
}
