# SPDX-License-Identifier: Apache-2.0
"""The error file: what a worker fails of, in the form that PyTorch writes it."""

import contextlib
import faulthandler
import functools
import json
import logging
import os
import time
import traceback
from types import TracebackType
from typing import Any, Callable, Optional, Type, TypeVar

TEXT_MAX = 256 * 1024  # bytes of a message and of a traceback: the agent takes files up to 1 MiB
GAP = " [...] "

_F = TypeVar("_F", bound=Callable[..., Any])
_log = logging.getLogger("muster")


def _ends_of(text: str) -> str:
    """What it is stands at the beginning, and what it came to at the end. Of a letter that
    is not of ASCII JSON makes six bytes, or twelve."""
    ends, half = text, TEXT_MAX // 2 - len(GAP)
    while len(json.dumps(ends)) > TEXT_MAX:
        ends = text[:half] + GAP + text[-half:]
        half //= 2
    return ends


def write(error: BaseException, path: str) -> None:
    """Replaces the file whole, so that nobody reads half of it."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    content = {
        "message": {
            "message": _ends_of(f"{type(error).__name__}: {error}"),
            "extraInfo": {
                "py_callstack": _ends_of("".join(lines)),
                "timestamp": str(int(time.time())),
            },
        }
    }
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as f:
        json.dump(content, f)
    os.replace(temporary, path)


class Recorder:
    """Writes an exception that passes through it to the error file of this worker.

    What is no failure (SystemExit, KeyboardInterrupt) is not written, and nothing is
    where TORCHELASTIC_ERROR_FILE names no file. The exception goes on in any case.
    """

    def __enter__(self) -> "Recorder":
        with contextlib.suppress(Exception):  # a stderr that is no file has none
            if not faulthandler.is_enabled():
                faulthandler.enable()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        where: Optional[TracebackType],
    ) -> None:
        path = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if not path or not isinstance(error, Exception):
            return
        try:
            write(error, path)
        except Exception as why:
            _log.warning("muster: cannot write %s: %s", path, why)

    def __call__(self, function: _F) -> _F:
        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with Recorder():
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]
