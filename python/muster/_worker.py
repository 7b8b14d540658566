# SPDX-License-Identifier: Apache-2.0
"""A client of the worker socket that training can live with.

It starts no thread and does its work in the calls that are made, each of which
is bounded. An agent that is away, dies, or is another when it comes back is no
reason to end a training: what it should have been asked is answered as before,
what it should have been told is left out (a checkpoint is told again), and a
call now and then looks whether there is one. Nothing but bad arguments raises.

A child that this process forks has a connection of its own, from the first call
that it makes.
"""

import contextlib
import logging
import os
import select
import signal
import socket
import threading
import time
import weakref
from typing import Any, Iterator, Mapping, Optional

from . import _wire
from ._wire import Identity, ProtocolError

WELCOME_TIMEOUT_S = 10.0  # of the first connection; later ones are not waited for
SEND_TIMEOUT_S = 30.0  # of a checkpoint, to an agent that does not read
RETRY_FIRST_S = 0.5
RETRY_MOST_S = 30.0

_log = logging.getLogger("muster")


def identity_of(environ: Mapping[str, str]) -> Identity:
    """Who a worker is by its environment, for as long as no agent has said it."""

    def number(name: str, otherwise: int) -> int:
        text = environ.get("MUSTER_" + name, "")
        return int(text) if text.isdecimal() else otherwise

    return Identity(
        number("RANK", 0),
        number("WORLD_SIZE", 1),
        number("LOCAL_RANK", 0),
        number("LOCAL_WORLD_SIZE", 1),
        number("NODE", 0),
        number("N_NODES", 1),
        number("GENERATION", 1),
        environ.get("MUSTER_RUN_DIR") or None,
        environ.get("MUSTER_RESUME_PATH") or None,
    )


