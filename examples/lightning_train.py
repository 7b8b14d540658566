#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with Lightning, DDP on GPUs or CPUs: nothing in here knows muster.

    muster run --nproc-per-node 2 -- python3 examples/lightning_train.py
    torchrun --nproc-per-node 2 examples/lightning_train.py

Lightning takes its place from the environment, and starts no processes of its own.
It goes on from the last checkpoint in the directory, if there is one.
"""

import argparse
import os

import pytorch_lightning as pl
import torch


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
        )

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Progress(pl.Callback):
    """One line a rank at the start, and where it is after each epoch."""

    def on_train_start(self, trainer, model):
        print(
            f"rank {trainer.global_rank} of {trainer.world_size}, from epoch {trainer.current_epoch}",
            flush=True,
        )

    def on_train_epoch_end(self, trainer, model):
        if trainer.is_global_zero:
            loss = trainer.callback_metrics["loss"].item()
            print(f"epoch {trainer.current_epoch} loss {loss:.5f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--dir", default="lightning-checkpoints")
    args = p.parse_args()
    pl.seed_everything(1)
    x = torch.randn(256, 8)
    data = torch.utils.data.TensorDataset(x, x.sin().sum(dim=1, keepdim=True))
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        accelerator="auto",
        strategy="ddp",
        callbacks=[
            Progress(),
            pl.callbacks.ModelCheckpoint(dirpath=args.dir, save_last=True),
        ],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = os.path.join(args.dir, "last.ckpt")
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    trainer.fit(Model(), loader, ckpt_path=last if os.path.exists(last) else None)
    if trainer.is_global_zero:
        print(f"done after {trainer.current_epoch} epochs", flush=True)


if __name__ == "__main__":
    main()
