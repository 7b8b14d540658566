# SPDX-License-Identifier: Apache-2.0
"""From the command to the end of a job of 32 workers that do nothing.

The peers: mpirun of one MPI process that does nothing, which is what starting one
agent costs at least; and torchrun with as many workers."""

WORKERS = 32
NOOP = """
#include <mpi.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Finalize();
    return 0;
}
"""


def measure(bench):
    noop = bench.mpi_program("noop", NOOP)
    true = bench.program("true")
    muster = [bench.muster(), "run", *bench.root_option(), "--nproc-per-node", str(WORKERS), "--", true]
    mpirun = [bench.program("mpirun"), "-n", "1", noop]
    torchrun = [bench.torchrun(), "--standalone", "--nproc-per-node", str(WORKERS), "--no-python", true]
    ours, mpi, torch = bench.medians([muster, mpirun, torchrun])
    yield bench.result("launch.time", ours, "s", "", None, f"{WORKERS} workers", muster)
    yield bench.result("launch.vs-mpirun", ours / mpi, "x", "<=", 1.5,
                       f"mpirun -n 1 of an MPI no-op: {mpi:.3f} s", muster)
    yield bench.result("launch.vs-torchrun", ours / torch, "x", "<=", 0.2,
                       f"torchrun, {WORKERS} workers: {torch:.3f} s", muster)
