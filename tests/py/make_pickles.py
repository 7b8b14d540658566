# SPDX-License-Identifier: Apache-2.0
"""Pickles as Python writes them: make_pickles.py DIRECTORY. Objects of all kinds, by each
protocol and by both picklers, as made and by the fewest instructions, each as that of an
archive of torch.save."""
import array
import collections
import datetime
import decimal
import functools
import io
import os
import pathlib
import pickle
import pickletools
import sys
import zipfile


class Itself:
    def __init__(self):
        self.me = self


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a, self.b = 1, "\xe9"

    def __getstate__(self):
        return None, {"a": 1, "b": "\xe9"}


class New:
    def __new__(cls, *args, **words):
        return object.__new__(cls)

    def __getnewargs_ex__(self):
        return (1,), {"k": 2}


class Parts:
    def __reduce__(self):
        return dict, (), None, iter([]), iter([(1, 2), (3, 4)])


def round_about():
    some_list, some_tuple, some_dict = [], ([],), {}
    some_list.append(some_list)
    some_tuple[0].append(some_tuple)
    some_dict["d"] = some_dict
    return some_list, some_tuple, some_dict


VALUES = {
    "words": [None, True, False, ..., NotImplemented],
    "whole": [0, 1, -1, 255, 256, 65536, 2**31, -2**31, 2**63, -2**64, 10**400, -10**400, 1 << 9000],
    "real": [0.0, -0.0, 1.5, float("inf"), float("nan"), 5e-324, 1 + 2j],
    "text": ["", "\xe9" * 300, "x" * 70000, "\ud800", "a\nb\\u", "\U0001f600", "\0\x1a\r\n\\", "'\""],
    "bytes": [b"", bytes(range(256)), b"y" * 70000, bytearray(b"abc" * 100)],
    "round": round_about(),
    "objects": [Itself(), Slots(), New(), Parts()],
    "sets": [set(), {1, 2}, frozenset({1, "a"}), set(range(3000)), frozenset(range(3000))],
    "many": [list(range(5000)), {str(i): i for i in range(5000)}, tuple(range(2000)), [str(i) for i in range(300)]],
    "same": ["k"] * 4000,
    "deep": functools.reduce(lambda inner, _: [inner], range(300), 1),
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "library": [collections.OrderedDict(a=1), collections.defaultdict(list, {1: [2]}), collections.Counter("ab"),
                collections.deque(range(2500)), datetime.datetime(2026, 1, 2), decimal.Decimal("1.5"),
                array.array("d", [1, 2]), pathlib.PurePosixPath("/a"), functools.partial(int, base=2),
                range(10), ValueError("x"), len, os.path.join, Itself],
}


def make(top):
    for name, value in VALUES.items():
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            for kind in (pickle.Pickler, pickle._Pickler):
                made = io.BytesIO()
                kind(made, protocol).dump(value)
                made = made.getvalue()
                for is_least in (False, True):
                    path = f"{top}/{name}_{kind.__name__}_{is_least}-{protocol}.pt"
                    with zipfile.ZipFile(path, "w") as f:
                        f.writestr("x/data.pkl", pickletools.optimize(made) if is_least else made)
                        f.writestr("x/version", "3\n")


make(sys.argv[1])
