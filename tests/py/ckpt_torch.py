# SPDX-License-Identifier: Apache-2.0
"""muster.ckpt and PyTorch's tensors, in a world of one: types, strides, devices, ties,
names, placements, and DCP; before that, one and three ranks load what ckpt_sharded.py
has saved. Prints TAP.

    ckpt_torch.py DIRECTORY SHARDED
"""
import ctypes
import itertools
import json
import os
import pathlib
import struct
import sys
import textwrap

import numpy as np
import torch
import torch.distributed.checkpoint as dcp

import ckpt_sharded
import muster.ckpt.dcp
from muster import _placed, ckpt

root, saved = sys.argv[1:]
count = 0


def ok(fact, name):
    global count
    count += 1
    print(f"{'ok' if fact else 'not ok'} {count} - {name}", flush=True)


def raises(kind, call, *texts):
    try:
        call()
    except kind as error:
        return all(text in str(error) for text in texts)
    return False


def raw(t):
    return t.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(raw(a), raw(b))


def zeros_like(state):
    return {k: zeros_like(v) if isinstance(v, dict) else torch.zeros_like(v) for k, v in state.items()}


DTYPES = """bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64
    complex64 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz float8_e8m0fnu float4_e2m1fn_x2""".split()


def of_bytes(name, n):
    """Any bits at all: what is no number has to come back, too."""
    dtype = getattr(torch, name)
    size = torch.empty(0, dtype=dtype).element_size()
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (n * size,), dtype=torch.uint8)
    return bits.view(dtype)


def types(c):
    state = {name: of_bytes(name, 24) for name in DTYPES if hasattr(torch, name)}
    c.save(1, state)
    ok(same(c.load(1).state, state), f"all {len(state)} types, made anew")
    into = {k: torch.zeros(t.shape, dtype=t.dtype) for k, t in state.items()}
    c.load(1, into=into)
    ok(same(into, state), "and in place")


def shapes(c):
    base = torch.arange(120, dtype=torch.float32).reshape(4, 5, 6)
    state = {
        "turned": base.permute(2, 0, 1),
        "every": base[::2, 1:4, ::3],
        "last": base.to(memory_format=torch.contiguous_format).unsqueeze(0).to(memory_format=torch.channels_last),
        "wide": torch.tensor([[1.0], [2.0]]).expand(2, 7),
        "conj": torch.complex(base, -base).conj(),
        "neg": torch.complex(base, -base).conj().imag,
        "0d": torch.tensor(7, dtype=torch.int16),
        "none": torch.empty(3, 0, 2),
        "parameter": torch.nn.Parameter(base.sum(0)),
        "buffer": torch.nn.Buffer(base.sum(1)) if hasattr(torch.nn, "Buffer") else base.sum(1),
    }
    c.save(2, state)
    ok(same(c.load(2).state, {k: v.detach().resolve_conj().resolve_neg() for k, v in state.items()}), "strided, empty, conjugated")
    into = {k: torch.zeros_like(v.detach().contiguous()) for k, v in state.items()}
    into["turned"] = torch.zeros(4, 5, 6).permute(2, 0, 1)
    into["every"] = torch.zeros(4, 5, 6)[::2, 1:4, ::3]
    into["conj"] = torch.zeros(4, 5, 6, dtype=torch.complex64).conj()
    c.load(2, into=into)
    ok(same(into, state), "into other strides, and what looks conjugated")
    ok(raises(TypeError, lambda: c.load(2, into={"wide": torch.zeros(2, 1).expand(2, 7)}), "'wide'", "expand"), "not into shared elements")
    meta = {"a": torch.empty(3, device="meta")}
    ok(raises(TypeError, lambda: c.save(3, meta), "'a'", "meta device", "to_empty()"), "the meta device is refused")
    ok(raises(TypeError, lambda: c.save(3, {"s": torch.eye(3).to_sparse()}), "'s'", "dense"), "so is what is sparse")
    ok(c.latest() == 2, "and nothing is left of that")


