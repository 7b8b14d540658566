# SPDX-License-Identifier: Apache-2.0
"""A rank of an MPI world says who it is, to MPI and by the environment, in the words
of tests/lib/mpi_prog.c. Ends with 9 where the two differ.

    mpi_who.py [VARIABLE...]     these must have the rank as well
"""

import os
import socket
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)


def number(name):
    return int(os.environ.get(name, -1))


# With PYTHONUNBUFFERED print() writes the end of a line by itself, and mpirun may put
# what another rank says in between.
print(f"MPI {world.rank} of {world.size}, sum {total}; {number('RANK')} of {number('WORLD_SIZE')}, "
      f"local {number('LOCAL_RANK')} of {number('LOCAL_WORLD_SIZE')}, "
      f"node {number('GROUP_RANK')} of {number('GROUP_WORLD_SIZE')} on {socket.gethostname()}\n", end="", flush=True)
same = all(number(name) == world.rank for name in ["RANK", *sys.argv[1:]])
sys.exit(0 if same and world.size == number("WORLD_SIZE") else 9)
