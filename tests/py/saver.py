# SPDX-License-Identifier: Apache-2.0
"""A script that saves by itself, and knows nothing of muster.

    saver.py DIRECTORY LAST FAIL-AT [--resume PATH] [--kind KIND] [--every N]
             [--poison N]... [--wait N] [--track N]

Counts steps to LAST, and after each fifth one (N) rank 0 saves into DIRECTORY. KIND:
safetensors (model-<step>.safetensors), torch (model-<step>.pt), trainer
(checkpoint-<step>/, as the Hugging Face Trainer writes them), accelerate (the same
name, as Accelerate writes them), ranks (as trainer, with a file of each rank), megatron
(iter_<step>/ and latest_checkpointed_iteration.txt, which goes as far as step N of --track),
deepspeed (global_step<step>/ and latest, likewise), lightning (last.ckpt each time, and
epoch=0-step=<step>.ckpt each second time). Where a rank starts is
a line "GENERATION RANK STEP MUSTER_RESUME_PATH" in DIRECTORY.log. Rank 0 of the
first generation ends itself by SIGKILL after step FAIL-AT, once DIRECTORY.go is
there. A rank that starts from a step of --poison ends with code 7 at once, as if what was
saved were the state that it dies of. Generations after the first wait after step N of
--wait until DIRECTORY.on is there. Only torch needs PyTorch, the others nothing.
"""
import argparse
import json
import os
import pickle
import signal
import struct
import sys
import time
import zipfile

p = argparse.ArgumentParser()
p.add_argument("directory")
p.add_argument("last", type=int)
p.add_argument("fail_at", type=int)
p.add_argument("--resume")
p.add_argument("--kind", default="safetensors")
p.add_argument("--every", type=int, default=5)
p.add_argument("--wait", type=int)
p.add_argument("--track", type=int, default=1 << 30)
p.add_argument("--poison", type=int, action="append", default=[])
o = p.parse_args()
rank = int(os.environ["RANK"])


def write_safetensors(name, step):
    header = json.dumps({"step": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}).encode()
    with open(name, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + struct.pack("<f", step) * 1000)


def read_safetensors(name):
    with open(name, "rb") as f:
        return int(struct.unpack("<f", f.read()[-4:])[0])


def write_torch(name, step):
    import torch
    torch.save({"step": step, "w": torch.zeros(100, 100)}, name)


def read_torch(name):
    import torch
    return torch.load(name)["step"]


def write_trainer(name, step):
    os.makedirs(name, exist_ok=True)
    write_safetensors(f"{name}/model.safetensors", step)
    with open(f"{name}/trainer_state.json", "w", encoding="utf-8") as f:
        json.dump({"global_step": step, "log_history": [{"step": step, "eval_loss": abs(step - 10)}]}, f)


def write_ranks(name, step):
    os.makedirs(name)
    for r in range(int(os.environ["WORLD_SIZE"])):
        with open(f"{name}/rng_state_{r}.pth", "wb") as f:
            f.write(b"\x80\x02}.")
    write_trainer(name, step)


def write_accelerate(name, step):
    os.makedirs(f"{name}/unet")
    write_safetensors(f"{name}/unet/model.safetensors", step)
    for part in ("optimizer.bin", "scheduler.bin", "random_states_0.pkl"):
        with open(f"{name}/{part}", "wb") as f:
            f.write(b"\x80\x02}.")


def read_accelerate(name):
    return read_safetensors(f"{name}/unet/model.safetensors")


def read_trainer(name):
    return read_safetensors(f"{name}/model.safetensors")


def write_parts(name, step, part):
    os.makedirs(os.path.dirname(f"{name}/{part}"))
    with open(f"{name}/{part}", "wb") as f:
        f.write(b"\x80\x02}.")
    with open(f"{name}/step.txt", "w", encoding="utf-8") as f:
        f.write(str(step))


def read_parts(name):
    with open(f"{name}/step.txt", encoding="utf-8") as f:
        return int(f.read())


def track(file, text, step):
    if step <= o.track:
        with open(f"{o.directory}/{file}", "w", encoding="utf-8") as f:
            f.write(text)


def write_megatron(name, step):
    write_parts(name, step, "mp_rank_00/model_optim_rng.pt")
    track("latest_checkpointed_iteration.txt", str(step), step)


def write_deepspeed(name, step):
    write_parts(name, step, "mp_rank_00_model_states.pt")
    track("latest", os.path.basename(name), step)


def write_lightning(name, step):
    if step // o.every % 2 == 0:
        write_archive(name, step)
    write_archive(name.rsplit("/", 1)[0] + "/last.ckpt", step)


def write_archive(name, step):
    """As torch.save: stored files in a ZIP archive, under a name of its own until it is whole."""
    with zipfile.ZipFile(name + ".part", "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", pickle.dumps({"epoch": 0, "global_step": step}, protocol=2))
        z.writestr("archive/version", "3\n")
    os.rename(name + ".part", name)


def read_archive(name):
    with zipfile.ZipFile(name) as z:
        return pickle.loads(z.read("archive/data.pkl"))["global_step"]


names, write, read = {
    "safetensors": ("model-%d.safetensors", write_safetensors, read_safetensors),
    "torch": ("model-%d.pt", write_torch, read_torch),
    "trainer": ("checkpoint-%d", write_trainer, read_trainer),
    "ranks": ("checkpoint-%d", write_ranks, read_trainer),
    "accelerate": ("checkpoint-%d", write_accelerate, read_accelerate),
    "megatron": ("iter_%07d", write_megatron, read_parts),
    "deepspeed": ("global_step%d", write_deepspeed, read_parts),
    "lightning": ("epoch=0-step=%d.ckpt", write_lightning, read_archive),
}[o.kind]

step = read(o.resume) if o.resume else 0
fd = os.open(o.directory + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.write(fd, f"{os.environ['MUSTER_GENERATION']} {rank} {step} {os.environ.get('MUSTER_RESUME_PATH')}\n".encode())
if step in o.poison:
    sys.exit(7)
while step < o.last:
    step += 1
    if step % o.every == 0 and rank == 0:
        os.makedirs(o.directory, exist_ok=True)
        write(f"{o.directory}/" + names % step, step)
    if step == o.fail_at and os.environ["MUSTER_GENERATION"] == "1":
        if rank:
            time.sleep(1000)
        while not os.path.exists(o.directory + ".go"):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    while step == o.wait and os.environ["MUSTER_GENERATION"] != "1" and not os.path.exists(o.directory + ".on"):
        time.sleep(0.01)