def ties(c):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = torch.nn.Embedding(11, 4)
            self.out = torch.nn.Linear(4, 11, bias=False)
            self.out.weight = self.inside.weight

    model = Tied()
    c.save(4, {"model": model.state_dict()})
    got = c.load(4).state["model"]
    ok(got["inside.weight"] is got["out.weight"], "tied weights are tied when made anew")
    ok(torch.equal(got["out.weight"], model.out.weight), "with their values")
    other = Tied()
    c.load(4, into={"model": other.state_dict()})
    ok(torch.equal(other.out.weight, model.out.weight), "and loaded where they are tied")
    apart = {"model": {"inside.weight": torch.zeros(11, 4), "out.weight": torch.zeros(11, 4)}}
    c.load(4, into=apart)
    ok(all(torch.equal(t, model.out.weight) for t in apart["model"].values()), "or are not")
    c.save(5, apart)
    c.load(5, into={"model": other.state_dict()})
    ok(torch.equal(other.out.weight, model.out.weight), "alike, though not tied there")
    apart["model"]["out.weight"] = torch.ones(11, 4)
    c.save(6, apart)
    ok(
        raises(ValueError, lambda: c.load(6, into={"model": other.state_dict()}), "'model.inside.weight' and 'model.out.weight'", "differ"),
        "what differs there cannot be one here",
    )


def memory(c):
    """What is the same memory, and is not what it looks; and ranges of what has gaps."""
    z = torch.complex(torch.arange(6.0), torch.ones(6))
    c.save(7, {"z": z, "conj": z.conj(), "imag": z.imag, "neg": z.conj().imag})
    got = c.load(7).state
    ok(torch.equal(got["conj"], z.conj()) and torch.equal(got["neg"], -z.imag), "conjugated is not tied to itself")
    grid = torch.arange(24.0).reshape(4, 6)
    array = np.arange(24, dtype="i2").reshape(4, 6)
    c.save(7, {"t": ckpt.Piece(grid.t(), (24,), flat=0), "n": ckpt.Piece(array.T, (24,), flat=0)})
    got = c.load(7).state
    ok(torch.equal(got["t"], grid.t().reshape(-1)) and (got["n"] == array.T.reshape(-1)).all(), "a range out of strided memory")
    grid, array = torch.zeros(4, 6), np.zeros((4, 6), "i2")
    c.load(7, into={"t": ckpt.Piece(grid.t(), (24,), flat=0), "n": ckpt.Piece(array.T, (24,), flat=0)})
    ok(torch.equal(grid, torch.arange(24.0).reshape(4, 6)) and (array == np.arange(24).reshape(4, 6)).all(), "and into it")
    shared = np.lib.stride_tricks.as_strided(np.zeros(1, "i2"), (24,), (0,))
    ok(raises(TypeError, lambda: c.load(7, into={"n": shared}), "'n'", "share their memory"), "not into shared elements of NumPy")
    whole = torch.zeros(24)
    c.read_tensor(7, "t", whole)
    ok(torch.equal(whole, got["t"]), "one tensor by itself")


def overlapping(c):
    """Views of one memory that reach into each other's."""
    c.save(7, {"flat": torch.arange(30.0), "head": torch.arange(12.0), "tail": torch.arange(10.0, 30), "n": np.arange(9), "m": np.arange(4, 9)})
    t, n = torch.zeros(30), np.zeros(9, int)
    into = {"flat": t, "head": t[:12], "tail": t[10:], "n": n, "m": n[4:]}
    c.load(7, into=into)
    ok(torch.equal(t, torch.arange(30.0)) and (n == np.arange(9)).all(), "views that overlap in part, and agree")
    for name, other in (("tail", torch.arange(20.0)), ("head", torch.ones(12)), ("m", np.zeros(5, int))):
        state = {"flat": torch.arange(30.0), "head": torch.arange(12.0), "tail": torch.arange(10.0, 30), "n": np.arange(9), "m": np.arange(4, 9)}
        c.save(7, {**state, name: other})
        ok(raises(ValueError, lambda: c.load(7, into=into), "overlap in memory", "differ"), f"and where '{name}' does not, that is told")
    wide = torch.zeros(30)
    c.save(7, {"all": torch.arange(30.0), "first": torch.arange(3.0), "far": torch.arange(20.0, 25) + 1})
    ok(raises(ValueError, lambda: c.load(7, into={"all": wide, "first": wide[:3], "far": wide[20:25]}), "overlap in memory", "differ"), "nor in one behind another one's end, in the memory of all")
    c.save(7, {"a": torch.zeros(5, 3), "b": torch.ones(5, 3)})
    whole = torch.full((5, 6), 7.0)
    c.load(7, into={"a": whole[:, ::2], "b": whole[:, 1::2]})
    ok(torch.equal(whole, torch.tensor([0.0, 1.0]).repeat(5, 3)), "views that only take turns")


