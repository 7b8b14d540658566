# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save with tensors of all sorts, and what muster makes of them.

  make DIR            writes them
  check FILE MADE...  whether MADE, a safetensors file, has just the tensors of FILE, bit by bit;
                      and MADE.list their names, types and shapes, as muster ckpt show has them
  dcp DIR             a directory of torch.distributed.checkpoint, of each of two ranks a part;
                      and DIR.pt, the same as a whole
"""
import collections
import json
import pathlib
import struct
import sys

import torch

NAMES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16",
         "int8": "I8", "uint8": "U8", "bool": "BOOL", "complex64": "C64", "uint16": "U16", "uint32": "U32", "uint64": "U64",
         "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
         "float8_e5m2fnuz": "F8_E5M2FNUZ"}


NEW = int(torch.__version__.partition(".")[0]) >= 2


def bits(n, dtype):
    """Bytes that are a tensor of n elements."""
    size = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (n * size,), dtype=torch.uint8)
    return torch.frombuffer(bytearray(raw.numpy().tobytes()), dtype=dtype)


def types():
    return {name: bits(12, getattr(torch, name)).reshape(3, 4) for name in NAMES if hasattr(torch, name)}


def layouts():
    base = torch.arange(24 * 35, dtype=torch.float32).reshape(24, 35)
    deep = torch.arange(2 * 3 * 4 * 5, dtype=torch.int32).reshape(2, 3, 4, 5)
    return {"base": base, "transposed": base.t(), "columns": base[:, 3:7], "rows": base[5:9], "every": base[::2, ::3],
            "row": base[3], "column": base[:, 3], "one": base[2, 2], "expanded": torch.arange(5.0).reshape(5, 1).expand(5, 7),
            "last": deep.contiguous(memory_format=torch.channels_last), "permuted": deep.permute(3, 0, 2, 1),
            "empty": torch.empty(0, 4), "none": torch.empty(3, 0).t(), "scalar": torch.tensor(2.5), "tied": base}


def nested():
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(4, 7)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "parameter": torch.nn.Parameter(torch.randn(3)),
            "list": [torch.ones(2), (torch.zeros(3), [torch.full((1,), 7.0)])], "step": 5, "name": "x", "none": None, "rate": 0.5,
            "more": collections.defaultdict(list, {"a": torch.ones(1)}), 3: torch.arange(3), -4: torch.arange(4), "ü.é": torch.ones(1)}


def odd():
    """What no safetensors file has the like of, or what no text leads to, beside what one has."""
    return {"right": torch.arange(5), "sparse": torch.eye(3).to_sparse(), "wide": torch.ones(2, dtype=torch.complex128),
            ("a", 1): torch.ones(1), **({"conjugate": torch.ones(2, dtype=torch.complex64).conj()} if NEW else {}),
            "quantized": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)}


class Net(torch.nn.Module):
    """A module that is saved as a whole."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 2, bias=False)
        self.rest = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)])
        self.tied = torch.nn.Parameter(torch.randn(4))
        self.register_buffer("kept", torch.arange(3))
        self.register_buffer("made", torch.arange(5), persistent=False)
        self.no_part = torch.ones(3)


KINDS = {"types": types, "layouts": layouts, "nested": nested, "odd": odd, "alone": lambda: torch.arange(9).reshape(3, 3), "module": Net}


def flatten(value, name=""):
    if isinstance(value, torch.nn.Module):
        value = value.state_dict()
    if isinstance(value, torch.Tensor):
        yield name or "tensor", value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from flatten(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for i, one in enumerate(value):
            yield from flatten(one, f"{name}.{i}" if name else str(i))


def load(path):
    value = torch.load(path, map_location="cpu", **({"weights_only": False} if NEW else {}))
    left_out = {"sparse", "wide", "conjugate", "quantized", "('a', 1)"}  # see odd()
    return {name: t for name, t in flatten(value) if name not in left_out}


def type_of(t):
    return NAMES[str(t.dtype).rpartition(".")[2]]


def raw(t):
    flat = t.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


def check_one(path, made):
    want = load(path)
    data = pathlib.Path(made).read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    wrong = sorted(set(want) ^ set(header))
    for name in set(want) & set(header):
        first, end = header[name]["data_offsets"]
        if (header[name]["dtype"], header[name]["shape"], data[begin + first:begin + end]) != (
                type_of(want[name]), list(want[name].shape), raw(want[name])):
            wrong.append(name)
    listed = pathlib.Path(made + ".list")
    if listed.exists() and listed.read_text().splitlines() != [
            f"{name} {type_of(t)} {list(t.shape)}" for name, t in sorted(want.items(), key=lambda one: one[0].encode())]:
        wrong.append("what is listed")
    print(f"{path}: wrong: {wrong}" if wrong else f"{path}: right {len(want)}")


def check(*files):
    for path, made in zip(files[::2], files[1::2]):
        check_one(path, made)


def make(directory):
    directory = pathlib.Path(directory)
    for name, of in KINDS.items():
        torch.manual_seed(len(name))
        value = of()
        torch.save(value, directory / f"{name}.pt")
        if name != "odd":
            known = {k: v for k, v in value.items() if type_of(v)[0] != "F" or "8_" not in type_of(v)} if name == "types" else value
            known = {k: v for k, v in known.items() if k not in ("uint16", "uint32", "uint64")} if name == "types" else known
            torch.save(known, directory / f"{name}-old.pt", _use_new_zipfile_serialization=False)
        torch.save(value, directory / f"{name}-4.pt", pickle_protocol=4)


def dcp(directory):
    import torch.distributed as dist
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed._tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1)
    whole = {"rows": torch.randn(7, 5), "columns": torch.randn(6, 9), "same": torch.randn(4), "deep": torch.randn(3, 4, 5).to(torch.bfloat16)}
    state = {"rows": distribute_tensor(whole["rows"], mesh, [Shard(0)]), "columns": distribute_tensor(whole["columns"], mesh, [Shard(1)]),
             "same": distribute_tensor(whole["same"], mesh, [Replicate()]), "deep": distribute_tensor(whole["deep"], mesh, [Shard(1)]),
             "turned": distribute_tensor(whole["columns"].t(), mesh, [Shard(1)]), "step": 4, "plain": torch.arange(4)}
    checkpoint.save({"model": state}, checkpoint_id=directory)
    if dist.get_rank() == 0:
        whole["turned"] = whole["columns"].t()
        whole["plain"] = torch.arange(4)
        torch.save({"model": whole}, directory + ".pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    {"make": make, "check": check, "dcp": dcp}[sys.argv[1]](*sys.argv[2:])
