# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint (DCP) with muster's checkpoints as its storage.

    import torch.distributed.checkpoint as dcp
    import muster.ckpt.dcp

    dcp.save(state, storage_writer=muster.ckpt.dcp.Writer("/scratch/run", step, keep=3))
    dcp.load(state, storage_reader=muster.ckpt.dcp.Reader("/scratch/run"))   # the newest

The first argument is a directory or a Checkpoints that is open already, which saves
opening it each time. With a directory the workers of the run take part, or where
muster did not start them, all ranks of torch.distributed. A step may be given as
`checkpoint_id`, too. All ranks save and load, as DCP does by itself.

A save is a checkpoint like those of Checkpoints: its tensors can be loaded with
Checkpoints.load(), and the Reader opens what Checkpoints.save() saved. What is no
tensor is DCP's: bytes of torch.save(), which DCP unpickles when it loads them. Load
none that you do not trust.
"""

import dataclasses
import io
import os
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from .. import _arrays, _libckpt as lib, _placed, _tree
from ._checkpoints import Checkpoints, Passed
from ._handle import EILSEQ, ENOENT, CheckpointError, NotFound

__all__ = ["Reader", "Writer"]

LENGTHS = "dcp.lengths"  # of what is not a tensor

Where = Union[Checkpoints, "os.PathLike[str]", str]


def _step_of(checkpoint_id: Any) -> int:
    try:
        return int(checkpoint_id)
    except ValueError:
        raise ValueError(f"checkpoint_id: expected the number of a step, not {checkpoint_id!r}") from None


class _Storage:
    """What a writer and a reader share: open for the time of one save or load."""

    def __init__(self, checkpoints: Where, step: Optional[int] = None, **options: Any) -> None:
        self._where = checkpoints
        self._options = options
        self._step = step
        self._opened: Optional[Checkpoints] = None

    def reset(self, checkpoint_id: Any = None) -> None:
        self._close()
        if checkpoint_id is not None:
            self._step = _step_of(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return False  # not to be chosen for a path that somebody gives

    def _checkpoints(self) -> Checkpoints:
        if self._opened is None:
            where = self._where
            self._opened = where if isinstance(where, Checkpoints) else Checkpoints(where, **self._options)
        return self._opened

    def _close(self) -> None:
        if self._opened is not None and self._opened is not self._where:
            self._opened.close()
        self._opened = None


def _elements(dtype: Any, numbers: Any) -> List[int]:
    """Lengths or places of a tensor, as files count them: PyTorch counts elements of 4
    bits in pairs, along the last dimension."""
    return [*numbers[:-1], 2 * numbers[-1]] if len(numbers) and str(dtype).endswith("_x2") else list(numbers)


def _pairs(dtype: str, numbers: List[int]) -> List[int]:
    """And back."""
    return [*numbers[:-1], numbers[-1] // 2] if dtype == "F4" else numbers


def _done(value: Any) -> Any:
    future: Any = Future()
    future.set_result(value)
    return future


# --- writing ---


def _tree_of(tensors: List[str], paths: Dict[str, Any]) -> List[Any]:
    """Nested as the state was that DCP has flattened."""
    root: Dict[Any, Any] = {}
    for name in tensors:
        path = paths.get(name) or (name,)
        at = root
        for key in path[:-1]:
            at = at.setdefault(key, {})
        at[path[-1]] = ["tensor", name, "torch"]

    def node(value: Any) -> List[Any]:
        return ["dict", [[k, node(v)] for k, v in value.items()]] if isinstance(value, dict) else list(value)

    return node(root)


def describe(plans: List[Any]) -> Dict[str, Any]:
    """What all ranks will write, by their plans."""
    if not all(getattr(plan, "usable", True) for plan in plans):
        raise ValueError("plans that DCP has kept from the last save: expected enable_plan_caching=False")
    tensors: Dict[str, Tuple[str, List[int]]] = {}
    values = []
    paths: Dict[str, Any] = {}
    for plan in plans:
        paths.update(plan.planner_data or {})
        for item in plan.items:
            name = item.index.fqn
            if name == LENGTHS:
                raise ValueError(f"'{name}' is where the lengths of what is no tensor are saved: expected another name")
            if item.type == WriteItemType.BYTE_IO:
                values.append(name)
                continue
            kind = torch.empty(0, dtype=item.tensor_data.properties.dtype, device="cpu")
            size = _elements(kind.dtype, item.tensor_data.size)
            tensors[name] = (lib.DTYPES[_arrays.dtype_of(name, kind)], size)
    tree = _tree_of(list(tensors), paths)
    return {"tree": tree, "tensors": tensors, "ties": {}, "dcp": {"values": values, "paths": paths}}


class Writer(_Storage, StorageWriter):  # type: ignore[misc,unused-ignore]
    """Saves as `step`; options are those of Checkpoints. `wait`: until it is on the
    disk; else with an agent until it is safe from the death of this process."""

    def __init__(self, checkpoints: Where, step: Optional[int] = None, *, wait: bool = True, **options: Any) -> None:
        super().__init__(checkpoints, step, **options)
        self._wait = wait

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("use_collectives") is False:
            raise ValueError("use_collectives=False: expected ranks that save together")
        if self._step is None:
            raise ValueError("expected a step: Writer(..., step), or checkpoint_id=step")

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: List[Any]) -> List[Any]:
        description = describe(plans)
        return [dataclasses.replace(plan, storage_data=description) for plan in plans]

    def write_data(self, plan: Any, planner: Any) -> Any:
        assert self._step is not None
        checkpoints = self._checkpoints()
        try:
            with checkpoints.or_refused("save"):
                tensors, results = self._collect(plan, planner)
            checkpoints.save_tensors(self._step, plan.storage_data, tensors, wait=self._wait)
        finally:
            self._close()
        return _done(results)

    def _collect(self, plan: Any, planner: Any) -> Tuple[Dict[str, Any], List[Any]]:
        """What this rank saves, and what DCP is told of it."""
        names = plan.storage_data["dcp"]["values"]
        tensors: Dict[str, Any] = {}
        lengths = _placed.Parts("torch.int64", [len(names)])
        results = []
        for item in plan.items:
            name, data = item.index.fqn, planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                value = torch.frombuffer(bytearray(data.getbuffer()), dtype=torch.uint8)
                tensors[name] = value
                lengths.add(torch.tensor([value.numel()], device="cpu"), [names.index(name)])
                size = value.numel()
            else:
                local, chunk = data.detach(), item.tensor_data.chunk
                whole = _elements(local.dtype, item.tensor_data.size)
                parts = tensors.setdefault(name, _placed.Parts(str(local.dtype), whole))
                parts.add(local, _elements(local.dtype, chunk.offsets))
                size = local.numel() * local.element_size()
            results.append(WriteResult(index=item.index, size_in_bytes=size, storage_data=None))
        if names:
            tensors[LENGTHS] = lengths
        return tensors, results

    def finish(self, metadata: Any, results: Any) -> None:
        """It was committed when all had written."""


# --- reading ---


def _values_of(node: List[Any], path: str = "") -> Dict[str, Any]:
    """What is no tensor in a state that Checkpoints saved, under DCP's names."""
    if node[0] == "dict":
        children = node[1]
    elif node[0] in ("list", "tuple"):
        children = list(enumerate(node[1]))
    else:
        return {} if node[0] == "tensor" else {path: _tree.build(node, {})}
    values = {} if _tree.tensors_of(node) or not path else {path: _tree.build(node, {})}
    for key, child in children:
        values.update(_values_of(child, f"{path}.{key}" if path else str(key)))
    return values


