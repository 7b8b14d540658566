# SPDX-License-Identifier: Apache-2.0
"""Saving and loading nested states: what has a name and memory goes to the library as
tensors, and what they hang on as a description in JSON, which is a blob."""

import contextlib
import ctypes
import enum
import json
import logging
import math
import operator
import os
import re
from types import TracebackType
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Type, overload

from .. import _arrays, _collector, _libckpt as lib, _placed, _tree
from ._group import Group
from ._handle import EBUSY, EFAULT, EILSEQ, EINVAL, ENODATA, ENOENT, NO_DAMAGE, Box, CheckpointError, Handle, KeysError, NotFound, Registered, as_text, shown

TREE = "python.tree"
OWN_TREE = "python.tree.rank"
METRICS = "metrics"
STILL = "still on its way"  # what the library says of a save that has not failed
WAIT_MS = 1000
UNDERWAY = "was saved by this process, and is not on the disk yet: expected wait() before"

_log = logging.getLogger("muster")


class Due(enum.IntFlag):
    """Why a checkpoint is due."""

    STEPS = 1
    SECONDS = 2
    REQUESTED = 4  # muster checkpoint RUN
    STOPPING = 8  # the run is being stopped: the last chance
    AUTO = 16  # the job, or muster, by what saves and failures cost


class Loaded(NamedTuple):
    step: int
    state: Any
    per_rank: Any  # of the rank of this number, or None
    passed_over: int  # damaged ones that were newer
    missing_keys: List[str]  # names in `into` that the checkpoint has not
    unexpected_keys: List[str]  # and the other way round


class Passed:
    """What a load from the directory `path` has passed over so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.n = 0
        self.why: List[str] = []
        self.newest = -1  # of the steps that were tried

    def add(self, n: int, why: str) -> None:
        if n > 0:
            self.n += n
            self.why.append(why)

    def add_and_tell(self, n: int, why: str) -> None:
        self.add(n, why)
        if n > 0:
            _log.warning("muster: passed over: %s", why)

    def forget(self, newest: int) -> None:
        """All of them are older than that one."""
        self.n, self.why, self.newest = 0, [], newest

    def error(self) -> CheckpointError:
        """There is no other one. Worded as by the library."""
        text = f"no checkpoint in {self.path} is whole (muster ckpt verify {self.path} tells of each)"
        return CheckpointError(EILSEQ, f"{text}; {self.n} passed over; {'; '.join(self.why)}")


class _Template(NamedTuple):
    """What is to be filled, and its tensors by name."""

    state: Any
    tensors: Dict[str, Any]


class _Wanted(NamedTuple):
    """What a load fills, by what there is."""

    tensors: Dict[str, Any]
    missing: List[str]
    unexpected: List[str]

    @classmethod
    def of(
        cls, described: Dict[str, Any], into: Optional[Dict[str, Any]], spoilt: Set[str], strict: Optional[bool]
    ) -> "_Wanted":
        """What can no longer be left as it was is asked for where it is missing, too: all ranks
        are refused together."""
        there = dict(_tree.tensors_of(described["tree"]))
        templates = into or {}
        missing = [name for name in templates if name not in there]
        others = [name for name in there if name not in templates]
        tensors = {name: t for name, t in templates.items() if name in there or name in spoilt}
        if into is None or strict is None:
            tensors.update(_made_anew(described, [(name, there[name]) for name in others], described.get("ties", {})))
        return cls(tensors, missing, others if into is not None else [])


def _whole(value: Any, also: str = "", what: str = "step") -> int:
    """Of what counts as one, an array's element among them."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: expected a whole number{also}, found {value!r:.60}") from None


def _step_to_save(value: Any) -> int:
    step = _whole(value)
    if step >> 63 not in (0, -1):
        raise ValueError(f"step: {shown(step)} is too large a number")
    if step < 0 or step == lib.LATEST:
        raise CheckpointError(EINVAL, f"save: step {step}: expected one from 0 to 2**63 - 2")
    return step


