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
            if checkpoints.should_stop():
                break

A lazy save copies while the program computes, up to the fence:

        checkpoints.save(step, {"model": model.state_dict(), ...}, lazy=True)
        loss(model(batch)).backward()
        checkpoints.fence()
        optimizer.step()

A checkpoint is whole, verified and durable, or it does not exist; see muster_ckpt.h
and doc/checkpoints.md. All workers of a run call save(), load(), latest() and due()
together; a process that muster did not start is alone, unless it gives a group
(torch_group()).

Tensors: NumPy's arrays, and PyTorch's tensors in any strides and on any device but
meta, which are what all ranks hold alike: they are written once, by one of them. Of
larger ones a rank has parts: DTensor and ShardedTensor, as FSDP and
torch.distributed.checkpoint.state_dict give them, say which, and a Piece says it of
any other. They are loaded by any number of ranks, in any other parts.

What is no tensor (numbers, those of NumPy, too, text, None, bytes; in dicts, lists and
tuples) must be the same on all ranks; `per_rank` is for what is not, and small tensors
with it. Nothing is pickled.

muster.ckpt.dcp lets torch.distributed.checkpoint save and load these checkpoints.

Errors: CheckpointError (an OSError with errno), which names rank, file or tensor and
what to do; TypeError and ValueError for what cannot be saved.
"""

from .._arrays import Piece
from ._checkpoints import Checkpoints, Due, Loaded
from ._group import torch_group
from ._handle import CheckpointError, KeysError

__all__ = ["Checkpoints", "CheckpointError", "Due", "KeysError", "Loaded", "Piece", "torch_group"]
