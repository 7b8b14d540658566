# SPDX-License-Identifier: Apache-2.0
"""What programs do with muster.ckpt that they should not, or that is rare, in a world of
one: threads, signal handlers, odd numbers and names. Prints TAP.

    ckpt_refused.py DIRECTORY
"""
import collections
import copy
import gc
import json
import logging
import os
import pickle
import signal
import sys
import threading
import warnings

import numpy as np

from muster import _tree, ckpt

root = sys.argv[1]
count = 0


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


def is_told(error, kind, *texts):
    return isinstance(error, kind) and all(text in str(error) for text in texts)


def threads(where):
    """Each of them saves a state of its own, and all are as they were."""
    states = {10 + i: {"x": np.full(1 << 18, i), "i": i, "pad": list(range(2000))} for i in range(4)}
    errors = []
    with ckpt.Checkpoints(where) as c:

        def work(step):
            for _ in range(3):
                errors.append(failure(lambda: c.save(step, states[step])))
                errors.append(failure(lambda: c.load(step, into={"x": np.zeros(1 << 18, int)})))

        workers = [threading.Thread(target=work, args=(step,)) for step in states]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        ok(not any(errors), f"threads that save and load by one handle: {[e for e in errors if e][:1]}")
        got = {step: c.load(step).state for step in states}
        ok(all(s["i"] == step - 10 and (s["x"] == s["i"]).all() for step, s in got.items()), "have each what it saved")


def within(where):
    """A call in the midst of a save of the same thread."""
    told, armed = [], []

    def on_signal(*_):
        told.append(failure(lambda: c.save(8, {"x": np.ones(3)})))

    def gather(data):
        if armed and not told:
            signal.raise_signal(signal.SIGUSR1)
            told.append(failure(c.latest))
            told.append(c.should_stop())
        return [data]

    signal.signal(signal.SIGUSR1, on_signal)
    with ckpt.Checkpoints(where) as c:
        c.save(6, {"x": np.zeros(3)})
    with ckpt.Checkpoints(where, group=(0, 1, gather)) as c:
        armed.append(True)
        c.save(7, {"x": np.arange(3)})
        ok(is_told(told[0], ckpt.CheckpointError, "this thread is in another call") and told[0].errno == 35, f"a save in a signal handler: {told[0]}")
        ok(is_told(told[1], ckpt.CheckpointError, "this thread is in another call"), "latest() in one")
        ok(told[2] is False, "should_stop() may be asked")
        ok(c.load().step == 7 and (c.load().state["x"] == np.arange(3)).all(), "and the save is right")
        ok(c.save(8, {"x": np.ones(3)}) and c.latest() == 8, "another one can be made behind it")


def numbers(where):
    """NumPy's own, and arrays that are not as the machine has them."""
    state = {
        "best": np.float64(0.1), "half": np.float16(2.5), "n": np.int64(-7), "big": np.uint64(2**64 - 1), "yes": np.bool_(True),
        "nan": np.float32("nan"), "inf": [np.float64("-inf")], "z": np.complex128(1 + 2j), "x": np.zeros(3),
    }  # fmt: skip
    with ckpt.Checkpoints(where) as c:
        c.save(1, state, per_rank={"mine": np.int32(4)})
        for into in (None, state):
            got = c.load(1, into=into, strict=None if into is None else True)
            ok(all(type(got.state[k]) is type(v) for k, v in state.items()), "numbers of NumPy come back as what they are")
            ok(all(got.state[k] == state[k] for k in ("best", "half", "n", "big", "yes", "inf", "z")), "the very ones")
            ok(np.isnan(got.state["nan"]) and got.per_rank == {"mine": 4}, "and what is not finite, or a rank's own")
        ok(is_told(failure(lambda: c.save(2, {"t": np.datetime64("2020")})), TypeError, "'t' is a datetime64"), "no dates")
        ok(is_told(failure(lambda: c.save(2, {"w": ckpt.Piece(np.float64(3), (), ())})), TypeError, "a Piece of a float64"), "nor a part of one")
        square = np.arange(12.0).reshape(3, 4).astype(">f8")
        c.save(2, {"a": square, "t": square.T, "f": ckpt.Piece(square.T, (12,), flat=0), "s": square[:, 0]})
        memory = np.zeros((3, 4), ">f8")
        into = {"a": memory, "t": np.zeros((4, 3), ">f8"), "f": ckpt.Piece(np.zeros((3, 4), ">f8").T, (12,), flat=0), "s": memory[:, 0]}
        c.load(2, into=into, strict=True)
        right = [(into["a"] == square).all(), (into["t"] == square.T).all(), (into["f"].local == square.T).all(), into["a"].dtype == ">f8"]
        ok(all(right), "into the other byte order, from it, and overlapping")
        ok(is_told(failure(lambda: c.load(2, into={**into, "t": memory.reshape(4, 3)})), ValueError, "overlap"), "what differs there cannot be one here")
        twice = np.zeros((3, 4), ">f8")
        c.load(2, into={"a": twice, "again": twice}, strict=False)
        ok((twice == square).all(), "nor does a view of it matter")
        c.read_tensor(2, "a", memory)
        memory[:] = 0
        c.read_tensor(2, "a", memory)
        ok((memory == square).all(), "one by itself")
        fixed = np.zeros(3)
        fixed.flags.writeable = False
        ok(is_told(failure(lambda: c.load(1, into={"x": fixed})), TypeError, "'x': expected an array that can be written"), "not where nobody may write")


