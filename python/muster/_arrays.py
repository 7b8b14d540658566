# SPDX-License-Identifier: Apache-2.0
"""Where the memory of tensors and arrays is: PyTorch's, and NumPy's.

Memory of NVIDIA's GPUs is copied by libmuster, row-major. What is on other devices, or
not as it looks (conjugated, another byte order), is copied to and from the CPU by the
library that it is of. Neither is imported here: who
has such a thing has imported it.
"""

import ctypes
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
    with `flat` and without `at`, elements [flat, flat + local.size) of it in row-major order."""

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


class Kind(NamedTuple):
    """What all of a class have in common: states have many tensors of few classes."""

    library: str  # "torch", "numpy", or "" for what is no tensor
    is_lazy: bool  # it may have no shape yet
    has_parts: bool  # it is made of other tensors


@functools.lru_cache(maxsize=256)
def _kind_of(cls: type) -> Kind:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and issubclass(cls, torch.Tensor):
        return Kind("torch", issubclass(cls, torch.nn.parameter.UninitializedTensorMixin), hasattr(cls, "__tensor_flatten__"))
    is_numpy = numpy is not None and issubclass(cls, numpy.ndarray)
    return Kind("numpy" if is_numpy else "", False, False)


def library_of(value: Any) -> str:
    """"torch", "numpy", or "" for what is no tensor, as NumPy's numbers."""
    if not isinstance(value, Piece):
        return _kind_of(value.__class__).library
    library = library_of(value.local)
    if not library:
        raise TypeError(f"a Piece of a {type(value.local).__name__}: expected a tensor or an array")
    return library


@functools.lru_cache(maxsize=256)
def _number_type(cls: type) -> str:
    """The name of a type of NumPy's numbers, "" for any other."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not issubclass(cls, numpy.generic):
        return ""
    name = str(numpy.dtype(cls).name)
    return name if name in _NUMPY or name == "complex128" else ""


def bytes_of_number(value: Any) -> Optional[Tuple[str, bytes]]:
    """Its type and its bytes, if it is a number of NumPy's (numpy.float64(0.5))."""
    name = _number_type(value.__class__)
    if not name:
        return None
    return name, bytes(value.astype(value.dtype.newbyteorder("<")).tobytes())


def number_of_bytes(name: str, data: bytes) -> Any:
    import numpy

    return numpy.frombuffer(data, dtype=numpy.dtype(name).newbyteorder("<")).astype(name)[0]


@functools.lru_cache(maxsize=256)
def _type_name(library: str, dtype: Any) -> str:
    return str(dtype.name) if library == "numpy" else str(dtype).replace("torch.", "")


@functools.lru_cache(maxsize=256)
def _number_of(library: str, dtype: Any) -> Optional[int]:
    """Of a type as files have it; None: they do not have it."""
    found = (_NUMPY if library == "numpy" else _TORCH).get(_type_name(library, dtype))
    return None if found is None else lib.DTYPES.index(found)


def dtype_of(name: str, value: Any) -> int:
    """Of a tensor, an array or parts of them."""
    value = value.local if isinstance(value, Piece) else value
    library = library_of(value)
    number = _number_of(library, value.dtype)
    if number is None:
        kind = _type_name(library, value.dtype)
        if kind in _TORCH:
            raise TypeError(f"'{name}' is of type {kind}, which NumPy itself has not: expected a tensor of PyTorch, or its bits")
        parts = "its real and imaginary parts, or " if kind.startswith("complex") else ""
        raise TypeError(f"'{name}' is of type {kind}, which safetensors files do not have: expected {parts}another type")
    return number


@functools.lru_cache(maxsize=1)
def _torch_types(torch: Any) -> Dict[str, Any]:
    """Those that this PyTorch has, by their names in files."""
    return {v: getattr(torch, k) for k, v in reversed(_TORCH.items()) if hasattr(torch, k)}


def torch_dtype(name: str, dtype: str) -> Any:
    """PyTorch's for a tensor, by the type's name in files."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"'{name}' was a tensor of PyTorch: {error}") from error
    found = _torch_types(torch).get(dtype)
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
    kind = _kind_of(value.__class__)
    if kind.is_lazy:
        raise TypeError(f"'{name}' is a parameter without a shape: expected it made first, by a forward pass")
    shape = tuple(value.shape)
    if kind.library == "torch" and _type_name("torch", value.dtype).endswith("_x2"):
        if not shape:
            raise TypeError(f"'{name}': expected a dimension of pairs")
        return (*shape[:-1], 2 * shape[-1])
    return shape


def _is_shared(shape: Sequence[int], strides: Sequence[int], size: int = 1) -> bool:
    """Whether two elements, of that size, reach into each other, as those of expand(), unfold()
    and as_strided() may. Of many with such strides as are hard to tell it is assumed."""
    dims = sorted((abs(s), n) for n, s in zip(shape, strides) if n > 1)
    reach, is_clear = size, True
    for stride, n in dims:
        is_clear = is_clear and stride >= reach
        reach += stride * (n - 1)
    count = 1
    for n in shape:
        count *= n
    if is_clear or count == 0:
        return False
    places = {0}
    for stride, n in dims if count <= MANY else []:
        places = {at + stride * i for at in places for i in range(n)}
    in_order = sorted(places) if size > 1 else []
    return len(places) < count or any(b - a < size for a, b in zip(in_order, in_order[1:]))


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


class Plain(NamedTuple):
    dtype: int
    place: Tuple[int, Tuple[int, ...], Any]  # address, shape, and the type as PyTorch has it
    size: int  # in bytes


@functools.lru_cache(maxsize=256)
def _plain_layout(cls: type) -> Any:
    """Of tensors of PyTorch's own classes; None for any other."""
    torch = sys.modules.get("torch")
    return torch.strided if torch is not None and cls in (torch.Tensor, torch.nn.Parameter) else None