def damage(where, n):
    """That of them in which all n numbers are 3."""
    for path in pathlib.Path(where).glob("step-*/r00000.safetensors"):
        with open(path, "r+b") as f:
            at = f.read().find(struct.pack("9f", *[3] * 9))
            if at >= 0:
                f.seek(at + 3 * n)
                f.write(b"damage")


def again(where):
    """One step saved twice: all that is loaded is of the same one."""
    n = 2 << 20  # floats: more than is verified together
    with ckpt.Checkpoints(where) as c:
        c.save(7, {"a": torch.zeros(n), "n": 1, "only": torch.ones(1)})
        c.load(7)
        c.save(7, {"a": torch.ones(n), "n": 2})
        got = c.load(7).state
        ok(got["n"] == 2 and got["a"].all() and "only" not in got, "a step that was saved again")
        c.save(7, {"a": torch.full((n,), 3.0), "n": 3})
        damage(where, n)
        got = c.load(7)
        ok((got.passed_over, got.state["n"]) == (1, 2) and (got.state["a"] == 1).all(), "and damaged: the one before of that step")


def again_through_dcp(where):
    """What a reader has looked at, and what it loads, are of one save."""
    n = 2 << 20
    dcp.save({"a": torch.zeros(n), "k": 1}, storage_writer=muster.ckpt.dcp.Writer(where, 7))
    dcp.save({"a": torch.full((n,), 3.0), "k": 2}, storage_writer=muster.ckpt.dcp.Writer(where, 7))
    damage(where, n)
    got = {"a": torch.ones(n), "k": 0}
    dcp.load(got, storage_reader=muster.ckpt.dcp.Reader(where))
    ok((got["a"] == 0).all() and got["k"] == 1, "a step that was saved again, and damaged: all is of the one before")


def again_described(where):
    """The same where it is the description that is damaged, and no tensor that is loaded."""
    m, p = 3 << 20, 2 << 20  # between those and the description there is what is not read
    with ckpt.Checkpoints(where) as c:
        c.save(7, {"m": torch.zeros(m), "p": torch.zeros(p), "k": 1})
        c.load(7)
        c.save(7, {"m": torch.full((m,), 3.0), "p": torch.zeros(p), "k": 2})
        c.load(7)
    for path in pathlib.Path(where).glob("step-*/r00000.safetensors"):
        with open(path, "r+b") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            begin = f.tell()
            if f.read(4) == struct.pack("f", 3):
                f.seek(begin + header[".blob/python.tree"]["data_offsets"][0])
                f.write(b"damage")
    got = {"m": torch.ones(m), "k": 0}
    dcp.load(got, storage_reader=muster.ckpt.dcp.Reader(where))
    ok((got["m"] == 0).all() and got["k"] == 1, "one whose description is damaged: all is of the one before")


def gathering(where):
    """What a group raises comes out of the call, and out of no other."""
    gone = []

    def gather(data):
        if gone:
            raise ConnectionError(f"gone, call {gone.pop()}")
        return [data, data]

    with ckpt.Checkpoints(where, group=(0, 2, gather)) as c:
        gone += [2, 1]
        ok(raises(ConnectionError, lambda: c.save(1, {"a": torch.ones(1)}), "gone, call 1"), "a group that fails")
        gone.clear()
        ok(c.latest() is None, "and works again")


def unnamed():
    """A process group of which nobody says by what."""
    import torch.distributed as dist

    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    for group in (None, dist.new_group([0])):
        rank, world, gather = ckpt.torch_group(group)
        ok((rank, world, gather(b"abc")) == (0, 1, [b"abc"]), f"a process group that is {dist.get_backend(group)}")
    dist.destroy_process_group()


