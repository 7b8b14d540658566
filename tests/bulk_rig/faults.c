/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of MPI, between the engine and the library: RIG_FAULT=CALL:NTH:NODE
 * has that call fail on that node, the NTH time, after its group is joined.
 */
#include <config.h>

#include "tests/bulk_rig/rig.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char call[32];
static int calls_left; /* until it fails; 0 for never */

void fault_arm(int node)
{
    const char *text = getenv("RIG_FAULT");
    int nth, where;

    if (text && sscanf(text, "%31[a-z]:%d:%d", call, &nth, &where) == 3 &&
        where == node) {
        calls_left = nth;
    }
}

static int fails(const char *name)
{
    return calls_left > 0 && strcmp(name, call) == 0 && --calls_left == 0;
}

int MPI_Iallreduce(const void *from, void *to, int n, MPI_Datatype type,
                   MPI_Op op, MPI_Comm comm, MPI_Request *ret)
{
    return fails("iallreduce")
               ? MPI_ERR_OTHER
               : PMPI_Iallreduce(from, to, n, type, op, comm, ret);
}

int MPI_Ibcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request *ret)
{
    return fails("ibcast") ? MPI_ERR_OTHER
                           : PMPI_Ibcast(data, n, type, root, comm, ret);
}

int MPI_Iallgather(const void *from, int n_from, MPI_Datatype from_type,
                   void *to, int n_to, MPI_Datatype to_type, MPI_Comm comm,
                   MPI_Request *ret)
{
    return fails("iallgather")
               ? MPI_ERR_OTHER
               : PMPI_Iallgather(from, n_from, from_type, to, n_to, to_type,
                                 comm, ret);
}

int MPI_Test(MPI_Request *request, int *ret_done, MPI_Status *status)
{
    return fails("test") ? MPI_ERR_OTHER : PMPI_Test(request, ret_done, status);
}
