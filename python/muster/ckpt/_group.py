# SPDX-License-Identifier: Apache-2.0
"""Who saves and loads together, where muster did not start them."""

import sys
from typing import Any, List, Optional, Tuple

from .. import _libckpt as lib

Group = Tuple[int, int, lib.Gather]


def torch_group(process_group: Any = None) -> Group:
    """The ranks of a process group of torch.distributed (None: of all), for
    Checkpoints(group=...)."""
    import torch
    import torch.distributed as dist

    world = dist.get_world_size(process_group)
    backend = str(dist.get_backend(process_group))
    is_on_cpu = any(name in backend for name in ("gloo", "mpi", "ucc", "fake"))
    device = torch.device("cpu") if is_on_cpu else torch.device("cuda", torch.cuda.current_device())

    def gather(data: bytes) -> List[bytes]:
        if not data:
            return [b""] * world
        mine = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
        all_of_them = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(all_of_them, mine, group=process_group)
        return [bytes(part.cpu().numpy()) for part in all_of_them]

    return dist.get_rank(process_group), world, gather


def torch_ranks() -> Optional[Group]:
    """All of torch.distributed, where it is at work, as in what torchrun has started."""
    dist = sys.modules.get("torch.distributed")  # who has initialized it has imported it
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    return torch_group()
