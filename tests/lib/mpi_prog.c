/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An MPI program for tests: mpicc builds it there. Each rank says who it is, to MPI
 * and by the environment, and ends with 9 where the two differ. Then:
 *
 *   mpi_prog                 nothing more
 *   mpi_prog fail RANK CODE  that rank ends so, in generation 1
 *   mpi_prog wait            until SIGTERM: says so, leaves MPI, ends with 0
 *   mpi_prog orphan          rank 0 leaves a process in a session of its own,
 *                            which says its number and sleeps
 */
#include <config.h>

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t is_told;

static void on_term(int sig)
{
    (void)sig;
    is_told = 1;
}

static int number(const char *name)
{
    const char *text = getenv(name);

    return text ? atoi(text) : -1;
}

static int say_who(int rank, int size)
{
    char host[256] = "";
    int sum = rank + 1, total = 0;

    gethostname(host, sizeof(host) - 1);
    MPI_Allreduce(&sum, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("MPI %d of %d, sum %d; %d of %d, local %d of %d, node %d of %d on "
           "%s\n", rank, size, total, number("RANK"), number("WORLD_SIZE"),
           number("LOCAL_RANK"), number("LOCAL_WORLD_SIZE"),
           number("GROUP_RANK"), number("GROUP_WORLD_SIZE"), host);
    fflush(stdout);
    return rank == number("RANK") && size == number("WORLD_SIZE");
}

static void leave_orphan(void)
{
    if (fork() == 0) {
        setsid();
        printf("orphan %d\n", (int)getpid());
        fflush(stdout);
        execlp("sleep", "sleep", "1000", (char *)NULL);
        _exit(1);
    }
}

static void wait_for_term(int rank)
{
    printf("rank %d waits\n", rank);
    fflush(stdout);
    while (!is_told) {
        usleep(10000);
    }
    printf("rank %d was told\n", rank);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int rank, size;

    signal(SIGTERM, on_term);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!say_who(rank, size)) {
        return 9;
    }
    if (strcmp(what, "fail") == 0 && rank == atoi(argv[2]) &&
        number("MUSTER_GENERATION") == 1) {
        _exit(atoi(argv[3]));
    }
    if (strcmp(what, "orphan") == 0 && rank == 0) {
        leave_orphan();
    }
    if (strcmp(what, "wait") == 0) {
        wait_for_term(rank);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
