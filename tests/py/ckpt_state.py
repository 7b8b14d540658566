# SPDX-License-Identifier: Apache-2.0
"""muster.ckpt in a world of one, and what other readers make of it. Prints TAP.

    ckpt_state.py DIRECTORY
"""
import gc
import json
import logging
import json
import os
import shutil
import sys
import time
import warnings
import weakref

import numpy as np
import torch

from muster import _arrays, ckpt

logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
count = 0


def ok(fact, name):
    global count
    count += 1
    print(f"{'ok' if fact else 'not ok'} {count} - {name}", flush=True)


def same(a, b):
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    return type(a) is type(b) and (a == b or a != a)


def raises(kind, call, text=""):
    try:
        call()
    except kind as error:
        return text in str(error)
    return False


def trained(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 8)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def plain_tensors():
    """What is taken the short way is the same as in general, and nothing else is taken so."""
    values = torch.arange(24.0).reshape(4, 6)
    plain = {"whole": values, "a row": values[1], "rows": values[1:3], "a parameter": torch.nn.Parameter(values)}
    plain.update({"a number": torch.tensor(3), "one of a column": values[:, :1][1:2], "no gradient": values.detach()})
    plain.update({str(t): torch.zeros(2, 3, dtype=t) for t in (torch.bool, torch.uint8, torch.bfloat16, torch.complex64)})
    for name, tensor in plain.items():
        known, memory = _arrays.plain_of(tensor), _arrays.memory_of(name, tensor, False)
        ok(
            known is not None
            and (known.dtype, known.place[1], known.place[0]) == (memory.dtype, memory.shape, memory.address)
            and known.place == memory.place
            and memory.strides is None
            and memory.after is None,
            f"{name}: a plain tensor",
        )
    cut = torch.zeros(8)
    getattr(cut, "untyped_storage", cut.storage)().resize_(4)
    others = {"turned": values.t(), "a column": values[:, 1], "expanded": torch.zeros(1).expand(3), "empty": values[:0]}
    others.update({"sparse": values.to_sparse(), "meta": values.to("meta"), "cut": cut, "negated": torch._neg_view(values)})
    others.update({"conjugated": torch.ones(2, dtype=torch.complex64).conj(), "nested": torch.nested.nested_tensor([values, values[0:1]])})
    others.update({"quantized": torch.quantize_per_tensor(values, 0.1, 0, torch.quint8), "an array": values.numpy(), "a number": 3})
    others["of another class"] = values.as_subclass(type("Mine", (torch.Tensor,), {}))
    others["without a shape"] = torch.nn.LazyLinear(2).weight
    for name, value in others.items():
        ok(_arrays.plain_of(value) is None, f"{name}: no plain one")


def states(seed):
    model, optimizer = trained(seed)
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "bf16": torch.randn(7, 3).to(torch.bfloat16),
        "turned": torch.randn(4, 6).t(),
        "every_other": torch.arange(20)[::2],
        "scalar": torch.tensor(3.5),
        "nothing": torch.empty(0, 5),
        "np": {"f": np.linspace(0, 1, 9).reshape(3, 3).T, "b": np.array([True, False]), "back": np.arange(5)[::-1], "none": np.zeros((0, 3))},
        "plain": {"epoch": 3, "lr": 0.1, "best": float("inf"), "none": None, 7: "seven", "t": (1, [2, "x"]), "raw": b"\0\1"},
    }


