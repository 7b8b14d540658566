# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints as scripts do, of each kind that can be written here:

make_checkpoints.py DIRECTORY
"""
import inspect
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
# With numbers for names: what they are of is in their pickles.
for protocol in (0, 1, 4):
    torch.save(state(protocol), f"{top}/pickle{protocol}-1.pt", pickle_protocol=protocol)
    torch.save(state(protocol), f"{top}/pickle{protocol}-2.pt", pickle_protocol=protocol,
               _use_new_zipfile_serialization=False)
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
        from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
        dcp.save(state(45)["model"], no_dist=True, storage_writer=FileSystemWriter(
            f"{top}/step-45", serialization_format=SerializationFormat.SAFETENSORS))
        dcp.save({}, checkpoint_id=f"{top}/step-41", no_dist=True)
        if "use_collectives" in inspect.signature(dcp.save).parameters:
            dcp.save(state(42)["model"], checkpoint_id=f"{top}/step-42", no_dist=True, use_collectives=False)
    if hasattr(dcp, "HuggingFaceStorageWriter"):
        for step, options in ((46, {}), (47, {"save_distributed": True}),
                              (48, {"save_distributed": True, "enable_consolidation": True})):
            dcp.save(state(step)["model"], no_dist=True,
                     storage_writer=dcp.HuggingFaceStorageWriter(f"{top}/step-{step}", **options))
except ImportError:
    pass

# save_pretrained(), of a real one: in one file, and in several.
try:
    import transformers
    model = transformers.LlamaModel(transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=64))
    model.save_pretrained(f"{top}/pretrained/step-3")
    model.save_pretrained(f"{top}/pretrained/step-4", max_shard_size="4KB")
    model.save_pretrained(f"{top}/pretrained/base")
except ImportError:
    pass

# Accelerate's, which diffusers call checkpoint-N, too: of a real one.
try:
    import accelerate
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    for step in (70, 80):
        accelerator.save_state(f"{top}/accelerate/checkpoint-{step}")
except ImportError:
    pass

# By the names that DeepSpeed gives: weights in global_stepN alone. `latest` is there
# before the others have written theirs.
d = f"{top}/deepspeed/checkpoint-90"
os.makedirs(f"{d}/global_step90")
torch.save({"module": state(90), "dp_world_size": 2, "mp_world_size": 1},
           f"{d}/global_step90/mp_rank_00_model_states.pt")
for rank in range(2):
    torch.save({"optimizer_state_dict": state(90), "rank": rank},
               f"{d}/global_step90/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    torch.save(torch.get_rng_state(), f"{d}/rng_state_{rank}.pth")
with open(f"{d}/latest", "w", encoding="utf-8") as f:
    f.write("global_step90")
with open(f"{d}/trainer_state.json", "w", encoding="utf-8") as f:
    json.dump({"global_step": 90, "log_history": []}, f)

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
