# SPDX-License-Identifier: Apache-2.0
"""dcp.load() goes back to the checkpoint before a damaged one, on all ranks.

    muster run ... ckpt_back.py DIRECTORY

Each rank loads a tensor of its own, so that only the last one reads what is damaged.
"""
import logging
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import muster.ckpt.dcp
from muster import ckpt

FLOATS = 3000000  # its begin is in another block, with a digest of its own, than the description
rank = 0


def state(step, n=FLOATS):
    return {f"of {r}": torch.full((n,), 1000.0 * r + step) for r in range(dist.get_world_size())} | {"step": step}


def damage(root, step, with_description=False):
    """In the tensor of the last rank; at its end nobody can read what was saved, either."""
    part = torch.full((8,), 1000.0 * (dist.get_world_size() - 1) + step).numpy().tobytes()
    dist.barrier()
    if rank == 0:
        for path in pathlib.Path(root).glob(f"step-{step:012d}-*/*.safetensors"):
            data = path.read_bytes()
            at = data.rfind(part) if with_description else data.find(part)
            if at >= 0:
                path.write_bytes(data[:at] + b"\1" + data[at + 1 :])
    dist.barrier()


# By a group of PyTorch: an agent would have in memory what is damaged on the disk.
def writer(root, step):
    return muster.ckpt.dcp.Writer(root, step, group=ckpt.torch_group())


def reader(where, step=None):
    return muster.ckpt.dcp.Reader(where, step, group=ckpt.torch_group())


def load(storage, n=FLOATS):
    """The step of what this rank has then: of its tensor, all of it, and of the rest."""
    mine = f"of {rank}"
    got = {mine: torch.zeros(n), "step": -1}
    dcp.load(got, storage_reader=storage)
    steps = set((got[mine].unique() - 1000.0 * rank).tolist()) | {got["step"]}
    assert len(steps) == 1, f"a mix of {steps}"
    return int(steps.pop())


def fails(storage, *words):
    try:
        load(storage)
    except BaseException as error:  # DCP's own is none of Exception
        text = repr(error) + str(error)
        return all(word in text for word in words) or text
    return "loaded"


def main(root):
    global rank
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    warned = []
    handler = logging.Handler()
    handler.emit = lambda record: warned.append(record.getMessage())
    logging.getLogger("muster").addHandler(handler)
    for step in (1, 2, 3):
        dcp.save(state(step), storage_writer=writer(root, step))
    facts = {"the newest": load(reader(root)) == 3}
    damage(root, 3)
    facts["the one before a damaged one"] = load(reader(root)) == 2
    facts["with a warning"] = len(warned) == 1 and "step-000000000003-" in warned[0]
    facts["which fails where it is asked for"] = fails(reader(root, 3), "step-000000000003-")
    damage(root, 2, with_description=True)
    with ckpt.Checkpoints(root, group=ckpt.torch_group()) as c:
        facts["and again, of one that is open"] = load(reader(c)) == 1
    damage(root, 1)
    facts["none is whole"] = fails(reader(root), f"no checkpoint in {root} is whole (muster ckpt verify {root} ", "; 3 passed over; ")
    dcp.save(state(4, 5), storage_writer=writer(root, 4))
    dcp.save(state(5), storage_writer=writer(root, 5))
    damage(root, 5)
    facts["one of other shapes is none to go back to"] = fails(reader(root), "step-000000000005-", "of step 4", "other tensors")
    facts["but what it is asked for"] = load(reader(root, 4), 5) == 4
    bad = [f"{name} ({is_so})" for name, is_so in facts.items() if is_so is not True]
    print(f"rank {rank} of {dist.get_world_size()}: {len(facts)} facts, {'wrong: ' + ', '.join(bad) if bad else 'right'}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 1 if bad else 0


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    sys.exit(main(sys.argv[1]))