def names(c):
    c.save(7, {"a": torch.ones(2), "b": torch.ones(3), "l": [torch.ones(1), 5]})
    into = {"a": torch.zeros(2), "new": torch.zeros(4)}
    ok(raises(ckpt.KeysError, lambda: c.load(7, into=into), 'Missing key(s): "new"'), "a missing one is told")
    ok(raises(RuntimeError, lambda: c.load(7, into=into, strict=True), 'Missing key(s): "new"; Unexpected key(s): "b", "l.0"'), "all of them, as PyTorch does")
    ok(not into["a"].any(), "and nothing was loaded")
    got = c.load(7, into=into, strict=False)
    ok(into["a"].all() and not into["new"].any(), "not strict: what is there")
    ok((got.missing_keys, got.unexpected_keys) == (["new"], ["b", "l.0"]), "the rest is told")
    ok(got.state.keys() == {"a", "l"} and got.state["l"] == [None, 5], "and left out")
    got = c.load(7, into={"a": torch.zeros(2)})
    ok(got.unexpected_keys == ["b", "l.0"] and got.state["b"].all(), "or made anew")
    got = c.load(7, into={"a": torch.zeros(2), "b": torch.zeros(3), "l": [torch.zeros(1)]}, strict=True)
    ok(got.missing_keys == got.unexpected_keys == [], "none of either")


def own(c):
    """Tensors that each rank has of its own."""
    torch.manual_seed(3)
    few = of_bytes("float8_e5m2", 3)
    state = {"cpu": torch.get_rng_state(), "bf16": torch.arange(6.0).bfloat16().reshape(2, 3).t(), "few": [few, torch.empty(0)]}
    c.save(7, {}, per_rank=state)
    numbers = torch.rand(5)
    got = c.load(7).per_rank
    torch.set_rng_state(got["cpu"])
    ok(torch.equal(torch.rand(5), numbers), "the state of PyTorch's generator, as a rank's own")
    ok(same(got["bf16"], state["bf16"]) and all(map(same, got["few"], state["few"])), "tensors of other types")


def placements():
    """By torch's own arithmetic, which has the first place of each dimension."""
    from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
    from torch.distributed.tensor.placement_types import Replicate, Shard, _StridedShard

    kinds = [Replicate(), Shard(0), Shard(1)]
    pairs = list(itertools.product(kinds, kinds)) + [(_StridedShard(0, split_factor=2), Shard(0))]
    wrong, n = [], 0
    for shape, mesh, pair in itertools.product([(1, 1), (7, 5), (12, 8), (0, 3)], [(1, 2), (2, 2), (3, 2), (4, 3)], pairs):
        if isinstance(pair[0], _StridedShard) and mesh[1] != 2:
            continue
        seen = torch.zeros(shape)
        for mine in itertools.product(range(mesh[0]), range(mesh[1])):
            n += 1
            dims = _placed.runs_of(shape, mesh, mine, pair)
            lengths = tuple(sum(b - a for a, b in runs) for runs in dims)
            size, at = _compute_local_shape_and_global_offset(shape, mesh, list(mine), pair)
            if lengths != tuple(size) or (0 not in lengths and tuple(runs[0][0] for runs in dims) != tuple(at)):
                wrong.append((shape, mesh, pair, mine, dims, size, at))
            for box in _placed.boxes(dims):
                seen[tuple(slice(a, a + k) for a, k in zip(box.at, box.len))] += 1
        copies = torch.full(shape, float(mesh[0] * mesh[1]))
        for k, p in zip(mesh, pair):
            copies /= 1 if isinstance(p, Replicate) else k
        if not torch.equal(seen, copies):
            wrong.append((shape, mesh, pair, seen))
    ok(not wrong, f"{n} placements are where PyTorch has them, and none is left out")
    for one in wrong[:3]:
        print("#", one)
    ok(_placed.shard([(0, 12)], 2, 1, 3) == [(2, 4), (6, 8), (10, 12)], "stripes that do not meet")


def trained(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 / seed)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(5, 6)).square().mean().backward()
        optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": seed, "list": [seed, {"x": None}]}


