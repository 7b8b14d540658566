# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of nested dicts of tensors and arrays, through libmuster.

    from muster import ckpt

    def state():
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    with ckpt.Checkpoints("/scratch/run", every_steps=100) as checkpoints:
        found = checkpoints.load(into=state())   # None: there is none
        if found:                                # the model's tensors are filled in place
            optimizer.load_state_dict(found.state["optimizer"])
        step = found.step if found else 0        # how many are done
        while step < last and not checkpoints.should_stop():
            ...
            step += 1
            if checkpoints.due(step):
                checkpoints.save(step, state())

A lazy save copies while the program computes, up to the fence:

        checkpoints.save(step, {"model": model.state_dict(), ...}, lazy=True)
        loss(model(batch)).backward()
        checkpoints.fence()
        optimizer.step()

A checkpoint is whole, verified and durable, or it does not exist; see muster_ckpt.h
and doc/checkpoints.md. All workers of a run call save(), load(), latest() and due()
together. Where muster did not start them all ranks of torch.distributed do, once it is
initialized, or those of a group that is given (torch_group()); else a process is alone.

Tensors: NumPy's arrays, and PyTorch's tensors in any strides and on any device but
meta, which are what all ranks hold alike: they are written once, by one of them, and only
with MUSTER_CKPT_CHECK=1 in the environment are those of the others compared. Of larger ones
a rank has parts: DTensor and ShardedTensor, as FSDP and
torch.distributed.checkpoint.state_dict give them, say which, and a Piece, which may be
without elements, says it of any other. All ranks have the same keys. They are loaded by any
number of ranks, in any other parts.

What is no tensor (numbers, those of NumPy, too, text, None, bytes; in dicts, lists and
tuples) must be the same on all ranks; `per_rank` is for what is not, and small tensors
with it. OrderedDict and Counter stay what they are, a namedtuple where `into` has one;
other mappings and sequences become dicts, lists and tuples. Nothing is pickled.

muster.ckpt.dcp lets torch.distributed.checkpoint save and load these checkpoints.

Errors: CheckpointError (an OSError with errno), which names rank, file or tensor and
what to do; TypeError and ValueError for what cannot be saved.
"""

from .._arrays import Piece
from ._checkpoints import Checkpoints, Due, Loaded
from ._group import torch_group
from ._handle import CheckpointError, KeysError

__all__ = ["Checkpoints", "CheckpointError", "Due", "KeysError", "Loaded", "Piece", "torch_group"]
