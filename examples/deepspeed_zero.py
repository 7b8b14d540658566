#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with DeepSpeed, ZeRO stage 1, on GPUs or CPUs.

    muster run --nproc-per-node 2 -- python3 examples/deepspeed_zero.py
    deepspeed --num_gpus 2 examples/deepspeed_zero.py

deepspeed.initialize() finds its place in the environment. Each process keeps a part
of the optimizer's state.
"""

import argparse
import os

import deepspeed
import torch

CONFIG = {
    "train_micro_batch_size_per_gpu": 16,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--local_rank", type=int)  # given by DeepSpeed's own launcher
    args = p.parse_args()
    if not torch.cuda.is_available():
        # Plain gloo: what DeepSpeed has of its own for CPUs is compiled first.
        deepspeed.ops.__compatible_ops__ = {}
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    rank, world = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    print(f"rank {rank} of {world}, ZeRO stage {engine.zero_optimization_stage()}", flush=True)
    for step in range(args.steps):
        g = torch.Generator().manual_seed(1000 * step + rank)
        x = torch.randn(16, 32, generator=g).to(engine.device)
        loss = torch.nn.functional.mse_loss(engine(x), x.sin().sum(dim=1, keepdim=True) / 6)
        engine.backward(loss)
        engine.step()
    if rank == 0:
        print(f"done: loss {loss.item():.5f} after {args.steps} steps", flush=True)
    assert os.environ["RANK"] == str(rank)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
