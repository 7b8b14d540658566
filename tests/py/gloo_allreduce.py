# SPDX-License-Identifier: Apache-2.0
"""One rank of a gloo process group made from the environment: adds up the ranks.

    gloo_allreduce.py [ROUNDS]
"""

import datetime
import os
import sys

import torch
import torch.distributed as dist

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
for i in range(rounds):
    value = torch.full((1000,), float(rank + i))
    dist.all_reduce(value)
    want = sum(range(world)) + i * world
    assert value[0].item() == value[-1].item() == want, (value[0], want)
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank} of {world} in {os.environ['GROUP']}: ok", flush=True)
