# SPDX-License-Identifier: Apache-2.0
"""A client of the worker socket (doc/formats.md has the protocol).

A frame is u32 length, u16 type, fields; the length counts type and fields.
Numbers are big-endian, a string has its length as u32 before it. A frame of an
unknown type is skipped.
"""

import errno
import os
import re
import select
import signal
import socket
import struct
import threading
import time
from typing import List, Mapping, Optional, Tuple

VERSION = 1
FRAME_MAX = 65536
METRICS_MAX = 64
PATH_MAX = 4096

HELLO, WELCOME, REFUSED = 1, 2, 3
REPORT, CHECKPOINT_SAVED, STATE = 6, 7, 8

ANSWER_TIMEOUT_S = 60.0
SEND_TIMEOUT_S = 30.0

_name = re.compile(r"[A-Za-z0-9_./-]{1,64}\Z")
_welcome_numbers = struct.Struct(">H7I")


class ProtocolError(Exception):
    """The agent is not a muster of this version, or what came is not its protocol."""


def _text(value: str) -> bytes:
    data = os.fsencode(value)
    return struct.pack(">I", len(data)) + data


def _take_text(data: bytes, at: int) -> Tuple[str, int]:
    if len(data) < at + 4:
        raise ProtocolError("a text is cut short")
    (length,) = struct.unpack_from(">I", data, at)
    end = at + 4 + length
    if len(data) < end:
        raise ProtocolError("a text is cut short")
    return os.fsdecode(data[at + 4 : end]), end


def _step(step: int) -> bytes:
    try:
        return struct.pack(">q", step)
    except struct.error:
        raise ValueError(f"not a step: {step!r}") from None


def _frame(kind: int, fields: bytes) -> bytes:
    return struct.pack(">IH", 2 + len(fields), kind) + fields


