/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An MPI program that uses libmuster as well: both know the same ranks, and both add
 * up. mpicc builds it in tests. Reports the sum, prints it, or what muster says of
 * why there is none; ends with 9 where the two worlds differ.
 */
#include <config.h>

#include <mpi.h>
#include <muster.h>
#include <stdio.h>

static int both(struct muster *m, int rank, int size)
{
    int mine = rank + 1, by_mpi = 0, by_muster = 0, rc;
    struct muster_metric sum = {.name = "sum"};

    if (muster_rank(m) != rank || muster_world(m) != size) {
        return 9;
    }
    MPI_Allreduce(&mine, &by_mpi, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    rc = muster_allreduce(m, &mine, &by_muster, 1, MUSTER_INT32, MUSTER_SUM);
    if (rc < 0) {
        printf("rank %d: MPI %d, muster: %s\n", rank, by_mpi,
               muster_error_text(m));
        return by_muster ? 9 : 0;
    }
    sum.value = by_muster;
    printf("rank %d: MPI %d, muster %d\n", rank, by_mpi, by_muster);
    return muster_report(m, 1, &sum, 1) < 0 || by_mpi != by_muster ? 9 : 0;
}

int main(int argc, char **argv)
{
    struct muster *m = NULL;
    int rank, size, rc;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rc = muster_init(&m) < 0 ? 8 : both(m, rank, size);
    fflush(stdout);
    muster_finalize(m);
    MPI_Finalize();
    return rc;
}
