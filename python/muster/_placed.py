# SPDX-License-Identifier: Apache-2.0
"""Which boxes of a tensor this rank has: of plain ones all, of a Piece what it says,
and of PyTorch's DTensor and ShardedTensor what their placements say.

Placements are worked out here, dimension by dimension, as *runs*: the ranges of a
dimension that a rank has one after the other in its memory. One shard is one run;
where it was cut more than once, and not in the order of the mesh (FSDP over tensor
parallelism), it may be several.
"""

import functools
import operator
import sys
from itertools import product
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from ._arrays import Piece, shape_of

Run = Tuple[int, int]


class Part(NamedTuple):
    """A box of the tensor from `at` on, or the elements from `flat` on."""

    local: Any
    at: Sequence[int]
    flat: Optional[int] = None


class Parts:
    """Some boxes of a tensor, which a rank has."""

    def __init__(self, dtype: str, shape: List[int]) -> None:
        self.dtype, self.shape = dtype, shape
        self.parts: List[Part] = []

    def add(self, local: Any, at: Sequence[int]) -> None:
        self.parts.append(Part(local, at))


class Box(NamedTuple):
    inside: Tuple[int, ...]  # its corner in the rank's memory,
    at: Tuple[int, ...]  # and in the whole
    len: Tuple[int, ...]


