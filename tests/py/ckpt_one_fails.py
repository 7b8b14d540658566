# SPDX-License-Identifier: Apache-2.0
"""Of two workers the last one fails of something before it saves or loads: both have an
exception, and none waits for the other. Each prints what it has of it.

    muster run ... ckpt_one_fails.py DIRECTORY
"""
import os
import sys

import numpy as np

import muster
from muster import _arrays, ckpt

is_last = muster.rank() == muster.world() - 1


def tell(what, call):
    try:
        call()
        print(f"rank {muster.rank()} {what}: nothing", flush=True)
    except (Exception, KeyboardInterrupt) as error:
        print(f"rank {muster.rank()} {what}: {getattr(error, 'errno', None)} {type(error).__name__}: {error}", flush=True)


def fails(*_):
    raise RuntimeError("out of memory")


class Odd(dict):
    def items(self):
        fails()


class Interrupted(dict):
    def items(self):
        raise KeyboardInterrupt("Ctrl-C")


def without_memory(call):
    """As on a rank that has no memory for what is made anew."""
    empty = _arrays.empty
    _arrays.empty = fails if is_last else empty
    try:
        call()
    finally:
        _arrays.empty = empty


state = {"a": np.arange(9.0), "k": 3}
with open(os.devnull) as file, ckpt.Checkpoints(sys.argv[1]) as c:
    tell("a file of its own", lambda: c.save(1, state, per_rank={"h": file if is_last else 1}))
    tell("a state", lambda: c.save(1, {**state, "o": Odd() if is_last else {}}))
    tell("a moment", lambda: c.save(1, {**state, "o": Interrupted() if is_last else {}}))
    tell("a step", lambda: c.save("1" if is_last else 1, state))
    tell("a number", lambda: c.save(-1 if is_last else 1, state))
    tell("metrics", lambda: c.save(1, state, metrics={"loss": "low" if is_last else 0.5}))
    tell("lazily", lambda: c.save(1, state, per_rank=file if is_last else 1, lazy=True))
    c.save(2, state, per_rank="mine", wait=True)
    tell("made anew", lambda: without_memory(c.load))
    tell("what is loaded", lambda: c.load("2" if is_last else 2))
    tell("into", lambda: c.load(into={"a": np.zeros(9), "o": Odd() if is_last else {}}))
    tell("where to", lambda: c.load(into={"a": ckpt.Piece(np.zeros(9), (9,), (-1,)) if is_last else np.zeros(9)}))
    got = c.load()
    right = got.step == 2 and got.per_rank == "mine" and (got.state["a"] == state["a"]).all()
    print(f"rank {muster.rank()} at last: {'right' if right else got}", flush=True)
