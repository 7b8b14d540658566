# SPDX-License-Identifier: Apache-2.0
"""One rank of a process group made anew in each try, until LAST.

    ddp_generations.py LAST [BACKEND]

In each try the store must be one that nobody has used; then rank 1 raises, in
try LAST nobody does. Says "port PORT" in each.
"""

import datetime
import os
import sys

import torch
import torch.distributed as dist

last = int(sys.argv[1])
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
backend = sys.argv[2] if len(sys.argv) > 2 else "gloo"
dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
store = dist.distributed_c10d._get_default_store()
# Counted before anybody can be beyond the barrier: one for each rank of now.
count = store.add("ddp_generations", 1)
assert 1 <= count <= dist.get_world_size(), f"rank {rank}: {count} were here before"
dist.barrier()
assert store.add("ddp_generations", 0) == dist.get_world_size()
value = torch.ones(10)
dist.all_reduce(value)
assert value[0].item() == dist.get_world_size()
print(f"try {attempt} rank {rank} port {os.environ['MASTER_PORT']}", flush=True)
if attempt < last and rank == 1:
    raise RuntimeError(f"ddp_generations: try {attempt} fails as told")
dist.barrier()
dist.destroy_process_group()
