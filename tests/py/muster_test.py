# SPDX-License-Identifier: Apache-2.0
"""TAP tests of python/muster. Its agent here is a thread that says what the case
wants it to, right or wrong; with three arguments also the real one: the path and
the pid of tests/lib/worker_serve, and host:port of tests/lib/store_serve.
"""

import contextlib
import json
import logging
import math
import multiprocessing
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import types

import muster
from muster import _store, _worker
from muster._barrier import Barrier
from muster._wire import Identity

n_cases = 0
n_failed = 0


def ok(passed, name):
    global n_cases, n_failed
    n_cases += 1
    n_failed += not passed
    print(("ok" if passed else "not ok"), n_cases, "-", name, flush=True)


def equal(got, want, name):
    ok(got == want, name)
    if got != want:
        print(f"#   got {got!r}\n#   expected {want!r}", flush=True)


def raises(kind, part, function, name):
    try:
        function()
    except kind as error:
        equal(part in str(error), True, f"{name}: {error}")
    except BaseException as error:
        equal(repr(error), kind.__name__, name)
    else:
        equal(None, kind.__name__, name)


def wait_for(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.01)
    return False


@contextlib.contextmanager
def said():
    """What is logged meanwhile."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("muster")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def text(s):
    return struct.pack(">I", len(s.encode())) + s.encode()


def frame(kind, fields=b""):
    return struct.pack(">IH", 2 + len(fields), kind) + fields


def state(stop, requests):
    return frame(8, struct.pack(">BI", stop, requests))


WELCOME = frame(2, struct.pack(">H7I", 1, 5, 8, 1, 4, 1, 2, 3) + text("/run") + text(""))
HELLO_BYTES = 4 + 2 + 2 + 4


class Agent:
    """Answers a hello with `says`; reads on if `reads`, else holds still."""

    def __init__(self, says, reads=True, close=False, path=None):
        self.directory = tempfile.TemporaryDirectory()
        self.path = path or os.path.join(self.directory.name, "s")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.got = b""
        self.connection = None
        self.thread = threading.Thread(target=self.run, args=(says, reads, close), daemon=True)
        self.thread.start()

    def run(self, says, reads, close):
        self.connection, _ = self.listener.accept()
        while len(self.got) < HELLO_BYTES:
            self.got += self.connection.recv(HELLO_BYTES - len(self.got))
        for part in says:
            self.connection.sendall(part)
            time.sleep(0.002)
        if close:
            self.close()
            return
        while reads:
            try:
                data = self.connection.recv(65536)
            except OSError:  # closed by the case
                return
            if not data:
                return
            self.got += data

    def again(self):
        """Takes one more connection, which is to stop."""
        connection, _ = self.listener.accept()
        connection.recv(HELLO_BYTES)
        connection.sendall(WELCOME + state(1, 0))
        with contextlib.suppress(OSError):
            while data := connection.recv(65536):
                self.got += data

    def close(self):
        # Not close() alone: a reading thread would keep it open.
        self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        self.listener.close()


def test_alone():
    for name in ("MUSTER_SOCKET", "MUSTER_STORE"):
        os.environ.pop(name, None)
    equal(muster.is_worker(), False, "not started by muster")
    equal((muster.rank(), muster.world(), muster.generation()), (0, 1, 1), "a world of one")
    equal((muster.run_dir(), muster.resume_path()), (None, None), "without a run")
    muster.report(1, loss=0.5)
    muster.checkpoint_saved("x", 1)
    muster.barrier()
    equal((muster.should_stop(), muster.checkpoint_requested()), (False, False), "and no wishes")
    equal(signal.getsignal(signal.SIGTERM), signal.SIG_DFL, "SIGTERM is as it was")
    raises(ValueError, "name", lambda: muster.report(1, {"a b": 1.0}), "but arguments are checked")


def test_session():
    agent = Agent([WELCOME + state(0, 2)])
    w = _worker.Worker(agent.path)
    equal(w.identity, Identity(5, 8, 1, 4, 1, 2, 3, "/run", None), "who it is")
    equal(agent.got, frame(1, struct.pack(">HI", 1, os.getpid())), "its hello")
    equal([w.checkpoint_requested() for _ in range(3)], [True, True, False], "once a request")
    heard = b"".join(frame(17, struct.pack(">Iq", n, 0) + text("")) for n in (1, 2))
    ok(wait_for(lambda: heard in agent.got), "the agent is told that the program knows")
    equal(signal.getsignal(signal.SIGTERM), signal.SIG_DFL, "who does not ask dies of SIGTERM")
    equal(w.should_stop(), False, "it is not to stop")
    os.kill(os.getpid(), signal.SIGTERM)
    equal(w.should_stop(), False, "who asks does not, and waits for the word")
    agent.connection.sendall(frame(99, b"from later") + state(1, 2))
    ok(wait_for(w.should_stop), "it is, after a frame of an unknown type")
    agent.got = b""
    w.report(7, {"a/b": 1}, loss=math.inf)
    want = struct.pack(">qH", 7, 2) + text("a/b") + struct.pack(">d", 1.0)
    want = frame(6, want + text("loss") + struct.pack(">d", math.inf))
    ok(wait_for(lambda: len(agent.got) >= len(want)) and agent.got == want, "a report")
    agent.got = b""
    w.checkpoint_saved("rel", 9)
    want = frame(7, struct.pack(">q", 9) + text(os.path.join(os.getcwd(), "rel")))
    ok(wait_for(lambda: len(agent.got) >= len(want)) and agent.got == want, "a checkpoint")
    w.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


# A program that deals with SIGTERM by itself goes on to do so.
def test_own_handler():
    agent = Agent([WELCOME + state(0, 0)])
    seen = []

    def on_sigterm(number, frame):
        seen.append(number)

    signal.signal(signal.SIGTERM, on_sigterm)
    w = _worker.Worker(agent.path)
    equal(w.should_stop(), False, "a program with a handler of its own asks")
    os.kill(os.getpid(), signal.SIGTERM)
    equal((signal.getsignal(signal.SIGTERM), seen), (on_sigterm, [signal.SIGTERM]), "and keeps it")
    w.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


# An agent that dies is no reason for a training to end, nor for it to be asked
# at every step; another one at its place is found, and told the checkpoint.
def test_replaced():
    agent = Agent([WELCOME + state(0, 1)])
    with said() as log:
        w = _worker.Worker(agent.path)
        equal(w.checkpoint_requested(), True, "a request of the first agent")
        heard = frame(17, struct.pack(">Iq", 1, 0) + text(""))
        ok(wait_for(lambda: heard in agent.got), "which is told that the program has heard of it")
        w.checkpoint_saved("/c/3", 3)
        agent.close()
        for i in range(1000):
            w.report(i, loss=0.0)
        equal((w.should_stop(), w.checkpoint_requested()), (False, False), "the agent is gone")
        equal(len(log), 1, "which is said once")
        equal(w.identity.rank, 5, "and changes nobody")
        os.unlink(agent.path)
        other = Agent([WELCOME + state(1, 1)], path=agent.path)
        ok(wait_for(w.should_stop), "another agent is found, and asked")
    equal(w.checkpoint_requested(), False, "a request is not answered twice")
    saved = frame(7, struct.pack(">q", 3) + text("/c/3"))
    ok(wait_for(lambda: (w.should_stop(), saved in other.got)[1]), "it is told of the checkpoint")
    w.report(8, loss=1.0)
    ok(wait_for(lambda: (w.report(9), struct.pack(">q", 9) in other.got)[1]), "and of steps")
    other.connection.sendall(state(1, 0))
    ok(wait_for(lambda: (w.should_stop(), w._requests == 0)[1]), "one that counts requests anew")
    equal(w.checkpoint_requested(), False, "asks for nothing by that")
    w.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


# With nobody to say it, SIGTERM means what it always means.
def test_orphan():
    agent = Agent([WELCOME + state(0, 0)])
    with said():
        w = _worker.Worker(agent.path)
        w.should_stop()
        agent.close()
        wait_for(lambda: (w.should_stop(), w._socket is None)[1])
        equal(w.should_stop(), False, "an agent that is gone stops nobody")
        os.kill(os.getpid(), signal.SIGTERM)
        equal(w.should_stop(), True, "SIGTERM does")
        for _ in range(20):
            w._retry_at = 0.0
            w.should_stop()
        equal(w._retry_s, _worker.RETRY_MOST_S, "it is looked for less and less, but goes on")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_byte_by_byte():
    agent = Agent([bytes([b]) for b in WELCOME + state(1, 0)])
    w = _worker.Worker(agent.path)
    equal((w.identity.rank, w.should_stop()), (5, True), "a welcome byte by byte")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_wrong_agents():
    refused = frame(3, struct.pack(">H", 2) + text("speak 2"))
    cases = (
        ("speak 2", refused, "refused"),
        ("bytes", b"\xff\xff\xff\xff", "an absurd length"),
        ("bytes", b"\0\0\0\1\0", "a length without a type"),
        ("short", frame(2, b"\0\1"), "a short welcome"),
        ("short", WELCOME[:3] + b"\x24" + WELCOME[4:40], "a short text"),
        ("short", frame(3, b""), "a refusal without words"),
        ("long", frame(2, WELCOME[6:] + b"x"), "a long welcome"),
        ("length", WELCOME + frame(8, b"12345678"), "a long state"),
        ("ended", b"", "silence, and the end"),
        ("ended", WELCOME[:20], "half a welcome, and the end"),
    )
    mine = Identity(2, 4)
    for part, says, name in cases:
        agent = Agent([says], close=True)
        with said() as log:
            w = _worker.Worker(agent.path, mine)
            w.report(1, loss=1.0)
            equal((w.should_stop(), w.checkpoint_requested()), (False, False), name)
        ok(len(log) == 1 and part in log[0], f"{name}: {log}")
        ok(w.identity.world in (4, 8), "it is who it is by its environment")
        w.close()
    with said() as log:
        w = _worker.Worker("/none", mine)
        w.report(1)
        w.checkpoint_saved("/c", 1)
        equal((w.identity, w.should_stop()), (mine, False), "nobody there")
        w = _worker.Worker("/" + "x" * 200, mine)
        equal(w.should_stop(), False, "nor at a name that is too long")
    equal(len(log), 2, "which is said")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_environment():
    environ = {"MUSTER_RANK": "3", "MUSTER_WORLD_SIZE": "4", "MUSTER_NODE": "x"}
    environ["MUSTER_RESUME_PATH"] = "/c/1"
    who = _worker.identity_of(environ)
    equal((who.rank, who.world, who.node, who.resume_path), (3, 4, 0, "/c/1"), "by its environment")
    equal(_worker.identity_of({}), Identity(), "or by none")


def test_slow_agent():
    agent = Agent([WELCOME + state(0, 0)], reads=False)
    w = _worker.Worker(agent.path)
    for i in range(20000):
        w.report(i, loss=1.0)
    ok(True, "20000 reports to an agent that does not read")
    left = len(w._out)
    ok(0 < left < 65536, "the last that was begun is kept, no others")
    agent.connection.setblocking(True)
    got = b""
    while len(got) < 4 or len(got) < 1000000:
        agent.connection.settimeout(0.5)
        try:
            got += agent.connection.recv(65536)
        except socket.timeout:
            break
    w.report(-1, loss=2.0)
    agent.connection.settimeout(60)
    last = frame(6, struct.pack(">qH", -1, 1) + text("loss") + struct.pack(">d", 2.0))
    while not got.endswith(last):
        got += agent.connection.recv(65536)
    at, steps = 0, []
    while at < len(got):
        (length,) = struct.unpack_from(">I", got, at)
        steps.append(struct.unpack_from(">q", got, at + 6)[0])
        at += 4 + length
    equal(at, len(got), "what did come is whole frames")
    equal(steps[:-1], list(range(len(steps) - 1)), "of the first reports, none torn")
    for i in range(20000):
        w.report(i, loss=1.0)
    reader = threading.Thread(target=lambda: (time.sleep(0.1), drain(agent.connection)), daemon=True)
    reader.start()
    w.checkpoint_saved("/c/1", 1)
    equal(w._out, b"", "a checkpoint waits until it is told")
    w.close()


def drain(connection):
    while connection.recv(65536):
        pass


def test_arguments():
    agent = Agent([WELCOME + state(0, 0)])
    w = _worker.Worker(agent.path)
    raises(ValueError, "name", lambda: w.report(1, {"": 1.0}), "an empty name")
    raises(ValueError, "name", lambda: w.report(1, {"x" * 65: 1.0}), "a long one")
    raises(ValueError, "name", lambda: w.report(1, {"x\n": 1.0}), "a newline")
    raises(ValueError, "name", lambda: w.report(1, {1: 1.0}), "a name that is no text")
    for value in (None, "x", [1], 1j, 10**400):
        raises(ValueError, "not a number: loss", lambda: w.report(1, loss=value), "a value that is no number")
    raises(ValueError, "limit", lambda: w.report(1, {str(i): 1 for i in range(65)}), "65 metrics")
    raises(ValueError, "step", lambda: w.report(2**63), "a step beyond 64 bits")
    raises(ValueError, "step", lambda: w.report("7"), "a step that is no number")
    raises(ValueError, "path", lambda: w.checkpoint_saved("", 1), "no path")
    raises(ValueError, "path", lambda: w.checkpoint_saved("x" * 5000, 1), "a long path")
    raises(ValueError, "path", lambda: w.checkpoint_saved("a\0b", 1), "a zero byte")
    w.report(1, {"x" * 64: 1.0})
    ok(wait_for(lambda: b"x" * 64 in agent.got), "and after all that it still works")
    w.checkpoint_saved(b"/in/bytes", 1)
    ok(wait_for(lambda: b"/in/bytes" in agent.got), "a path of bytes is one")
    w.close()


# A child has a connection of its own, and dies of SIGTERM as any child, whatever
# another thread of its parent was doing.
def test_fork():
    agent = Agent([WELCOME + state(0, 0)])
    w = _worker.Worker(agent.path)
    w.should_stop()
    w.checkpoint_saved("/c/3", 3)
    saved = frame(7, struct.pack(">q", 3) + text("/c/3"))
    ok(wait_for(lambda: saved in agent.got), "a worker tells of a checkpoint")
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with w._alone():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(60)
    pid = os.fork()
    if pid == 0:
        right = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and w.identity.rank == 5
        agent.listener.settimeout(60)
        agent.got = b""
        threading.Thread(target=lambda: agent.again(), daemon=True).start()
        right = right and not w.should_stop() and wait_for(lambda: w.should_stop())
        step = struct.pack(">q", 4)
        right = right and wait_for(lambda: (w.report(4, loss=1.0), step in agent.got)[1])
        right = right and saved not in agent.got  # which is not its own
        os._exit(0 if right else 1)
    leave.set()
    thread.join()
    equal(os.waitpid(pid, 0)[1], 0, "a child of a fork asks for itself")
    equal(w.should_stop(), False, "its parent is still connected")
    agent.connection.sendall(state(1, 0))
    ok(wait_for(w.should_stop), "as before")
    w.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


# They have the environment of the worker, and would count as it.
def test_children():
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            try:
                pool.apply_async(muster.barrier, (1,)).get(60)
                why = "nothing"
            except RuntimeError as e:
                why = str(e)
        ok("only the worker itself" in why, f"a child by {method} does not meet the others: {why}")


def test_threads_and_signals():
    agent = Agent([WELCOME + state(0, 3)])
    w = _worker.Worker(agent.path)
    seen = []

    def work(k):
        for i in range(300):
            w.report(1000 * k + i, loss=float(i))
            if w.checkpoint_requested():
                seen.append(k)

    # A handler that comes in the middle of a call makes the same calls.
    signal.signal(signal.SIGALRM, lambda number, frame: (w.report(1), w.should_stop()))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    work(9)
    for thread in threads:
        thread.join()
    signal.setitimer(signal.ITIMER_REAL, 0)
    equal(len(seen), 3, "four threads and a signal handler: each request once")
    at, broken = HELLO_BYTES, False
    wait_for(lambda: len(agent.got) > HELLO_BYTES)
    data = agent.got
    while at + 6 <= len(data):
        length, kind = struct.unpack_from(">IH", data, at)
        broken = broken or kind not in (6, 17) or length > 100
        at += 4 + length
    ok(not broken, "and whole frames")
    w.close()


def test_record():
    directory = tempfile.TemporaryDirectory()
    path = os.path.join(directory.name, "error.json")
    os.environ["TORCHELASTIC_ERROR_FILE"] = path

    @muster.record
    def fails(x, y=2):
        "Its words."
        raise ValueError(f"x is {x}")

    equal((fails.__name__, fails.__doc__), ("fails", "Its words."), "a decorated function")
    raises(ValueError, "x is 1", lambda: fails(1), "its exception goes on")
    with open(path, encoding="utf-8") as f:
        message = json.load(f)["message"]
    equal(message["message"], "ValueError: x is 1", "and is in the error file")
    extra = message["extraInfo"]
    ok("in fails" in extra["py_callstack"], "with the traceback")
    ok(abs(int(extra["timestamp"]) - time.time()) < 3600, "and the time, in whole seconds")
    equal(type(extra["timestamp"]), str, "as PyTorch writes it")
    equal(os.listdir(directory.name), ["error.json"], "and nothing else")
    os.unlink(path)

    def leaves(error):
        with muster.record():
            raise error

    for error in (SystemExit(3), KeyboardInterrupt()):
        raises(type(error), "", lambda: leaves(error), "no failure")
        equal(os.path.exists(path), False, "is not recorded")
    raises(ValueError, "", lambda: leaves(ValueError("x" * 3_000_000)), "a long message")
    ok(os.path.getsize(path) < 1 << 20, "in a file that the agent takes")
    with open(path) as f:
        message = json.load(f)["message"]
    ok(message["message"].startswith("ValueError: xxx"), "begins with what it is")
    ok(message["extraInfo"]["py_callstack"].startswith("Traceback"), "as does the traceback")
    for letter in ("x", "\u0436", "\U0001f600", "\0"):
        raises(ValueError, "", lambda: leaves(ValueError(letter * 200_000 + "end")), "letters that are written longer")
        size = os.path.getsize(path)
        ok(200_000 < size < 1 << 20, f"no more than the agent takes: {size} bytes")
        with open(path) as f:
            ok(json.load(f)["message"]["message"].endswith(letter + "end"), "with the end")
    os.environ["TORCHELASTIC_ERROR_FILE"] = "/none/error.json"
    with said() as log:
        raises(ValueError, "here", lambda: leaves(ValueError("here")), "no such directory")
    equal(len(log), 1, "is said")
    del os.environ["TORCHELASTIC_ERROR_FILE"]
    raises(ValueError, "here", lambda: leaves(ValueError("here")), "without a file")


# What is not the store of a run, and what never answers.
def test_wrong_stores():
    def meets(serve, timeout=60.0):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def run():
            connection, _ = listener.accept()
            serve(connection)

        threading.Thread(target=run, daemon=True).start()
        endpoint = "127.0.0.1:%d" % listener.getsockname()[1]
        try:
            Barrier(endpoint, Identity(1, 2)).wait(timeout)
        finally:
            listener.close()

    def answer(data):
        return lambda c: (c.recv(100), c.sendall(data), c.close())

    raises(ConnectionError, "rank 1", lambda: meets(lambda c: c.close()), "a store that hangs up")
    raises(ConnectionError, "not the store", lambda: meets(answer(b"HTTP")), "another server")
    raises(TimeoutError, "rank 1", lambda: meets(lambda c: time.sleep(60), 0.2), "a silent one")
    raises(ConnectionError, "barrier", lambda: Barrier("127.0.0.1:1", Identity(0, 2)).wait(9), "none")
    raises(ValueError, "address", lambda: Barrier("nowhere", Identity(0, 2)).wait(9), "no address")
    raises(RuntimeError, "MUSTER_STORE", lambda: Barrier(None, Identity(0, 2)).wait(9), "no store")
    equal(_store.address_of("[fd00::1]:7"), ("fd00::1", 7), "an IPv6 address")


# Several workers as threads; the store is the agent's own (tests/lib/store_serve).
def test_barrier(endpoint):
    world, rounds = 4, 20
    counts, wrong = [0] * world, []
    patience = [60, 1e7, 1e300, float("inf")]

    def work(rank):
        barrier = Barrier(endpoint, Identity(rank, world))
        for i in range(rounds):
            if rank == i % world:
                time.sleep(0.005)  # somebody is late
            counts[rank] += 1
            barrier.wait(patience[rank])
            if min(counts) <= i:
                wrong.append((rank, i, list(counts)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(wrong, [], f"{rounds} barriers of {world} workers")
    store = _store.Store(endpoint, time.monotonic() + 60)
    left = [store.add(f"muster/barrier/1/{n}/n", 0) for n in range(1, rounds)]
    equal(left, [0] * (rounds - 1), "leave nothing behind")
    late, early = Barrier(endpoint, Identity(0, 2, generation=7)), None
    early = Barrier(endpoint, Identity(1, 2, generation=7))
    raises(TimeoutError, "barrier 1 of rank 1", lambda: early.wait(0.2), "one comes alone")
    late.wait(60)
    ok(True, "and still counts for who is late")
    next_one = Barrier(endpoint, Identity(1, 2, generation=8))
    raises(TimeoutError, "", lambda: next_one.wait(0.2), "but for nobody of the next generation")

    def interrupt(number, frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    broken = Barrier(endpoint, Identity(1, 2, generation=9))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    raises(KeyboardInterrupt, "", lambda: broken.wait(60), "one that is interrupted")
    equal(broken._store, None, "takes no later answer for its own")


class Control:
    should_save = should_training_stop = False


# How long wait() of a checkpoint waits, by what the library is asked, of each second by itself.
def test_wait_of_a_save():
    from muster import ckpt

    asked = []
    checkpoints = object.__new__(ckpt.Checkpoints)
    checkpoints._handle = types.SimpleNamespace(
        alone=contextlib.nullcontext, call=lambda name, *arguments: asked.append(arguments[-1])
    )
    for timeout in (None, 1.5, 0, -0.5, -3):
        checkpoints.wait(timeout=timeout)
    equal(asked, [1000, 1000, 0, 0, 0], "no time left is no time, and not for ever")


# The callback for the Trainer, with as much of transformers as it needs.
def test_trainer():
    sys.modules["transformers"] = types.SimpleNamespace(TrainerCallback=object)
    from muster import huggingface

    values = {"loss": 1, "flag": True, "a b": 2.5, "text": "x", "none": None}
    equal(huggingface.metrics_of(values), {"loss": 1.0, "a_b": 2.5}, "numbers of a log are metrics")
    equal(len(huggingface.metrics_of({str(i): i for i in range(99)})), 64, "as many as can be told")
    with tempfile.TemporaryDirectory() as directory:
        os.makedirs(os.path.join(directory, "c", "d"))
        for name in ("a", "c/b", "c/d/e"):
            with open(os.path.join(directory, name), "w", encoding="utf-8"):
                pass
        synced, fsync = [], os.fsync

        def note(fd):
            synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), directory))

        os.fsync = note
        huggingface.sync_tree(directory)
        equal(sorted(synced), [".", "a", "c", "c/b", "c/d", "c/d/e"], "a tree is synced, with its names")
        agent = Agent([WELCOME + state(0, 1)])
        os.environ["MUSTER_SOCKET"] = agent.path
        muster._this = None
        huggingface.agreed = lambda wishes, device: wishes
        callback, control = huggingface.MusterCallback(), Control()
        args = types.SimpleNamespace(device="cpu", output_dir=directory)
        at = types.SimpleNamespace(global_step=7, is_world_process_zero=True)
        callback.on_step_end(args, at, control)
        wants = (control.should_save, control.should_training_stop)
        equal(wants, (True, False), "asked to save it saves, and trains on")
        os.mkdir(os.path.join(directory, "checkpoint-7"))
        synced.clear()
        huggingface.group_of_ranks = lambda: None
        callback.on_save(args, at, control)
        equal(synced, ["checkpoint-7", "."], "what it has saved is on the disk, with its name")
        saved = frame(7, struct.pack(">q", 7) + text(os.path.join(directory, "checkpoint-7")))
        ok(wait_for(lambda: saved in agent.got), "before muster hears of it")
        os.fsync = fsync
        agent.connection.sendall(state(1, 1))
        ok(wait_for(muster.should_stop), "it is told to stop")
        control = Control()
        callback.on_step_end(args, at, control)
        wants = (control.should_save, control.should_training_stop)
        equal(wants, (True, True), "then it saves and stops")
    muster._this.close()
    muster._this = None
    del os.environ["MUSTER_SOCKET"]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_real(path, pid):
    os.environ["MUSTER_SOCKET"] = path
    muster._this = None
    equal(muster.is_worker(), True, "the real agent")
    equal(muster.rank(), 5, "rank")
    equal(
        (muster.world(), muster.local_rank(), muster.local_world(), muster.node()),
        (8, 1, 4, 1),
        "place",
    )
    equal(
        (muster.n_nodes(), muster.generation(), muster.run_dir(), muster.resume_path()),
        (2, 3, "/run/dir", "/ckpt/7"),
        "and run",
    )
    equal(muster.should_stop(), False, "not to stop")
    muster.report(41, loss=0.25, accuracy=1)
    muster.checkpoint_saved("/ckpt/42", 42)
    os.kill(pid, signal.SIGUSR2)
    ok(wait_for(muster.checkpoint_requested), "a checkpoint is requested")
    equal(muster.checkpoint_requested(), False, "once")
    os.kill(pid, signal.SIGUSR1)
    ok(wait_for(muster.should_stop), "to stop")
    muster._this.close()


def main():
    test_alone()
    test_session()
    test_own_handler()
    test_replaced()
    test_orphan()
    test_byte_by_byte()
    test_wrong_agents()
    test_environment()
    test_slow_agent()
    test_arguments()
    test_fork()
    test_children()
    test_threads_and_signals()
    test_record()
    test_wrong_stores()
    test_wait_of_a_save()
    test_trainer()
    if len(sys.argv) > 3:
        test_real(sys.argv[1], int(sys.argv[2]))
        test_barrier(sys.argv[3])
    print(f"1..{n_cases}")
    sys.exit(n_failed > 0)


if __name__ == "__main__":  # multiprocessing imports this file
    main()
