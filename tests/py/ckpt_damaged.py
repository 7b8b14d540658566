# SPDX-License-Identifier: Apache-2.0
"""What load() makes of checkpoints that are damaged, in a world of one. Prints TAP.

    ckpt_damaged.py DIRECTORY
    muster run ... ckpt_damaged.py DIRECTORY together    the workers load what that left
"""
import glob
import itertools
import json
import logging
import multiprocessing
import os
import shutil
import sys

import numpy as np

import muster
from muster import ckpt

root = sys.argv[1]
count = 0
N = 3_000_000  # of float32: more than one block, so that those before a damaged one are filled


warnings = []


class Keep(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())


logging.getLogger("muster").addHandler(Keep())


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


def cut(path):
    os.truncate(path, os.path.getsize(path) - 1)


def is_damage(error):
    return isinstance(error, ckpt.CheckpointError) and error.errno == 84 and "step-000000000001-" in str(error)


def only(where):
    """There is one, and it is damaged: nobody takes that for a directory with none."""
    for i, (what, name, damage, opens) in enumerate((
        ("a file that is cut", "r00000.safetensors", cut, False),
        ("a file that is gone", "r00000.safetensors", os.unlink, False),
        ("an index that is gone", "tensors.index", os.unlink, False),
        ("an index with a changed bit", "tensors.index", lambda path: flip(path, 40), True),
        ("a manifest with a changed bit", "manifest.json", lambda path: flip(path, 20), False),
        ("a COMMIT with a changed bit", "COMMIT", lambda path: flip(path, 20), False),
        ("a COMMIT that is cut", "COMMIT", cut, False),
        ("a tensor with a changed bit", "r00000.safetensors", lambda path: flip(path, -5_000_000), True),
    )):  # fmt: skip
        with ckpt.Checkpoints(f"{where}{i}") as c:
            c.save(1, filled("a", "b"))
            damage(path_of(f"{where}{i}", 1, name))
            errors = [failure(call) for call in (c.load, lambda: c.load(into=filled("a", "b")), lambda: c.load(1))]
            ok(all(map(is_damage, errors)), f"{what} and no other one: {errors[0]}")
            if opens:
                ok(c.latest() == 1, "latest() looks at no bytes")
            else:
                ok(is_damage(failure(c.latest)), "which is not none to latest()")
            ok(isinstance(failure(lambda: c.load(2)), FileNotFoundError), "though there is none of another step")


def counted(where):
    """What is passed over is counted, and told once, by its own reason."""
    with ckpt.Checkpoints(where) as c:
        for step in (100, 200, 300, 400):
            c.save(step, {"a": np.full(3, step), "k": step})
        cut(path_of(where, 200))
        cut(path_of(where, 300))
        del warnings[:]
        got = c.load(100)
        ok((got.step, got.passed_over, warnings) == (100, 0, []), "what is newer than a step that is asked for is not passed over")
        flip(path_of(where, 400), -1)
        got = c.load(into={"a": np.zeros(3, int)})
        ok((got.step, got.passed_over, got.state["k"]) == (100, 3, 100), "all that are newer count")
        told = " ".join(warnings)
        ok([told.count(f"step-000000000{step}-") for step in (100, 200, 300, 400)] == [0, 1, 1, 1], f"and are told once: {told}")
        ok("is whole" not in told, "as what they are")
        ok(c.latest() == 400 and c.latest(400) == 100, "latest() opens them, and looks at no bytes")
        error = failure(lambda: c.load(300))
        ok(error.errno == 84 and "step-000000000300-" in str(error) and "of step 300 in" in str(error), f"by its step: {error}")
        flip(path_of(where, 100), -1)
        del warnings[:]
        error = failure(c.load)
        told = f"no checkpoint in {os.path.abspath(where)} is whole (muster ckpt verify "
        ok(error.errno == 84 and told in str(error) and "; 4 passed over; step-000000000400-" in str(error), f"all of them: {error}")


def newest_of(where, step):
    def token(path):  # times of files may be the same
        with open(path + "/COMMIT") as f:
            return json.loads(f.readline())["token"]

    return max(glob.glob(f"{where}/step-{step:012d}-*"), key=token)


def flip_text(path, text):
    with open(path, "rb") as f:
        flip(path, f.read().rindex(text))


def twice(where):
    """Of two of one step the newer one is damaged: in its description, in what is this rank's,
    in a tensor. They have not the same tensors."""
    for i, (what, text) in enumerate((("description", b'"tree"'), ("own", b"its own"), ("tensor", b"\0\0\0A" * 3))):
        with ckpt.Checkpoints(f"{where}{i}") as c:
            c.save(10, {"k": 1})
            c.save(20, {"a": np.full(3, 2, "f4"), "b": np.ones(9), "k": 2}, per_rank="its own 2")
            c.save(20, {"a": np.full(5, 8, "f4"), "k": 3}, per_rank="its own 3")
            path = newest_of(f"{where}{i}", 20)
            flip_text(path + "/r00000.safetensors", text)
            for step in (None, 20, None):
                got = c.load(step)
                is_right = sorted(got.state) == ["a", "b", "k"] and (got.state["a"] == 2).all() and got.state["k"] == 2
                ok(
                    (got.step, got.passed_over, got.per_rank) == (20, 1, "its own 2") and is_right,
                    f"the older one of that step where the {what} of the newer is damaged, of {step}: {got}",
                )
            with ckpt.Checkpoints(f"{where}{i}") as other:
                other.save(20, {"k": 4})
            ok(c.load(20).state == {"k": 4}, "what was saved since is found")
            into = {"a": np.zeros(3, "f4"), "b": np.zeros(9)}
            flip_text(newest_of(f"{where}{i}", 20) + "/r00000.safetensors", b'"tree"')
            got = c.load(20, into=into, strict=True)
            ok(got.passed_over == 2 and (into["a"] == 2).all() and (into["b"] == 1).all(), "and passed over, too")