class Checkpoints:
    """The checkpoints in a directory, which all ranks see.

    A call of one thread waits until those of others are over; ranks make them in the
    same order all the same, so as a rule from one thread. Within a call, as from a signal
    handler, save(), load() and most others raise CheckpointError with EDEADLK; is_durable()
    and should_stop() do not.

    `path`: None is the environment's MUSTER_CHECKPOINT_DIR. `keep`: how many of the
    newest stay after a save that the ranks write themselves (0: all), besides those of
    each `keep_every`th step, and the best by a number of save(metrics=):
    `keep_best="metrics.loss"` is the one with the lowest, and "metrics.accuracy:max" with
    the highest. Of what agents of a run write the job says it (checkpoint.keep, 3 by default).
    `every_steps`, `every_seconds`: what due() goes by; neither: what the job says
    (checkpoint.every), and outside of a run nothing is due, ever. `group`: (rank, world,
    gather), where gather(bytes) returns those of all ranks; None: the workers of the run,
    without one all ranks of torch.distributed, and else this process alone.
    """

    def __init__(
        self,
        path: Optional["os.PathLike[str] | str"] = None,
        *,
        keep: int = 0,
        keep_every: int = 0,
        keep_best: Optional[str] = None,
        every_steps: int = 0,
        every_seconds: float = 0.0,
        group: Optional[Group] = None,
    ) -> None:
        for name, value, bits in (("keep", keep, 31), ("keep_every", keep_every, 63), ("every_steps", every_steps, 63)):
            if _whole(value, what=name) >> bits not in (0, -1):  # ctypes takes what is left of it
                raise ValueError(f"{name}: {shown(value)} is too large a number")
        if keep_best is not None and not isinstance(keep_best, str):
            raise TypeError(f"keep_best: expected the name of a metric, found {keep_best!r:.60}")
        best = None if keep_best is None else as_text(keep_best)
        options = lib.Options(ctypes.sizeof(lib.Options), every_steps, every_seconds, keep, 0, keep_every, best)
        self._handle = Handle(path, options, group)
        self._last_save: Optional[Tuple[int, int]] = None  # number and step of the last save

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Of a lazy save without its fence() what it has failed of here is told by the
        logger "muster"."""
        with contextlib.suppress(ValueError):  # it is closed
            with self._handle.alone(), self._telling():
                if self._lazy is not None and self._handle.is_alone():
                    with contextlib.suppress(CheckpointError):  # which is told below
                        self._handle.call("fence")
                elif self._lazy is not None:
                    self._handle.tell_unfenced()
        self._handle.close()

    @property
    def _lazy(self) -> Optional[Tuple[int, int]]:
        """The number and step of a lazy save, until its fence."""
        return self._handle.pending[0] if self._handle.pending else None

    @_lazy.setter
    def _lazy(self, pending: Optional[Tuple[int, int]]) -> None:
        self._handle.pending[:] = [] if pending is None else [pending]

    def due(self, step: int) -> Due:
        """Not 0 where a checkpoint is due after `step`; the same on all ranks.

        Asks muster, too: it takes the place of muster.checkpoint_requested() and
        muster.should_stop(), and of agreeing on them. SIGTERM comes with the word to
        stop: from the first due() or should_stop() on, a program without a handler of
        its own does not die of it.
        """
        step = _whole(step)
        with self._handle.alone():
            return Due(self._handle.call("due", step))

    def should_stop(self) -> bool:
        """Whether the run is being stopped, as due() last saw; the same on all ranks."""
        self._handle.outlive_sigterm()
        return self._handle.call("should_stop", None) > 0

    def latest(self, below: int = lib.LATEST) -> Optional[int]:
        """The newest step below one, or None. What does not open is passed over, without
        a word; CheckpointError with EILSEQ: there are only damaged ones."""
        below = _whole(below, what="below")
        with self._handle.alone(), self._telling():
            return self._latest(below)

    def _latest(self, below: int) -> Optional[int]:
        step = ctypes.c_int64()
        try:
            self._handle.call("latest", below, ctypes.byref(step))
        except NotFound:
            return None
        return step.value

    @overload
    def save(
        self,
        step: int,
        state: Any,
        *,
        per_rank: Any = None,
        wait: bool = False,
        lazy: bool = False,
        metrics: Optional[Mapping[str, float]] = None,
    ) -> int: ...

    @overload
    def save(
        self,
        step: int,
        state: Any,
        *,
        per_rank: Any = None,
        wait: bool = False,
        lazy: bool = False,
        metrics: Optional[Mapping[str, float]] = None,
        skip: bool,
    ) -> Optional[int]: ...

    def save(
        self,
        step: int,
        state: Any,
        *,
        per_rank: Any = None,
        wait: bool = False,
        lazy: bool = False,
        metrics: Optional[Mapping[str, float]] = None,
        skip: bool = False,
    ) -> Optional[int]:
        """Saves `state`, the same on all ranks but for parts of tensors, and `per_rank`,
        of which each has its own: values, and small tensors and arrays, as the state of a
        generator of random numbers is; they come back on the CPU. `wait`: until it is on the disk,
        with an agent; without one it is anyway. Returns the number of the save.

        `lazy`: returns before tensors on the CPU and on CUDA devices are copied, which a
        thread does until the fence(). They may be read until then, and not be changed, nor
        freed or resized, as FSDP does with what it has gathered (reshard()); those on other devices, and numbers and text, are as they were at save().

        `metrics`: numbers, the same on all ranks, by which the best checkpoint is kept:
        {"loss": 0.3} is `metrics.loss` to keep_best, checkpoint.keepBest and muster ckpt
        prune.

        `skip`: where a rank would have to wait for earlier saves of its to be on the
        disk, none saves, and the result is None; unless the run is being stopped. Without it
        such a save waits for 60 s; then it is CheckpointError with EBUSY, no checkpoint was made,
        and the program may go on, and save later."""
        with self._handle.alone(), self._telling():
            with self._or_refused("save"), _collector.paused():
                tree, tensors = _tree.flatten(state, _arrays.library_of)
            try:
                return self._save_tensors(step, {"tree": tree}, tensors, per_rank, wait, lazy, metrics, skip)
            except CheckpointError as error:
                if not skip or error.errno != EBUSY:
                    raise
                return None

    def fence(self) -> None:
        """Until what a lazy save is of may be changed, as by optimizer.step(). All
        ranks together, after such a save; else it does nothing. Raises what the save
        failed of, and CheckpointError with EFAULT where memory of it was freed. The next
        save(), load() and latest() begin with it, and so does close() for one rank alone:
        what it failed of is told by the logger "muster" then."""
        with self._handle.alone():
            lazy, self._lazy = self._lazy, None
            moved = None if lazy is None else self._handle.moved()
            self._handle.call("fence")
            self._tell_note()
            self._handle.clear()
            if lazy is not None and moved is not None:
                raise _freed(moved, lazy[1])

    def is_durable(self, save: int = 0, *, level: str = "disk") -> bool:
        """Whether that save (0: the newest) is on the disk, or has come to another level,
        see wait(); raises what it failed of, and where it is none of the last 64."""
        return self._handle.call("test", _save_number(save), _level(level)) > 0

    def wait(self, save: int = 0, timeout: Optional[float] = None, *, level: str = "disk") -> None:
        """Until that save (0: the newest, and at once where there was none) is on the disk;
        TimeoutError. `level`, what it outlives then:
        "memory", this process; "partner", this node, copied to another host or on the
        disk; "disk"; "remote", the disk, being in the object store of the run
        (checkpoint.store). CheckpointError with ENOTSUP: there is no such level here;
        with ESTALE: a later save was taken to the store instead."""
        save = _save_number(save)
        ms = -1 if timeout is None else _milliseconds(timeout)
        with self._handle.alone():
            while True:  # Ctrl-C is heard in between
                part = ms if 0 <= ms <= WAIT_MS else WAIT_MS
                ms -= part if ms > 0 else 0
                try:
                    self._handle.call("wait", save, _level(level), part)
                    return
                except TimeoutError as error:
                    if ms == 0 or STILL not in str(error):
                        raise

    def load(self, step: Optional[int] = None, *, into: Any = None, strict: Optional[bool] = None) -> Optional[Loaded]:
        """The checkpoint of `step`, or the newest that is whole; None: there is none at
        all. CheckpointError with EILSEQ: there are only damaged ones.

        Tensors and arrays of `into`, a state as for save(), are filled in place and are
        those of the result; what is no tensor comes from the checkpoint. Others are
        made anew, whole, on the CPU. Damaged ones, and those that are removed meanwhile,
        are passed over, with a warning. After an exception `into` may hold anything.

        Where those of `into` overlap in memory, as views of one storage may, each is what
        it was, or, where the checkpoint says two things of one place, ValueError: they
        have undefined values then.

        `strict`: as for load_state_dict(), about the names of tensors. True: those of
        `into` and of the checkpoint are the same, or KeysError. False: those that it
        has not stay as they are, and others of it are left out; but where one that was
        passed over may have filled them, CheckpointError with ENODATA. None: KeysError
        for the first, and others are made anew. The result tells of both.
        """
        with self._handle.alone(), self._telling():
            with self._or_refused("load"), _collector.paused():
                step = None if step is None else _whole(step, ", or None for the newest")
                template = None if into is None else _template_of(into)
                if step is not None and (step < 0 or step == lib.LATEST):
                    raise NotFound(ENOENT, f"no checkpoint of step {shown(step)}")
                if step is not None and step > lib.LATEST:
                    raise ValueError(f"step: {shown(step)} is too large a number")
            found = self._load_or_tell(step, template, strict)
            underway = self._on_its_way() if step is None else None
            if underway is not None and (found is None or found.step < underway):
                which = "nothing" if found is None else f"step {found.step}"
                _log.warning("muster: loaded was %s: step %d %s", which, underway, UNDERWAY)
            return found

    def _load_or_tell(self, step: Optional[int], into: Optional[_Template], strict: Optional[bool]) -> Optional[Loaded]:
        try:
            return self._load(step, into, strict)
        except NotFound as error:
            if step is None or step != self._on_its_way():
                raise
            raise NotFound(ENOENT, f"{error.strerror}: it {UNDERWAY}") from None

    def map(self, step: int, *, writable: bool = False, verify: bool = False) -> Loaded:
        """The checkpoint of `step`, which latest() tells, with tensors that are not copied,
        by this rank alone: mapped from the memory in which this node has what this rank
        has saved, or from the checkpoint's files. All of them are whole; what lies there in
        several pieces is read. See muster_ckpt_map().

            found = checkpoints.latest()
            model.load_state_dict(checkpoints.map(found).state["model"], assign=True)

        They stay as they are, whatever is saved, removed or closed meanwhile, until nobody
        has them any more. Arrays of NumPy are read-only unless `writable`; PyTorch has no
        such tensors. What is written to one nobody else sees. They are not held against
        their digests, but with `verify`, which reads all.
        """
        step = _whole(step, ", as latest() tells")
        with self._handle.alone():
            return self._map_all(step, writable, verify)

    def _map_all(self, step: int, writable: bool, verify: bool) -> Loaded:
        described, own = self._describe(step), self._read_own(step)
        ties = described.get("ties", {})
        mapped: Dict[str, Any] = {}
        for name, library in _tree.tensors_of(described["tree"]):
            if ties.get(name) in mapped:
                mapped[name] = mapped[ties[name]]
                continue
            mapped[name] = self._map(step, name, Registered(*described["tensors"][name]), None, library, writable, verify)
        return Loaded(step, _tree.build(described["tree"], mapped), own, 0, [], [])

    def map_box(
        self,
        step: int,
        name: str,
        at: Sequence[int],
        shape: Sequence[int],
        *,
        library: str = "numpy",
        writable: bool = False,
        verify: bool = False,
    ) -> Any:
        """The same of a box of one tensor, from `at` on, for who has parts of it: an array,
        or with `library="torch"` a tensor."""
        if library not in ("numpy", "torch"):
            raise ValueError(f"library '{library}': expected numpy or torch")
        step = _whole(step, ", as latest() tells")
        with self._handle.alone():
            tensors = self._describe(step)["tensors"]
            if name not in tensors:
                raise KeysError(step, [name], [])
            return self._map(step, name, Registered(*tensors[name]), (at, shape), library, writable, verify)

    def _map(
        self, step: int, name: str, kind: Registered, box: Optional[Box], library: str, writable: bool, verify: bool
    ) -> Any:
        if box is not None and not len(box[0]) == len(box[1]) == len(kind.shape):
            raise ValueError(f"'{name}' has {len(kind.shape)} dimensions, and the box {len(box[0])} and {len(box[1])}")
        flags = (lib.WRITABLE if writable or library == "torch" else 0) | (lib.VERIFY if verify else 0)
        memory = self._handle.map(step, name, kind, flags, box)
        return _arrays.of_bytes(name, memory, kind.dtype, box[1] if box else kind.shape, library, writable)

    # --- what muster.ckpt.dcp uses, too ---

    def save_tensors(
        self,
        step: int,
        description: Dict[str, Any],
        tensors: Dict[str, Any],
        per_rank: Any = None,
        wait: bool = False,
        lazy: bool = False,
        metrics: Optional[Mapping[str, float]] = None,
        skip: bool = False,
    ) -> int:
        """With a description that has a "tree"; its "tensors", if it lacks them, are
        those given."""
        with self._handle.alone():
            return self._save_tensors(step, description, tensors, per_rank, wait, lazy, metrics, skip)

    def load_tensors(self, step: int, tensors: Dict[str, Any], ties: Dict[str, str]) -> int:
        """Fills them; how many damaged ones of that step were passed over."""
        with self._handle.alone():
            return self._load_tensors(step, tensors, ties)

    @contextlib.contextmanager
    def or_refused(self, name: str) -> Iterator[None]:
        """What this rank fails of in it, before it saves or loads, fails that "save" or "load"
        of the other ranks, too: they would wait for this one there."""
        try:
            yield
        except BaseException:  # KeyboardInterrupt, too: who goes on is in step with the others then
            with self._handle.alone():
                self._handle.refuse(name)
            raise

    def describe(self, step: int) -> Dict[str, Any]:
        """The description that was saved."""
        step = _whole(step, ", as latest() tells")
        with self._handle.alone():
            return self._describe(step)

    def read_tensor(self, step: int, name: str, tensor: Any) -> None:
        step = _whole(step, ", as latest() tells")
        with self._handle.alone():
            self._handle.read(step, name, tensor)

    def none_passed(self) -> Passed:
        return Passed(self._handle.path)

    def newest(self, passed: Passed) -> Optional[Tuple[int, Dict[str, Any]]]:
        """The newest of which all ranks can read the description; None: there is none, and
        nothing was passed over. All ranks together."""
        with self._handle.alone():
            return self._described(self._newest(lib.LATEST, passed), passed)

    def pass_over(self, error: CheckpointError, step: int, passed: Passed) -> Optional[Tuple[int, Dict[str, Any]]]:
        """The same after a load of that step that failed: raises `error` where nothing is
        damaged, or gone."""
        with self._handle.alone():
            return self._described(self._pass_over(error, step, passed), passed)

    def refuse(self, step: int, why: CheckpointError) -> CheckpointError:
        """In place of load_tensors(), which the other ranks are in; what to raise."""
        with self._handle.alone():
            return self._refuse(step, _as_damage(why))

    def refuse_load(self) -> None:
        """The same of what is no damage, and which the caller raises."""
        with self._handle.alone():
            self._handle.refuse("load")

    def tell_passed(self, passed: Passed) -> None:
        """Of that step, after a load."""
        passed.add_and_tell(*self._handle.passed_over())

    # --- the rest is for these ---

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """A call that begins with the fence of a lazy save, which is not what it is about."""
        lazy = self._lazy
        moved = None if lazy is None else self._handle.moved()
        try:
            yield
        finally:
            if lazy is not None:
                self._lazy = None if self._lazy == lazy else self._lazy
                self._tell(*lazy, moved)

    def _tell(self, number: int, step: int, moved: Optional[str]) -> None:
        try:
            self._handle.call("test", number, lib.LEVELS["disk"])
        except CheckpointError as error:
            _log.warning("muster: the lazy save of step %d has failed: %s", step, error.strerror)
            return
        if moved is not None:
            _log.warning("muster: %s", _freed(moved, step).strerror)

    def _tell_note(self) -> None:
        """After a save: that no checkpoint has the metric of keep_best, say."""
        note = self._handle.note()
        if note:
            _log.warning("muster: %s", note)

    @contextlib.contextmanager
    def _or_refused(self, name: str) -> Iterator[None]:
        """or_refused() for who is alone() already."""
        try:
            yield
        except BaseException:
            self._handle.refuse(name)
            raise

    def _save_tensors(
        self,
        step: int,
        description: Dict[str, Any],
        tensors: Dict[str, Any],
        per_rank: Any,
        wait: bool,
        lazy: bool,
        metrics: Optional[Mapping[str, float]],
        skip: bool,
    ) -> int:
        flags = (lib.WAIT if wait else 0) | (lib.LAZY if lazy else 0) | (lib.SKIP if skip else 0)
        is_read = False
        try:
            with self._or_refused("save"), _collector.paused():
                step = _step_to_save(step)
                description = self._register(description, tensors, per_rank, metrics or {})
            number = self._save(step, description, flags)
            is_read = lazy and not wait
            self._lazy = (number, step) if is_read else None
            return number
        finally:
            if not is_read:  # behind our back, until the fence
                self._handle.clear()

    def _register(
        self, description: Dict[str, Any], tensors: Dict[str, Any], per_rank: Any, metrics: Mapping[str, float]
    ) -> Dict[str, Any]:
        """All that a save is of; its description, complete."""
        registered, ties = self._handle.register(tensors, False, {})
        description = {"v": 1, "tensors": registered, "ties": ties, **description}
        own = _tree.flatten(per_rank, _arrays.library_of, _of_one_rank, "per_rank")[0]
        self._handle.blob(TREE, json.dumps(description).encode(), lib.REPLICATED)
        self._handle.blob(OWN_TREE, json.dumps(own).encode(), lib.PER_RANK)
        if metrics:  # JSON has no numbers that are not finite: they are the best of nothing
            finite = {name: float(v) for name, v in _named(metrics) if _is_finite(name, v)}
            self._handle.blob(METRICS, json.dumps(finite).encode(), lib.JSON)
        return description

    def _save(self, step: int, description: Dict[str, Any], flags: int) -> int:
        number = ctypes.c_uint64()
        try:
            self._handle.call("save", step, flags, ctypes.byref(number))
            self._tell_note()
        except CheckpointError as error:
            if f"blob '{METRICS}'" in str(error.strerror):
                text = f"{error.strerror}: expected the same metrics on all ranks, as of an all-reduce"
                raise CheckpointError(error.errno, text) from None
            found = re.search(rf"blob '{TREE}' differs between .* from byte (\d+) on", str(error.strerror))
            if found is None:
                raise
            key = _key_at(description, int(found.group(1)))
            raise CheckpointError(error.errno, f"{error.strerror}; it is in {key}") from None
        self._last_save = (number.value, step)
        return number.value

    def _on_its_way(self) -> Optional[int]:
        """The step of the last save, where that is not on the disk yet, nor has failed."""
        if self._last_save is None:
            return None
        with contextlib.suppress(CheckpointError):
            if not self._handle.call("test", self._last_save[0], lib.LEVELS["disk"]):
                return self._last_save[1]
        return None

    def _load_tensors(self, step: int, tensors: Dict[str, Any], ties: Dict[str, str], flags: int = 0) -> int:
        got = ctypes.c_int64()
        try:
            with self._or_refused("load"), _collector.paused():
                self._handle.register(tensors, True, ties)
            passed = self._handle.call("load", step, flags, ctypes.byref(got))
            self._handle.filled()
            return passed
        finally:
            self._handle.clear()

    def _describe_together(self, step: int) -> Dict[str, Any]:
        try:
            described = self._describe(step)
        except CheckpointError as error:
            raise self._refuse(step, _as_damage(error)) from None
        except BaseException:  # it lacks memory, say
            self._handle.refuse("load")
            raise
        self._load_tensors(step, {}, {})  # nothing: whether the others could, too
        return described

    def _described(self, found: Optional[int], passed: Passed) -> Optional[Tuple[int, Dict[str, Any]]]:
        while found is not None:
            try:
                return found, self._describe_together(found)
            except CheckpointError as error:
                found = self._pass_over(error, found, passed)
        return None

    def _pass_over(self, error: CheckpointError, step: int, passed: Passed) -> Optional[int]:
        """The next one to load, all ranks alike: one that has come since, as where somebody saves
        who keeps few, and removes them meanwhile; else the newest below that step."""
        # Of one that is gone nothing was filled, and latest() had told of it.
        if not (error.errno == EILSEQ or isinstance(error, NotFound)):
            raise error
        n, why = self._handle.passed_over()
        newer = self._newer(passed.newest)
        if newer is not None:
            passed.forget(newer)
            return newer
        passed.add_and_tell(*((n, why) if n > 0 else (1, str(error.strerror))))
        return self._newest(step, passed)

    def _newer(self, step: int) -> Optional[int]:
        try:
            newest = self._latest(lib.LATEST)
        except CheckpointError as error:
            if error.errno != EILSEQ:
                raise
            return None
        return newest if newest is not None and newest > step else None

    def _describe(self, step: int) -> Dict[str, Any]:
        text = self._handle.read_blob(step, TREE)
        with _collector.paused():
            described: Dict[str, Any] = json.loads(text)
        return described

    def _load(self, step: Optional[int], into: Optional[_Template], strict: Optional[bool]) -> Optional[Loaded]:
        passed = Passed(self._handle.path)
        spoilt: Set[str] = set()
        if step is not None:
            self._begin_anew(step)
        found = step if step is not None else self._newest(lib.LATEST, passed)
        while found is not None:
            try:
                return self._load_one(found, into, strict, passed, spoilt)
            except CheckpointError as error:
                if step is not None:
                    raise
                found = self._pass_over(error, found, passed)
        return None

    def _begin_anew(self, step: int) -> None:
        """What is open may not be the newest of that step any more."""
        try:
            self._latest(step + 1)
        except CheckpointError as error:
            if error.errno != EILSEQ:  # which load() tells in its own words
                raise

    def _newest(self, below: int, passed: Passed) -> Optional[int]:
        """The next one to load; None: there is none, and nothing was passed over."""
        try:
            found = self._latest(below)
        except CheckpointError as error:
            if error.errno != EILSEQ:
                raise
            passed.add(*self._handle.passed_over())
            raise passed.error() from None
        if found is None and passed.n:
            raise passed.error()
        passed.add_and_tell(*self._handle.passed_over())
        passed.newest = max(passed.newest, -1 if found is None else found)
        return found

    def _load_one(
        self, step: int, into: Optional[_Template], strict: Optional[bool], passed: Passed, spoilt: Set[str]
    ) -> Loaded:
        """`spoilt`: names of `into` that may hold bytes of damaged ones, here and after it."""
        count, before = 0, -1
        while count != before:  # else all ranks have loaded the one of that step that they looked at
            before = count
            described, own = self._look(step)
            with self._or_refused("load"), _collector.paused():
                wanted = _Wanted.of(described, into.tensors if into else None, spoilt, strict)
            count = self._fill(step, described.get("ties", {}), wanted, into, strict, spoilt)
        if count > 0:
            passed.add_and_tell(*self._handle.passed_over())
        with _collector.paused():
            whole = {n: t.local if isinstance(t, _arrays.Piece) else t for n, t in wanted.tensors.items()}
            state = _tree.build(described["tree"], whole, into.state if into else None)
        return Loaded(step, state, own, passed.n, wanted.missing, wanted.unexpected)

    def _fill(
        self,
        step: int,
        ties: Dict[str, str],
        wanted: _Wanted,
        into: Optional[_Template],
        strict: Optional[bool],
        spoilt: Set[str],
    ) -> int:
        """How many of that step are passed over."""
        if (wanted.missing and strict is not False) or (wanted.unexpected and strict):
            raise self._refuse(step, KeysError(step, wanted.missing, wanted.unexpected if strict else []))
        try:
            return self._load_tensors(step, wanted.tensors, ties)
        except CheckpointError as error:
            if error.errno == ENODATA and spoilt and strict is False:
                text = f"{error.strerror}, and may have bytes by now of a damaged checkpoint that was passed over"
                raise CheckpointError(ENODATA, text) from None
            if self._handle.passed_over()[0] > 0:  # else nothing was filled
                spoilt.update(name for name in wanted.tensors if into and name in into.tensors)
            raise

    def _look(self, step: int) -> Tuple[Dict[str, Any], Any]:
        """What that checkpoint says of itself, and what this rank has of its own there."""
        try:
            return self._describe(step), self._read_own(step)
        except CheckpointError as error:
            raise self._refuse(step, _as_damage(error)) from None
        except BaseException:  # it lacks memory, say, or has no PyTorch for what is its own
            self._handle.refuse("load")
            raise

    def _refuse(self, step: int, why: CheckpointError) -> CheckpointError:
        """Has all ranks refused together, which are in load() by then: what one of them cannot
        read is damaged for all, and where it is not what one wants all end. What to raise."""
        flag, code = (lib.CANNOT, EILSEQ) if why.errno in (EILSEQ, ENOENT) else (lib.UNFIT, ENODATA)
        try:
            self._load_tensors(step, {}, {}, flag)
        except CheckpointError as error:
            return why if error.errno == code else error
        return why

    def _read_own(self, step: int) -> Any:
        try:
            return _tree.build(json.loads(self._handle.read_blob(step, OWN_TREE)), {})
        except CheckpointError as error:
            if error.errno == ENODATA:  # there were fewer ranks
                return None
            raise


def _save_number(value: Any) -> int:
    number = _whole(value, what="save")
    if number < 0:
        raise ValueError(f"save {number}: expected the number that save() has returned, or 0 for the newest")
    return number


def _freed(name: str, step: int) -> CheckpointError:
    return CheckpointError(
        EFAULT,
        f"the lazy save of step {step}: the memory of '{name}' was freed, or became another, before the fence: the "
        "checkpoint may have anything there; expected it to stay as it is until fence()",
    )


def _template_of(into: Any) -> _Template:
    return _Template(into, _tree.flatten(into, _arrays.library_of, what="into")[1])


def _as_damage(error: CheckpointError) -> CheckpointError:
    """What cannot be read is damaged, but for what says that it is not."""
    if error.errno in NO_DAMAGE or isinstance(error, NotFound):
        return error
    return CheckpointError(EILSEQ, error.strerror)


def _key_at(description: Dict[str, Any], place: int) -> str:
    """What a byte of the description is of: that is what ranks are told that differ there."""
    begin = 1
    for key, value in description.items():
        begin += len(json.dumps(key)) + 2
        size = len(json.dumps(value))
        if place >= begin + size:
            begin += size + 2
            continue
        inside = place - begin
        if key == "tree":
            path = _tree.path_at(value, inside)
            what = f"'{path}' of the state" if path else "the state"
            keys = _tree.keys_at(value, path or None)
            if keys is None:
                return what
            here = ", ".join(f"{k!r:.40}" for k in keys[:10]) + (", ..." if len(keys) > 10 else "")
            return f"{what}, whose keys are {here} here: expected the same keys in the same order on all ranks"
        return _tensor_at(value, inside) if key == "tensors" else _tie_at(value, inside) if key == "ties" else "the state"
    return "the state"


def _name_at(entries: Mapping[str, Any], place: int) -> Optional[str]:
    """Of which entry that byte of their text is; None: they end there."""
    end = 0
    for name, value in entries.items():
        end += len(json.dumps({name: value})) - (end == 0)  # a bracket is before it, or a comma and a blank
        if place < end:
            return name
    return None


def _tensor_at(tensors: Dict[str, Sequence[Any]], place: int) -> str:
    """The same of the list of tensors: what this rank has there, and what can be done."""
    name = _name_at(tensors, place)
    here = "no more" if name is None else f"'{name}', {tensors[name][0]} {list(tensors[name][1])}"
    return (
        f"what tensors there are: this rank has {here} there; expected the same keys in the same order on all "
        "ranks, with a Piece without elements where one has nothing of a tensor, or muster.ckpt.dcp.Writer"
    )


def _tie_at(ties: Dict[str, str], place: int) -> str:
    """The same of what is tied."""
    name = _name_at(ties, place)
    here = "none there" if name is None else f"'{name}' tied to '{ties[name]}'"
    return f"which tensors are one memory: this rank has {here}; expected the same ones tied on all ranks, or none"


def _of_one_rank(name: str, value: Any) -> Tuple[str, List[int], bytes]:
    """Of `per_rank`: what is in a tensor, which no other rank has a part of."""
    if not _placed.is_whole(value):
        raise TypeError(f"per_rank, '{name}': a part of a tensor: expected it in the state that is saved")
    return _arrays.bytes_of(name, value)


def _named(metrics: Any) -> Any:
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics: expected names with numbers, found {metrics!r:.60}")
    return metrics.items()


def _is_finite(name: str, value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError, ValueError, RuntimeError):  # PyTorch's, of many elements, among them
        raise TypeError(f"metrics, '{name}': expected a number, found {shown(value)}") from None


def _milliseconds(timeout: float) -> int:
    """-1: for ever."""
    if math.isnan(timeout):
        raise ValueError("timeout: expected a number of seconds, or None for ever, found nan")
    return int(max(0.0, timeout * 1000)) if timeout < 1e12 else -1


def _level(name: str) -> int:
    if name not in lib.LEVELS:
        raise ValueError(f"level '{name}': expected one of {', '.join(lib.LEVELS)}")
    return lib.LEVELS[name]


def _made_anew(described: Dict[str, Any], names: List[Tuple[str, str]], ties: Dict[str, str]) -> Dict[str, Any]:
    made: Dict[str, Any] = {}
    for name, library in names:
        dtype, shape = described["tensors"][name]
        made[name] = made[ties[name]] if ties.get(name) in made else _arrays.empty(name, dtype, shape, library)
    return made
