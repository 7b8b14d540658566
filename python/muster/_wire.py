# SPDX-License-Identifier: Apache-2.0
"""The frames of the worker socket (doc/formats.md has the protocol).

A frame is u32 length, u16 type, fields; the length counts type and fields.
Numbers are big-endian, a string has its length as u32 before it. A frame of an
unknown type is skipped. Nothing here does I/O.
"""

import os
import re
import struct
from typing import List, Mapping, NamedTuple, Optional, Tuple

VERSION = 1
FRAME_MAX = 65536
METRICS_MAX = 64
PATH_MAX = 4096

HELLO, WELCOME, REFUSED = 1, 2, 3
REPORT, CHECKPOINT_SAVED, STATE, CHECKPOINT_HEARD = 6, 7, 8, 17

_name = re.compile(r"[A-Za-z0-9_./-]{1,64}\Z")
_welcome_numbers = struct.Struct(">H7I")


class ProtocolError(Exception):
    """The agent is not a muster of this version, or what came is not its protocol."""


class Identity(NamedTuple):
    """Who a worker is; by itself, a world of one."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    node: int = 0
    n_nodes: int = 1
    generation: int = 1
    run_dir: Optional[str] = None
    resume_path: Optional[str] = None


def _text(value: str) -> bytes:
    data = os.fsencode(value)
    return struct.pack(">I", len(data)) + data


def take_text(data: bytes, at: int) -> Tuple[str, int]:
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


def hello() -> bytes:
    return _frame(HELLO, struct.pack(">HI", VERSION, os.getpid()))


def _value(name: str, value: float) -> bytes:
    try:
        return struct.pack(">d", float(value))
    except Exception as error:  # whatever library the value is of
        raise ValueError(f"not a number: {name}: {error}") from None


def report(step: int, values: Mapping[str, float]) -> bytes:
    if len(values) > METRICS_MAX:
        raise ValueError(f"{len(values)} metrics in a report, limit {METRICS_MAX}")
    fields: List[bytes] = [_step(step), struct.pack(">H", len(values))]
    for name, value in values.items():
        if not isinstance(name, str) or not _name.match(name):
            raise ValueError(f"not a name of a metric: {name!r}")
        fields.append(_text(name) + _value(name, value))
    return _frame(REPORT, b"".join(fields))


def checkpoint_saved(path: "os.PathLike[str] | str", step: int) -> bytes:
    name = os.fsdecode(path)
    if not name:
        raise ValueError("checkpoint saved: no path")
    full = os.path.abspath(name)
    if len(os.fsencode(full)) >= PATH_MAX or "\0" in full:
        raise ValueError("checkpoint saved: not a path")
    return _frame(CHECKPOINT_SAVED, _step(step) + _text(full))


def checkpoint_heard(requests: int) -> bytes:
    return _frame(CHECKPOINT_HEARD, struct.pack(">Iq", requests, 0) + _text(""))


def take_frame(data: bytes) -> Optional[Tuple[int, bytes, int]]:
    """Type, fields and whole length of the frame that `data` begins with, if it is all there."""
    if len(data) < 4:
        return None
    (length,) = struct.unpack_from(">I", data)
    if not 2 <= length <= FRAME_MAX:
        raise ProtocolError(f"a frame of {length} bytes")
    if len(data) < 4 + length:
        return None
    (kind,) = struct.unpack_from(">H", data, 4)
    return kind, data[6 : 4 + length], 4 + length


def take_welcome(fields: bytes) -> Identity:
    if len(fields) < _welcome_numbers.size:
        raise ProtocolError("the welcome is cut short")
    numbers = _welcome_numbers.unpack_from(fields)
    run_dir, at = take_text(fields, _welcome_numbers.size)
    resume_path, at = take_text(fields, at)
    if at != len(fields):
        raise ProtocolError("the welcome is too long")
    rank, world, local_rank, local_world, node, n_nodes, generation = numbers[1:8]
    return Identity(
        rank,
        world,
        local_rank,
        local_world,
        node,
        n_nodes,
        generation,
        run_dir or None,
        resume_path or None,
    )


def take_state(fields: bytes) -> Tuple[bool, int]:
    if len(fields) != 5:
        raise ProtocolError("a state of another length")
    stop, requests = struct.unpack(">BI", fields)
    return stop != 0, requests