def equal(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return same(a, b) if isinstance(a, torch.Tensor) else a == b


def through_dcp(where):
    first, second = trained(1), trained(2)
    dcp.save(first, storage_writer=muster.ckpt.dcp.Writer(where, 10, keep=2))
    got = trained(3)
    newest = muster.ckpt.dcp.Reader(where)
    dcp.load(got, storage_reader=newest)
    ok(equal(got, first), "dcp.save() and dcp.load()")
    dcp.save(second, checkpoint_id="20", storage_writer=muster.ckpt.dcp.Writer(where))
    dcp.load(got, storage_reader=newest)
    ok(equal(got, second), "a reader without a step takes what is the newest then")
    with ckpt.Checkpoints(where) as c:
        got = trained(3)
        found = c.load(into={"model": got["model"]})
        ok(found.step == 20 and equal(got["model"], second["model"]), "Checkpoints loads what DCP saved")
        ok(equal(found.state["optimizer"]["state"]["0"], second["optimizer"]["state"][0]), "nested as it was")
        c.save(30, trained(4))
        got = trained(3)
        dcp.load(got, storage_reader=muster.ckpt.dcp.Reader(c))
        ok(equal(got, trained(4)), "DCP loads what Checkpoints saved")
        dcp.load(got, storage_reader=muster.ckpt.dcp.Reader(c, 10))
        ok(equal(got, first), "of a step that is asked for")
        ok(c.latest() == 30, "what was open stays open")
    state = {"model": first["model"], "more": torch.zeros(1)}
    ok(raises(BaseException, lambda: dcp.load(state, storage_reader=muster.ckpt.dcp.Reader(where)), "more"), "a missing key is DCP's error")
    ok(raises(ValueError, lambda: muster.ckpt.dcp.Writer(where).reset("best"), "number of a step"), "a checkpoint_id is a step")
    if hasattr(torch, "float4_e2m1fn_x2"):
        four = {"four": of_bytes("float4_e2m1fn_x2", 24).reshape(4, 6)}
        dcp.save(four, storage_writer=muster.ckpt.dcp.Writer(where, 35))
        got = {"four": torch.zeros(4, 6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}
        dcp.load(got, storage_reader=muster.ckpt.dcp.Reader(where, 35))
        ok(same(got, four), "two elements a byte, through DCP")
    with ckpt.Checkpoints(where + ".cut") as c:
        c.save(1, {"a": torch.zeros(3)})
        path = next(pathlib.Path(where + ".cut").glob("step-*/r00000.safetensors"))
        os.truncate(path, path.stat().st_size - 1)
        for reader in (muster.ckpt.dcp.Reader(c), muster.ckpt.dcp.Reader(c, 1)):
            ok(raises(ckpt.CheckpointError, reader.read_metadata, "is whole (muster ckpt verify ", "step-000000000001-"), "a damaged one is not none to a reader")
    with ckpt.Checkpoints(where + ".few") as c, ckpt.Checkpoints(where + ".few", keep=1) as other:
        other.save(1, {"w": torch.ones(3)})
        reader, got = muster.ckpt.dcp.Reader(c), {"w": torch.zeros(3)}
        reader.prepare_global_plan = lambda plans: other.save(2, {"w": 2 * torch.ones(3)}) and plans
        dcp.load(got, storage_reader=reader)
        ok(got["w"].eq(2).all(), "where that was replaced since it was planned, the newer one")
    taken = {"dcp": {"lengths": torch.tensor([7, 8])}, "x": 5}
    writer = muster.ckpt.dcp.Writer(where, 36)
    ok(raises(BaseException, lambda: dcp.save(taken, storage_writer=writer), "'dcp.lengths'", "expected another name"), "a name that is taken")
    wide = {"w": torch.arange(12.0).reshape(3, 4) / 7, "n": torch.arange(5), "many": [torch.ones(2)]}
    dcp.save(wide, storage_writer=muster.ckpt.dcp.Writer(where, 37))
    narrow = {"w": torch.zeros(4, 3, dtype=torch.bfloat16).t(), "n": torch.zeros(5, dtype=torch.float64), "many": [torch.zeros(2)]}
    dcp.load(narrow, storage_reader=muster.ckpt.dcp.Reader(where, 37))
    ok(torch.equal(narrow["w"], wide["w"].bfloat16()) and torch.equal(narrow["n"], wide["n"].double()), "converted to the types of who loads")
    ok(narrow["many"][0].all(), "beside what is of the same type")
    future = dcp.async_save(first, storage_writer=muster.ckpt.dcp.Writer(where, 40), no_dist=True)
    future.result()
    got = trained(3)
    dcp.load(got, storage_reader=muster.ckpt.dcp.Reader(where))
    ok(equal(got, first), "dcp.async_save()")


class OnMock(torch.Tensor):
    """One whose memory is that of a driver without a GPU: what PyTorch itself does with
    it happens in the driver's view of that."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: torch.device("cuda", 0))

    def detach(self):
        return self

    def data_ptr(self):
        return self.address


def on_mock(driver, values):
    size = values.numel() * values.element_size()
    address = driver.mock_cuda_alloc(ctypes.c_size_t(size), 0)
    view = (ctypes.c_char * size).from_address(driver.mock_cuda_view(ctypes.c_void_p(address)))
    made = torch.Tensor._make_subclass(OnMock, torch.frombuffer(view, dtype=values.dtype).view(values.shape))
    made.address = address
    made.copy_(values)
    return made


def device(c, path):
    """Such tensors are copied by the driver, and stay where they are."""
    driver = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    driver.mock_cuda_alloc.restype = driver.mock_cuda_view.restype = ctypes.c_void_p
    values = torch.randn(700, 900)
    state = {"a": on_mock(driver, values), "b": torch.ones(3), "none": torch.empty(0)}
    n = driver.mock_cuda_copies()
    c.save(9, state)
    ok(driver.mock_cuda_copies() > n, "a CUDA tensor is saved through the driver")
    state["a"].zero_()
    n = driver.mock_cuda_copies()
    c.load(9, into=state)
    ok(driver.mock_cuda_copies() == n + 1, "and loaded")
    ok(torch.equal(state["a"].as_subclass(torch.Tensor), values), "as it was")
    c.save(10, state, lazy=True)
    c.fence()
    ok(torch.equal(c.load(10).state["a"], values), "lazily, too, and onto the CPU")
    driver.mock_cuda_fail(b"get", 1, 700)
    ok(raises(OSError, lambda: c.save(11, state), "CUDA_ERROR_ILLEGAL_ADDRESS"), "what the driver fails of is told")


def told(text, where, name):
    """A loop of the documents, as a user takes it: three steps, and three more in another life."""
    code = textwrap.dedent(text[text.index("    def state()") :] if "    def state()" in text else text)
    code = code.replace("/scratch/run", where).replace("every_steps=100", "every_steps=1").replace("    ...\n", "    train()\n")
    rates, steps = [], []
    for life in (1, 2):
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.5 / life, betas=(0.5 / life, 0.9))

        def train():
            steps.append(life)
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
            rates.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["betas"][0]))

        exec(code, {"torch": torch, "ckpt": ckpt, "model": model, "optimizer": optimizer, "train": train, "last": 3 * life})
    ok(steps == [1] * 3 + [2] * 3, f"{name}: each step is taken once: {steps}")
    ok(set(rates) == {(0.5, 0.5)}, f"{name}: the optimizer goes on as it was: {rates[3:]}")


for world, name in ((1, "one loads what four have saved, bit by bit"), (3, "so do three")):
    ok(ckpt_sharded.load_by(world, saved), name)
with ckpt.Checkpoints(root) as c:
    types(c)
    shapes(c)
    ties(c)
    memory(c)
    overlapping(c)
    names(c)
    own(c)
    placements()
    device(c, os.path.join(os.environ["MUSTER_BUILDDIR"], "tests/lib/libcuda.so.1"))
    if torch.cuda.is_available():
        state = {"a": torch.randn(33, 7, device="cuda").t(), "b": torch.randn(5, device="cuda", dtype=torch.bfloat16)}
        c.save(8, state)
        into = {k: torch.zeros_like(t) for k, t in state.items()}
        c.load(8, into=into)
        ok(all(torch.equal(into[k], t) and into[k].is_cuda for k, t in state.items()), "to the GPU and back")
    else:
        count += 1
        print(f"ok {count} # SKIP no GPU here")
again(root + ".again")
again_through_dcp(root + ".again.dcp")
again_described(root + ".again.tree")
gathering(root + ".group")
unnamed()
guide = pathlib.Path(os.environ["MUSTER_SRCDIR"], "doc/python.md").read_text()
(loop,) = (block for block in guide.split("```python\n") if "set_state_dict(" in block.split("```")[0])
told(loop.split("```")[0], root + ".guide", "doc/python.md")
told(ckpt.__doc__.split("A lazy save")[0], root + ".help", "help(muster.ckpt)")
through_dcp(root + ".dcp")
print(f"1..{count}")
