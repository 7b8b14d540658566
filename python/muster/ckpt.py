# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of nested dicts of tensors and arrays, through libmuster.

    from muster import ckpt

    with ckpt.Checkpoints("/scratch/run", keep=3, every_steps=100) as checkpoints:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 0}
        found = checkpoints.load(into=state)     # None: there is none
        if found:
            first, state = found.step, found.state
            optimizer.load_state_dict(state["optimizer"])
        for step in range(first, last):
            ...
            if checkpoints.due(step):
                checkpoints.save(step, {"model": model.state_dict(), ...})

A checkpoint is whole, verified and durable, or it does not exist; see muster_ckpt.h
and doc/checkpoints.md. All workers of a run call save(), load(), latest() and due()
together; a process that muster did not start is alone, unless it gives a group. Each
tensor may be held by all workers alike (it is written once), or in pieces (Piece).

What is no tensor (numbers, text, None, bytes; in dicts, lists and tuples) must be the
same on all ranks; `per_rank` is for what is not. Nothing is pickled.

Errors: CheckpointError (an OSError with errno), which names rank, file or tensor and
what to do; TypeError and ValueError for what cannot be saved.
"""

import ctypes
import json
import logging
import os
import weakref
from types import TracebackType
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Type, Union

from . import _arrays, _libckpt as lib, _tree
from ._arrays import Piece

__all__ = ["Checkpoints", "CheckpointError", "Loaded", "Piece"]

TREE = "python.tree"
OWN_TREE = "python.tree.rank"

_log = logging.getLogger("muster")


class CheckpointError(OSError):
    """`errno` says what kind, and the text which rank and which file."""


class Loaded(NamedTuple):
    step: int
    state: Any
    per_rank: Any  # of the rank of this number, or None
    passed_over: int  # damaged ones that were newer


def _close(library: ctypes.CDLL, handle: int, muster: Optional[int]) -> None:
    library.muster_ckpt_close(handle)
    if muster:
        library.muster_finalize(muster)


class Checkpoints:
    """The checkpoints in a directory, which all ranks see. One thread at a time.

    `path`: None is the environment's MUSTER_CHECKPOINT_DIR. `keep`: how many of the
    newest stay (0: all). `every_steps`, `every_seconds`: what due() goes by. `group`:
    (rank, world, gather), where gather(bytes) returns those of all ranks; None: the
    workers of the run.
    """

    def __init__(
        self,
        path: Optional["os.PathLike[str] | str"] = None,
        *,
        keep: int = 0,
        every_steps: int = 0,
        every_seconds: float = 0.0,
        group: Optional[Tuple[int, int, lib.Gather]] = None,
    ) -> None:
        self._lib = lib.library()
        self._held: List[Any] = []  # memory that is registered
        self._failures: List[BaseException] = []
        self._handle: Optional[int] = None
        self._group: Optional[lib.Group] = None
        options = lib.Options(ctypes.sizeof(lib.Options), every_steps, every_seconds, keep, 0)
        muster = ctypes.c_void_p()
        handle = ctypes.c_void_p()
        if group is not None:
            self._group = lib.Group(group[0], group[1], lib.allgather(group[2], self._failures), None)
        elif os.environ.get("MUSTER_SOCKET"):
            rc = self._lib.muster_init(ctypes.byref(muster))
            if rc < 0:
                raise CheckpointError(-rc, f"join the workers of the run: {os.strerror(-rc)}")
        rc = self._lib.muster_ckpt_open(
            muster,
            ctypes.byref(self._group) if self._group else None,
            os.fsencode(path) if path is not None else None,
            ctypes.byref(options),
            ctypes.byref(handle),
        )
        if handle.value is None:
            self._lib.muster_finalize(muster)
            raise MemoryError
        self._handle = handle.value
        self._finalizer = weakref.finalize(self, _close, self._lib, handle.value, muster.value)
        try:
            self._check(rc)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        self._finalizer()
        self._handle = None
        self._held = []

    def due(self, step: int) -> int:
        """Not 0 where a checkpoint is due after `step`; the same on all ranks."""
        return self._check(self._lib.muster_ckpt_due(self._open(), step))

    def should_stop(self) -> bool:
        """Whether the run is being stopped, as due() last saw; the same on all ranks."""
        return self._check(self._lib.muster_ckpt_should_stop(self._open(), None)) > 0

    def latest(self, below: int = lib.LATEST) -> Optional[int]:
        """The newest step below one, or None."""
        step = ctypes.c_int64()
        try:
            self._check(self._lib.muster_ckpt_latest(self._open(), below, ctypes.byref(step)))
        except FileNotFoundError:
            return None
        return step.value

    def save(self, step: int, state: Any, *, per_rank: Any = None, wait: bool = False) -> int:
        """Saves `state`, the same on all ranks but for pieces, and `per_rank`, of which
        each has its own (no tensors in it). `wait`: until it is on the disk, with an
        agent; without one it is anyway. Returns the number of the save."""
        handle = self._open()
        tree, tensors = _tree.flatten(state, _arrays.library_of)
        shapes = self._register(tensors, is_written=False)
        own = _tree.flatten(per_rank, lambda v: "")[0]
        self._blob(TREE, json.dumps({"v": 1, "tree": tree, "tensors": shapes}).encode(), lib.REPLICATED)
        self._blob(OWN_TREE, json.dumps(own).encode(), lib.PER_RANK)
        number = ctypes.c_uint64()
        flags = lib.WAIT if wait else 0
        self._check(self._lib.muster_ckpt_save(handle, step, flags, ctypes.byref(number)))
        return number.value

    def is_durable(self, save: int = 0) -> bool:
        """Whether that save (0: the newest) is on the disk; raises what it failed of."""
        return self._check(self._lib.muster_ckpt_test(self._open(), save, lib.DURABLE)) > 0

    def wait(self, save: int = 0, timeout: Optional[float] = None) -> None:
        """Until that save is on the disk. TimeoutError."""
        ms = -1 if timeout is None else int(timeout * 1000)
        self._check(self._lib.muster_ckpt_wait(self._open(), save, lib.DURABLE, ms))

    def load(self, step: Optional[int] = None, *, into: Any = None) -> Optional[Loaded]:
        """The checkpoint of `step`, or the newest that is whole; None: there is none.

        Tensors and arrays of `into`, a state as for save(), are filled in place and are
        those of the result; what is no tensor comes from the checkpoint. All others are
        made anew, whole, on the CPU. Damaged ones are passed over, with a warning.
        """
        templates = _tree.flatten(into, _arrays.library_of)[1] if into is not None else {}
        below = lib.LATEST if step is None else step + 1
        passed = 0
        while True:
            found = self.latest(below)
            if found is None or (step is not None and found != step):
                if passed:
                    raise CheckpointError(84, f"no checkpoint is whole; {passed} passed over")  # EILSEQ
                if step is not None:
                    raise _NotFound(2, f"no checkpoint of step {step}")  # ENOENT
                return None
            try:
                return self._load_one(found, templates, passed)
            except CheckpointError as error:
                if error.errno != 84:
                    raise
                _log.warning("muster: passed over: %s", error.strerror)
                passed += 1
                below = found

    # --- the rest is between these and the library ---

    def _load_one(self, step: int, templates: Dict[str, Any], passed: int) -> Loaded:
        # What one rank cannot read is no checkpoint for all: load() tells them.
        problem: Optional[CheckpointError] = None
        described: Dict[str, Any] = {"tree": ["value", None], "tensors": {}}
        own: Any = None
        tensors: Dict[str, Any] = {}
        try:
            described = json.loads(self._read_blob(step, TREE))
            for name, library in _tree.tensors_of(described["tree"]):
                dtype, shape = described["tensors"][name]
                tensors[name] = templates[name] if name in templates else _arrays.empty(dtype, shape, library)
            own = self._read_own(step)
        except CheckpointError as error:
            problem = error
        tensors.update({name: t for name, t in templates.items() if name not in tensors})
        self._register(tensors, is_written=True)
        got = ctypes.c_int64()
        flags = lib.CANNOT if problem is not None else 0
        rc = self._lib.muster_ckpt_load(self._open(), step, flags, ctypes.byref(got))
        if problem is not None:
            raise problem
        count = self._check(rc)
        whole = {n: t.local if isinstance(t, Piece) else t for n, t in tensors.items()}
        return Loaded(step, _tree.build(described["tree"], whole), own, passed + count)

    def _read_own(self, step: int) -> Any:
        try:
            return _tree.build(json.loads(self._read_blob(step, OWN_TREE)), {})
        except CheckpointError as error:
            if error.errno == 61:  # ENODATA: there were fewer ranks
                return None
            raise

    def _read_blob(self, step: int, name: str) -> bytes:
        length = ctypes.c_size_t()
        read = self._lib.muster_ckpt_read_blob
        self._check(read(self._open(), step, name.encode(), None, 0, ctypes.byref(length)))
        to = ctypes.create_string_buffer(max(length.value, 1))
        self._check(read(self._open(), step, name.encode(), to, length.value, ctypes.byref(length)))
        return to.raw[: length.value]

    def _register(self, tensors: Dict[str, Any], is_written: bool) -> Dict[str, Tuple[str, List[int]]]:
        self._check(self._lib.muster_ckpt_clear(self._open()))
        self._held = []
        shapes = {}
        for name, value in tensors.items():
            piece = value if isinstance(value, Piece) else None
            memory = _arrays.memory_of(name, piece.local if piece else value, is_written)
            shape = list(piece.shape if piece else memory.shape)
            shapes[name] = (lib.DTYPES[memory.dtype], shape)
            self._held.append(memory.keep)
            self._tensor(name, memory, shape, piece)
        return shapes

    def _tensor(self, name: str, memory: _arrays.Memory, shape: List[int], piece: Optional[Piece]) -> None:
        n = len(shape)
        t = lib.Tensor(name=name.encode(), dtype=memory.dtype, n_dims=n, data=memory.address)
        t.shape = lib.numbers(ctypes.c_uint64, shape)
        if piece is not None and piece.flat is not None:
            count = 1
            for length in memory.shape:
                count *= length
            t.is_flat, t.flat_begin, t.flat_end = 1, piece.flat, piece.flat + count
        else:
            if len(memory.shape) != n:
                raise ValueError(f"'{name}': a piece of {len(memory.shape)} dimensions of a tensor of {n}")
            t.at = lib.numbers(ctypes.c_uint64, (piece.at if piece and piece.at else [0] * n))
            t.len = lib.numbers(ctypes.c_uint64, memory.shape)
            t.strides = lib.numbers(ctypes.c_int64, memory.strides)
        self._check(self._lib.muster_ckpt_tensor(self._open(), ctypes.byref(t)))

    def _blob(self, name: str, data: bytes, kind: int) -> None:
        buffer = ctypes.create_string_buffer(data, len(data))
        self._held.append(buffer)
        self._check(self._lib.muster_ckpt_blob(self._open(), name.encode(), buffer, len(data), kind))

    def _open(self) -> int:
        if self._handle is None:
            raise ValueError("these checkpoints are closed")
        return self._handle

    def _check(self, rc: int) -> int:
        if self._failures:
            raise self._failures.pop()
        if rc >= 0:
            return int(rc)
        text = self._lib.muster_ckpt_error_text(self._open()).decode("utf-8", "replace")
        if -rc == 2:
            raise _NotFound(2, text)
        if -rc == 110:
            raise TimeoutError(110, text)
        raise CheckpointError(-rc, text or os.strerror(-rc))


class _NotFound(CheckpointError, FileNotFoundError):
    pass