def own(where):
    """Arrays that each rank has of its own."""
    with ckpt.Checkpoints(where) as c:
        np.random.seed(5)
        before = np.random.get_state()
        state = {"random": before, "t": np.arange(6, dtype="i2").reshape(2, 3).T, "none": np.empty((0, 3)), "0d": np.array(1.5), "back": np.arange(3, dtype=">u2")}
        c.save(1, {}, per_rank=state)
        numbers = np.random.rand(4)
        got = c.load(1).per_rank
        np.random.set_state(got["random"])
        ok((np.random.rand(4) == numbers).all(), "the state of a generator, of each rank its own")
        same = [np.array_equal(got[k], state[k]) and got[k].shape == state[k].shape for k in ("t", "none", "0d", "back")]
        ok(all(same) and got["t"].dtype == "i2", "arrays of any shape")
        got["t"][:] = 0
        ok(not got["t"].any(), "which may be written to")
        part = {"p": ckpt.Piece(np.ones(3), (6,), (0,))}
        ok(is_told(failure(lambda: c.save(2, {}, per_rank=part)), TypeError, "per_rank, 'p': a part of a tensor"), "no parts of tensors")
        ok(is_told(failure(lambda: c.save(2, {}, per_rank={"o": object()})), TypeError, "'o' is a object"), "nor objects")


def pieces(where):
    """Places that are none."""
    local = np.arange(10.0)
    with ckpt.Checkpoints(where) as c:
        for kind, text, given in (
            (ValueError, "at (18446744073709551616,)", {"shape": (10,), "at": (2**64,)}),
            (ValueError, "at [-1]", {"shape": (10,), "at": [-1]}),
            (ValueError, "flat [18446744073709551616]", {"shape": (10,), "flat": 2**64}),
            (ValueError, "flat [-1]", {"shape": (10,), "flat": -1}),
            (ValueError, "shape (18446744073709551626,)", {"shape": (2**64 + 10,)}),
            (TypeError, "at (2.5,)", {"shape": (20,), "at": (2.5,)}),
            (TypeError, "flat ['1']", {"shape": (20,), "flat": "1"}),
            (ValueError, "both `at` and `flat`", {"shape": (10,), "at": (5,), "flat": 0}),
        ):
            error = failure(lambda: c.save(1, {"w": ckpt.Piece(local, **given)}))
            ok(is_told(error, kind, f"'w': a piece with {text}"), f"refused: {error}")
        ok(c.latest() is None, "and nothing is saved of that")
        c.save(1, {"w": ckpt.Piece(local, (np.int64(10),), at=(np.int32(0),))})
        ok((c.load().state["w"] == local).all(), "numbers of NumPy do")
        error = failure(lambda: c.map_box(1, "w", [2**64 + 2], [2**64 + 3]))
        ok(is_told(error, ValueError, "18446744073709551618 is too large a number"), "a box to map is none either")


def places():
    """Whose value a byte of the description is."""
    state = {"a": "m0", 7: {"b": ["m1", ("m2", {"\u00e4.\"": "m3"})], "": {}}, "e": [], None: ["x", "m4"], "last": "m5"}
    node = _tree.flatten(state, lambda _: "")[0]
    text = json.dumps(node)
    found = [_tree.path_at(node, text.index(f"m{i}")) for i in range(6)]
    ok(found == ["a", "7.b.0", "7.b.1.0", "7.b.1.1.\u00e4.\"", "None.1", "last"], f"by its keys: {found}")
    ok(_tree.path_at(node, text.index('"b"')) == "7" and _tree.path_at(node, len(text)) == "", "or those of what it is in")
    keys = [_tree.keys_at(node, path) for path in (None, "7", "7.b", "7.", "e", "a", "None.1")]
    ok(keys == [["a", 7, "e", None, "last"], ["b", ""], None, [], None, None, None], f"which are told: {keys}")


