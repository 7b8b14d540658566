# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints as scripts do, of each kind that can be written here:

make_checkpoints.py DIRECTORY
"""
import json
import os
import sys

import torch

top = sys.argv[1]
os.makedirs(top, exist_ok=True)


def state(step):
    torch.manual_seed(step)
    return {"model": {"w": torch.randn(40, 30), "b": torch.randn(30).to(torch.bfloat16)},
            "step": step, "names": ["a", "b"]}


torch.save(state(10), f"{top}/model-10.pt")
torch.save(state(20), f"{top}/model-20.pth")
torch.save(state(5), f"{top}/old-5.bin", _use_new_zipfile_serialization=False)
if hasattr(torch.serialization, "set_crc32_options"):
    torch.serialization.set_crc32_options(False)
    torch.save(state(7), f"{top}/unchecked-7.pt")
    torch.serialization.set_crc32_options(True)

try:
    import safetensors.torch
    safetensors.torch.save_file(state(30)["model"], f"{top}/model-30.safetensors")
except ImportError:
    pass

try:
    import torch.distributed.checkpoint as dcp
    if hasattr(dcp, "save"):
        dcp.save(state(40)["model"], checkpoint_id=f"{top}/step-40", no_dist=True)
except ImportError:
    pass

# What the Trainer leaves, in the order in which it writes.
for step in (50, 60):
    d = f"{top}/checkpoint-{step}"
    os.makedirs(d, exist_ok=True)
    torch.save(state(step)["model"], f"{d}/pytorch_model.bin")
    torch.save(state(step), f"{d}/optimizer.pt")
    for rank in range(2):
        torch.save(torch.get_rng_state(), f"{d}/rng_state_{rank}.pth")
    with open(f"{d}/trainer_state.json", "w", encoding="utf-8") as f:
        json.dump({"global_step": step, "log_history": []}, f)
