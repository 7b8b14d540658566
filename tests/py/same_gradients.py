# SPDX-License-Identifier: Apache-2.0
"""Whether two files of charlm --dump-gradients are the same, to rounding.

same_gradients.py ONE OTHER
"""
import sys


def load(path):
    with open(path, encoding="utf-8") as f:
        rows = [line.split() for line in f if line.strip() and not line.startswith("#")]
    return {(row[0], row[1]): float(row[2]) for row in rows}


one, other = load(sys.argv[1]), load(sys.argv[2])
assert one.keys() == other.keys() and len(one) > 1000, (len(one), len(other))
scale = max(abs(value) for value in one.values())
worst = max(abs(one[key] - other[key]) for key in one)
assert 0 < scale and worst < 1e-5 * scale, (worst, scale)
