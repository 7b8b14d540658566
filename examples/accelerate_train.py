#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with Hugging Face's accelerate: nothing in here knows muster.

    muster run --nproc-per-node 2 -- python3 examples/accelerate_train.py
    accelerate launch --cpu --num_processes 2 examples/accelerate_train.py
"""

import argparse

import torch
from accelerate import Accelerator


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    args = p.parse_args()
    torch.manual_seed(1)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    x = torch.randn(32 * args.steps, 8)
    data = torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))
    loader = torch.utils.data.DataLoader(data, batch_size=32 // accelerator.num_processes)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    print(f"process {accelerator.process_index} of {accelerator.num_processes}", flush=True)
    for xs, ys in loader:
        loss = torch.nn.functional.mse_loss(model(xs), ys)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    total = accelerator.gather(loss.detach().reshape(1)).mean()
    accelerator.print(f"done: loss {total.item():.6f} after {len(loader)} steps")
    accelerator.end_training()


if __name__ == "__main__":
    main()