class Worker:
    """This process as a worker; by itself, a world of one, if `path` is None."""

    rank = 0
    world = 1
    local_rank = 0
    local_world = 1
    node = 0
    n_nodes = 1
    generation = 1
    run_dir: Optional[str] = None
    resume_path: Optional[str] = None

    def __init__(self, path: Optional[str]) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._in = b""
        self._out = b""  # the rest of a frame that the socket took in part
        self._stop = False
        self._asks = False  # whether it should stop
        self._requests = 0  # for checkpoints: how many there were,
        self._answered = 0  # and of how many the program knows
        self._socket: Optional[socket.socket] = None
        if path:
            self._connect(path)

    def __repr__(self) -> str:
        return f"<muster worker {self.rank} of {self.world}, generation {self.generation}>"

    def close(self) -> None:
        """Leaves; the agent sees that this connection ended."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def report(
        self, step: int, metrics: Optional[Mapping[str, float]] = None, **named: float
    ) -> None:
        values = {**(metrics or {}), **named}
        if len(values) > METRICS_MAX:
            raise ValueError(f"{len(values)} metrics in a report, limit {METRICS_MAX}")
        fields: List[bytes] = [_step(step), struct.pack(">H", len(values))]
        for name, value in values.items():
            if not _name.match(name):
                raise ValueError(f"not a name of a metric: {name!r}")
            fields.append(_text(name) + struct.pack(">d", float(value)))
        with self._lock:
            if self._open() and self._flush():
                self._out = _frame(REPORT, b"".join(fields))
                self._flush()

    def checkpoint_saved(self, path: "os.PathLike[str] | str", step: int) -> None:
        name = os.fspath(path)
        if not name:
            raise ValueError("checkpoint saved: no path")
        full = os.path.abspath(name)
        if len(os.fsencode(full)) >= PATH_MAX or "\0" in full:
            raise ValueError("checkpoint saved: not a path")
        frame = _frame(CHECKPOINT_SAVED, _step(step) + _text(full))
        with self._lock:
            if self._open():
                self._send(frame)

    def should_stop(self) -> bool:
        with self._lock:
            self._outlive_sigterm()
            self._read_states()
            return self._stop

    def checkpoint_requested(self) -> bool:
        with self._lock:
            self._read_states()
            if self._requests == self._answered:
                return False
            self._answered = (self._answered + 1) & 0xFFFFFFFF
            return True

    # The rest is called with the lock held, or before anybody else knows it.

    def _outlive_sigterm(self) -> None:
        """SIGTERM comes with the word to stop: who asks for that must not die of it.

        Python lets only its main thread say so; a handler of the program's own stays.
        """
        if self._asks or not self._open():
            return
        self._asks = True
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda number, frame: None)

    def _open(self) -> bool:
        if self._socket is not None and os.getpid() != self._pid:
            raise RuntimeError(f"muster: the connection belongs to process {self._pid}")
        return self._socket is not None

    def _connect(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._hello(path)
        except BaseException:
            self._socket.close()
            self._socket = None
            raise

    def _hello(self, path: str) -> None:
        assert self._socket is not None
        try:
            self._socket.connect(path)
        except FileNotFoundError:  # it took its socket with it
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"no agent at {path}") from None
        self._socket.setblocking(False)
        try:
            self._send(_frame(HELLO, struct.pack(">HI", VERSION, self._pid)))
            kind, fields = self._await((WELCOME, REFUSED))
        except ConnectionAbortedError:
            raise ConnectionRefusedError("the agent closed its socket before a welcome") from None
        if kind == REFUSED:
            raise ProtocolError("the agent refused: " + _take_text(fields, 2)[0])
        self._take_welcome(fields)
        self._await((STATE,))  # so that the first answers are not from before it
        self._answered = 0

    def _take_welcome(self, fields: bytes) -> None:
        if len(fields) < _welcome_numbers.size:
            raise ProtocolError("the welcome is cut short")
        numbers = _welcome_numbers.unpack_from(fields)
        self.rank, self.world, self.local_rank, self.local_world = numbers[1:5]
        self.node, self.n_nodes, self.generation = numbers[5:8]
        run_dir, at = _take_text(fields, _welcome_numbers.size)
        resume_path, at = _take_text(fields, at)
        if at != len(fields):
            raise ProtocolError("the welcome is too long")
        self.run_dir = run_dir or None
        self.resume_path = resume_path or None

    def _next(self) -> Optional[Tuple[int, bytes]]:
        """Takes one frame out of what came; states are noted on the way."""
        if len(self._in) < 4:
            return None
        (length,) = struct.unpack_from(">I", self._in)
        if not 2 <= length <= FRAME_MAX:
            raise ProtocolError(f"a frame of {length} bytes")
        if len(self._in) < 4 + length:
            return None
        kind = struct.unpack_from(">H", self._in, 4)[0]
        fields = self._in[6 : 4 + length]
        self._in = self._in[4 + length :]
        if kind == STATE:
            if len(fields) != 5:
                raise ProtocolError("a state of another length")
            stop, self._requests = struct.unpack(">BI", fields)
            self._stop = stop != 0
        return kind, fields

    def _receive(self) -> bool:
        assert self._socket is not None
        try:
            data = self._socket.recv(16384)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            raise ConnectionAbortedError("the agent of this node is gone")
        self._in += data
        return True

    def _read_states(self) -> None:
        if not self._open():
            return
        more = True
        while more:
            while self._next() is not None:
                pass
            more = self._receive()

    def _wait(self, until: float, to_write: bool, what: str) -> None:
        assert self._socket is not None
        left = until - time.monotonic()
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT if to_write else select.POLLIN)
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError(what)

    def _await(self, kinds: Tuple[int, ...]) -> Tuple[int, bytes]:
        until = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            frame = self._next()
            if frame is not None and frame[0] in kinds:
                return frame
            if frame is None and not self._receive():
                self._wait(until, False, "no answer from the agent")

    def _flush(self) -> bool:
        """True if nothing is left to send."""
        assert self._socket is not None
        while self._out:
            try:
                n = self._socket.send(self._out, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return False
            except OSError:
                raise ConnectionAbortedError("the agent of this node is gone") from None
            self._out = self._out[n:]
        return True

    def _send(self, frame: bytes) -> None:
        until = time.monotonic() + SEND_TIMEOUT_S
        self._out += frame
        while not self._flush():
            self._wait(until, True, "the agent takes nothing")
