# SPDX-License-Identifier: Apache-2.0
"""TAP tests of python/muster. Its agent here is a thread that says what the case
wants it to, right or wrong; with a path as argument also the real one there
(tests/lib/worker_serve), whose pid is the second argument.
"""

import math
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

import muster
from muster import _worker

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


def wait_for(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.01)
    return False


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

    def __init__(self, says, reads=True, close=False):
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "s")
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
            data = self.connection.recv(65536)
            if not data:
                return
            self.got += data

    def close(self):
        # Not close() alone: a reading thread would keep it open.
        self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def test_alone():
    os.environ.pop("MUSTER_SOCKET", None)
    equal((muster.rank(), muster.world(), muster.generation()), (0, 1, 1), "a world of one")
    equal((muster.run_dir(), muster.resume_path()), (None, None), "without a run")
    muster.report(1, loss=0.5)
    muster.checkpoint_saved("x", 1)
    equal((muster.should_stop(), muster.checkpoint_requested()), (False, False), "and no wishes")
    raises(ValueError, "name", lambda: muster.report(1, {"a b": 1.0}), "but arguments are checked")


def test_session():
    agent = Agent([WELCOME + state(0, 2)])
    w = _worker.Worker(agent.path)
    equal(
        (w.rank, w.world, w.local_rank, w.local_world, w.node, w.n_nodes, w.generation),
        (5, 8, 1, 4, 1, 2, 3),
        "who it is",
    )
    equal((w.run_dir, w.resume_path), ("/run", None), "a path, and an empty one")
    equal(agent.got, frame(1, struct.pack(">HI", 1, os.getpid())), "its hello")
    equal([w.checkpoint_requested() for _ in range(3)], [True, True, False], "once a request")
    equal(signal.getsignal(signal.SIGTERM), signal.SIG_DFL, "who does not ask dies of SIGTERM")
    equal(w.should_stop(), False, "it is not to stop")
    os.kill(os.getpid(), signal.SIGTERM)
    ok(True, "who asks does not")
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
    agent.close()
    raises(ConnectionAbortedError, "gone", lambda: wait_for(w.should_stop), "the agent dies")
    raises(ConnectionAbortedError, "gone", lambda: [w.report(1), w.report(1)], "then reports fail")


def test_byte_by_byte():
    agent = Agent([bytes([b]) for b in WELCOME + state(1, 0)])
    w = _worker.Worker(agent.path)
    equal((w.rank, w.should_stop()), (5, True), "a welcome byte by byte")


def test_wrong_agents():
    refused = frame(3, struct.pack(">H", 2) + text("speak 2"))
    cases = (
        (_worker.ProtocolError, "speak 2", refused, "refused"),
        (_worker.ProtocolError, "bytes", b"\xff\xff\xff\xff", "an absurd length"),
        (_worker.ProtocolError, "bytes", b"\0\0\0\1\0", "a length without a type"),
        (_worker.ProtocolError, "short", frame(2, b"\0\1"), "a short welcome"),
        (_worker.ProtocolError, "short", WELCOME[:3] + b"\x24" + WELCOME[4:40], "a short text"),
        (_worker.ProtocolError, "long", frame(2, WELCOME[6:] + b"x"), "a long welcome"),
        (_worker.ProtocolError, "length", WELCOME + frame(8, b"12345678"), "a long state"),
        (ConnectionRefusedError, "welcome", b"", "silence, and the end"),
        (ConnectionRefusedError, "welcome", WELCOME[:20], "half a welcome, and the end"),
    )
    for kind, part, says, name in cases:
        agent = Agent([says], close=True)
        raises(kind, part, lambda: _worker.Worker(agent.path), name)
    raises(ConnectionRefusedError, "no agent", lambda: _worker.Worker("/none"), "nobody there")


def test_slow_agent():
    agent = Agent([WELCOME + state(0, 0)], reads=False)
    w = _worker.Worker(agent.path)
    began = time.monotonic()
    for i in range(20000):
        w.report(i, loss=1.0)
    ok(time.monotonic() - began < 10, "20000 reports to an agent that does not read")
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
    agent.connection.settimeout(5)
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


def test_arguments():
    agent = Agent([WELCOME + state(0, 0)])
    w = _worker.Worker(agent.path)
    raises(ValueError, "name", lambda: w.report(1, {"": 1.0}), "an empty name")
    raises(ValueError, "name", lambda: w.report(1, {"x" * 65: 1.0}), "a long one")
    raises(ValueError, "name", lambda: w.report(1, {"x\n": 1.0}), "a newline")
    raises(ValueError, "limit", lambda: w.report(1, {str(i): 1 for i in range(65)}), "65 metrics")
    raises(ValueError, "step", lambda: w.report(2**63), "a step beyond 64 bits")
    raises(ValueError, "step", lambda: w.report("7"), "a step that is no number")
    raises(ValueError, "path", lambda: w.checkpoint_saved("", 1), "no path")
    raises(ValueError, "path", lambda: w.checkpoint_saved("x" * 5000, 1), "a long path")
    raises(ValueError, "path", lambda: w.checkpoint_saved("a\0b", 1), "a zero byte")
    w.report(1, {"x" * 64: 1.0})
    ok(wait_for(lambda: b"x" * 64 in agent.got), "and after all that it still works")


def test_fork():
    agent = Agent([WELCOME + state(0, 0)])
    w = _worker.Worker(agent.path)
    pid = os.fork()
    if pid == 0:
        try:
            w.report(1, loss=1.0)
        except RuntimeError:
            os._exit(0 if w.rank == 5 else 2)
        os._exit(1)
    equal(os.waitpid(pid, 0)[1], 0, "a forked child knows its rank but may not report")


def test_real(path, pid):
    os.environ["MUSTER_SOCKET"] = path
    muster._this = None
    equal(muster.rank(), 5, "the real agent: rank")
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
    muster.worker().close()


def main():
    test_alone()
    test_session()
    test_byte_by_byte()
    test_wrong_agents()
    test_slow_agent()
    test_arguments()
    test_fork()
    if len(sys.argv) > 2:
        test_real(sys.argv[1], int(sys.argv[2]))
    print(f"1..{n_cases}")
    sys.exit(n_failed > 0)


main()
