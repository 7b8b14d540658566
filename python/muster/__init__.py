# SPDX-License-Identifier: Apache-2.0
"""What a training process may ask of the muster that started it.

A process that muster started is a worker: one of world() processes, numbered
from 0, that run the same program. It reaches the agent of its node over a Unix
socket (MUSTER_SOCKET), with the first call that needs it. Without that variable
every call works as in a world of one, so the same program runs by itself.

    import muster

    for step in range(first, last):
        ...
        muster.report(step, loss=loss.item())
        if muster.should_stop() or muster.checkpoint_requested():
            save(path)
            muster.checkpoint_saved(path, step)

Nothing here is needed to run under muster; programs that report their progress
can be watched, resumed and stopped better. Pure Python, 3.8 or newer.

Errors: ConnectionRefusedError (there is no agent), ConnectionAbortedError (it is
gone: exit non-zero, muster starts the next generation), muster.ProtocolError
(not a muster of this version), ValueError (bad arguments), RuntimeError (called
in a process forked from the one that connected).
"""

import os
import threading
from typing import Mapping, Optional

from ._worker import ProtocolError, Worker

__all__ = [
    "ProtocolError",
    "Worker",
    "checkpoint_requested",
    "checkpoint_saved",
    "generation",
    "local_rank",
    "local_world",
    "n_nodes",
    "node",
    "rank",
    "report",
    "resume_path",
    "run_dir",
    "should_stop",
    "worker",
    "world",
]

_lock = threading.Lock()
_this: Optional[Worker] = None  # not named as the module beside this one


def worker() -> Worker:
    """The connection of this process, made by the first call."""
    global _this
    with _lock:
        if _this is None:
            _this = Worker(os.environ.get("MUSTER_SOCKET"))
        return _this


def rank() -> int:
    """Of this process: 0 .. world() - 1."""
    return worker().rank


def world() -> int:
    """How many workers there are."""
    return worker().world


def local_rank() -> int:
    """Of this process among those of its node."""
    return worker().local_rank


def local_world() -> int:
    """How many workers this node has."""
    return worker().local_world


def node() -> int:
    """Of this process: 0 .. n_nodes() - 1."""
    return worker().node


def n_nodes() -> int:
    return worker().n_nodes


def generation() -> int:
    """1 at first, one more with every restart."""
    return worker().generation


def run_dir() -> Optional[str]:
    """The directory of the run, if there is one."""
    return worker().run_dir


def resume_path() -> Optional[str]:
    """The checkpoint to go on from: what checkpoint_saved() last told, if anything."""
    return worker().resume_path


def report(step: int, metrics: Optional[Mapping[str, float]] = None, **named: float) -> None:
    """Tells that `step` is done, with up to 64 values of it.

    Well-known names: loss, step_time, throughput, accuracy. Names are of letters,
    digits and _./- and at most 64 long. Never waits: where the agent is behind,
    a report is left out (the next one is not).
    """
    worker().report(step, metrics, **named)


def should_stop() -> bool:
    """True if the run is being stopped: save what is to be kept and exit 0 soon.

    Cheap enough for every step. Workers can see it at different steps: agree on
    it (an all-reduce with max) before acting together. SIGTERM comes with it: from
    the first question on a program without a handler of its own does not die of
    that.
    """
    return worker().should_stop()


def checkpoint_requested() -> bool:
    """True once for each request for a checkpoint now."""
    return worker().checkpoint_requested()


def checkpoint_saved(path: "os.PathLike[str] | str", step: int) -> None:
    """Tells that a checkpoint at `step` lies complete and durable at `path`.

    From now on a restart gives it to all workers as resume_path(). To be called
    by one worker, after all have written their part.
    """
    worker().checkpoint_saved(path, step)
