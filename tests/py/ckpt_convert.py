# SPDX-License-Identifier: Apache-2.0
"""Saves from several workers, and reads with the safetensors library what muster has
made of it.

    ckpt_convert.py save DIRECTORY       by workers of a run
    ckpt_convert.py read PATH            a file, or a directory with its index
"""
import json
import os
import sys

import numpy as np

verb, path = sys.argv[1:]
whole = {
    "model.weight": np.arange(9000, dtype=np.float32).reshape(90, 100),
    "model.bias": np.arange(100, dtype=np.int64) * 7,
    "scale": np.array(2.5),
}
if verb == "save":
    from muster import ckpt

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    begin, end = rank * 90 // world, (rank + 1) * 90 // world
    mine = whole["model.weight"][begin:end].copy()
    with ckpt.Checkpoints(path) as c:
        c.save(30, {"model": {"weight": ckpt.Piece(mine, (90, 100), (begin, 0)), "bias": whole["model.bias"]},
                    "scale": whole["scale"], "epoch": 3, "rng": b"of all"})
        c.wait()
else:
    from safetensors.numpy import load_file

    index = os.path.join(path, "model.safetensors.index.json")
    if os.path.isdir(path) and os.path.exists(index):
        weights = json.load(open(index))["weight_map"]
        got = {}
        for name in set(weights.values()):
            part = load_file(os.path.join(path, name))
            assert all(weights[k] == name for k in part), name
            got.update(part)
        assert json.load(open(index))["metadata"]["total_size"] == sum(v.nbytes for v in whole.values())
    else:
        got = load_file(os.path.join(path, "model.safetensors") if os.path.isdir(path) else path)
    assert got.keys() == whole.keys(), got.keys()
    for k, v in whole.items():
        assert got[k].dtype == v.dtype and np.array_equal(got[k], v), k
    print("right", len(got))