@functools.lru_cache(maxsize=256)
def _plain_type(dtype: Any) -> Optional[Tuple[int, int]]:
    """Its number, and the bytes of an element; None: it is to be looked at in general."""
    number = _number_of("torch", dtype)
    if number is None or _type_name("torch", dtype).endswith("_x2"):
        return None
    return number, sys.modules["torch"].empty(0, dtype=dtype).element_size()


def plain_of(value: Any) -> Optional[Plain]:
    """What nearly all of a state is: a dense tensor on the CPU, in row-major order, of which all
    there is to be known costs a tenth of the time that it takes in general. None: it is another
    one, is empty, or memory_of() has something to say of it."""
    layout = _plain_layout(value.__class__)
    if layout is None or value.layout is not layout or not value.is_cpu or value.is_nested:
        return None
    kind = _plain_type(value.dtype)
    count = value.numel()
    if kind is None or not count or not value.is_contiguous() or value.is_conj() or value.is_neg():
        return None
    there = getattr(value, "untyped_storage", value.storage)().nbytes()
    if (value.storage_offset() + count) * kind[1] > there:
        return None
    return Plain(kind[0], (value.data_ptr(), tuple(value.shape), value.dtype), count * kind[1])


def place_of(value: Any) -> Any:
    """Where its memory is, and as what; None for what has none."""
    if library_of(value) == "torch":
        if not value.numel() or value.device.type == "meta":
            return None
        plain = plain_of(value)
        if plain is not None:
            return plain.place
        return value.device, value.data_ptr(), value.shape, value.stride(), value.dtype, value.is_conj(), value.is_neg()
    return (value.ctypes.data, value.shape, value.strides, value.dtype) if value.size else None


class Extent(NamedTuple):
    """From where to where memory reaches, of which device, and what it is there."""

    device: str
    begin: int
    end: int
    place: Any


def extent_of(value: Any, plain: Optional[Plain] = None) -> Optional[Extent]:
    """None for what has none, or is refused. `plain`: what plain_of() has said of it."""
    if plain is not None:
        return Extent("cpu", plain.place[0], plain.place[0] + plain.size, plain.place)
    is_torch = library_of(value) == "torch"
    place = None if is_torch and _refusal(value) else place_of(value)
    if place is None:
        return None
    if is_torch:
        size, begin, device = value.element_size(), value.data_ptr(), str(value.device)
        steps = [(n - 1) * s * size for n, s in zip(value.shape, value.stride())]
    else:
        size, begin, device = value.itemsize, value.ctypes.data, "cpu"
        steps = [(n - 1) * s for n, s in zip(value.shape, value.strides)]
    return Extent(device, begin + sum(s for s in steps if s < 0), begin + sum(s for s in steps if s > 0) + size, place)


def entangled(extents: Sequence[Optional[Extent]]) -> Set[int]:
    """Which of them reach into each other's memory without being the same: views of one
    storage that overlap. Such as only take turns in it may be among them."""
    found: Set[int] = set()
    group: List[int] = []
    places: Set[Any] = set()
    device, reach = "", 0
    there = ((e.device, e.begin, e.end, i, e.place) for i, e in enumerate(extents) if e is not None)
    for own, begin, end, i, place in sorted(there, key=lambda t: t[:4]):
        if own != device or begin >= reach:
            group, places, device, reach = [], set(), own, 0
        group.append(i)
        places.add(place)
        reach = max(reach, end)
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
    if _kind_of(tensor.__class__).has_parts:
        return f"it is a {type(tensor).__name__}, made of others: expected those instead"
    return ""


def _check_storage(name: str, tensor: Any) -> None:
    """What was resized may have less than its tensors reach to: PyTorch itself would read on."""
    if not tensor.numel() or tensor.device.type not in ("cpu", "cuda"):
        return
    last = tensor.numel() - 1
    if not tensor.is_contiguous():
        last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    end = (tensor.storage_offset() + last + 1) * tensor.element_size()
    there = getattr(tensor, "untyped_storage", tensor.storage)().nbytes()
    if end > there:
        raise ValueError(f"'{name}' reaches to byte {end} of its storage, which has {there} bytes: expected all of its memory there")


