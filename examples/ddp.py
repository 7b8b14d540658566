#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ordinary data-parallel training with PyTorch: nothing in here knows muster.

    muster run --nnodes 2 --nproc-per-node 4 -- python3 examples/ddp.py
    torchrun --nproc-per-node 4 examples/ddp.py
    python3 examples/ddp.py                      # one process, no launcher

A small network learns to tell the two arms of a spiral apart. The process group
comes from the environment (env://), on GPUs with NCCL where there is one for
each process of the node, else with gloo. Rank 0 saves a checkpoint every few
steps, whole or not at all, and every start goes on from the last one, with
however many processes there are: a step takes the same samples for any number.
"""

import argparse
import math
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch", type=int, default=240, help="samples a step, over all ranks")
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--every", type=int, default=20, help="steps from checkpoint to checkpoint")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--step-time", type=float, default=0.0, help="seconds that a step takes at least")
    p.add_argument(
        "--checkpoint",
        default=os.path.join(os.environ.get("MUSTER_RUN_DIR", "."), "ddp.pt"),
        help="file (default: %(default)s)",
    )
    return p.parse_args()


def make_group():
    """The device of this process, in a group of all; a group of one by itself."""
    local_world = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    use_cuda = torch.cuda.is_available() and torch.cuda.device_count() >= local_world
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    dist.init_process_group("nccl" if use_cuda else "gloo")
    if not use_cuda:
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def make_data(seed, n=4800):
    """Points of two spiral arms with some noise, and which arm each is of."""
    g = torch.Generator().manual_seed(seed)
    arm = torch.arange(n) % 2
    turn = torch.rand(n, generator=g).sqrt() * 3 * math.pi
    angle = turn + math.pi * arm
    points = torch.stack((turn * angle.cos(), turn * angle.sin()), dim=1) / 10
    return points + 0.02 * torch.randn(n, 2, generator=g), arm


def make_model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(2, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 2),
    )


def save(path, step, model, optimizer):
    """All or nothing: a crash at any point leaves the old file or the new one."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "wb") as f:
        torch.save(
            {
                "step": step,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict()["state"],
            },
            f,
        )
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


def load(path, model, optimizer):
    """The step to go on from. Rank 0 reads; the others need not see the file."""
    found = [None]
    if dist.get_rank() == 0 and os.path.exists(path):
        found[0] = torch.load(path, map_location="cpu", weights_only=True)
    dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])
    # Only tensors are in the file (older PyTorch takes no others with
    # weights_only); what the command line sets is not from there.
    optimizer.load_state_dict({**optimizer.state_dict(), "state": found[0]["optimizer"]})
    return found[0]["step"]


def indices(step, args, n):
    """This rank's part of the samples of a step, which depend on nothing else."""
    g = torch.Generator().manual_seed(args.seed * 1_000_003 + step)
    batch = torch.randint(n, (args.batch,), generator=g)
    return batch[dist.get_rank() :: dist.get_world_size()]


def train(args, device, points, arm):
    rank, world = dist.get_rank(), dist.get_world_size()
    model = make_model(args.seed).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    step = load(args.checkpoint, model, optimizer)
    parallel = DistributedDataParallel(model)
    if rank == 0:
        print(f"world {world}: from step {step} to {args.steps}", flush=True)
    while step < args.steps:
        began = time.monotonic()
        mine = indices(step, args, len(points))
        # Parts differ in size where the ranks do not divide the batch; DDP
        # averages over ranks, so each weighs its sum with the world.
        losses = torch.nn.functional.cross_entropy(
            parallel(points[mine].to(device)), arm[mine].to(device), reduction="sum"
        )
        loss = losses * world / args.batch
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        total = loss.detach() / world
        if step % args.every == 0 or step == args.steps:
            dist.all_reduce(total)
            if rank == 0:
                save(args.checkpoint, step, model, optimizer)
                print(f"step {step} loss {total.item():.4f}", flush=True)
        time.sleep(max(0.0, args.step_time - (time.monotonic() - began)))
    with torch.no_grad():
        guess = model(points.to(device)).argmax(dim=1).cpu()
    return (guess == arm).float().mean().item()


def main():
    args = parse()
    device = make_group()
    points, arm = make_data(args.seed)
    accuracy = train(args, device, points, arm)
    if dist.get_rank() == 0:
        print(f"done: accuracy {accuracy:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
