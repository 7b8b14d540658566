# SPDX-License-Identifier: Apache-2.0
"""libmuster's checkpoints by ctypes: nothing is compiled, and no logic is here."""

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

LATEST = (1 << 63) - 1
REPLICATED, PER_RANK, JSON = 0, 1, 2
LAZY, WAIT, SKIP, REFUSE = 1, 2, 4, 8
CANNOT, UNFIT = 1, 2
WRITABLE, VERIFY = 1, 2
LEVELS = {"memory": 0, "partner": 1, "disk": 2, "remote": 3}

DTYPES = (
    "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ "
    "I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64"
).split()

ALLGATHER = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)


class Group(ctypes.Structure):
    _fields_ = [("rank", c_int), ("world", c_int), ("allgather", ALLGATHER), ("arg", c_void_p)]


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("every_steps", c_int64),
        ("every_seconds", c_double),
        ("keep", c_int),
        ("n_threads", c_int),
        ("keep_every", c_int64),
        ("keep_best", c_char_p),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("n_dims", c_uint32),
        ("shape", POINTER(c_uint64)),
        ("at", POINTER(c_uint64)),
        ("len", POINTER(c_uint64)),
        ("data", c_void_p),
        ("strides", POINTER(c_int64)),
        ("is_flat", c_int),
        ("flat_begin", c_uint64),
        ("flat_end", c_uint64),
    ]


class View(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_size_t), ("where", c_int)]


SIGNATURES: Dict[str, Sequence[Any]] = {
    "muster_init": [POINTER(c_void_p)],
    "muster_should_stop": [c_void_p],
    "muster_ckpt_open": [c_void_p, POINTER(Group), c_char_p, POINTER(Options), POINTER(c_void_p)],
    "muster_ckpt_tensor": [c_void_p, POINTER(Tensor)],
    "muster_ckpt_blob": [c_void_p, c_char_p, c_void_p, c_size_t, c_int],
    "muster_ckpt_is_device": [c_void_p, c_void_p],
    "muster_ckpt_clear": [c_void_p],
    "muster_ckpt_due": [c_void_p, c_int64],
    "muster_ckpt_should_stop": [c_void_p, POINTER(c_int)],
    "muster_ckpt_save": [c_void_p, c_int64, c_uint, POINTER(c_uint64)],
    "muster_ckpt_fence": [c_void_p],
    "muster_ckpt_test": [c_void_p, c_uint64, c_int],
    "muster_ckpt_wait": [c_void_p, c_uint64, c_int, c_int64],
    "muster_ckpt_latest": [c_void_p, c_int64, POINTER(c_int64)],
    "muster_ckpt_load": [c_void_p, c_int64, c_uint, POINTER(c_int64)],
    "muster_ckpt_passed_over": [c_void_p, POINTER(c_char_p)],
    "muster_ckpt_read": [c_void_p, c_int64, POINTER(Tensor)],
    "muster_ckpt_map": [c_void_p, c_int64, POINTER(Tensor), c_uint, POINTER(POINTER(View))],
    "muster_ckpt_read_blob": [c_void_p, c_int64, c_char_p, c_void_p, c_size_t, POINTER(c_size_t)],
}


def _candidates() -> List[str]:
    """LIBMUSTER, what was installed with this module, then the system's."""
    given = os.environ.get("LIBMUSTER")
    if given:
        return [given]
    found: List[str] = []
    for parent in Path(__file__).resolve().parents:
        if (parent / "bin" / "muster").exists():  # where it was installed to
            for place in ("lib", "lib64", "lib/*-linux-*"):
                found += [str(p) for p in parent.glob(place + "/libmuster.so.0")]
    return found + ["libmuster.so.0"]


_library: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    global _library
    if _library is None:
        tried = []
        for path in _candidates():
            try:
                lib = ctypes.CDLL(path)
            except OSError as error:
                tried.append(str(error))
                continue
            for name, types in SIGNATURES.items():
                getattr(lib, name).argtypes = types
                getattr(lib, name).restype = c_int
            lib.muster_ckpt_error_text.argtypes = [c_void_p]
            lib.muster_ckpt_error_text.restype = c_char_p
            lib.muster_ckpt_close.argtypes = [c_void_p]
            lib.muster_ckpt_close.restype = None
            lib.muster_ckpt_unmap.argtypes = [POINTER(View)]
            lib.muster_ckpt_unmap.restype = None
            lib.muster_finalize.argtypes = [c_void_p]
            lib.muster_finalize.restype = None
            _library = lib
            break
        else:
            raise ImportError("no libmuster.so.0 (LIBMUSTER names one): " + "; ".join(tried))
    return _library


@functools.lru_cache(maxsize=4096)
def numbers(kind: Any, values: Tuple[int, ...]) -> Any:
    """For the library to read: many tensors have the same ones."""
    for value in values:  # ctypes takes what is left of it
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{value} is too large a number")
    return (kind * max(len(values), 1))(*values)


Gather = Callable[[bytes], List[bytes]]


def allgather(gather: Gather, world: int, failures: List[BaseException]) -> Any:
    """The C callback of a Python function; what it raises is kept in `failures`."""

    def call(_arg: Any, mine: int, into: int, length: int) -> int:
        try:
            parts = gather(ctypes.string_at(mine, length))
            found = [len(part) for part in parts]
            if found != [length] * world:  # what the library has room for
                raise ValueError(f"gather(): expected {length} bytes of each of {world} ranks, found {str(found):.60}")
            ctypes.memmove(into, b"".join(parts), length * world)
            return 0
        except BaseException as error:  # nothing passes through C
            failures.append(error)
            return -103  # ECONNABORTED

    return ALLGATHER(call)
