# SPDX-License-Identifier: Apache-2.0
"""Nested state as a list of named arrays and a description of the rest, in JSON.

A node is a list, its kind first:

    ["dict", [[key, node], ...]]     keys: strings, integers, booleans, None
    ["dict", [[key, node], ...], "OrderedDict"]  or "Counter": a dict to who does not know them
    ["list", [node, ...]], ["tuple", [node, ...]]
    ["value", v]                     None, bool, int, float, str
    ["float", "nan"]                 what JSON has no number for
    ["bytes", "base64"]
    ["number", ["float32", "base64"]] of NumPy: its little-endian bytes
    ["tensor", name, library]        "torch" or "numpy"
    ["array", [library, "F32", [length, ...], "base64"]]  one that is kept here, see `inline`
"""

import base64
import collections
import json
import math
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from . import _arrays

Node = List[Any]
Inline = Callable[[str, Any], Tuple[str, List[int], bytes]]

DEEPEST = 128  # Python's JSON reads few hundreds, of which a level here takes three
LARGEST = 10**4300 - 1  # Python reads no more digits, unless it is told to
_TOO_MANY = "more than 4300 digits, which Python does not read back: expected fewer, or hex() of it"

_DICTS = {"OrderedDict": collections.OrderedDict, "Counter": collections.Counter}


class Unfit(TypeError):
    """A value that cannot be described: where it is, and why."""


def flatten(
    state: Any, is_tensor: Callable[[Any], str], inline: Optional[Inline] = None, what: str = "state"
) -> Tuple[Node, Dict[str, Any]]:
    """The description, and tensors by name: `a.b.0.c`, keys joined by dots. `inline`: gives
    type, shape and bytes of one, which are in the description then. `what`: the argument that it
    is, for errors."""
    tensors: Dict[str, Any] = {}
    try:
        return _flatten(state, "", is_tensor, inline, tensors), tensors
    except Unfit as error:
        raise TypeError(f"{what}{error}") from None


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _flatten(
    value: Any,
    path: str,
    is_tensor: Callable[[Any], str],
    inline: Optional[Inline],
    tensors: Dict[str, Any],
    depth: int = 0,
) -> Node:
    library = is_tensor(value)
    if library:
        name = path or "value"
        if inline is not None:
            dtype, shape, data = inline(name, value)
            return ["array", [library, dtype, shape, base64.b64encode(data).decode()]]
        if name in tensors:
            raise ValueError(
                f"two tensors are called '{name}': keys are joined by dots, as text; expected others where a key "
                "has dots, or is a number beside the same as text"
            )
        tensors[name] = value
        return ["tensor", name, library]
    inside = (is_tensor, inline, tensors, depth + 1)
    if depth > DEEPEST:
        raise Unfit(f"{_of(f'{path:.40}...')} is more than {DEEPEST} levels deep, or has itself in it: expected fewer")
    if isinstance(value, Mapping):
        children = [[_key(k, path), _flatten(v, _join(path, k), *inside)] for k, v in value.items()]
        return ["dict", children] + [name for name, kind in _DICTS.items() if isinstance(value, kind)]
    if isinstance(value, (list, tuple)):
        items = [_flatten(v, _join(path, i), *inside) for i, v in enumerate(value)]
        return ["list" if isinstance(value, list) else "tuple", items]
    number = _arrays.bytes_of_number(value)  # some of them are float, too
    if number is not None:
        return ["number", [number[0], base64.b64encode(number[1]).decode()]]
    if isinstance(value, float) and not math.isfinite(value):
        return ["float", repr(float(value))]
    if type(value) is int and abs(value) > LARGEST:
        raise Unfit(f"{_of(path)} is a whole number of {_TOO_MANY}")
    if value is None or type(value) in (bool, int, float, str):
        return ["value", value]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", base64.b64encode(value).decode()]
    raise Unfit(
        f"{_of(path)} is a {type(value).__name__}: expected tensors, arrays, numbers, text, bytes, None, "
        "and dicts, lists and tuples of them"
    )


def _of(path: str) -> str:
    """Behind the name of an argument."""
    return f", '{path}'" if path else ""


def _key(key: Any, path: str) -> Any:
    if type(key) is int and abs(key) > LARGEST:
        raise Unfit(f"{_of(path)}: one of its keys is a whole number of {_TOO_MANY}")
    if key is None or type(key) in (bool, int, str):
        return key
    raise Unfit(f"{_of(path)}: one of its keys is a {type(key).__name__}: expected str, int, bool or None")


def tensors_of(node: Node) -> List[Tuple[str, str]]:
    """Names of its tensors, with the library of each."""
    if node[0] == "tensor":
        return [(node[1], node[2])]
    if node[0] == "dict":
        return [t for _, child in node[1] for t in tensors_of(child)]
    if node[0] in ("list", "tuple"):
        return [t for child in node[1] for t in tensors_of(child)]
    return []


def path_at(node: Node, place: int, path: str = "") -> str:
    """Of the value in whose text, as json.dumps() writes the node, that place is: a dict's where
    it is in one of the keys."""
    if node[0] not in ("dict", "list", "tuple"):
        return path
    begin = len(json.dumps(node[0])) + 4
    for i, child in enumerate(node[1]):
        key, value = child if node[0] == "dict" else (i, child)
        inside = place - begin - (len(json.dumps(key)) + 3 if node[0] == "dict" else 0)
        size = len(json.dumps(child))
        if place < begin + size:
            return path_at(value, inside, _join(path, key)) if inside >= 0 else path
        begin += size + 2
    return path


def keys_at(node: Node, path: Optional[str]) -> Optional[List[Any]]:
    """The keys of the dict of that path, or of the node itself; None: it is none."""
    children = list(node[1] if node[0] == "dict" else enumerate(node[1])) if node[0] in ("dict", "list", "tuple") else []
    if path is None:
        return [key for key, _ in children] if node[0] == "dict" else None
    for key, child in children:
        name = str(key)
        if path == name or path.startswith(name + "."):
            found = keys_at(child, None if path == name else path[len(name) + 1 :])
            if found is not None:
                return found
    return None


def build(node: Node, tensors: Mapping[str, Any], like: Any = None) -> Any:
    """The state again. Tensors that are not given are left out of dicts, and None
    elsewhere. `like`: a state in which a tuple that has names there has them here, too."""
    kind, value = node[0], node[1]
    if kind == "tensor":
        return tensors.get(value)
    if kind == "dict":
        likes = like if isinstance(like, Mapping) else {}
        children = [(k, child) for k, child in value if child[0] != "tensor" or child[1] in tensors]
        made = {k: build(child, tensors, likes.get(k)) for k, child in children}
        return _DICTS[node[2]](made) if node[2:] and node[2] in _DICTS else made
    if kind in ("list", "tuple"):
        beside = like if isinstance(like, (list, tuple)) and len(like) == len(value) else [None] * len(value)
        items = [build(child, tensors, one) for child, one in zip(value, beside)]
        if kind == "list":
            return items
        return type(like)._make(items) if beside is like and hasattr(like, "_make") else tuple(items)
    if kind == "float":
        return float(value)
    if kind == "array":
        library, dtype, shape, data = value
        return _arrays.of_bytes("", bytearray(base64.b64decode(data)), dtype, shape, library, True)
    if kind == "number":
        return _arrays.number_of_bytes(value[0], base64.b64decode(value[1]))
    if kind == "bytes":
        return base64.b64decode(value)
    return value