class Reader(_Storage, StorageReader):  # type: ignore[misc,unused-ignore]
    """Loads `step`, or what is the newest then. A damaged one of that step fails the load, which
    names what is damaged. Of the newest it is passed over, with a warning, on all ranks, and all
    is loaded from the one before: where its tensors and values have the names, types and shapes
    by which DCP has planned the load, which is made again for no other one."""

    _found: int  # the step of this load
    _described: Dict[str, Any]
    _values: Dict[str, Any]  # of Checkpoints.save()
    _plan: Any  # what was described as DCP planned it
    _passed: Passed

    def read_metadata(self) -> Any:
        checkpoints = self._checkpoints()
        self._passed = checkpoints.none_passed()
        if self._step is not None:
            self._take(self._step, checkpoints.describe(self._step))
        else:
            newest = checkpoints.newest(self._passed)
            if newest is None:
                raise NotFound(ENOENT, f"no checkpoint in {self._where}")
            self._take(*newest)
        self._plan = self._planned()
        own = self._described.get("dcp")
        names: Dict[str, Any] = {name: BytesStorageMetadata() for name in (own["values"] if own else self._values)}
        for name, (dtype, elements) in self._described["tensors"].items():
            size = _pairs(dtype, elements)
            whole = ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=torch.Size(size))
            properties = TensorProperties(dtype=_arrays.torch_dtype(name, dtype))
            names[name] = TensorStorageMetadata(properties=properties, size=torch.Size(size), chunks=[whole])
        paths = {name: tuple(path) for name, path in own["paths"].items()} if own and own["paths"] else None
        return Metadata(state_dict_metadata=names, planner_data=paths, storage_meta=StorageMeta())

    def _take(self, found: int, described: Dict[str, Any]) -> None:
        self._found = found
        self._described = described
        self._values = {} if described.get("dcp") else _values_of(described["tree"])

    def _planned(self) -> Any:
        """What the plans of all ranks go by."""
        return self._described["tensors"], self._described.get("dcp"), sorted(self._values)

    def set_up_storage_reader(self, metadata: Any, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: List[Any]) -> List[Any]:
        return plans

    def read_data(self, plan: Any, planner: Any) -> Any:
        try:
            with self._checkpoints().or_refused("load"):
                targets = self._targets(plan, planner)
            tensors = self._fill_whole(plan, targets)
        finally:
            self._close()
        for item, target, local in targets:
            if local.dtype != target.dtype:
                target.detach().copy_(local)
            planner.commit_tensor(item, target)
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, self._bytes_of(item.storage_index.fqn, tensors))
        return _done(None)

    def _targets(self, plan: Any, planner: Any) -> List[Tuple[Any, Any, Any]]:
        """Of tensors: where they go, and what is filled, of another type that is converted, as
        DCP does."""
        targets = []
        for item in plan.items:
            if item.type != LoadItemType.BYTE_IO:
                name = item.storage_index.fqn
                kind = _arrays.torch_dtype(name, self._described["tensors"][name][0])
                target = planner.resolve_tensor(item)
                local = target.detach() if target.dtype == kind else torch.empty(target.shape, dtype=kind, device="cpu")
                targets.append((item, target, local))
        return targets

    def _fill_whole(self, plan: Any, targets: List[Tuple[Any, Any, Any]]) -> Dict[str, Any]:
        """From one checkpoint alone, the same on all ranks: what was filled from one that turned out
        to be damaged is filled anew."""
        while True:
            try:
                return self._fill(plan, targets)
            except CheckpointError as error:
                if self._step is not None:
                    raise
                self._go_back(error)

    def _go_back(self, why: CheckpointError) -> None:
        """All ranks have failed of it together, and look at the same descriptions."""
        newest = self._checkpoints().pass_over(why, self._found, self._passed)
        if newest is None:
            raise self._passed.error()
        self._take(*newest)
        self._check(str(why.strerror))

    def _check(self, why: str) -> None:
        if self._planned() != self._plan:
            text = f"{why}; the next one, of step {self._found}, has other tensors or values than this load was planned for"
            raise CheckpointError(EILSEQ, f"{text}: expected Reader(..., step={self._found})")

    def _fill(self, plan: Any, targets: List[Tuple[Any, Any, Any]]) -> Dict[str, Any]:
        tensors: Dict[str, Any] = {}
        count, before = 0, -1
        while count != before:  # else all ranks have loaded the one of that step that they looked at
            before = count
            tensors = self._wanted(plan, targets)
            count = self._checkpoints().load_tensors(self._found, tensors, {})
        if count > 0:
            self._checkpoints().tell_passed(self._passed)
        return tensors

    def _wanted(self, plan: Any, targets: List[Tuple[Any, Any, Any]]) -> Dict[str, Any]:
        """Of the one of that step that is looked at just now, which is what is loaded next."""
        try:
            self._take(self._found, self._checkpoints().describe(self._found))
            self._check(f"one of step {self._found} is damaged")
            lengths = self._lengths()
        except CheckpointError as error:
            raise self._checkpoints().refuse(self._found, error) from None
        except BaseException:  # it lacks memory, say
            self._checkpoints().refuse_load()
            raise
        with self._checkpoints().or_refused("load"):
            names = [item.storage_index.fqn for item in plan.items if item.type == LoadItemType.BYTE_IO]
            tensors: Dict[str, Any] = {
                n: torch.empty(lengths[n], dtype=torch.uint8, device="cpu") for n in names if n in lengths
            }
            for item, _, local in targets:
                name = item.storage_index.fqn
                parts = tensors.setdefault(name, _placed.Parts(str(local.dtype), self._described["tensors"][name][1]))
                parts.add(local, _elements(local.dtype, item.storage_offsets))
        return tensors

    def _lengths(self) -> Dict[str, int]:
        names = self._described.get("dcp", {}).get("values", [])
        lengths = torch.empty(len(names), dtype=torch.int64, device="cpu")
        if names:
            self._checkpoints().read_tensor(self._found, LENGTHS, lengths)
        return dict(zip(names, lengths.tolist()))

    def _bytes_of(self, name: str, tensors: Dict[str, Any]) -> io.BytesIO:
        if name in tensors:
            return io.BytesIO(tensors[name].numpy().tobytes())
        data = io.BytesIO()
        torch.save(self._values[name], data)
        data.seek(0)
        return data