root = sys.argv[1]
plain_tensors()
first = states(1)
with ckpt.Checkpoints(root) as c:
    ok(c.load() is None, "nothing yet")
    c.save(100, first, per_rank={"rng": list(range(5))})
    ok(c.is_durable(), "durable")
    ok(c.is_durable(level="partner"), "which is more than a partner's copy")
    ok(raises(ckpt.CheckpointError, lambda: c.wait(level="remote"), "nothing takes checkpoints to a store"), "no store")
    ok(raises(ValueError, lambda: c.wait(level="disc"), "level 'disc'"), "nor such a level")
    ok(c.save(200, states(2), wait=True, skip=True) == 2, "nothing is in the way of a second one")
    ok(c.latest() == 200 and c.latest(below=200) == 100, "both are there")
    got = c.load(100)
    ok(got.step == 100 and same(got.state, first), "made anew: the same")
    ok(got.per_rank == {"rng": [0, 1, 2, 3, 4]}, "what is the rank's own")
    target = states(3)
    address = target["model"]["0.weight"].data_ptr()
    got = c.load(into=target)
    ok(got.step == 200 and same(got.state, states(2)), "the newest, in place")
    ok(got.state["model"]["0.weight"].data_ptr() == address, "the very memory")
    model, optimizer = trained(4)
    optimizer.load_state_dict(got.state["optimizer"])
    ok(same(optimizer.state_dict(), states(2)["optimizer"]), "an optimizer takes it")
    ok(raises(TypeError, lambda: c.save(1, {"a": {"b": object()}}), "'a.b' is a object"), "an object is refused")
    ok(raises(ValueError, lambda: c.save(1, {"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}), "'a.b'"), "names that meet")
    ok(raises(TypeError, lambda: c.save(1, {"z": torch.zeros(2, dtype=torch.complex128)}), "complex128, which safetensors files do not have: expected its real and imaginary parts"), "no such type in files")
    ok(raises(FileNotFoundError, lambda: c.load(150), "150"), "no such step")
    ok(raises(ValueError, lambda: c.save(2**64 + 5, {"a": 1}), "too large a number"), "one that is 5 in 64 bits")
    ok(raises(ValueError, lambda: c.load(2**64 + 99), "too large a number"), "to be loaded neither")
    newest = "step: expected a whole number, or None for the newest, found 'latest'"
    ok(raises(TypeError, lambda: c.load("latest"), newest), "what to load is no text")
    ok(raises(TypeError, lambda: c.load(1.5), "expected a whole number"), "nor a fraction")
    ok(raises(TypeError, lambda: c.map("latest"), "as latest() tells, found 'latest'"), "nor is what to map")
    ok(raises(TypeError, lambda: c.map_box(None, "a", (0,), (1,)), "found None"), "all of it or a part")
    ok(raises(TypeError, lambda: c.save("7", {"a": 1}), "found '7'"), "nor what to save")
    ok(raises(TypeError, lambda: c.due(None), "found None"), "nor what is due")
    ok(c.load(np.int64(100)).step == 100, "a number of NumPy is one")
    os.environ.pop("MUSTER_CHECKPOINT_DIR", None)
    ok(raises(ckpt.CheckpointError, lambda: ckpt.Checkpoints(), "MUSTER_CHECKPOINT_DIR"), "where none is given a variable names the directory")
    ok(raises(TypeError, lambda: c.save(1.5, {"a": 1}), "a whole number"), "a step that is no whole number")
    twins = {"a": torch.ones(2), "a\0b": torch.zeros(2)}
    ok(raises(ValueError, lambda: c.save(1, twins), "without zero bytes"), "a name that would be cut")
    ok(raises(ValueError, lambda: ckpt.Checkpoints(root + "\0x"), "without zero bytes"), "a path likewise")
    hidden = np.ma.array([1, 2], mask=[0, 1])
    ok(raises(TypeError, lambda: c.save(1, {"a": hidden}), "'a' is a masked array"), "a mask is not lost")
    uneven = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    ok(raises(TypeError, lambda: c.save(1, {"a": uneven}), "'a' is a nested tensor"), "a nested tensor")
    lazy = torch.nn.LazyLinear(3).state_dict()
    ok(raises(TypeError, lambda: c.save(1, {"m": lazy}), "'m.weight' is a parameter without a shape"), "one that is not made yet")
    cached, type_name = _arrays._number_of, _arrays._type_name
    _arrays._number_of, _arrays._type_name = cached.__wrapped__, lambda *_: "bfloat16"  # as of JAX
    ok(raises(TypeError, lambda: c.save(1, {"a": np.ones(2)}), "'a' is of type bfloat16, which NumPy itself"), "an array of others' types")
    _arrays._number_of, _arrays._type_name = cached, type_name
    ok(raises(TypeError, lambda: _arrays.empty("a.b", "F9", (1,), "torch"), "'a.b' is of type F9, which this PyTorch"), "a type of later ones")
    wrong = states(1)
    wrong["bf16"] = torch.zeros(7, 3)
    text = "tensor 'bf16' is BF16 [0:7, 0:3] there, and registered as F32 [0:7, 0:3]: expected the type and shape that it has there"
    ok(raises(ckpt.CheckpointError, lambda: c.load(into=wrong), text), "another type")
    ok(raises(ckpt.CheckpointError, lambda: c.load(into={"scalar": torch.zeros(1)}), "tensor 'scalar' is F32 []"), "a scalar is no vector")
    wrong["bf16"] = torch.zeros(3, 7, dtype=torch.bfloat16)
    ok(raises(ckpt.CheckpointError, lambda: c.load(into=wrong), "tensor 'bf16' is BF16 [0:7, 0:3] there"), "another shape")
    half = torch.zeros(4, 16)
    got = c.load(100, into={"model": {"2.weight": ckpt.Piece(half[:, :8], (4, 16), (0, 0))}})
    ok(torch.equal(half[:, :8], first["model"]["2.weight"][:, :8]) and not half[:, 8:].any(), "a piece")
    beside = ckpt.Piece(torch.zeros(4, 16), (4, 16), (1, 0))
    ok(raises(ckpt.CheckpointError, lambda: c.save(1, {"a": beside}), "does not lie in its shape"), "none of the size of the whole, but elsewhere")
    flat = torch.zeros(10)
    c.load(100, into={"model": {"2.weight": ckpt.Piece(flat, (4, 16), flat=3)}})
    ok(torch.equal(flat, first["model"]["2.weight"].flatten()[3:13]), "a flat range")

with ckpt.Checkpoints(root + ".many", keep=1) as c:
    many = {f"layer.{i}": torch.full((2,), float(i)) for i in range(20000)}
    gc.collect()
    passes = []
    gc.callbacks.append(lambda phase, told: passes.append(phase == "start" and told["generation"] > 0))
    c.save(1, many)
    found = c.load(1).state
    gc.callbacks.pop()
    ok(sum(passes) < 4, f"many tensors are not taken for garbage: {sum(passes)} passes")
    ok(gc.isenabled() and same(found, many), "which is looked for again after that")
    gc.disable()
    raises(TypeError, lambda: c.save(2, {"a": torch.ones(1), "b": object()}), "")
    ok(not gc.isenabled(), "who wants no such passes gets none")
    gc.enable()
    raises(TypeError, lambda: c.save(2, {"a": torch.ones(1), "b": object()}), "")
    ok(gc.isenabled(), "and who does does after a failure, too")

with ckpt.Checkpoints(root + ".lazy", keep=1) as c:
    replaced = torch.nn.Parameter(torch.full((4 << 20,), 7.0))
    c.save(1, {"w": replaced}, lazy=True)
    replaced.data = torch.zeros(1)  # as of module.half(), and of FSDP
    others = [torch.full((4 << 20,), 9.0) for _ in range(4)]
    c.fence()
    ok(bool((c.load(1).state["w"] == 7).all()), "memory that a lazy save reads stays, whatever its tensor has then")

class Told(logging.Handler):
    """What the logger has said."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


said = Told()
logging.getLogger("muster").addHandler(said)


def freed(tensor):
    """As FSDP does it with what it had gathered."""
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    storage.resize_(0)


with ckpt.Checkpoints(root + ".freed") as c:
    for step, what, end in (
        (1, "raised by fence()", lambda: raises(ckpt.CheckpointError, c.fence, text) and not said.texts),
        (2, "told by the next save()", lambda: c.save(20, {"x": torch.ones(3)}) and text in said.texts[0]),
        (30, "by load()", lambda: c.load() and text in said.texts[0]),
        (40, "by latest()", lambda: c.latest() and text in said.texts[0]),
        (50, "and by close()", lambda: c.close() is None and text in said.texts[0]),
    ):
        tensors = {str(i): torch.full((1000,), float(i)) for i in range(20)}
        c.save(step, tensors, lazy=True)
        freed(tensors["7"])
        said.texts.clear()
        text = f"step {step}: the memory of '7' was freed"
        ok(end() and len(said.texts) < 2, f"memory that is freed before the fence: {what}")

with ckpt.Checkpoints(root + ".freed.np") as c:
    array = np.ones(1000)
    c.save(1, {"a": array, "t": torch.ones(3)}, lazy=True)
    array.resize(1 << 20, refcheck=False)
    ok(raises(ckpt.CheckpointError, c.fence, "step 1: the memory of 'a' was freed"), "that of an array, too")


def before_step(optimizer, call):
    if hasattr(optimizer, "register_step_pre_hook"):  # of PyTorch 2.0
        optimizer.register_step_pre_hook(lambda *_: call())
        return
    step = optimizer.step
    optimizer.step = lambda *arguments: (call(), step(*arguments))[1]


def cut(tensor, n):
    """Its storage has only so many bytes."""
    (tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()).resize_(n)
    return tensor


with ckpt.Checkpoints(root + ".cut") as c:
    half = torch.arange(1000.0)
    rows = (torch.zeros(100, 20)[::3, 1:], torch.zeros(20, 100).T[5:], torch.zeros(100, 20, dtype=torch.complex64)[::3].conj())
    c.save(1, {"x": cut(half[:500], 2000), "none": cut(torch.zeros(0, 3), 0)})
    ok(bool((c.load().state["x"] == torch.arange(500.0)).all()), "a storage that has all that its tensor is of")
    for what, tensor, n in (
        ("nothing", torch.ones(1000), 0),
        ("a part", torch.ones(1 << 20), 4096),
        ("one byte less", torch.ones(1000), 3999),
        ("as much, but not from there", torch.ones(1000)[500:], 2000),
        ("a part of rows", rows[0], 4000),
        ("a part of columns", rows[1], 4000),
        ("a part of conjugated numbers", rows[2], 4000),
    ):
        text = f"of its storage, which has {n} bytes"
        ok(raises(ValueError, lambda: c.save(2, {"x": cut(tensor, n)}), text), f"the storage has {what}: refused")
        ok(raises(ValueError, lambda: c.load(1, into={"x": tensor}), text), "and nothing is loaded into it")
    ok(c.latest() == 1, "no checkpoint came of that")

with ckpt.Checkpoints(root + ".one") as c:
    views = lambda base: {"all": base, "one": base[:1, ::2][:, :1], "slice": base[0][1:2:3]}
    c.save(1, views(torch.arange(8.0).reshape(2, 4)))
    into = views(torch.zeros(2, 4))
    c.load(into=into)
    ok(same(into, views(torch.arange(8.0).reshape(2, 4))), "views of one element, whose strides are of no use")

with ckpt.Checkpoints(root + ".lost") as c:
    for step, what, end in (
        (10, "the next save()", lambda: c.save(11, {"w": torch.ones(3)})),
        (20, "load()", lambda: c.load() or True),
        (30, "close()", lambda: c.close() or True),
    ):
        c.save(step, {"w": torch.ones(1000)}, lazy=True)
        begun = lambda: [n for n in os.listdir(root + ".lost") if n.startswith(f"step-{step:012}")]
        while not begun():  # the thread that copies makes it
            time.sleep(0.01)
        while begun():  # it may put a file there meanwhile
            for name in begun():
                shutil.rmtree(os.path.join(root + ".lost", name), ignore_errors=True)
        said.texts.clear()
        ok(end() and any(f"the lazy save of step {step} has failed" in t for t in said.texts), f"one that fails at {what} is told")

if hasattr(torch, "set_default_device"):
    with ckpt.Checkpoints(root + ".device") as c:
        c.save(1, {"w": torch.ones(3), "n": 2}, per_rank={"g": torch.arange(3)})
        torch.set_default_device("meta")
        got = c.load()
        torch.set_default_device("cpu")
        ok(same(got.state["w"], torch.ones(3)) and same(got.per_rank["g"], torch.arange(3)), "what is made anew is on the CPU")

if hasattr(torch.autograd.graph, "increment_version"):
    with ckpt.Checkpoints(root + ".version") as c:
        w, x = torch.ones(3), torch.ones(3, requires_grad=True)
        c.save(1, {"w": w})
        loss = (w * x).sum()
        c.load(into={"w": w})
        ok(raises(RuntimeError, loss.backward, "modified by an inplace operation"), "what is loaded into, autograd knows of")
    with torch.inference_mode():
        into = torch.zeros(3)
        with ckpt.Checkpoints(root + ".version") as c:
            ok(same(c.load(into={"w": into}).state["w"], torch.ones(3)), "what it knows nothing of can be loaded into, too")

with ckpt.Checkpoints(root + ".steps") as c:
    ok(raises(ValueError, lambda: c.wait(-1), "save -1: expected"), "there is no save of a negative number")
    ok(raises(TypeError, lambda: c.save(1, {}, metrics=[1]), "metrics: expected names"), "metrics have names")
    ok(raises(TypeError, lambda: c.save(1, {}, metrics={"a": 10**400}), "metrics, 'a': expected a number"), "and are no larger than a float")
    ok(raises(TypeError, lambda: c.save(1, {}, metrics={"a": torch.ones(2)}), "metrics, 'a': expected a number"), "each of them one number")
    piece = ckpt.Piece(torch.empty(0), (0, 3), flat=0)
    c.save(5, {"nothing": piece})
    ok(c.load(5).state["nothing"].shape == (0, 3), "a range of a tensor without elements is all of it")
    shutil.rmtree(root + ".steps")

def odd(shape, strides, n):
    """Elements that lie at any bytes of so many."""
    return np.lib.stride_tricks.as_strided(np.frombuffer(bytearray(n), np.float32, n // 4), shape, strides)


with ckpt.Checkpoints(root + ".steps") as c:
    steps = (10**12, 10**17, 10**18, 2**63 - 2)
    for step in steps:
        c.save(step, {"step": step, "square": torch.arange(9.0).view(3, 3)})
    ok(all(c.load(step).state["step"] == step for step in steps) and c.latest() == steps[-1], "large numbers of steps")
    ok(raises(ckpt.CheckpointError, lambda: c.save(2**63 - 1, {}), "step"), "but no larger ones")
    for what, memory in (
        ("windows", torch.zeros(5).unfold(0, 3, 1)),
        ("twice the same", torch.zeros(10).as_strided((3, 3), (1, 1))),
        ("windows of an array", np.lib.stride_tricks.sliding_window_view(np.zeros(5, np.float32), 3, writeable=True)),
        ("halves of the next", odd((3, 3), (6, 2), 40)),
        ("the last bytes of a row and the first of the next", odd((3, 3), (10, 4), 40)),
    ):
        ok(raises(TypeError, lambda: c.load(into={"square": memory}), "share their memory"), f"into {what}")
    for what, memory in (
        ("woven", torch.zeros(11).as_strided((3, 3), (3, 2))),
        ("backwards", np.zeros((3, 3), np.float32)[::-1, ::-1]),
        ("turned", torch.zeros(3, 3).T),
        ("between odd bytes", odd((3, 3), (15, 5), 50)),
        ("woven at odd bytes", odd((3, 3), (5, 15), 50)[:, ::-1]),
    ):
        c.load(into={"square": memory})
        ok(np.array_equal(memory, np.arange(9.0).reshape(3, 3)), f"into one that is {what}")

moving = torch.arange(1 << 20, dtype=torch.float32)
array = np.arange(1 << 20)
watched = weakref.ref(array)
with ckpt.Checkpoints(root + ".lazy") as c:
    c.save(1, {"moving": moving, "n": 1}, lazy=True)
    total = float(moving[:8].sum())  # it may be read
    c.fence()
    moving += 1
    c.fence()
    ok(torch.equal(c.load(1).state["moving"], moving - 1), "a lazy save is of what was there before the fence")
    c.save(2, {"moving": moving * 1}, lazy=True)  # nobody else has it
    gc.collect()
    ok(c.load().step == 2, "to load is a fence")
    c.save(3, {"moving": moving}, lazy=True)
    c.save(4, {"moving": moving + 1}, lazy=True)
    ok(c.latest() == 4 and c.latest(below=4) == 3, "so is the next save, and to look for one")
    number = c.save(5, {"moving": moving}, lazy=True)
    c.wait(number)
    ok(c.is_durable(number), "one to wait for")
    model, optimizer = trained(5)
    before_step(optimizer, c.fence)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    c.save(6, {"model": model.state_dict()}, lazy=True)
    model(torch.randn(5, 8)).square().mean().backward()
    optimizer.step()
    ok(same(c.load().state["model"], before) and not same(model.state_dict(), before), "an optimizer with a fence before its step")
    c.save(7, {"array": array}, lazy=True)
    del array
    gc.collect()
    ok(watched() is not None, "what is copied is kept")
    c.fence()
    ok(watched() is None, "up to the fence")
    child = os.fork()
    if child == 0:
        c.close()
        os._exit(0)
    ok(os.waitpid(child, 0)[1] == 0, "a child has no part in it")
    c.save(8, {"last": torch.full((1 << 20,), 8.0)}, lazy=True)
with ckpt.Checkpoints(root + ".metrics") as c:
    c.save(1, {"x": torch.ones(3)}, metrics={"loss": torch.tensor(0.5), "bad": float("nan")})
    ok(c.load().step == 1, "metrics are saved along")
    saved = os.path.join(root + ".metrics", os.listdir(root + ".metrics")[0], "manifest.json")
    ok(json.load(open(saved))["state"]["metrics"] == {"loss": 0.5}, "those that are numbers")
def scheduled():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    later = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 4], gamma=0.5)
    first = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=5)
    return optimizer, torch.optim.lr_scheduler.SequentialLR(optimizer, [first, later], milestones=[5])


def rates(optimizer, schedule, n):
    found = []
    for _ in range(n):
        optimizer.step()
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found


with warnings.catch_warnings(), ckpt.Checkpoints(root + ".schedule") as c:
    warnings.simplefilter("ignore")
    optimizer, schedule = scheduled()
    rates(optimizer, schedule, 3)
    c.save(3, {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()})
    want = rates(optimizer, schedule, 8)
    optimizer, schedule = scheduled()
    got = c.load().state
    optimizer.load_state_dict(got["optimizer"])
    schedule.load_state_dict(got["schedule"])
    found = rates(optimizer, schedule, 8)
    ok(found == want, f"a schedule goes on past its milestones, of which one counts: {found}")
losses = {100: 3.0, 200: 1.0, 300: 2.0, 400: 4.0, 500: 5.0}
for name, options, want in (
    ("every", {"keep_every": 200}, [500, 400, 200]),
    ("best", {"keep_best": "metrics.loss"}, [500, 200]),
    ("highest", {"keep_best": "metrics.loss:max", "keep_every": 300}, [500, 300]),
    ("nobodys", {"keep_best": "metrics.los"}, [500]),
):
    with ckpt.Checkpoints(f"{root}.{name}", keep=1, **options) as c:
        for step, loss in losses.items():
            c.save(step, {"x": torch.ones(3)}, metrics={"loss": loss})
        left, below = [], 10**6
        while (below := c.latest(below)) is not None:
            left.append(below)
        ok(left == want, f"which stay by {options}: {left}")
keeping = lambda **options: lambda: ckpt.Checkpoints(root + ".none", **options)
ok(raises(ckpt.CheckpointError, keeping(keep_every=2), "all stay, as keep is 0"), "where all stay none is chosen to")
ok(raises(ckpt.CheckpointError, keeping(keep=1, keep_best=":max"), "keep_best is ':max'"), "a best one by what")
ok(raises(ValueError, keeping(keep=1, keep_best="a\0b"), "without zero bytes"), "a metric that would be cut")
ok(raises(ValueError, keeping(keep=2**32 + 1), "keep: 4294967297 is too large"), "as would numbers")
ok(raises(TypeError, keeping(keep=1.5), "keep: expected a whole number"), "of which there are no parts")
with ckpt.Checkpoints(root + ".lazy") as c:
    ok(bool((c.load().state["last"] == 8).all()), "close is a fence for who is alone")

with ckpt.Checkpoints(root) as c:
    got, found = c.load(), c.latest()
    mapped = c.map(found)
    ok(same(mapped.state, got.state) and mapped.step == got.step, "a state that is mapped is what is loaded")
    ok(same(c.map(found, verify=True).state, got.state), "and is right")
    model = trained(9)[0]
    try:
        model.load_state_dict(mapped.state["model"], assign=True)
    except TypeError:  # before PyTorch 2.1
        for weight, own in mapped.state["model"].items():
            model.get_parameter(weight).data = own
    ok(same(model.state_dict(), got.state["model"]), "a model takes it as it is")
    with torch.no_grad():
        model[0].weight.add_(1)
    ok(same(c.map(found).state, got.state), "what it changes is its own")
    name, kind = next((n, k) for n, k in c.describe(found)["tensors"].items() if n == "model.0.weight")
    part = c.map_box(found, name, (3, 2), (2, 5))
    ok(np.array_equal(part, got.state["model"]["0.weight"][3:5, 2:7].numpy()), "a box of it")
    row = c.map_box(found, name, (3, 0), (1, 8))
    ok(not row.flags.writeable and c.map_box(found, name, (3, 0), (1, 8), writable=True).flags.writeable, "to be read, or written to")
    ok(raises(ckpt.KeysError, lambda: c.map_box(found, "no.such", (0,), (1,)), "no.such"), "of a tensor that there is not")
    ok(raises(ValueError, lambda: c.map_box(found, name, (0,), (1,)), "2 dimensions"), "nor of so few dimensions")
    ok(raises(ckpt.CheckpointError, lambda: c.map_box(found, name, (15, 0), (2, 8)), "does not lie"), "nor outside of it")
    ok(raises(FileNotFoundError, lambda: c.map(found + 1)), "nor of another step")
ok(np.array_equal(row[0], got.state["model"]["0.weight"][3].numpy()), "it is there when all is closed")



class Vanishing(ckpt.Checkpoints):
    """A step is removed when it was seen: by latest(), or by describe()."""

    def __init__(self, by, step):
        super().__init__(root + ".gone")
        self.by, self.step = by, step

    def vanish(self, by, step):
        if (by, step) == (self.by, self.step):
            path = next(d for d in os.listdir(root + ".gone") if d.startswith(f"step-{step:012d}"))
            shutil.rmtree(os.path.join(root + ".gone", path))

    def _latest(self, *below):
        found = super()._latest(*below)
        self.vanish("latest", found)
        return found

    def _describe(self, step):
        described = super()._describe(step)
        self.vanish("describe", step)
        return described


with ckpt.Checkpoints(root + ".gone") as c:
    for i in (1, 2, 3, 4):
        c.save(i, {"x": torch.full((3,), float(i))})
for by, gone in (("latest", 4), ("describe", 3)):
    with Vanishing(by, gone) as c:
        got = c.load()
        ok((got.step, got.passed_over, got.state["x"][0]) == (gone - 1, 1, gone - 1), f"one that is removed after {by}()")
with Vanishing("describe", 2) as c:
    ok(raises(ckpt.CheckpointError, lambda: c.load(2), "step-000000000002-"), "asked for by its step")

step = max(d for d in os.listdir(root) if d.startswith("step-"))
path = os.path.join(root, step, "r00000.safetensors")
try:
    from safetensors.torch import load_file

    plain = load_file(path)
    ok(torch.equal(plain["model.0.weight"], states(2)["model"]["0.weight"]), "safetensors opens it")
except ImportError:
    print(f"ok {count + 1} # SKIP no safetensors")
    count += 1
try:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageReader
except ImportError:
    print(f"ok {count + 1} # SKIP this PyTorch has no HuggingFaceStorageReader")
    count += 1
else:
    state = {k: torch.zeros_like(v) for k, v in plain.items() if k.startswith("model.")}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(os.path.join(root, step)), no_dist=True)
    ok(same(state, {k: plain[k] for k in state}), "torch.distributed.checkpoint opens it")

with open(path, "r+b") as f:
    f.seek(-1, 2)
    last = f.read(1)
    f.seek(-1, 2)
    f.write(bytes([last[0] ^ 1]))
with ckpt.Checkpoints(root) as c:
    got = c.load()
    ok(got.step == 100 and got.passed_over == 1, "a damaged one is passed over")
    ok(same(got.state, first), "the one before is right")
print(f"1..{count}")
