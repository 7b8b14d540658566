# SPDX-License-Identifier: Apache-2.0
"""Ranks save and load sharded PyTorch states together, by muster.ckpt and through DCP.

    muster run ... ckpt_sharded.py DIRECTORY     the workers of the run save
    load_by(world, directory)                    processes forked here load

Who saves leaves digests of all tensors as they are whole; who loads, with weights of
its own at first and on another number of ranks, holds what it has then against them.
"""
import hashlib
import json
import os
import sys
import traceback

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP1
from torch.distributed.fsdp import ShardedStateDictConfig, StateDictType, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import muster.ckpt.dcp
from muster import ckpt

rank, world = 0, 1


def block():
    return torch.nn.Sequential(torch.nn.Linear(7, 13), torch.nn.LayerNorm(13), torch.nn.Linear(13, 3, bias=False))


def trained(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 7)).square().mean().backward()
        optimizer.step()
    return optimizer


def sharded():
    """FSDP2: rows of 13 and 3, of which with four ranks one has none."""
    model = fully_shard(block())
    optimizer = trained(model)
    weights, moments = get_state_dict(model, optimizer)
    return model, optimizer, {"model": weights, "optimizer": moments}


def parallel():
    """FSDP2 over tensor parallelism: not in the order of the mesh, where there is one."""
    if world != 4:
        return fully_shard(block())
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(block(), mesh["tensor"], {"0": ColwiseParallel()})
    return fully_shard(model, mesh=mesh["data"])


def older():
    """FSDP1, whose parts are ShardedTensors."""
    model = FSDP1(block(), device_id=torch.device("cpu"))
    config = ShardedStateDictConfig(_use_dtensor=False)
    with FSDP1.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, config):
        return model, model.state_dict()


