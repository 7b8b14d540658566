# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of libmuster, with its errors as exceptions, and what is registered
there: tensors by name, in the parts that this rank has."""

import atexit
import contextlib
import ctypes
import logging
import os
import threading
import warnings
import weakref
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from .. import _arrays, _libckpt as lib, _placed
from ._group import Group, is_torch_initialized, torch_ranks

ENOENT, EFAULT, EBUSY, EINVAL, EDEADLK, ENODATA, EILSEQ, EOPNOTSUPP, ETIMEDOUT = 2, 14, 16, 22, 35, 61, 84, 95, 110
# As muster_ckpt_load() has it: what is asked for is not what a checkpoint has (ENODATA,
# EINVAL), or this process lacks something (ENOMEM, EMFILE, ENFILE, EACCES, EPERM, and
# EREMOTEIO: a GPU).
NO_DAMAGE = (ENODATA, EINVAL, 12, 24, 23, 13, 1, 121)

TAKEN = "this worker is in them already"  # what an agent says to another process than the worker

REFUSALS = {"save": lib.REFUSE, "load": lib.UNFIT}

Box = Tuple[Sequence[int], Sequence[int]]  # its corner, and its lengths


_log = logging.getLogger("muster")


class CheckpointError(OSError):
    """`errno` says what kind, and the text which rank and which file."""


class NotFound(CheckpointError, FileNotFoundError):
    """There is no such checkpoint."""


class KeysError(CheckpointError, RuntimeError):
    """Names of tensors are not those of the checkpoint: which in `missing_keys` and
    `unexpected_keys`."""

    def __init__(self, step: int, missing: Sequence[str], unexpected: Sequence[str]) -> None:
        told = [
            f"{what} key(s): " + ", ".join(f'"{k}"' for k in keys)
            for what, keys in (("Missing", missing), ("Unexpected", unexpected))
            if keys
        ]
        super().__init__(ENODATA, f"the checkpoint of step {step}: " + "; ".join(told))
        self._step = step
        self.missing_keys = list(missing)
        self.unexpected_keys = list(unexpected)

    def __reduce__(self) -> Tuple[Any, ...]:  # OSError's has other arguments
        return type(self), (self._step, self.missing_keys, self.unexpected_keys)


class Registered(NamedTuple):
    dtype: str  # as files name it
    shape: List[int]


_lock = threading.RLock()
_joined: Optional[int] = None
_sharing: "weakref.WeakSet[Handle]" = weakref.WeakSet()  # who uses it
_all: "weakref.WeakSet[Handle]" = weakref.WeakSet()


def _join(library: ctypes.CDLL) -> int:
    """This process among the workers of the run: once, until it ends. A worker takes
    part in their collectives with one connection only, which all handles share."""
    global _joined
    if _joined is None:
        muster = ctypes.c_void_p()
        rc = library.muster_init(ctypes.byref(muster))
        if rc < 0 or muster.value is None:
            raise CheckpointError(-rc, f"join the workers of the run: {os.strerror(-rc)}")
        _joined = muster.value
    return _joined


def _leave() -> None:
    """The process ends. Where a daemon thread is in a call, what it uses stays, and goes with
    the process: nobody waits for it."""
    global _joined
    if not _lock.acquire(blocking=False):
        return
    try:
        if all([handle.close_unless_busy() for handle in list(_all)]):
            joined, _joined = _joined, None
            if joined is not None:
                lib.library().muster_finalize(joined)
    finally:
        _lock.release()


def _forked() -> None:
    """In a child, which is not that worker."""
    global _lock, _joined
    _lock, _joined = threading.RLock(), None
    for handle in list(_all):
        handle.forked()


atexit.register(_leave)
os.register_at_fork(after_in_child=_forked)


def _path_of(where: Optional[bytes]) -> str:
    """As the library takes it, to be shown."""
    path = os.environ.get("MUSTER_CHECKPOINT_DIR", "") if where is None else os.fsdecode(where)
    return os.path.abspath(path[4:] if path.startswith("dir:") else path)


def _is_of_run() -> bool:
    return bool(os.environ.get("MUSTER_SOCKET"))


_told: Set[str] = set()


def _tell_what_is_ignored(group: Optional[Group], options: lib.Options) -> None:
    """Once, by one rank: what the program has said, and is of no effect in a run."""
    if not _is_of_run():
        return
    if group is not None:
        if group[0] == 0:
            _warn(
                "Checkpoints(group=...) in a run: its ranks write themselves, without an agent, and due() tells "
                "of no request, no stop and no interval of the job: expected no group, for the workers of the run"
            )
    elif (options.keep or options.keep_every or options.keep_best) and os.environ.get("MUSTER_RANK", "0") == "0":
        _warn(
            "keep, keep_every and keep_best of Checkpoints() say nothing of what agents of a run write: "
            "expected checkpoint.keep (3 where it is not given), keepEvery and keepBest in the job"
        )


def _tell_who_is_alone(group: Optional[Group]) -> None:
    """Once, by one of those whom torchrun has started, and who do not know of each other: each of
    them saves what it has, into one directory."""
    env = os.environ
    if group is not None or _is_of_run() or env.get("MUSTER_SEAT") or is_torch_initialized():
        return
    if "TORCHELASTIC_RUN_ID" in env and env.get("RANK") == "0" and env.get("WORLD_SIZE", "1") != "1":
        _warn(
            "torch.distributed is not initialized, and each process of torchrun saves and loads by itself: expected "
            "Checkpoints() after init_process_group(), or with group=(0, 1, lambda data: [data]) by one process alone"
        )


def _warn(text: str) -> None:
    if text not in _told:
        _told.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=5)


def as_text(name: str) -> bytes:
    """As the library takes it, to which a zero byte is the end."""
    if "\0" in name:
        raise ValueError(f"{name!r}: expected a name without zero bytes")
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name!r}: expected a name without halves of surrogate pairs") from None


def shown(value: Any) -> str:
    """For errors: Python writes no whole number of thousands of digits."""
    try:
        return f"{value!r:.60}"
    except ValueError:
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"


def _unmap(library: ctypes.CDLL, view: Any) -> None:
    with _lock:
        library.muster_ckpt_unmap(view)


Pending = List[Tuple[int, int]]  # none, or one: the number and step of a lazy save


def _tell_unfenced(library: ctypes.CDLL, handle: int, pending: Pending) -> None:
    """Of a handle that is about to be closed: what is made at the fence is lost without it."""
    while pending:
        number, step = pending.pop()
        if library.muster_ckpt_wait(handle, number, lib.LEVELS["memory"], 1) == -EDEADLK:
            _log.warning(
                "muster: the lazy save of step %d is lost: without an agent it is made by fence(), on all ranks: "
                "expected that after the last save, too",
                step,
            )


def _drop(library: ctypes.CDLL, handle: int, pending: Pending) -> None:
    with _lock:
        _tell_unfenced(library, handle, pending)
        library.muster_ckpt_close(handle)


class Handle:
    """One muster_ckpt. Memory that is registered is kept until the next clear(). What is
    registered is so for one call: who registers, calls and clears is alone()."""

    def __init__(self, path: Optional["os.PathLike[str] | str"], options: lib.Options, group: Optional[Group]) -> None:
        _tell_what_is_ignored(group, options)
        _tell_who_is_alone(group)
        group = torch_ranks() if group is None and not _is_of_run() else group
        self._lib = lib.library()
        self._held: List[Any] = []
        self._after: List[Callable[[], None]] = []  # once all is filled
        self._checks: List[Callable[[], None]] = []  # and then
        self._read: List[Tuple[str, Any, int]] = []  # by name, what a save reads, and where
        self._written: List[Any] = []
        self._failures: List[BaseException] = []
        self._handle: Optional[int] = None
        self._turn, self._is_inside = threading.RLock(), False
        self._group: Optional[lib.Group] = None
        self.pending: Pending = []
        handle = ctypes.c_void_p()
        where = os.fsencode(path) if path is not None else None
        if where is not None and b"\0" in where:
            raise ValueError(f"{path!r}: expected a path without zero bytes")
        self.path = _path_of(where)
        with _lock:
            muster = None
            if group is not None:
                self._group = lib.Group(group[0], group[1], lib.allgather(group[2], group[1], self._failures), None)
            elif _is_of_run() or os.environ.get("MUSTER_SEAT"):  # of muster exec: not alone, and no agent
                muster = _join(self._lib)
            rc = self._lib.muster_ckpt_open(
                muster,
                ctypes.byref(self._group) if self._group else None,
                where,
                ctypes.byref(options),
                ctypes.byref(handle),
            )
        if handle.value is None:
            raise MemoryError
        self._handle = handle.value
        self._finalizer = weakref.finalize(self, _drop, self._lib, handle.value, self.pending)
        self._finalizer.atexit = False  # _leave() is what closes it then
        _all.add(self)
        if muster is not None:
            _sharing.add(self)
        try:
            self._check(rc)
        except BaseException as error:
            self._close()
            if isinstance(error, NotFound):  # it is no checkpoint that there is not
                raise CheckpointError(ENOENT, error.strerror) from None
            if isinstance(error, CheckpointError) and error.errno == EOPNOTSUPP and TAKEN in str(error.strerror):
                raise CheckpointError(
                    EOPNOTSUPP,
                    f"{error.strerror}: a process that it has started is not that worker, and opens checkpoints with "
                    "group=(0, 1, lambda data: [data])",
                ) from None
            raise

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Other threads wait until it is over. That in which it is does not: what a signal
        handler calls, or a group's gather(), would be in the midst of it."""
        with self._turn:
            if self._is_inside:
                raise CheckpointError(
                    EDEADLK,
                    "this thread is in another call of these checkpoints, as a signal handler may be: expected "
                    "it behind that call, for instance by a flag that is looked at there",
                )
            self._is_inside = True
            try:
                yield
            finally:
                self._is_inside = False

    def tell_unfenced(self) -> None:
        """Once, before it is closed."""
        with _lock:
            _tell_unfenced(self._lib, self._open(), self.pending)

    def is_alone(self) -> bool:
        """Whether this is the only rank: it need not wait for others at a fence."""
        if self._group is not None:
            return bool(self._group.world == 1)
        return not os.environ.get("MUSTER_SEAT") and os.environ.get("MUSTER_WORLD_SIZE", "1") == "1"

    def close(self) -> None:
        with self.alone():
            self._close()

    def close_unless_busy(self) -> bool:
        if not self._turn.acquire(blocking=False):
            return False
        try:
            self._close()
        finally:
            self._turn.release()
        return True

    def forked(self) -> None:
        """In a child, where nobody else is in a call, and of whose parent a lazy save is."""
        self._turn, self._is_inside = threading.RLock(), False
        self.pending.clear()

    def _close(self) -> None:
        with _lock:
            if self._finalizer.detach() is not None:  # which does nothing any more once Python ends
                _tell_unfenced(self._lib, self._open(), self.pending)
                self._lib.muster_ckpt_close(self._handle)
        self._handle = None
        self._let_go()

    def call(self, name: str, *arguments: Any) -> int:
        """What muster_ckpt_NAME() returns, if that is no failure."""
        assert "muster_ckpt_" + name in lib.SIGNATURES  # without, ctypes cuts pointers
        for value in arguments:  # ctypes takes what is left of it in 64 bits
            if isinstance(value, float):
                raise TypeError(f"{name}: expected a whole number, not {value}")
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise ValueError(f"{name}: {shown(value)} is too large a number")
        function = getattr(self._lib, "muster_ckpt_" + name)
        with _lock:
            return self._check(function(self._open(), *arguments))

    def note(self) -> str:
        """What the last call, which went well, has to say."""
        with _lock:
            return str(self._lib.muster_ckpt_error_text(self._open()).decode("utf-8", "replace"))

    def passed_over(self) -> Tuple[int, str]:
        """How many damaged ones the last load or latest has, and what is wrong with them."""
        why = ctypes.c_char_p()
        n = self.call("passed_over", ctypes.byref(why))
        return n, (why.value or b"").decode("utf-8", "replace")

    def outlive_sigterm(self) -> None:
        """Who asks whether to stop means to leave by itself."""
        with _lock:
            if self in _sharing and _joined is not None:
                self._lib.muster_should_stop(_joined)

    def refuse(self, name: str) -> None:
        """This rank cannot do its part of that call: the others, which are in it or come to it,
        fail of it there. What is wrong is for the caller to raise."""
        with contextlib.suppress(Exception):
            self.clear()
            self.call(name, 0, REFUSALS[name], None)

    def clear(self) -> None:
        self.call("clear")
        self._let_go()

    def _let_go(self) -> None:
        self._held, self._after, self._checks, self._read, self._written = [], [], [], [], []

    def moved(self) -> Optional[str]:
        """The name of what is to be saved, and has no longer the memory that it had then."""
        return next((name for name, value, address in self._read if _arrays.is_moved(value, address)), None)

    def register(
        self, tensors: Dict[str, Any], is_written: bool, tied: Dict[str, str]
    ) -> Tuple[Dict[str, Registered], Dict[str, str]]:
        """All of them, and nothing else. `tied`: names of what another one stands for in
        the checkpoint. Returns such names for those here, too: of whole ones only, as of
        others it is not the same on all ranks, where some have nothing of them."""
        self.clear()
        first: Dict[Any, Tuple[str, Any]] = {}  # who has a place in memory
        registered: Dict[str, Registered] = {}
        ties: Dict[str, str] = {}
        plain = _PlainTensors(self)
        known_of = {name: _arrays.plain_of(value) for name, value in tensors.items()}
        placed, tangled = _look(tensors, known_of) if is_written else ({}, set())
        for name, value in tensors.items():
            known = known_of[name]
            if known is not None and not is_written:
                other = first.setdefault(known.place, (name, value))
                if other[0] != name:
                    ties[name] = other[0]
                kept = value.detach()  # as memory_of() does it
                self._held.append(kept)
                self._read.append((name, kept, known.place[0]))
                registered[name] = plain.register(name, known)
                continue
            if known is not None and id(value) not in tangled and first.setdefault(known.place, (name, value))[0] == name:
                self._held.append(value)
                self._written.append(value)
                registered[name] = plain.register(name, known)
                continue
            shape, parts = placed[name] if name in placed else _placed.parts_of(name, value)
            dtype = _arrays.dtype_of(name, value)
            registered[name] = Registered(lib.DTYPES[dtype], shape)
            for part in parts:
                local = part.local
                memory = _arrays.memory_of(name, local, is_written, part.flat is not None, self._is_device)
                if memory.place is not None and (is_written or _placed.is_whole(value)):
                    other = first.setdefault(memory.place, (name, local))
                    if not is_written:
                        if other[0] != name:
                            ties[name] = other[0]
                    elif other[0] != name:
                        if tied.get(name) == tied.get(other[0], other[0]):
                            continue  # the same there
                        memory = self._beside(name, part, *other)
                    elif id(local) in tangled:
                        memory = self._apart(name, part)
                self._held.append(memory.keep)
                if is_written:
                    self._written.append(local)
                elif memory.place is not None:
                    self._read.append((name, memory.keep, memory.address))
                if memory.after is not None:
                    self._after.append(memory.after)
                self._tensor(name, memory, shape, part)
        return registered, ties

    def filled(self) -> None:
        """After a load: what was not loaded into its place goes there."""
        after, self._after = self._after + self._checks, []
        self._checks = []
        for put in after:
            put()
        _arrays.was_written(self._written)

    def blob(self, name: str, data: bytes, kind: int) -> None:
        buffer = ctypes.create_string_buffer(data, len(data))
        self._held.append(buffer)
        self.call("blob", as_text(name), buffer, len(data), kind)

    def read_blob(self, step: int, name: str) -> bytes:
        size, length = -1, ctypes.c_size_t()
        while size < length.value:  # that of the next one of that step may be longer
            size = length.value
            to = ctypes.create_string_buffer(max(size, 1))
            self.call("read_blob", step, as_text(name), to, size, ctypes.byref(length))
        return to.raw[: length.value]

    def read(self, step: int, name: str, tensor: Any) -> None:
        """Fills a whole tensor, by this rank alone."""
        shape, parts = _placed.parts_of(name, tensor)
        memory = _arrays.memory_of(name, tensor, True, is_device=self._is_device)
        self.call("read", step, ctypes.byref(self._described(name, memory, shape, parts[0])))
        if memory.after is not None:
            memory.after()

    def map(self, step: int, name: str, kind: Registered, flags: int, box: Optional[Box] = None) -> Any:
        """The bytes of a tensor, or of a box of it, mapped as long as anybody has them."""
        t = lib.Tensor(name=as_text(name), dtype=lib.DTYPES.index(kind.dtype), n_dims=len(kind.shape))
        t.shape = lib.numbers(ctypes.c_uint64, tuple(kind.shape))
        if box is not None:
            t.at, t.len = (lib.numbers(ctypes.c_uint64, tuple(n)) for n in box)
        view = ctypes.POINTER(lib.View)()
        self.call("map", step, ctypes.byref(t), flags, ctypes.byref(view))
        mapped = (ctypes.c_uint8 * view.contents.bytes).from_address(view.contents.data)
        weakref.finalize(mapped, _unmap, self._lib, view).atexit = False
        return mapped

    # --- the rest is between these and the library ---

    def _is_device(self, address: int) -> bool:
        return self.call("is_device", address) > 0

    def _beside(self, name: str, part: _placed.Part, other_name: str, other: Any) -> _arrays.Memory:
        """Memory to load into for what has the place of another: both have to be the
        same in the checkpoint."""
        own = _arrays.clone(part.local)

        def compare() -> None:
            if not _arrays.is_same(own, other):
                raise ValueError(f"'{other_name}' and '{name}' are the same memory here, and differ in the checkpoint")

        self._after.append(compare)
        return _arrays.memory_of(name, own, True, in_order=part.flat is not None)

    def _apart(self, name: str, part: _placed.Part) -> _arrays.Memory:
        """Memory to load into for what reaches into the memory of others. All go to their
        places then, and where each is what it was no two of them contradict each other."""
        own, local = _arrays.clone(part.local), part.local

        def compare() -> None:
            if not _arrays.is_same(own, local):
                raise ValueError(
                    f"'{name}' and another tensor overlap in memory here, and differ there in the checkpoint: "
                    "expected memory of their own"
                )

        self._after.append(lambda: _arrays.put(local, own))
        self._checks.append(compare)
        return _arrays.memory_of(name, own, True, in_order=part.flat is not None)

    def _tensor(self, name: str, memory: _arrays.Memory, shape: List[int], part: _placed.Part) -> None:
        self.put_tensor(self._described(name, memory, shape, part))

    def put_tensor(self, described: Any) -> None:
        """One of lib.Tensor, or a reference to it."""
        with _lock:
            self._check(self._lib.muster_ckpt_tensor(self._open(), described))

    def _described(self, name: str, memory: _arrays.Memory, shape: List[int], part: _placed.Part) -> lib.Tensor:
        t = lib.Tensor(name=as_text(name), dtype=memory.dtype, n_dims=len(shape), data=memory.address)
        t.shape = lib.numbers(ctypes.c_uint64, tuple(shape))
        if part.flat is not None:
            count = 1
            for length in memory.shape:
                count *= length
            t.is_flat, t.flat_begin, t.flat_end = 1, part.flat, part.flat + count
        else:
            if list(memory.shape) != shape or any(part.at):  # all of it is what it has without
                t.at = lib.numbers(ctypes.c_uint64, tuple(part.at))
                t.len = lib.numbers(ctypes.c_uint64, memory.shape)
            if memory.strides is not None:
                t.strides = lib.numbers(ctypes.c_int64, memory.strides)
        return t

    def _open(self) -> int:
        if self._handle is None:
            raise ValueError("these checkpoints are closed")
        return self._handle

    def _check(self, rc: int) -> int:
        if self._failures:  # the first is why; the others came of it
            failure = self._failures[0]
            self._failures.clear()
            raise failure
        if rc >= 0:
            return int(rc)
        text = self._lib.muster_ckpt_error_text(self._open()).decode("utf-8", "replace")
        if -rc == ENOENT:
            raise NotFound(ENOENT, text)
        if -rc == ETIMEDOUT:
            raise TimeoutError(ETIMEDOUT, text)
        raise CheckpointError(-rc, text or os.strerror(-rc))


