#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Trainer of Hugging Face's transformers, with muster's callback.

    muster run --nproc-per-node 2 -- python3 examples/huggingface.py --output out
    muster cancel NAME        # saves, stops, and can be resumed

A small GPT-2 of random weights learns to count; nothing is downloaded. What the
Trainer logs shows in `muster status`. When the run is being stopped it saves a
checkpoint and leaves; after a failure it goes on from the last one.
"""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import muster
from muster.huggingface import MusterCallback

NUMBERS, LENGTH = 32, 16


class Counting(torch.utils.data.Dataset):
    """Sequences that count on from anywhere."""

    def __len__(self):
        return 4096

    def __getitem__(self, i):
        numbers = (torch.arange(LENGTH) + i) % NUMBERS
        return {"input_ids": numbers, "labels": numbers}


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--output", default="huggingface-out")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--every", type=int, default=20, help="steps from checkpoint to checkpoint")
    return p.parse_args()


@muster.record
def main():
    args = parse()
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=NUMBERS,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        train_dataset=Counting(),
        args=TrainingArguments(
            output_dir=args.output,
            max_steps=args.steps,
            save_steps=args.every,
            logging_steps=5,
            per_device_train_batch_size=8,
            learning_rate=3e-3,
            report_to=[],
            disable_tqdm=True,
        ),
        callbacks=[MusterCallback()],
    )
    trainer.train(resume_from_checkpoint=muster.resume_path())
    state = trainer.state
    print(f"rank {muster.rank()}: left after step {state.global_step}", flush=True)


if __name__ == "__main__":
    main()
