# SPDX-License-Identifier: Apache-2.0
"""A barrier of all workers of a generation, in the store of the run.

The n-th call of each worker is the n-th barrier. Whoever comes last sets the key
that the others wait for. When all have come to barrier n, all have left n-1, and
its keys can go.
"""

import socket
import threading
import time
from typing import Optional

from ._store import Store
from ._wire import Identity


class Barrier:
    def __init__(self, endpoint: Optional[str], identity: Identity) -> None:
        self._endpoint = endpoint
        self._identity = identity
        self._lock = threading.Lock()
        self._store: Optional[Store] = None
        self._n = 0

    def wait(self, timeout: float) -> None:
        who = self._identity
        if who.world == 1:
            return
        if not self._endpoint:
            raise RuntimeError("muster: no barrier: MUSTER_STORE is not set")
        until = time.monotonic() + timeout
        if not self._lock.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX)):
            raise TimeoutError("muster: another thread of this worker is in a barrier")
        try:
            self._pass(self._endpoint, until)
        except OSError as error:  # of connections, and TimeoutError
            self._forget_store()
            late = isinstance(error, (TimeoutError, socket.timeout))
            kind = TimeoutError if late else ConnectionError
            raise kind(f"muster: barrier {self._n} of rank {who.rank}: {error}") from None
        except BaseException:  # in the middle of a question: its answer would come later
            self._forget_store()
            raise
        finally:
            self._lock.release()

    def _pass(self, endpoint: str, until: float) -> None:
        who = self._identity
        if self._store is None:
            self._store = Store(endpoint, until)
        self._store.set_deadline(until)
        self._n += 1
        if self._store.add(self._key(self._n, "n"), 1) == who.world:
            self._store.set(self._key(self._n, "go"))
        else:
            self._store.wait(self._key(self._n, "go"))
        if who.rank == 0 and self._n > 1:
            self._store.delete(self._key(self._n - 1, "n"))
            self._store.delete(self._key(self._n - 1, "go"))

    def _key(self, n: int, what: str) -> str:
        return f"muster/barrier/{self._identity.generation}/{n}/{what}"

    def _forget_store(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def forked(self) -> None:
        """In a child, which is not a worker that others wait for."""
        self._lock = threading.Lock()
        self._forget_store()
        self._endpoint = None
