/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For MPI programs: who saves and loads together (muster_ckpt.h), made of a
 * communicator. Header only, so that it is the program's own MPI.
 *
 *     struct muster_mpi mpi;
 *     struct muster_ckpt_group group;
 *
 *     muster_mpi_group(MPI_COMM_WORLD, &mpi, &group);
 *     muster_ckpt_open(NULL, &group, "dir:/scratch/run", NULL, &ck);
 *     ...
 *     muster_ckpt_close(ck);
 *     muster_mpi_release(&mpi);
 *
 * Calls are made by the thread that calls muster_ckpt_*, on a communicator of their
 * own. A rank that dies is the MPI library's matter: as a rule it ends the others.
 */
#ifndef MUSTER_MPI_H
#define MUSTER_MPI_H

#include "muster_ckpt.h"

#include <errno.h>
#include <mpi.h>

struct muster_mpi {
    MPI_Comm comm; /* a duplicate */
};

/* Large parts go in several turns: MPI counts by int. */
static inline int muster_mpi_allgather(void *arg, const void *mine, void *all,
                                       size_t len)
{
    struct muster_mpi *mpi = (struct muster_mpi *)arg;
    MPI_Datatype block;
    int rc;

    if (len <= 0x7fffffff) {
        rc = MPI_Allgather(mine, (int)len, MPI_BYTE, all, (int)len, MPI_BYTE,
                           mpi->comm);
        return rc == MPI_SUCCESS ? 0 : -ECONNABORTED;
    }
    if (len % 4096 != 0 || len / 4096 > 0x7fffffff) {
        return -E2BIG;
    }
    rc = MPI_Type_contiguous(4096, MPI_BYTE, &block);
    if (rc == MPI_SUCCESS && MPI_Type_commit(&block) == MPI_SUCCESS) {
        rc = MPI_Allgather(mine, (int)(len / 4096), block, all,
                           (int)(len / 4096), block, mpi->comm);
        MPI_Type_free(&block);
    }
    return rc == MPI_SUCCESS ? 0 : -ECONNABORTED;
}

/* Together. Makes *ret of `comm`; `mpi` is the caller's, and lives as long as what is
 * opened with it. 0 or -ECONNABORTED. */
static inline int muster_mpi_group(MPI_Comm comm, struct muster_mpi *mpi,
                                   struct muster_ckpt_group *ret)
{
    if (MPI_Comm_dup(comm, &mpi->comm) != MPI_SUCCESS ||
        MPI_Comm_rank(mpi->comm, &ret->rank) != MPI_SUCCESS ||
        MPI_Comm_size(mpi->comm, &ret->world) != MPI_SUCCESS) {
        return -ECONNABORTED;
    }
    ret->allgather = muster_mpi_allgather;
    ret->arg = mpi;
    return 0;
}

static inline void muster_mpi_release(struct muster_mpi *mpi)
{
    MPI_Comm_free(&mpi->comm);
}

#endif