def meshes():
    """Replicas of parts, both dimensions cut, types of one and two bytes, and none."""
    mesh = init_device_mesh("cpu", (2, world // 2) if world % 2 == 0 else (1, world))
    values = {
        "replicas": (torch.randn(10, 3), [Replicate(), Shard(0)]),
        "alike": (torch.randn(4, dtype=torch.float64), [Replicate(), Replicate()]),
        "both": (torch.randn(9, 11).to(torch.bfloat16), [Shard(1), Shard(0)]),
        "bytes": (torch.randn(16, 2).to(torch.float8_e4m3fn).view(torch.uint8), [Shard(0), Shard(0)]),
        "few": (torch.randn(1, 2), [Shard(0), Shard(0)]),
        "none": (torch.randn(0, 2), [Shard(0), Shard(1)]),
    }
    return {name: distribute_tensor(value, mesh, cuts) for name, (value, cuts) in values.items()}


def flat():
    """A range of elements of each rank, as ZeRO cuts."""
    whole = torch.randn(5, 19)
    begin, end = 95 * rank // world, 95 * (rank + 1) // world
    return whole, ckpt.Piece(whole.reshape(-1)[begin:end].clone(), (5, 19), flat=begin)


def whole(value):
    if isinstance(value, DTensor):
        return value.full_tensor()
    if hasattr(value, "local_shards"):
        to = torch.zeros(value.size()) if rank == 0 else None
        value.gather(0, to)
        return to if rank == 0 else torch.zeros(0)
    return value


def digests(state, path=""):
    """Of all tensors, whole, by rank 0; all have to come."""
    if isinstance(state, dict):
        return {k: v for key, child in state.items() for k, v in digests(child, f"{path}.{key}").items()}
    if not isinstance(state, torch.Tensor):
        return {path: state if isinstance(state, (int, float, bool)) else str(state)}
    t = whole(state).detach().contiguous().reshape(-1).view(torch.uint8)
    return {path: hashlib.sha256(t.numpy().tobytes()).hexdigest()}


def stock(root, there, state):
    """What PyTorch's own reader of safetensors makes of the files of four ranks."""
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    (step,) = (d for d in os.listdir(root) if d.startswith("step-"))
    names = [k for k in there if k.startswith((".fsdp2.model.", ".mesh.replicas", ".mesh.alike"))]
    flat_state = {**{f"fsdp2.model.{k}": v for k, v in state["fsdp2"]["model"].items()}, **{f"mesh.{k}": v for k, v in state["mesh"].items()}}
    into = {k[1:]: torch.zeros(flat_state[k[1:]].shape, dtype=flat_state[k[1:]].dtype) for k in names}
    dcp.load(into, storage_reader=HuggingFaceStorageReader(os.path.join(root, step)), no_dist=True)
    return len(names) > 5 and digests({k: v for k, v in into.items()}) == {k: there[k] for k in names}


def refusals(c):
    mesh = init_device_mesh("cpu", (world,))
    partial = DTensor.from_local(torch.ones(3), mesh, [Partial()])
    try:
        c.save(1, {"sum": partial})
    except TypeError as error:
        return "'sum'" in str(error) and "redistribute()" in str(error)
    return False


class OneFails(Exception):
    pass


def failing(planner, name):
    """One that fails of that on rank 1, when all others go on to save or load."""

    def fail(*_):
        raise OneFails(name)

    if rank == 1:
        setattr(planner, name, fail)
    return planner


def together(root, state):
    """What one rank fails of before it saves or loads fails all, which can go on then."""
    from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner

    told = []
    for call in (
        lambda: dcp.save(state, storage_writer=muster.ckpt.dcp.Writer(root, 1), planner=failing(DefaultSavePlanner(), "resolve_data")),
        lambda: dcp.save(state, storage_writer=muster.ckpt.dcp.Writer(root, 2)),
        lambda: dcp.load(state, storage_reader=muster.ckpt.dcp.Reader(root), planner=failing(DefaultLoadPlanner(), "resolve_tensor")),
        lambda: dcp.load(state, storage_reader=muster.ckpt.dcp.Reader(root)),
    ):
        try:
            call()
            told.append("")
        except BaseException as error:  # DCP's own has those of all ranks
            told.append(str(error))
    print(f"rank {rank}: {[t[:2000] for t in told]}", flush=True) if told[1] or told[3] else None
    first = "resolve_data" in told[0] and "rank 1: it cannot save" in told[0]
    return first and "resolve_tensor" in told[2] and "rank 1: the checkpoint" in told[2] and told[1] == told[3] == ""


class Ranks:
    """What each rank has: models of all kinds, and tensors in parts of all kinds."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.model, self.optimizer, self.first = sharded()
        both = get_model_state_dict(parallel())
        self.fsdp1, older_state = older()
        self.range_whole, self.piece = flat()
        self.meshes = meshes()
        self.state = {"fsdp2": self.first, "both": {"parallel": both}, "fsdp1": older_state}
        self.state.update({"mesh": self.meshes, "range": self.piece, "step": seed})

    def digests(self):
        """Of all of it, whole."""
        found = digests({**self.state, "fsdp2": self.first, "range": self.range()})
        del found[".step"]
        return found

    def range(self):
        mine = torch.zeros(95)
        mine[self.piece.flat : self.piece.flat + self.piece.local.numel()] = self.piece.local
        dist.all_reduce(mine)
        return mine


def save(root):
    """By the workers of the run, by DCP, and by a group of PyTorch."""
    r, facts = Ranks(1), {}
    with ckpt.Checkpoints(root) as c, ckpt.Checkpoints(root + ".group", group=ckpt.torch_group()) as d:
        facts["a sum that is not added up is refused"] = refusals(c)
        c.save(7, r.state, per_rank={"rank": rank}, wait=True)
        dcp.save({"a": r.first, "n": 5}, storage_writer=muster.ckpt.dcp.Writer(root + ".dcp", 9))
        d.save(8, r.meshes)
    facts["what one rank fails of in DCP"] = together(root + ".one", r.first)
    facts["range"] = torch.equal(r.range(), r.range_whole.reshape(-1))
    found = r.digests()
    if rank == 0:
        with open(root + ".json", "w") as f:
            json.dump(found, f)
    return facts


def load(root):
    r, facts = Ranks(100), {}
    group = ckpt.torch_group()
    with ckpt.Checkpoints(root, group=group) as c, ckpt.Checkpoints(root + ".group", group=group) as d:
        got = c.load(into=r.state, strict=True)
        facts["loaded"] = got.step == 7 and got.state["step"] == 1 and got.passed_over == 0
        facts["its own"] = got.per_rank == {"rank": rank}
        other = meshes()
        d.load(into=other, strict=True)
        facts["group"] = digests(other) == digests(r.meshes)
        anew = d.load().state  # no rank had a part of what has no elements
        facts["whole, made anew"] = digests(anew) == digests(r.meshes) and anew["none"].shape == (0, 2)
    with ckpt.Checkpoints(f"{root}.by{world}") as e:  # no group is given
        e.save(1, {"x": torch.ones(3)}, wait=True)
        facts["all of torch.distributed save together"] = len(os.listdir(f"{root}.by{world}")) == 1
    set_state_dict(r.model, r.optimizer, model_state_dict=r.first["model"], optim_state_dict=r.first["optimizer"])
    weights, moments = get_state_dict(r.model, r.optimizer)
    r.first = {"model": weights, "optimizer": moments}
    values = {"a": sharded()[2], "n": 0}
    dcp.load(values, storage_reader=muster.ckpt.dcp.Reader(root + ".dcp"))
    facts["dcp"] = values["n"] == 5 and digests(values["a"]) == digests(r.first)
    found = r.digests()
    if rank == 0:
        with open(root + ".json") as f:
            there = json.load(f)
        differ = [k for k in there.keys() | found.keys() if found.get(k) != there.get(k)]
        facts[f"{len(there)} digests ({differ})"] = not differ
        if world == 1:
            facts["PyTorch's reader of safetensors"] = stock(root, there, r.state)
    return facts


def take_part(call, root, **how):
    """The exit status of this rank."""
    global rank, world
    dist.init_process_group("gloo", **how)
    rank, world = dist.get_rank(), dist.get_world_size()
    bad = [name for name, is_so in call(root).items() if not is_so]
    print(f"rank {rank} of {world}: {call.__name__}, {'wrong: ' + ', '.join(bad) if bad else 'right'}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 1 if bad else 0


def load_by(n, root):
    """Whether that many processes load it. This one has no threads yet."""

    def child(i):
        status = 1
        try:
            status = take_part(load, root, init_method=f"file://{root}.meet{n}", rank=i, world_size=n)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    pids = []
    for i in range(n):
        pids.append(os.fork())
        if pids[-1] == 0:
            child(i)
    return [os.waitpid(pid, 0)[1] for pid in pids] == [0] * n


if __name__ == "__main__":
    sys.exit(take_part(save, sys.argv[1]))
