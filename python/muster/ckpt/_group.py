# SPDX-License-Identifier: Apache-2.0
"""Who saves and loads together, where muster did not start them."""

import sys
from typing import Any, List, Optional, Tuple

from .. import _libckpt as lib

Group = Tuple[int, int, lib.Gather]


def _device_type(process_group: Any) -> str:
    """On what such a group moves bytes: the CPU, where it can. A group of which nobody has named
    a backend has one for each device, and `undefined` for a name."""
    import torch.distributed as dist

    group = dist.group.WORLD if process_group is None else process_group
    types = [device.type for device in getattr(group, "_device_types", ())]
    backend = str(dist.get_backend(process_group))  # of older PyTorch that is all there is
    if "cpu" in types or any(name in backend for name in ("gloo", "mpi", "ucc", "fake")):
        return "cpu"
    return str(types[0]) if types else "cuda"


def torch_group(process_group: Any = None) -> Group:
    """The ranks of a process group of torch.distributed (None: of all), for
    Checkpoints(group=...)."""
    import torch
    import torch.distributed as dist

    world = dist.get_world_size(process_group)
    device = torch.device(_device_type(process_group))  # the current one

    def gather(data: bytes) -> List[bytes]:
        if not data:
            return [b""] * world
        mine = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
        all_of_them = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(all_of_them, mine, group=process_group)
        return [bytes(part.cpu().numpy()) for part in all_of_them]

    return dist.get_rank(process_group), world, gather


def is_torch_initialized() -> bool:
    dist = sys.modules.get("torch.distributed")  # who has initialized it has imported it
    return dist is not None and bool(dist.is_available() and dist.is_initialized())


def torch_ranks() -> Optional[Group]:
    """All of torch.distributed, where it is at work, as in what torchrun has started."""
    if not is_torch_initialized() or sys.modules["torch.distributed"].get_world_size() == 1:
        return None
    return torch_group()
