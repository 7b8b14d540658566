# SPDX-License-Identifier: Apache-2.0
"""A callback for the Trainer of Hugging Face's transformers.

    from muster.huggingface import MusterCallback

    trainer = Trainer(..., callbacks=[MusterCallback()])
    trainer.train(resume_from_checkpoint=muster.resume_path())

What the Trainer logs is reported; when the run is being stopped, all ranks stop
after the same step, with a checkpoint; a checkpoint that is asked for is saved;
and each that was saved, as the one to resume from, is told to muster. Without
muster it does nothing.

transformers is imported with the class, not with this module.
"""

import os
import re
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional

import muster

if TYPE_CHECKING:
    MusterCallback: Any

__all__ = ["MusterCallback"]

METRICS_MAX = 64
STOP, SAVE = 1, 2

_other = re.compile(r"[^A-Za-z0-9_./-]+")


def metrics_of(logs: Mapping[str, Any]) -> Dict[str, float]:
    """The numbers of a log, under names that muster takes."""
    values: Dict[str, float] = {}
    for name, value in logs.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        name = _other.sub("_", str(name))[:64]
        if name and len(values) < METRICS_MAX:
            values[name] = float(value)
    return values


def sync(path: str) -> None:
    """A file, or the names in a directory, are on the disk when this returns."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(path: str) -> None:
    """So is all that is in a directory."""
    for directory, _, files in os.walk(path, topdown=False):
        for name in [*files, "."]:
            sync(os.path.join(directory, name))


def group_of_ranks() -> Optional[Any]:
    """torch.distributed, where there is a process group of more than one."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return dist
    return None


def agreed(wishes: int, device: Any) -> int:
    """What any rank wishes, for all to do at the same step."""
    dist = group_of_ranks()
    if dist is None:
        return wishes
    import torch

    # One flag a place: a maximum of both as one number would lose one.
    flags = torch.tensor([wishes & STOP, wishes & SAVE], device=device)
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return int(flags.sum().item())


def _make_callback() -> Any:
    from transformers import TrainerCallback

    class MusterCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
        """Reports, stops and saves as muster asks.

        agree_every: after how many steps the ranks ask each other whether to stop or
        save; each time costs an all-reduce of two numbers.
        """

        def __init__(self, agree_every: int = 1) -> None:
            if agree_every < 1:
                raise ValueError(f"agree_every: {agree_every}, expected 1 or more")
            self.agree_every = agree_every
            self.wishes = 0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            if not muster.is_worker():
                return control
            if muster.should_stop():
                self.wishes |= STOP
            if muster.checkpoint_requested():
                self.wishes |= SAVE
            if state.global_step % self.agree_every == 0:
                wishes = agreed(self.wishes, args.device)
                self.wishes = 0
                if wishes:
                    control.should_save = True
                if wishes & STOP:
                    control.should_training_stop = True
            return control

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any
        ) -> None:
            if logs and state.is_world_process_zero and muster.is_worker():
                muster.report(state.global_step, metrics_of(logs))

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if not muster.is_worker():
                return
            dist = group_of_ranks()
            if dist is not None:
                dist.barrier()  # the others have written their part
            name = f"checkpoint-{state.global_step}"
            path = os.path.join(args.output_dir, name)
            # A hyperparameter search saves elsewhere: that is not resumed.
            if state.is_world_process_zero and os.path.isdir(path):
                sync_tree(path)
                sync(args.output_dir)  # it has the name
                muster.checkpoint_saved(path, state.global_step)

    MusterCallback.__module__ = __name__
    MusterCallback.__qualname__ = "MusterCallback"
    return MusterCallback


def __getattr__(name: str) -> Any:
    if name != "MusterCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = _make_callback()
    return globals()[name]