def gathers(where):
    """What is gathered is not what was asked for."""
    for what, gather in (
        ("too many", lambda data: [data] * 3),
        ("none", lambda data: []),
        ("a short one", lambda data: [data[:-1]]),
        ("a long one", lambda data: [data + b"x"]),
    ):
        error = failure(lambda: ckpt.Checkpoints(where, group=(0, 1, gather)).save(1, {"a": np.ones(1)}))
        ok(is_told(error, ValueError, "gather(): expected", "bytes of each of 1 ranks"), f"{what}: {error}")


def misspelt(where):
    """A metric that none has is told once, when older ones go."""
    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("muster").addHandler(handler)
    with ckpt.Checkpoints(where + ".misspelt", keep=1, keep_best="metrics.los") as c:
        for step in range(4):
            c.save(step, {"a": np.ones(1)}, metrics={"loss": 1.0})
    logging.getLogger("muster").removeHandler(handler)
    ok(len(told) == 1 and "has a metric 'metrics.los', by which the best is to stay (keep_best)" in told[0], f"no such metric: {told}")


def words(where):
    """What cannot be meant, told plainly."""
    one = np.ones(1)
    with ckpt.Checkpoints(where) as c:
        ok(is_told(failure(lambda: c.save(1, {1: one, "1": one})), ValueError, "two tensors are called '1'", "beside the same as text"), "1 and '1'")
        ok(is_told(failure(lambda: c.save(1, {"a": {"b": one}, "a.b": one})), ValueError, "called 'a.b'", "has dots"), "names that meet")
        error = failure(lambda: c.save(1, {"a\udc80": one}))
        ok(is_told(error, ValueError, "surrogate") and not isinstance(error, UnicodeError), f"half a surrogate pair: {error}")
        number = c.save(1, {"a": one})
        ok(all(c.wait(number, timeout=t) is None for t in (float("inf"), 1e300, 2**70, -1, -float("inf"), 0.5)), "times of any size")
        ok(is_told(failure(lambda: c.wait(number, timeout=float("nan"))), ValueError, "found nan"), "but what is no number")
    misspelt(where)
    ok(is_told(failure(lambda: ckpt.Checkpoints(where, keep=1, keep_best=5)), TypeError, "keep_best: expected the name of a metric"), "a metric is a name")


Moments = collections.namedtuple("Moments", "mu nu")


def containers(where):
    """What comes back as what it was, and what as something plainer."""
    plain = {"o": collections.OrderedDict(b=1, a=[np.ones(2)]), "c": collections.Counter({3: 2, 7: 1})}
    state = {**plain, "d": collections.defaultdict(list, x=[1]), "m": Moments(np.zeros(3), [Moments(1, 2)]), "b": bytearray(b"x")}
    with ckpt.Checkpoints(where) as c:
        c.save(1, state, per_rank=plain)
        got = c.load(1)
        for found in (got.state, got.per_rank):
            ok([type(found[k]) for k in "oc"] == [collections.OrderedDict, collections.Counter], "an OrderedDict and a Counter are what they were")
            ok(list(found["o"]) == ["b", "a"] and sorted(found["c"].elements()) == [3, 3, 7], "with all that is in them")
        ok([type(got.state[k]) for k in "dmb"] == [dict, tuple, bytes], "others are plain without `into`")
        got = c.load(1, into=state).state["m"]
        ok(type(got) is type(got.nu[0]) is Moments and got.nu[0].nu == 2, "names of a tuple are those of `into`")
        ok(type(c.load(1, into={**state, "m": (np.zeros(3), 5)}).state["m"]) is tuple, "or of none where it has none there")
    node = _tree.flatten(plain["c"], lambda _: "")[0]
    ok(node == ["dict", [[3, ["value", 2]], [7, ["value", 1]]], "Counter"], "who does not know the word has a dict")
    ok(_tree.build([*node[:2], "Later"], {}) == {3: 2, 7: 1}, "as have we of later ones")


def nested(n, end):
    """So many levels."""
    for i in range(n):
        end = [end] if i % 2 else {"k": end}
    return end