def just_before(c, name, act):
    """Has `act` happen before the next call of the library of that name."""
    call, todo = c._handle.call, [act]

    def meanwhile(this, *arguments):
        if this == name and todo:
            todo.pop()()
        return call(this, *arguments)

    c._handle.call = meanwhile


def replaced(where):
    """Somebody saves meanwhile who keeps one: that is no damage, and the newer one is there."""
    with ckpt.Checkpoints(where) as c, ckpt.Checkpoints(where, keep=1) as other:
        other.save(1, {"k": 1})
        for step, name in enumerate(("read_blob", "load", "read_blob"), start=2):
            just_before(c, name, lambda step=step: other.save(step, {"k": step}))
            got = []
            error = failure(lambda: got.append(c.load()))
            ok(error is None and (got[0].state, got[0].passed_over) == ({"k": step}, 0), f"the newer one, where that is before {name}: {error or got[0]}")
        just_before(c, "load", lambda: other.save(9, {"k": 9}))
        error = failure(lambda: c.load(4))
        ok(isinstance(error, FileNotFoundError) and "of step 4 in" in str(error), f"one that is asked for is not there any more: {error}")


ALONE = (0, 1, lambda data: [data])


def two_steps(where, end, rank, swap_at):
    """The step that is the newest to both ranks, of which this one has `end` of a pipe. Rank 1 puts
    a newer one in its place in the midst of call `swap_at` among them, once rank 0 has gone on."""
    calls = itertools.count(1)

    def gather(data):
        end.send_bytes(data)
        other = end.recv_bytes()
        if rank == 1 and next(calls) == swap_at:
            end.poll(1)  # it has looked, and says what it has found
            next_one = os.path.dirname(path_of(where + ".next", 2))
            os.rename(next_one, os.path.join(where, os.path.basename(next_one)))
            os.unlink(path_of(where, 1, "COMMIT"))
            shutil.rmtree(os.path.dirname(path_of(where, 1)))
        return [other, data] if rank else [data, other]

    with ckpt.Checkpoints(where, group=(rank, 2, gather)) as c:
        return c.latest()


def between(where):
    """Somebody else saves, and removes the older one, when one of two ranks has seen that."""
    seen = []
    for swap_at in range(1, 9):
        for name, step in (("", 1), (".next", 2)):
            with ckpt.Checkpoints(f"{where}{swap_at}{name}", group=ALONE) as c:
                c.save(step, {"k": step})
        ends = multiprocessing.Pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os._exit(two_steps(f"{where}{swap_at}", ends[1], 1, swap_at) or 0)
        mine = two_steps(f"{where}{swap_at}", ends[0], 0, swap_at)
        seen.append((mine, os.WEXITSTATUS(os.waitpid(child, 0)[1])))
    ok(set(seen) <= {(1, 1), (2, 2)} and (2, 2) in seen, f"both have seen the same one, and never none: {seen}")


def together():
    """What only one of two ranks cannot have, both are refused."""
    is_last = muster.rank() == muster.world() - 1

    def tell(what, c, **options):
        error = failure(lambda: c.load(**options))
        print(f"rank {muster.rank()} {what}: {getattr(error, 'errno', None)}: {type(error).__name__}: {error}", flush=True)

    with ckpt.Checkpoints(root + ".together") as c:
        tell("damaged", c, into=filled("a", "b") if is_last else filled("a"), strict=False)
        tell("missing", c, step=1, into=filled("a", "b") if is_last else filled("a"))
        tell("unexpected", c, step=1, into={} if is_last else filled("a"), strict=True)
        fixed = filled("a")
        fixed["a"].flags.writeable = not is_last
        tell("fixed", c, step=1, into=fixed)
    with ckpt.Checkpoints(root + ".unread") as c:
        if not is_last:
            describe = c._describe
            c._describe = lambda step: describe(step) if step == 1 else c._handle._check(-5)
        into = filled("a", "b")
        got = c.load(into=into, strict=False)
        print(f"rank {muster.rank()} unread: step {got.step}, missing {got.missing_keys}, {into['a'][0]} {into['b'][0]}", flush=True)


if sys.argv[2:] == ["together"]:
    together()
    sys.exit(0)
partial(root + ".partial")
only(root + ".only")
counted(root + ".counted")
twice(root + ".twice")
replaced(root + ".replaced")
between(root + ".between")
with ckpt.Checkpoints(root + ".together") as c:
    make_partial(c, root + ".together")
with ckpt.Checkpoints(root + ".unread") as c:
    c.save(1, {"a": np.full(N, 1, "f4")})
    c.save(2, {"a": np.full(N, 2, "f4"), "b": np.full(N, 2, "f4")})
print(f"1..{count}")