def _of_torch(name: str, value: Any, is_written: bool, in_order: bool, is_device: Callable[[int], bool]) -> Memory:
    torch = sys.modules["torch"]
    problem = _refusal(value)
    if problem:
        raise TypeError(f"'{name}': {problem}")
    dtype, shape, device = dtype_of(name, value), shape_of(name, value), value.device.type
    _check_storage(name, value)
    if is_written and not value.is_contiguous() and _is_shared(value.shape, value.stride()):
        raise TypeError(f"'{name}': {SHARED} (expand()), and cannot be loaded into")
    as_it_looks = not value.is_conj() and not value.is_neg()
    plain = device == "cpu" and as_it_looks
    # That of AMD is called cuda, too, and has another driver.
    if device == "cuda" and as_it_looks and value.numel() and is_device(value.data_ptr()):
        plain = in_order = True
    in_order = in_order or shape != value.shape  # two elements a byte have no strides
    # What is saved is read until the fence, also where the program gives `value` other
    # memory meanwhile (p.data = ..., module.half()).
    memory: Any = value if is_written else value.detach()
    after: Optional[Callable[[], None]] = None
    if not (plain and (value.is_contiguous() or not in_order)):
        tensor = value.detach()
        if is_written:
            memory = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device if plain else "cpu")
            after = functools.partial(tensor.copy_, memory)
        else:
            memory = tensor if plain else tensor.resolve_conj().resolve_neg().cpu()
            memory = memory.contiguous() if in_order else memory
    strides = None if in_order or memory.is_contiguous() else memory.stride()
    return Memory(memory, dtype, shape, strides, memory.data_ptr(), place_of(value), after)


def _of_numpy(name: str, value: Any, is_written: bool, in_order: bool) -> Memory:
    numpy = sys.modules["numpy"]
    array = value
    plain = array.dtype.isnative and all(s % array.itemsize == 0 for s in array.strides if array.itemsize)
    if is_written and not array.flags.writeable:
        raise TypeError(f"'{name}': expected an array that can be written")
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError(f"'{name}' is a masked array: expected its data and its mask")
    # One without elements shares nothing, whatever NumPy says of its strides: they are 0.
    if is_written and _is_shared(array.shape, array.strides, array.itemsize):
        raise TypeError(f"'{name}': {SHARED} (broadcast_to()), and cannot be loaded into")
    dtype = dtype_of(name, array)
    place = place_of(value)
    given = array
    if not plain:
        array = numpy.array(array, dtype=array.dtype.newbyteorder("="))
    if in_order and not array.flags.c_contiguous:
        array = numpy.ascontiguousarray(array)
    after = functools.partial(numpy.copyto, given, array) if is_written and array is not given else None
    is_plain = in_order or array.flags.c_contiguous
    strides = None if is_plain else tuple(s // array.itemsize for s in array.strides)
    return Memory(array, dtype, tuple(array.shape), strides, array.ctypes.data, place, after)


def bytes_of(name: str, value: Any) -> Tuple[str, List[int], bytes]:
    """The type of a tensor as files name it, its shape, and what is in it."""
    memory = memory_of(name, value, False, in_order=True)
    kept = memory.keep
    size = kept.nbytes if library_of(kept) == "numpy" else kept.numel() * kept.element_size()
    return lib.DTYPES[memory.dtype], list(memory.shape), ctypes.string_at(memory.address, size) if size else b""


def clone(value: Any) -> Any:
    """Memory of its own, of the same shape and type, on the CPU."""
    if library_of(value) == "torch":
        return sys.modules["torch"].empty(value.shape, dtype=value.dtype, device="cpu")
    return sys.modules["numpy"].empty(value.shape, dtype=value.dtype.newbyteorder("="))


def is_moved(value: Any, address: int) -> bool:
    """Whether its memory is not there any more, as after a resize of its storage."""
    return bool((value.data_ptr() if library_of(value) == "torch" else value.ctypes.data) != address)


def was_written(tensors: Sequence[Any]) -> None:
    """So that what autograd has kept of them is not taken for what is there now."""
    torch = sys.modules.get("torch")
    graph: Any = getattr(getattr(torch, "autograd", None), "graph", None)
    if not hasattr(graph, "increment_version"):
        return
    for tensor in tensors:
        if library_of(tensor) == "torch" and not tensor.is_inference():
            graph.increment_version(tensor)


def is_same(a: Any, b: Any) -> bool:
    """Whether they have the same bytes, in the same byte order."""
    if library_of(a) == "torch":
        a, b = (t.detach().cpu().resolve_conj().resolve_neg().contiguous() for t in (a, b))
        # What has one element is contiguous with any strides, of which view() wants 1.
        a, b = (t.as_strided((t.numel(),), (1,)).view(sys.modules["torch"].uint8).numpy() for t in (a, b))
    else:
        a, b = (n.astype(n.dtype.newbyteorder("="), copy=False) for n in (a, b))
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
    """A new one of a type by its name in files, on the CPU, whatever the program's default is."""
    if library == "torch":
        kind = torch_dtype(name, dtype)
        import torch

        if dtype == "F4":
            shape = (*shape[:-1], shape[-1] // 2)
        return torch.empty(tuple(shape), dtype=kind, device="cpu")
    import numpy

    return numpy.empty(tuple(shape), dtype=_numpy_dtype(name, dtype))