class Worker:
    """This process as a worker; by itself, a world of one, if `path` is None."""

    def __init__(self, path: Optional[str], identity: Optional[Identity] = None) -> None:
        self._path = path or None
        self._identity = identity or Identity()
        self._told: Optional[bytes] = None  # the last checkpoint, for the next agent
        self._requests = 0  # for checkpoints: how many there were,
        self._answered = 0  # and of how many the program knows
        self._stop = False
        self._terminated = False  # SIGTERM came
        self._begin()
        _workers.add(self)
        if self._path:
            self._first_contact()

    def _begin(self) -> None:
        """What belongs to one process, anew."""
        # Re-entered by signal handlers only: those that come in the middle of
        # something find `_busy`, and do nothing.
        self._lock = threading.RLock()
        self._busy = False
        self._socket: Optional[socket.socket] = None
        self._welcome = False  # it was said on this connection
        self._in = b""
        self._out = b""  # frames, of the first of which a part may be sent
        self._untold = False  # whether `_told` still has to go into `_out`
        self._heard = False  # likewise, that the program knows of `_answered` requests
        self._closed = False
        self._retry_at = 0.0
        self._retry_s = RETRY_FIRST_S
        self._warned = False
        self._asks = False  # whether it should stop

    def __repr__(self) -> str:
        who = self._identity
        return f"<muster worker {who.rank} of {who.world}, generation {who.generation}>"

    @property
    def identity(self) -> Identity:
        return self._identity

    def close(self) -> None:
        """Leaves for good; the agent sees that this connection ended."""
        with self._alone() as alone:
            if alone:
                self._drop()
                self._closed = True

    def report(
        self, step: int, metrics: Optional[Mapping[str, float]] = None, **named: float
    ) -> None:
        frame = _wire.report(step, {**(metrics or {}), **named})
        with self._alone() as alone:
            if alone and self._pump() and not self._out:
                self._out = frame
                self._pump()

    def checkpoint_saved(self, path: "os.PathLike[str] | str", step: int) -> None:
        frame = _wire.checkpoint_saved(path, step)
        until = time.monotonic() + SEND_TIMEOUT_S
        with self._alone() as alone:
            if not self._path:
                return
            self._told = frame
            self._untold = True
            if not alone:
                return  # whoever was interrupted sends it, or a later call
        while time.monotonic() < until:
            with self._alone() as alone:
                waits = alone and self._pump() and bool(self._out)
                fd = self._socket.fileno() if self._socket is not None else -1
            if not waits:
                return
            # A second at most: meanwhile another thread may have sent it.
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll(1000)

    def should_stop(self) -> bool:
        with self._alone() as alone:
            if alone and self._path:
                self._outlive_sigterm()
                if not self._pump() and self._terminated:
                    self._stop = True  # nobody is there to say so in words
            return self._stop

    def checkpoint_requested(self) -> bool:
        with self._alone() as alone:
            if alone:
                self._pump()
            behind = (self._requests - self._answered) & 0xFFFFFFFF
            if not alone or not 0 < behind < 1 << 31:
                return False
            self._answered = (self._answered + 1) & 0xFFFFFFFF
            self._heard = True
            self._pump()
            return True

    # --- the rest is called with the lock held, by who is alone ---

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        with self._lock:
            if self._busy:
                yield False
                return
            self._busy = True
            try:
                yield True
            finally:
                self._busy = False

    def _outlive_sigterm(self) -> None:
        """SIGTERM comes with the word to stop: who asks for that must not die of it.

        Python lets only its main thread say so; a handler of the program's own stays.
        """
        if self._asks:
            return
        self._asks = True
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: Any) -> None:
        self._terminated = True

    def _first_contact(self) -> None:
        """Waits for the welcome and the first state, so that no answer is from before."""
        until = time.monotonic() + WELCOME_TIMEOUT_S
        with self._alone():
            while self._pump() and not self._welcome:
                left = until - time.monotonic()
                if left <= 0 or self._socket is None:
                    return
                poll = select.poll()
                poll.register(self._socket, select.POLLIN)
                poll.poll(left * 1000)
            self._answered = 0

    def _pump(self) -> bool:
        """Takes what came and sends what it can. False: there is no agent now."""
        try:
            if self._socket is None and not self._dial():
                return False
            self._receive()
            self._send()
        except ProtocolError as error:
            self._warn(f"the agent is not understood: {error}")
            self._drop()
            self._closed = True
        except (OSError, EOFError) as error:
            self._warn(f"the agent of this node is gone: {error}")
            self._drop()
        return self._socket is not None

    def _dial(self) -> bool:
        """Connecting to a Unix socket does not wait; what is answered comes later."""
        now = time.monotonic()
        if self._path is None or self._closed or now < self._retry_at:
            return False
        self._retry_at = now + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_MOST_S)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.connect(self._path)
        self._out = _wire.hello()
        self._untold = self._told is not None
        return True

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._in = self._out = b""
        self._welcome = False

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("muster: %s", text)

    def _receive(self) -> None:
        assert self._socket is not None
        while True:
            frame = _wire.take_frame(self._in)
            if frame is not None:
                self._in = self._in[frame[2] :]
                self._take(frame[0], frame[1])
                continue
            try:
                data = self._socket.recv(16384)
            except BlockingIOError:
                return
            if not data:
                raise EOFError("the connection ended")
            self._in += data

    def _take(self, kind: int, fields: bytes) -> None:
        if kind == _wire.REFUSED:
            raise ProtocolError("it refused: " + _wire.take_text(fields, 2)[0])
        if kind == _wire.WELCOME:
            self._identity = _wire.take_welcome(fields)
        elif kind == _wire.STATE:
            stop, self._requests = _wire.take_state(fields)
            self._stop = self._stop or stop
            self._welcome = True
            self._retry_s = RETRY_FIRST_S
            self._warned = False

    def _send(self) -> None:
        assert self._socket is not None
        while True:
            if not self._out and self._heard:  # before what was saved after it
                self._heard = False
                self._out = _wire.checkpoint_heard(self._answered)
            if not self._out and self._untold and self._told is not None:
                self._untold = False
                self._out = self._told
            if not self._out:
                return
            try:
                n = self._socket.send(self._out, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            self._out = self._out[n:]

    def _forked(self) -> None:
        """In a child: the connection is its parent's, and so is the word of SIGTERM."""
        if self._socket is not None:
            self._socket.close()
        if self._asks and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._told = None
        self._begin()


_workers: "weakref.WeakSet[Worker]" = weakref.WeakSet()


def _forget_parent() -> None:
    for worker in list(_workers):
        worker._forked()


os.register_at_fork(after_in_child=_forget_parent)
