# SPDX-License-Identifier: Apache-2.0
"""Where the memory of tensors and arrays is: PyTorch's, and NumPy's.

Memory of NVIDIA's GPUs is copied by libmuster, row-major. What is on other devices, or
not as it looks (conjugated, another byte order), is copied to and from the CPU by the
library that it is of. Neither is imported here: who
has such a thing has imported it.
"""

import functools
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import _libckpt as lib

_TORCH = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32",
    "uint32": "U32", "int64": "I64", "uint64": "U64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "complex64": "C64", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e8m0fnu": "F8_E8M0", "float4_e2m1fn_x2": "F4",
}  # fmt: skip
_NUMPY = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32",
    "uint32": "U32", "int64": "I64", "uint64": "U64", "float16": "F16", "float32": "F32",
    "float64": "F64", "complex64": "C64",
}  # fmt: skip
SHARED = "elements of it share their memory"
MANY = 1 << 20


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
    strides: Optional[Tuple[int, ...]]  # None: row-major
    address: int
    place: Any  # the same for what is the same memory; None for what is empty
    after: Optional[Callable[[], None]] = None  # to be called once it is filled


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


def _type_name(value: Any) -> str:
    if library_of(value) == "numpy":
        return str(value.dtype.name)
    return str(value.dtype).replace("torch.", "")


def dtype_of(name: str, value: Any) -> int:
    """Of a tensor, an array or parts of them."""
    value = value.local if isinstance(value, Piece) else value
    table, kind = _NUMPY if library_of(value) == "numpy" else _TORCH, _type_name(value)
    if kind not in table and kind in _TORCH:
        raise TypeError(f"'{name}' is of type {kind}, which NumPy itself has not: expected a tensor of PyTorch, or its bits")
    if kind not in table:
        raise TypeError(f"'{name}' is of type {kind}, which safetensors files do not have")
    return lib.DTYPES.index(table[kind])


def torch_dtype(name: str, dtype: str) -> Any:
    """PyTorch's for a tensor, by the type's name in files."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"'{name}' was a tensor of PyTorch: {error}") from error
    found = getattr(torch, next((k for k, v in _TORCH.items() if v == dtype), ""), None)
    if found is None:
        raise TypeError(f"'{name}' is of type {dtype}, which this PyTorch ({torch.__version__}) has not")
    return found


def _numpy_dtype(name: str, dtype: str) -> str:
    found = next((k for k, v in _NUMPY.items() if v == dtype), None)
    if found is None:
        raise TypeError(f"'{name}' is of type {dtype}, which NumPy has not: expected library='torch'")
    return found


def shape_of(name: str, value: Any) -> Tuple[int, ...]:
    """In elements: PyTorch counts those of 4 bits in pairs."""
    if getattr(value, "is_nested", False):
        raise TypeError(f"'{name}' is a nested tensor: expected its values and its offsets")
    if library_of(value) == "torch" and sys.modules["torch"].nn.parameter.is_lazy(value):
        raise TypeError(f"'{name}' is a parameter without a shape: expected it made first, by a forward pass")
    shape = tuple(value.shape)
    if library_of(value) == "torch" and _type_name(value).endswith("_x2"):
        if not shape:
            raise TypeError(f"'{name}': expected a dimension of pairs")
        return (*shape[:-1], 2 * shape[-1])
    return shape


def _is_shared(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements have one place, as those of expand(), unfold() and as_strided()
    may. Of many with such strides as are hard to tell it is assumed."""
    dims = sorted((abs(s), n) for n, s in zip(shape, strides) if n > 1)
    reach, is_clear = 0, True
    for stride, n in dims:
        is_clear = is_clear and stride > reach
        reach += stride * (n - 1)
    count = 1
    for n in shape:
        count *= n
    if is_clear or count == 0:
        return False
    places = {0}
    for stride, n in dims if count <= MANY else []:
        places = {at + stride * i for at in places for i in range(n)}
    return len(places) < count