def deep(where):
    """What is nested deeper than its description could be read, and what never ends."""
    with ckpt.Checkpoints(where) as c:
        c.save(1, nested(128, 5), per_rank=nested(128, np.ones(2)))
        got, into = c.load(1), nested(128, np.zeros(2))
        ok(got.state == nested(128, 5), "128 levels come back")
        c.save(2, nested(128, np.ones(2)))
        c.load(2, into=into)
        ok(str(into) == str(nested(128, np.ones(2))) == str(got.per_rank), "as what is loaded into, and a rank's own")
        endless = {"a": [1]}
        endless["a"].append(endless)
        for what, state in (("129 levels", nested(129, 5)), ("20000", nested(20000, 5)), ("endless ones", endless)):
            error = failure(lambda: c.save(3, state))
            ok(is_told(error, TypeError, "state, '", "is more than 128 levels deep, or has itself in it"), f"{what} are refused: {error}")
        error = failure(lambda: c.save(3, {}, per_rank=endless))
        ok(is_told(error, TypeError, "per_rank, 'a.1.a.1"), "also of a rank's own")
        ok(c.latest() == 2, "and nothing is saved of that")


def long_numbers(where):
    """What Python writes into no JSON, and reads from none."""
    most = 10**4300 - 1
    with ckpt.Checkpoints(where) as c:
        c.save(1, {"a": [most, {-most: 2}]})
        ok(c.load().state == {"a": [most, {-most: 2}]}, "numbers of 4300 digits come back")
        for what, state, words in (
            ("more", {"a": {"b": [1, most + 1]}}, "state, 'a.b.1' is a whole number of more than 4300 digits"),
            ("below zero", {"z": -most - 1}, "state, 'z' is a whole number of more than 4300"),
            ("as a key", {"a": {10**5000: 1}}, "state, 'a': one of its keys is a whole number of more than 4300"),
        ):
            error = failure(lambda: c.save(2, state))
            ok(is_told(error, TypeError, words, "expected fewer, or hex() of it"), f"{what} are refused: {error}")
        for what, call, words in (
            ("metric", lambda: c.save(2, {}, metrics={"x": most + 1}), "metrics, 'x': expected a number, found "),
            ("step", lambda: c.save(most + 1, {}), "step: "),
            ("step to load", lambda: c.load(-most - 1), "no checkpoint of step "),
            ("save", lambda: c.wait(most + 1), "wait: "),
        ):
            error = failure(call)
            ok(words in str(error), f"a {what} is told without it: {error}")
        ok(c.latest() == 1, "and nothing is saved of that")


def too_early(where):
    """Processes of torchrun that do not know of each other yet."""
    env = {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "2"}
    for what, values, group, n in (
        ("in a world of one", {**env, "WORLD_SIZE": "1"}, None, 0),
        ("that say so", env, (0, 1, lambda data: [data]), 0),
        ("but not rank 0", {**env, "RANK": "1"}, None, 0),
        ("of two", env, None, 1),
        ("a second time", env, None, 0),
    ):
        os.environ.update(values)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            ckpt.Checkpoints(where, group=group).close()
        ok([w.filename for w in told] == [__file__] * n and all("after init_process_group()" in str(w.message) for w in told), f"alone {what}: {n}")
    for name in env:
        del os.environ[name]


def asked(where):
    """Numbers of NumPy, what was never saved, and what is not there."""
    with ckpt.Checkpoints(where) as c:
        ok(c.wait() is None, "nothing is on its way where nothing was saved")
        ok(is_told(failure(c.is_durable), ckpt.CheckpointError, "nothing has been saved by this handle"), "nor on the disk")
        number = np.uint64(c.save(np.int64(4), {"a": np.arange(3)}))
        ok(c.is_durable(number) and c.wait(number) is None and c.latest(below=np.int32(5)) == 4, "numbers of NumPy do")
        to = np.zeros(3, int)
        c.read_tensor(np.int64(4), "a", to)
        ok("tensors" in c.describe(np.int16(4)) and to[2] == 2, "for one tensor, too")
        for _ in range(64):
            c.save(5, {"a": to})
        ok(is_told(failure(lambda: c.wait(number)), ckpt.CheckpointError, "one of the last 64 of this handle, which has made 65"), "of old ones nobody knows")
        error = failure(lambda: c.load(4, into={"b": to}))
        for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            same = (type(other), str(other), other.missing_keys, other.errno) == (ckpt.KeysError, str(error), ["b"], 61)
            ok(same, "an error goes to other processes")
        ok(is_told(failure(lambda: c.save(6, object())), TypeError, "state is a object: expected"), "an argument has its name")
        ok(is_told(failure(lambda: c.save(6, {}, per_rank={"h": object()})), TypeError, "per_rank, 'h' is a object"), "the other one, too")
        ok(is_told(failure(lambda: c.load(into={"a": {(1, 2): 3}})), TypeError, "into, 'a': one of its keys is a tuple"), "and what is loaded into")
        ok(is_told(failure(lambda: c.save(6, {}, metrics={"loss": "x"})), TypeError, "metrics, 'loss': expected a number"), "and metrics")
    error = failure(lambda: ckpt.Checkpoints(where + ".none/below"))
    ok(type(error) is ckpt.CheckpointError and "expected the directory that it lies in" in str(error), f"no place for one: {error}")


