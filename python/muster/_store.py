# SPDX-License-Identifier: Apache-2.0
"""As much of a client of the run's store as a barrier needs.

The store speaks the protocol of PyTorch's TCPStore: one byte of command, then its
fields; counts and lengths are 64 bits in the byte order of the machine, keys have
their length before them, and there is no frame around it.
"""

import socket
import struct
import time
from typing import Tuple

VALIDATE, SET, ADD, WAIT, DELETE, PING = 0, 1, 4, 6, 8, 13
MAGIC = 0x3C85F7CE
STOP_WAITING = 0
MOST_S = 86400.0  # of one wait: a socket takes no more than some weeks, and another follows


def address_of(endpoint: str) -> Tuple[str, int]:
    """host:port, where the host may be an IPv6 address in brackets."""
    host, colon, port = endpoint.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"not an address of a store: {endpoint!r}")
    return host.strip("[]"), int(port)


def _blob(text: str) -> bytes:
    data = text.encode()
    return struct.pack("=Q", len(data)) + data


class Store:
    """One connection; a call that does not end in time raises TimeoutError, one
    whose connection ends ConnectionError."""

    def __init__(self, endpoint: str, until: float) -> None:
        self._until = until
        self._socket = socket.create_connection(address_of(endpoint), self._left())
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nonce = struct.pack("=I", 1)
            self._send(struct.pack("=BI", VALIDATE, MAGIC) + bytes([PING]) + nonce)
            if self._receive(len(nonce)) != nonce:
                raise ConnectionError("what answers is not the store of a run")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def set_deadline(self, until: float) -> None:
        """time.monotonic() of when calls from now on give up."""
        self._until = until

    def add(self, key: str, amount: int) -> int:
        self._send(bytes([ADD]) + _blob(key) + struct.pack("=q", amount))
        (value,) = struct.unpack("=q", self._receive(8))
        return int(value)

    def set(self, key: str) -> None:
        self._send(bytes([SET]) + _blob(key) + _blob("1"))

    def wait(self, key: str) -> None:
        self._send(bytes([WAIT]) + struct.pack("=Q", 1) + _blob(key))
        if self._receive(1)[0] != STOP_WAITING:
            raise ConnectionError("the store has ended a wait")

    def delete(self, key: str) -> None:
        self._send(bytes([DELETE]) + _blob(key))
        self._receive(8)

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer from the store of the run in time")
        return min(left, MOST_S)

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(self._left())
        self._socket.sendall(data)

    def _receive(self, n: int) -> bytes:
        data = b""
        while len(data) < n:
            self._socket.settimeout(self._left())
            try:
                part = self._socket.recv(n - len(data))
            except socket.timeout:
                continue  # says so itself
            if not part:
                raise ConnectionError("the store of the run is gone")
            data += part
        return data