def _nowhere(_address: int) -> bool:
    return False


def memory_of(
    name: str, value: Any, is_written: bool, in_order: bool = False, is_device: Callable[[int], bool] = _nowhere
) -> Memory:
    """`is_written`: it is to be filled. `in_order`: row-major, without gaps.
    `is_device`: whether libmuster copies what lies there on a GPU."""
    if library_of(value) == "torch":
        return _of_torch(name, value, is_written, in_order, is_device)
    return _of_numpy(name, value, is_written, in_order)


def place_of(value: Any) -> Any:
    """Where its memory is, and as what; None for what has none."""
    if library_of(value) == "torch":
        where = (value.device, value.data_ptr(), tuple(value.shape), value.stride(), value.dtype)
        return (*where, value.is_conj(), value.is_neg()) if value.numel() and value.device.type != "meta" else None
    if not isinstance(value, sys.modules["numpy"].ndarray) or not value.size:
        return None
    return value.ctypes.data, value.shape, value.strides, value.dtype


def extent_of(value: Any) -> Optional[Tuple[str, int, int]]:
    """Of which device, and from where to where, its memory reaches; None for what has
    none, or is refused."""
    is_torch = library_of(value) == "torch"
    if (is_torch and _refusal(value)) or place_of(value) is None:
        return None
    if is_torch:
        size, begin, device = value.element_size(), value.data_ptr(), str(value.device)
        steps = [(n - 1) * s * size for n, s in zip(value.shape, value.stride())]
    else:
        size, begin, device = value.itemsize, value.ctypes.data, "cpu"
        steps = [(n - 1) * s for n, s in zip(value.shape, value.strides)]
    return device, begin + sum(s for s in steps if s < 0), begin + sum(s for s in steps if s > 0) + size


def entangled(values: Sequence[Any]) -> Set[int]:
    """Which of them reach into each other's memory without being the same: views of one
    storage that overlap. Such as only take turns in it may be among them."""
    extents = [(extent_of(v), i) for i, v in enumerate(values)]
    found: Set[int] = set()
    group: List[int] = []
    places: Set[Any] = set()
    device, reach = "", 0
    for extent, i in sorted((e, i) for e, i in extents if e is not None):
        if extent[0] != device or extent[1] >= reach:
            group, places, device, reach = [], set(), extent[0], 0
        group.append(i)
        places.add(place_of(values[i]))
        reach = max(reach, extent[2])
        if len(places) > 1:
            found.update(group)
            group = []
    return found


def put(value: Any, own: Any) -> None:
    """Fills it with the values of another one."""
    if library_of(value) == "torch":
        value.detach().copy_(own)
    else:
        sys.modules["numpy"].copyto(value, own)


def _refusal(tensor: Any) -> str:
    torch = sys.modules["torch"]
    if tensor.device.type == "meta":
        return "it is on the meta device and has no values: expected it made (to_empty()) first"
    if tensor.layout != torch.strided or tensor.is_quantized:
        return "expected a dense tensor"
    if hasattr(type(tensor), "__tensor_flatten__"):
        return f"it is a {type(tensor).__name__}, made of others: expected those instead"
    return ""


def _of_torch(name: str, value: Any, is_written: bool, in_order: bool, is_device: Callable[[int], bool]) -> Memory:
    torch = sys.modules["torch"]
    tensor = value.detach()
    problem = _refusal(tensor)
    if problem:
        raise TypeError(f"'{name}': {problem}")
    dtype, shape = dtype_of(name, tensor), shape_of(name, tensor)
    if is_written and _is_shared(tensor.shape, tensor.stride()):
        raise TypeError(f"'{name}': {SHARED} (expand()), and cannot be loaded into")
    as_it_looks = not tensor.is_conj() and not tensor.is_neg()
    plain = tensor.device.type == "cpu" and as_it_looks
    # That of AMD is called cuda, too, and has another driver.
    if tensor.device.type == "cuda" and as_it_looks and tensor.numel() and is_device(tensor.data_ptr()):
        plain = in_order = True
    in_order = in_order or shape != tuple(tensor.shape)  # two elements a byte have no strides
    memory: Any = tensor
    after: Optional[Callable[[], None]] = None
    if is_written and not (plain and (not in_order or tensor.is_contiguous())):
        memory = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device if plain else "cpu")
        after = functools.partial(tensor.copy_, memory)
    elif not is_written:
        memory = tensor if plain else tensor.resolve_conj().resolve_neg().cpu()
        memory = memory.contiguous() if in_order else memory
    strides = None if in_order else tuple(memory.stride())
    return Memory(memory, dtype, shape, strides, memory.data_ptr(), place_of(tensor), after)


