# SPDX-License-Identifier: Apache-2.0
"""A worker that is an MPI program of its own: MPI_Init, alone, whatever launched it.

Fails where MPI sees anybody else, or where its rank is not that of muster.
"""

import os
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(int(os.environ["RANK"]) + 1)
rank = int(os.environ["RANK"])
print(f"rank {rank}: MPI {world.rank} of {world.size}, sum {total}\n", end="", flush=True)
sys.exit(0 if (world.rank, world.size, total) == (0, 1, rank + 1) else 1)
