#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with PyTorch's FSDP, with weights that no process holds whole.

    muster run --nproc-per-node 2 -- python3 examples/fsdp.py
    torchrun --nproc-per-node 2 examples/fsdp.py

Each process keeps a part of weights, gradients and optimizer, and of the
checkpoint: every `--every` steps all write their parts (torch.distributed.checkpoint)
into a directory of its own, which one tells muster when all are done. A start goes
on from what muster gives as the checkpoint to resume from. Needs PyTorch 2.6.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import muster


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--every", type=int, default=10, help="steps from checkpoint to checkpoint")
    p.add_argument("--width", type=int, default=64)
    p.add_argument(
        "--checkpoints",
        default=os.path.join(os.environ.get("MUSTER_RUN_DIR", "."), "ckpt", "fsdp"),
        help="directory (default: %(default)s)",
    )
    return p.parse_args()


def make_model(width):
    torch.manual_seed(1)
    layers = []
    for _ in range(3):
        layers += [torch.nn.Linear(width, width), torch.nn.Tanh()]
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


def save(directory, step, model, optimizer):
    path = os.path.join(directory, f"step-{step}")
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=path)
    if dist.get_rank() == 0:  # save() returns when all have written
        muster.checkpoint_saved(path, step)


def load(model, optimizer):
    """The step to go on from."""
    path = muster.resume_path()
    if path is None:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    return int(path.rpartition("-")[2])


def train(args):
    model = make_model(args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    step = load(model, optimizer)
    held = sum(p.to_local().numel() for p in model.parameters())
    whole = sum(p.numel() for p in model.parameters())
    rank = dist.get_rank()
    print(f"rank {rank} holds {held} of {whole} weights, from step {step}", flush=True)
    while step < args.steps:
        x, y = batch(step, rank, args.width)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % args.every == 0 or step == args.steps:
            total = loss.detach()
            dist.all_reduce(total)
            total /= dist.get_world_size()
            if rank == 0:
                print(f"step {step} loss {total.item():.5f}", flush=True)
                muster.report(step, loss=total.item())
            save(args.checkpoints, step, model, optimizer)


@muster.record
def main():
    args = parse()
    dist.init_process_group("gloo")
    train(args)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
