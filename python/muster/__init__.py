# SPDX-License-Identifier: Apache-2.0
"""What a training process may ask of the muster that started it.

A process that muster started is a worker: one of world() processes, numbered
from 0, that run the same program. It reaches the agent of its node over a Unix
socket (MUSTER_SOCKET), with the first call that needs it. Without that variable
every call works as in a world of one, so the same program runs by itself.

    import muster

    @muster.record                              # what it dies of is told
    def main():
        for step in range(first, last):
            ...
            muster.report(step, loss=loss.item())
            stop = agreed(muster.should_stop())
            if stop or agreed(muster.checkpoint_requested()):
                save(path)
                muster.barrier()                # all have written their part
                if muster.rank() == 0:
                    muster.checkpoint_saved(path, step)
            if stop:
                return

Nothing here is needed to run under muster; programs that report their progress
can be watched, resumed and stopped better. Pure Python, 3.8 or newer, no thread.
Any thread may call anything here. A process forked from a worker may as well
(but for barrier()), on a connection of its own.

An agent that is away, slow or dead raises nothing: reports are left out, questions
are answered as before, and the next calls find it again when it is back; one line
in the log named "muster" says so. Errors: ValueError (bad arguments), and those
that barrier() names.
"""

import os
import sys
import threading
from typing import Any, Callable, Mapping, Optional, TypeVar, Union, overload

from ._barrier import Barrier
from ._record import Recorder
from ._worker import Worker, identity_of

__all__ = [
    "barrier",
    "checkpoint_requested",
    "checkpoint_saved",
    "generation",
    "is_worker",
    "local_rank",
    "local_world",
    "n_nodes",
    "node",
    "rank",
    "record",
    "report",
    "resume_path",
    "run_dir",
    "should_stop",
    "world",
]

BARRIER_TIMEOUT_S = 600.0

_F = TypeVar("_F", bound=Callable[..., Any])

_lock = threading.RLock()  # a signal handler may make the first call again
_this: Optional[Worker] = None
_meeting: Optional[Barrier] = None


def _connection() -> Worker:
    """This process as a worker, made by the first call."""
    global _this
    worker = _this  # without the lock, which another thread may hold for a while
    if worker is None:
        with _lock:
            if _this is None:
                path = os.environ.get("MUSTER_SOCKET")
                has_rank = path or os.environ.get("MUSTER_SEAT")  # of muster exec
                _this = Worker(path, identity_of(os.environ) if has_rank else None)
            worker = _this
    return worker


def _is_child() -> bool:
    """Whether this process has the worker's environment, but is one of its children."""
    process = sys.modules.get("multiprocessing.process")  # which starts them
    return process is not None and process.parent_process() is not None


def _meeting_place() -> Barrier:
    global _meeting
    who = _connection().identity
    with _lock:
        if _meeting is None:
            _meeting = Barrier(os.environ.get("MUSTER_STORE"), who)
        return _meeting


def _forked() -> None:
    global _lock
    _lock = threading.RLock()
    if _meeting is not None:
        _meeting.forked()


os.register_at_fork(after_in_child=_forked)


def is_worker() -> bool:
    """Whether muster started this process."""
    return bool(os.environ.get("MUSTER_SOCKET"))


def rank() -> int:
    """Of this process: 0 .. world() - 1."""
    return _connection().identity.rank


def world() -> int:
    """How many workers there are."""
    return _connection().identity.world


def local_rank() -> int:
    """Of this process among those of its node."""
    return _connection().identity.local_rank


def local_world() -> int:
    """How many workers this node has."""
    return _connection().identity.local_world


def node() -> int:
    """Of this process: 0 .. n_nodes() - 1."""
    return _connection().identity.node


def n_nodes() -> int:
    """How many nodes there are."""
    return _connection().identity.n_nodes


def generation() -> int:
    """1 at first, one more with every restart."""
    return _connection().identity.generation


def run_dir() -> Optional[str]:
    """The directory of the run, if there is one."""
    return _connection().identity.run_dir


def resume_path() -> Optional[str]:
    """The checkpoint to go on from: what checkpoint_saved() last told, if anything."""
    return _connection().identity.resume_path


def report(step: int, metrics: Optional[Mapping[str, float]] = None, **named: float) -> None:
    """Tells that `step` is done, with up to 64 values of it.

    Well-known names: loss, step_time, throughput, accuracy. Names are of letters,
    digits and _./- and at most 64 long. Never waits: where the agent is behind,
    a report is left out (the next one is not).
    """
    _connection().report(step, metrics, **named)


def should_stop() -> bool:
    """True if the run is being stopped: save what is to be kept and exit 0 soon.

    Cheap enough for every step. Workers can see it at different steps: agree on
    it (an all-reduce with max) before acting together. SIGTERM comes with it: from
    the first question on a program without a handler of its own does not die of
    that.
    """
    return _connection().should_stop()


def checkpoint_requested() -> bool:
    """True once for each request for a checkpoint now."""
    return _connection().checkpoint_requested()


def checkpoint_saved(path: "os.PathLike[str] | str", step: int) -> None:
    """Tells that a checkpoint at `step` lies complete and durable at `path`.

    From now on a restart gives it to all workers as resume_path(). To be called
    by one worker, after all have written their part. Waits, for half a minute at
    most, only where the agent takes nothing; it is told again to an agent that
    was away.
    """
    _connection().checkpoint_saved(path, step)


def barrier(timeout: float = BARRIER_TIMEOUT_S) -> None:
    """Returns when all workers have called it as often as this one.

    TimeoutError after `timeout` seconds: some have not come (those that come later
    still count). ConnectionError: the run is ending. RuntimeError in a process
    that a worker has forked, or started with multiprocessing.
    """
    if _is_child():
        raise RuntimeError("barrier() in a process that a worker started with multiprocessing: "
                           "only the worker itself counts, so call it there")
    _meeting_place().wait(timeout)


@overload
def record(function: _F) -> _F: ...


@overload
def record() -> Recorder: ...


def record(function: Optional[_F] = None) -> Union[_F, Recorder]:
    """Has muster show what this worker died of: its exception, with the traceback.

    As a decorator of the main function, or as `with muster.record():`. An exception
    that passes is written to the worker's error file (TORCHELASTIC_ERROR_FILE) in
    the format of PyTorch, and goes on. Needed where the traceback would not be the
    last one that is printed, or goes elsewhere; does no harm elsewhere.
    """
    return Recorder() if function is None else Recorder()(function)
