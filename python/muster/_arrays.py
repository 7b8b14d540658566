# SPDX-License-Identifier: Apache-2.0
"""Where the memory of tensors and arrays is: PyTorch's on the CPU, and NumPy's.

Neither is imported here: who has such a thing has imported it.
"""

import sys
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from . import _libckpt as lib

_TORCH = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32",
    "uint32": "U32", "int64": "I64", "uint64": "U64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "complex64": "C64", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
_NUMPY = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32",
    "uint32": "U32", "int64": "I64", "uint64": "U64", "float16": "F16", "float32": "F32",
    "float64": "F64", "complex64": "C64",
}  # fmt: skip


class Piece(NamedTuple):
    """What this rank has of a tensor of `shape`: `local` is the box from `at` on, or,
    with `flat`, elements [flat, flat + local.size) of it in row-major order."""

    local: Any
    shape: Sequence[int]
    at: Optional[Sequence[int]] = None
    flat: Optional[int] = None


class Memory(NamedTuple):
    keep: Any  # as long as the memory is used
    dtype: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    address: int
    library: str


def library_of(value: Any) -> str:
    """"torch", "numpy", or "" for what is no tensor."""
    if isinstance(value, Piece):
        return library_of(value.local)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return "torch"
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return "numpy"
    return ""


def _dtype(name: str, table: Dict[str, str], what: str) -> int:
    if name not in table:
        raise TypeError(f"'{what}' is of type {name}, which safetensors files do not have")
    return lib.DTYPES.index(table[name])


def memory_of(name: str, value: Any, is_written: bool) -> Memory:
    """`is_written`: it is to be filled, so that a copy would not do."""
    if library_of(value) == "torch":
        return _of_torch(name, value, is_written)
    return _of_numpy(name, value, is_written)


def _of_torch(name: str, value: Any, is_written: bool) -> Memory:
    torch = sys.modules["torch"]
    tensor = value.detach()
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"'{name}': expected a dense tensor")
    plain = tensor.device.type == "cpu" and not tensor.is_conj() and not tensor.is_neg()
    if not plain and is_written:
        raise TypeError(f"'{name}': expected a plain tensor on the CPU to load into")
    if not plain:
        tensor = tensor.resolve_conj().resolve_neg().cpu()
    dtype = _dtype(str(tensor.dtype).replace("torch.", ""), _TORCH, name)
    return Memory(tensor, dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.data_ptr(), "torch")


def _of_numpy(name: str, value: Any, is_written: bool) -> Memory:
    numpy = sys.modules["numpy"]
    array = value if isinstance(value, numpy.ndarray) else numpy.asarray(value)
    plain = array.dtype.isnative and all(s % array.itemsize == 0 for s in array.strides if array.itemsize)
    if is_written and not (plain and array.flags.writeable and isinstance(value, numpy.ndarray)):
        raise TypeError(f"'{name}': expected an array that can be written, in the machine's byte order")
    dtype = _dtype(array.dtype.name, _NUMPY, name)
    if not plain:
        array = numpy.array(array, dtype=array.dtype.newbyteorder("="))
    strides = tuple(s // array.itemsize for s in array.strides)
    return Memory(array, dtype, tuple(array.shape), strides, array.ctypes.data, "numpy")


def empty(dtype: str, shape: Sequence[int], library: str) -> Any:
    """A new one of a type by its name in files."""
    table = _TORCH if library == "torch" else _NUMPY
    name = next(k for k, v in table.items() if v == dtype)
    if library == "torch":
        import torch

        return torch.empty(tuple(shape), dtype=getattr(torch, name))
    import numpy

    return numpy.empty(tuple(shape), dtype=name)