def _look(
    tensors: Dict[str, Any], known_of: Dict[str, Optional[_arrays.Plain]]
) -> Tuple[Dict[str, Tuple[List[int], List[_placed.Part]]], Set[int]]:
    """Before anything of them is loaded: what is here of those that are not plain, and which of
    all, by id(), reach into the memory of others."""
    placed: Dict[str, Tuple[List[int], List[_placed.Part]]] = {}
    there: List[Tuple[Any, Optional[_arrays.Extent]]] = []
    for name, value in tensors.items():
        known = known_of[name]
        if known is not None:
            there.append((value, _arrays.extent_of(value, known)))
            continue
        placed[name] = _placed.parts_of(name, value)
        there += [(part.local, _arrays.extent_of(part.local)) for part in placed[name][1]]
    return placed, {id(there[i][0]) for i in _arrays.entangled([extent for _, extent in there])}


class _PlainTensors:
    """Registers them as Handle._tensor() does: by one structure for all, of which what is as for
    the one before stays as it is. States have long rows of the same types and shapes."""

    def __init__(self, handle: Handle):
        self._handle = handle
        self._tensor = lib.Tensor()
        self._by_reference = ctypes.byref(self._tensor)
        self._before: Any = None
        self._kind = Registered("", [])

    def register(self, name: str, known: _arrays.Plain) -> Registered:
        address, shape, _ = known.place
        t = self._tensor
        if self._before != (known.dtype, shape):
            t.dtype, t.n_dims, t.shape = known.dtype, len(shape), lib.numbers(ctypes.c_uint64, shape)
            self._before = known.dtype, shape
            self._kind = Registered(lib.DTYPES[known.dtype], list(shape))
        t.name, t.data = as_text(name), address
        self._handle.put_tensor(self._by_reference)
        return self._kind
