# SPDX-License-Identifier: Apache-2.0
"""A rank of an MPI world that reports to muster, where there is an agent."""

import os

from mpi4py import MPI

import muster

world = MPI.COMM_WORLD
total = world.allreduce(int(os.environ["RANK"]) + 1)
muster.report(step=world.rank, sum=total)
print(f"rank {os.environ['RANK']}: MPI {world.rank} of {world.size}, sum {total}, "
      f"stop {muster.should_stop()}\n", end="", flush=True)
