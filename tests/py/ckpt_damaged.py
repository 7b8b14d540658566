# SPDX-License-Identifier: Apache-2.0
"""What load() makes of checkpoints that are damaged, in a world of one. Prints TAP.

    ckpt_damaged.py DIRECTORY
    muster run ... ckpt_damaged.py DIRECTORY together    the workers load what that left
"""
import glob
import os
import sys

import numpy as np

import muster
from muster import ckpt

root = sys.argv[1]
count = 0
N = 3_000_000  # of float32: more than one block, so that those before a damaged one are filled


def ok(fact, name):
    global count
    count += 1
    print(f"{'ok' if fact else 'not ok'} {count} - {name}", flush=True)


def failure(call):
    """What it raises; None: nothing."""
    try:
        call()
    except Exception as error:
        return error
    return None


def path_of(where, step, name="r00000.safetensors"):
    return glob.glob(f"{where}/step-{step:012d}-*/{name}")[0]


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at, 2 if at < 0 else 0)
        byte = f.read(1)
        f.seek(-1, 1)
        f.write(bytes([byte[0] ^ 1]))


def filled(*names):
    return {name: np.full(N, -1, "f4") for name in names}


def make_partial(c, where):
    """The newer one is damaged inside `b`, and the older one has no `b`."""
    c.save(1, {"a": np.full(N, 1, "f4"), "k": 1})
    c.save(2, {"a": np.full(N, 2, "f4"), "b": np.full(N, 2, "f4"), "k": 2})
    flip(path_of(where, 2), -5_000_000)


def partial(where):
    with ckpt.Checkpoints(where) as c:
        make_partial(c, where)
        into = filled("a", "b")
        error = failure(lambda: c.load(into=into, strict=False))
        told = "step-000000000001-", "tensor 'b' is not in it", "damaged checkpoint that was passed over"
        ok(
            isinstance(error, ckpt.CheckpointError) and error.errno == 61 and all(text in str(error) for text in told),
            f"what can no longer be left as it was fails the load: {error}",
        )
        ok(isinstance(failure(lambda: c.load(into=filled("a", "b"))), ckpt.KeysError), "the default wants all of them")
        into = filled("a")
        got = c.load(into=into, strict=False)
        ok((got.step, got.state["k"]) == (2, 2) and (into["a"] == 2).all(), "who wants none of what is damaged has the newer one")
        c.save(1, {"a": np.full(N, 3, "f4"), "b": np.full(N, 3, "f4"), "k": 3})
        into = filled("a", "b", "c")
        got = c.load(into=into, strict=False)
        ok((got.step, got.state["k"], got.missing_keys) == (1, 3, ["c"]), "an older one that has both is loaded")
        ok([into[name].max() for name in "abc"] == [3, 3, -1], "and what neither has stays as it was")


def together():
    """Only the last rank wants `b`: all of them are refused."""
    rank = muster.rank()
    into = filled("a", "b") if rank == muster.world() - 1 else filled("a")
    with ckpt.Checkpoints(root + ".together") as c:
        error = failure(lambda: c.load(into=into, strict=False))
    print(f"rank {rank}: {getattr(error, 'errno', None)}: {error}", flush=True)


if sys.argv[2:] == ["together"]:
    together()
    sys.exit(0)
partial(root + ".partial")
with ckpt.Checkpoints(root + ".together") as c:
    make_partial(c, root + ".together")
print(f"1..{count}")