def _of_numpy(name: str, value: Any, is_written: bool, in_order: bool) -> Memory:
    numpy = sys.modules["numpy"]
    array = value if isinstance(value, numpy.ndarray) else numpy.asarray(value)
    plain = array.dtype.isnative and all(s % array.itemsize == 0 for s in array.strides if array.itemsize)
    if is_written and not (plain and array.flags.writeable and isinstance(value, numpy.ndarray)):
        raise TypeError(f"'{name}': expected an array that can be written, in the machine's byte order")
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError(f"'{name}' is a masked array: expected its data and its mask")
    # One without elements shares nothing, whatever NumPy says of its strides: they are 0.
    if is_written and _is_shared(array.shape, array.strides):
        raise TypeError(f"'{name}': {SHARED} (broadcast_to()), and cannot be loaded into")
    dtype = dtype_of(name, array)
    place = place_of(value)
    after: Optional[Callable[[], None]] = None
    if not plain:
        array = numpy.array(array, dtype=array.dtype.newbyteorder("="))
    if in_order and not array.flags.c_contiguous:
        given, array = array, numpy.ascontiguousarray(array)
        after = functools.partial(numpy.copyto, given, array) if is_written else None
    strides = None if in_order else tuple(s // array.itemsize for s in array.strides)
    return Memory(array, dtype, tuple(array.shape), strides, array.ctypes.data, place, after)


def clone(value: Any) -> Any:
    """Memory of its own, of the same shape and type, on the CPU."""
    if library_of(value) == "torch":
        return sys.modules["torch"].empty(value.shape, dtype=value.dtype)
    return sys.modules["numpy"].empty(value.shape, dtype=value.dtype)


def is_same(a: Any, b: Any) -> bool:
    """Whether they have the same bytes."""
    if library_of(a) == "torch":
        a, b = (t.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1) for t in (a, b))
        a, b = (t.view(sys.modules["torch"].uint8).numpy() for t in (a, b))
    return bool(a.tobytes() == b.tobytes())


def of_bytes(name: str, mapped: Any, dtype: str, shape: Sequence[int], library: str, is_writable: bool) -> Any:
    """An array or a tensor in that memory, which stays as long as it does."""
    if not len(mapped):
        return empty(name, dtype, shape, library)
    if library == "torch":
        kind = torch_dtype(name, dtype)
        import torch

        if dtype == "F4":
            shape = (*shape[:-1], shape[-1] // 2)
        return torch.frombuffer(mapped, dtype=kind).reshape(tuple(shape))
    import numpy

    array = numpy.frombuffer(mapped, dtype=_numpy_dtype(name, dtype)).reshape(tuple(shape))
    array.flags.writeable = is_writable
    return array


def empty(name: str, dtype: str, shape: Sequence[int], library: str) -> Any:
    """A new one of a type by its name in files."""
    if library == "torch":
        kind = torch_dtype(name, dtype)
        import torch

        if dtype == "F4":
            shape = (*shape[:-1], shape[-1] // 2)
        return torch.empty(tuple(shape), dtype=kind)
    import numpy

    return numpy.empty(tuple(shape), dtype=_numpy_dtype(name, dtype))