def chunk(n: int, k: int, i: int) -> Run:
    """The i-th of k parts of n things, as torch.chunk() cuts: the last ones are
    shorter, or empty."""
    size = -(-n // k)
    begin = min(i * size, n)
    return begin, min(begin + size, n)


def _cut(runs: List[Run], begin: int, end: int) -> List[Run]:
    """[begin, end) of what the runs have one after the other."""
    kept: List[Run] = []
    for first, last in runs:
        n = last - first
        low, high = first + max(begin, 0), first + min(end, n)
        if low < high:
            if kept and kept[-1][1] == low:
                kept[-1] = (kept[-1][0], high)
            else:
                kept.append((low, high))
        begin, end = begin - n, end - n
    return kept


def shard(runs: List[Run], k: int, i: int, stripes: int = 1) -> List[Run]:
    """The i-th of k parts; with stripes, of each of as many the i-th of k parts."""
    n = sum(last - first for first, last in runs)
    mine: List[Run] = []
    for stripe in range(stripes):
        begin, end = chunk(n, stripes, stripe)
        low, high = chunk(end - begin, k, i)
        mine += _cut(runs, begin + low, begin + high)
    return _cut(mine, 0, n)


def boxes(dims: Sequence[List[Run]]) -> List[Box]:
    """Every run of a dimension with every one of the others."""
    placed = []
    for runs in dims:
        inside, here = 0, []
        for first, last in runs:
            here.append((inside, first, last - first))
            inside += last - first
        placed.append(here)
    return [
        Box(tuple(p[0] for p in one), tuple(p[1] for p in one), tuple(p[2] for p in one)) for one in product(*placed)
    ]


def runs_of(
    shape: Sequence[int], mesh: Sequence[int], mine: Sequence[int], placements: Sequence[Any]
) -> List[List[Run]]:
    """By dimension of the tensor, at place `mine` of a mesh."""
    dims: List[List[Run]] = [[(0, n)] if n else [] for n in shape]
    for k, i, placement in zip(mesh, mine, placements):
        if placement.is_replicate():
            continue
        dim = getattr(placement, "dim", None)
        if dim is None:
            raise TypeError(f"{placement}: expected Shard or Replicate")
        dims[dim] = shard(dims[dim], k, i, int(getattr(placement, "split_factor", 1)))
    return dims


def _is_a(cls: type, module: str, name: str) -> bool:
    found = getattr(sys.modules.get(module), name, None)
    return found is not None and issubclass(cls, found)


@functools.lru_cache(maxsize=256)
def _how_placed(cls: type) -> str:
    """By which of the ways below what is of a class says what is here of it; "": all is."""
    for ours in (Piece, Parts):
        if issubclass(cls, ours):
            return ours.__name__
    if any(_is_a(cls, module, "DTensor") for module in ("torch.distributed.tensor", "torch.distributed._tensor")):
        return "DTensor"
    return "ShardedTensor" if _is_a(cls, "torch.distributed._shard.sharded_tensor", "ShardedTensor") else ""


def is_whole(value: Any) -> bool:
    """Whether it is a tensor or an array as every rank has it, and no part."""
    return not _how_placed(value.__class__)


def _counts(name: str, what: str, values: Sequence[Any]) -> List[int]:
    """Of elements: ctypes would take what is left of larger ones in 64 bits."""
    try:
        counts = [operator.index(value) for value in values]
    except TypeError:
        raise TypeError(f"'{name}': a piece with {what} {values!r:.60}: expected whole numbers") from None
    if not all(0 <= n < 1 << 63 for n in counts):
        raise ValueError(f"'{name}': a piece with {what} {values!r:.60}: expected numbers from 0 to 2**63 - 1")
    return counts


def _all_of_nothing(local: Any, shape: Sequence[int]) -> Part:
    """Of a tensor without elements each rank has all: if none had, it would not be there."""
    return Part(local.reshape(tuple(shape)), [0] * len(shape))


def _of_piece(name: str, value: Piece) -> Tuple[List[int], List[Part]]:
    shape = _counts(name, "shape", value.shape)
    if value.flat is not None:
        if value.at is not None:
            raise ValueError(f"'{name}': a piece with both `at` and `flat`: expected one of them")
        if 0 in shape and 0 in shape_of(name, value.local):
            return shape, [_all_of_nothing(value.local, shape)]
        return shape, [Part(value.local, [], _counts(name, "flat", [value.flat])[0])]
    at = _counts(name, "at", value.at) if value.at is not None else [0] * len(shape)
    n = len(shape_of(name, value.local))
    if not n == len(shape) == len(at):
        raise ValueError(f"'{name}': a piece of {n} dimensions, at {len(at)} numbers, of a tensor of {len(shape)}")
    return shape, [Part(value.local, at)]


def parts_of(name: str, value: Any) -> Tuple[List[int], List[Part]]:
    """The shape of the whole, and what is here of it, which may be nothing."""
    how = _how_placed(value.__class__)
    if not how:
        shape = list(shape_of(name, value))
        return shape, [Part(_arrived(value), [0] * len(shape))]
    if how == "Piece":
        return _of_piece(name, value)
    if how == "Parts":
        return value.shape, value.parts
    if how == "DTensor":
        return list(shape_of(name, value)), _of_dtensor(name, value)
    size, shards = list(value.size()), value.local_shards()
    if 0 in size and shards:
        return size, [_all_of_nothing(shards[0].tensor, size)]
    return size, [Part(s.tensor, list(s.metadata.shard_offsets)) for s in shards]


def _arrived(local: Any) -> Any:
    """What a collective brings by itself (redistribute(async_op=True)), once it is there."""
    wait = getattr(local, "wait", None)
    return local if wait is None else wait()


def _elements(at: Sequence[int], pairs: Sequence[int], shape: Sequence[int]) -> List[int]:
    """A corner in elements, of which those of 4 bits are counted in pairs."""
    return [n * (s // p) if p else n for n, p, s in zip(at, pairs, shape)]


def _of_dtensor(name: str, value: Any) -> List[Part]:
    mesh = value.device_mesh
    mine = mesh.get_coordinate()
    if mine is None:
        return []  # this rank is not of the mesh
    if any(p.is_partial() for p in value.placements):
        raise TypeError(
            f"'{name}': each rank has only a part of a sum ({value.placements}): expected it added up, by "
            "redistribute() or full_tensor()"
        )
    try:
        dims = runs_of(value.shape, tuple(mesh.shape), mine, value.placements)
    except TypeError as error:
        raise TypeError(f"'{name}': {error}") from None
    local = _arrived(value.detach().to_local())
    if 0 in value.shape and local.numel() == 0:
        return [_all_of_nothing(local, value.shape)]
    lengths = [sum(last - first for first, last in runs) for runs in dims]
    if 0 in lengths and local.numel() == 0:
        return []
    if list(local.shape) != lengths:
        raise TypeError(
            f"'{name}': it has {list(local.shape)} here, and by {value.placements} of a mesh of "
            f"{tuple(mesh.shape)} it should have {lengths} of {list(value.shape)}"
        )
    parts = []
    for box in boxes(dims):
        part = local
        for dim, (begin, n) in enumerate(zip(box.inside, box.len)):
            part = part.narrow(dim, begin, n)
        parts.append(Part(part, _elements(box.at, value.shape, shape_of(name, value))))
    return parts