class Answers:
    """A handle of which some calls answer what they are told to."""

    def __init__(self, c, **answers):
        self._call, self.asked = c._handle.call, []
        self._answers = answers
        c._handle.call = self

    def __call__(self, name, *arguments):
        if name not in self._answers:
            return self._call(name, *arguments)
        self.asked.append(arguments)
        return self._answers[name](*arguments)


def waits(where):
    """For long: Python looks at signals in between, of which the library knows nothing."""

    def underway(_save, _level, ms):
        if len(handle.asked) < 5:
            raise TimeoutError(110, "the save is still on its way")
        return 0

    def unheard(*_):
        raise TimeoutError(110, "no answer from the agent in 60 s")

    for timeout, n, parts in ((None, 5, [1000] * 5), (2.5, 3, [1000, 1000, 500]), (0.25, 1, [250]), (0, 1, [0]), (9, 5, [1000] * 5)):
        with ckpt.Checkpoints(where) as c:
            c.save(1, {"a": np.ones(3)})
            handle = Answers(c, wait=underway)
            error = failure(lambda: c.wait(timeout=timeout))
        ok([ms for *_, ms in handle.asked] == parts, f"waits {timeout} s in parts: {[ms for *_, ms in handle.asked]}")
        ok(error is None if n == 5 else is_told(error, TimeoutError, "on its way"), f"{timeout} s: {error}")
    with ckpt.Checkpoints(where) as c:
        handle = Answers(c, wait=unheard)
        ok(is_told(failure(c.wait), TimeoutError, "no answer from the agent") and len(handle.asked) == 1, "an agent that is gone is not asked again")


def underway(where):
    """What was saved, and has not come to the disk: who loads it is told."""
    with ckpt.Checkpoints(where) as c:
        c.save(1, {"a": np.ones(3)})
        c.save(7, {"a": np.ones(3)})
        gone = next(d for d in os.listdir(where) if d.startswith("step-000000000007"))
        os.rename(os.path.join(where, gone), where + ".gone")
        ok(not is_told(failure(lambda: c.load(7)), FileNotFoundError, "wait()"), "one that is gone is not under way")
        Answers(c, test=lambda *_: 0)
        ok(is_told(failure(lambda: c.load(7)), FileNotFoundError, "step 7", "was saved by this process", "expected wait()"), "one that is not there yet")
        ok(not is_told(failure(lambda: c.load(5)), FileNotFoundError, "wait()"), "and one that never was")
        told = []
        teller = logging.Handler()
        teller.emit = lambda record: told.append(record.getMessage())
        logging.getLogger("muster").addHandler(teller)
        ok(c.load().step == 1 and "loaded was step 1: step 7 was saved by this process" in str(told), f"an older one in its place: {told}")
        logging.getLogger("muster").removeHandler(teller)


def unfenced(where):
    """A lazy save of two ranks without an agent is made by its fence; the other one seems to
    have what this one has."""
    told = []
    teller = logging.Handler()
    teller.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("muster").addHandler(teller)
    for how in ("closed", "dropped", "forked"):
        c = ckpt.Checkpoints(where, group=(0, 2, lambda data: [data] * 2))
        c.save(1, {"a": np.ones(3)}, lazy=True)
        if how == "forked":
            child = os.fork()
            if child == 0:
                c.fence()
                error = failure(c.latest)
                c.close()
                os._exit(not is_told(error, ckpt.CheckpointError, "was forked from", "open its own") or len(told) != 2)
            ok(os.waitpid(child, 0)[1] == 0, "a forked child has no part in it, and is told so")
        if how != "dropped":
            c.close()
        del c
        gc.collect()
        ok(len(told) > 0 and "lazy save of step 1 is lost" in told[-1] and "fence()" in told[-1], f"{how} without a fence: {told}")
    ok(len(told) == 3, "each is told once")
    logging.getLogger("muster").removeHandler(teller)


containers(root + ".containers")
asked(root + ".asked")
deep(root + ".deep")
long_numbers(root + ".long_numbers")
too_early(root + ".early")
threads(root + ".threads")
within(root + ".within")
numbers(root + ".numbers")
own(root + ".own")
pieces(root + ".pieces")
words(root + ".words")
gathers(root + ".gathers")
places()
waits(root + ".waits")
underway(root + ".underway")
unfenced(root + ".unfenced")
print(f"1..{count}")
