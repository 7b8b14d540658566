/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The place of a process in the MPI world that mpirun or srun started it in, by
 * the environment alone: to ask PMIx would use up the one time that a rank can be
 * initialised. And what MPI_Init needs of that environment, put back into that of
 * a worker. Pure.
 */
#ifndef MUSTER_LAUNCHER_RANK_ENV_H
#define MUSTER_LAUNCHER_RANK_ENV_H

#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

enum rank_starter {
    RANK_BY_MPIRUN, /* Open MPI's: OMPI_COMM_WORLD_* */
    RANK_BY_SRUN,   /* srun --mpi=pmix: a task of a step with PMIx */
};

struct rank_place {
    enum rank_starter starter;
    uint32_t rank, world;
    uint32_t local_rank, local_world;
    uint32_t node, n_nodes;
    bool knows_nodes;      /* else the two are unknown */
    char first_host[256];  /* where rank 0 is; "" for unknown */
    uint64_t launch_id;    /* the same for all ranks of this launch; hardly
                              ever that of another */
    uint64_t daemon;       /* the same for all ranks of a node */
};

/* Reads it from `env`. -ERR_USAGE where this is no MPI launch, or one whose
 * ranks cannot be told. */
int rank_place_read(const struct strlist *env, struct rank_place *ret,
                    struct error *e);

/* The interface of Open MPI's messages by TCP, for a rank alone. */
#define RANK_ENV_INTERFACE "OMPI_MCA_btl_tcp_if_include"

/* Takes the variables of the launch in `own`, which MPI_Init reads, into `env`,
 * and what `env` has by these names out of it; the interface stays unless the
 * launch was told one. */
void rank_env_join(const struct strlist *own, enum rank_starter starter,
                   struct strlist *env);

#endif
