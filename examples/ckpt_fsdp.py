#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with PyTorch's FSDP, saved and resumed through muster.ckpt.

    muster run --nproc-per-node 2 --max-restarts 3 -- python3 examples/ckpt_fsdp.py

Each process keeps a part of weights, gradients and optimizer, and saves it; any other
number of processes goes on from there. Saved is every `--every` steps, when `muster
checkpoint` asks for it, before the run is stopped, and at the end. What is damaged is
seen, and the checkpoint before it taken. Saves are lazy: copied while the next step is
computed, up to where the optimizer changes the weights. Needs PyTorch 2.6.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import muster
from muster import ckpt


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--every", type=int, default=20, help="steps from checkpoint to checkpoint; 0: when the job says")
    p.add_argument("--keep", type=int, default=3, help="how many checkpoints stay without an agent; in a run the job says it: checkpoint.keep")
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--step-time", type=float, default=0, help="seconds that a step takes at least")
    p.add_argument(
        "--checkpoints",
        default=os.path.join(os.environ.get("MUSTER_RUN_DIR", "."), "ckpt"),
        help="directory (default: %(default)s)",
    )
    return p.parse_args()


def make_model(width):
    torch.manual_seed(1)
    layers = []
    for _ in range(3):
        layers += [torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Dropout(0.01)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    return fully_shard(model)


def batch(step, rank, width):
    """Of one rank and step alone; the sum of the inputs' sines is to be learnt."""
    g = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(32, width, generator=g)
    return x, x.sin().sum(dim=1, keepdim=True) / width**0.5


def state_of(model, optimizer):
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def save(checkpoints, step, model, optimizer):
    """What is each rank's own: the state of its random numbers, for dropout."""
    own = {"numbers": torch.get_rng_state()}
    checkpoints.save(step, state_of(model, optimizer), per_rank=own, lazy=True)


def load(checkpoints, model, optimizer):
    """The step to go on from."""
    if checkpoints.latest() is None:  # get_state_dict() has an optimizer that is new take a step
        return 0
    found = checkpoints.load(into=state_of(model, optimizer), strict=True)
    set_state_dict(
        model, optimizer, model_state_dict=found.state["model"], optim_state_dict=found.state["optimizer"]
    )
    if found.per_rank:  # None: there were fewer ranks
        torch.set_rng_state(found.per_rank["numbers"])
    return found.step


def take_step(model, optimizer, step, width):
    """The mean loss of all ranks."""
    x, y = batch(step, dist.get_rank(), width)
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = loss.detach()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def train(args, checkpoints):
    model = make_model(args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    optimizer.register_step_pre_hook(lambda *_: checkpoints.fence())
    rank = dist.get_rank()
    step = load(checkpoints, model, optimizer)
    print(f"rank {rank} of {dist.get_world_size()}: from step {step}", flush=True)
    while step < args.steps and not checkpoints.should_stop():
        begin = time.monotonic()
        loss = take_step(model, optimizer, step, args.width)
        step += 1
        why = checkpoints.due(step)  # the same on all ranks
        if why or step == args.steps:
            save(checkpoints, step, model, optimizer)
        if rank == 0:
            muster.report(step, loss=loss)
            if why or step == args.steps:
                print(f"step {step} loss {loss:.5f} saved ({why.name or 'the last'})", flush=True)
        time.sleep(max(0.0, args.step_time - (time.monotonic() - begin)))
    checkpoints.fence()
    if step < args.steps:
        print(f"rank {rank}: stopped after step {step}", flush=True)


@muster.record
def main():
    args = parse()
    dist.init_process_group("gloo")
    keep = 0 if muster.is_worker() else args.keep  # of what agents write the job says it
    with ckpt.Checkpoints(args.checkpoints, keep=keep, every_steps=args.every) as checkpoints:
        train(args, checkpoints)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
