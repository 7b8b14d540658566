# SPDX-License-Identifier: Apache-2.0
"""Workers save and load together: rows of a matrix, a vector that all have, and
something of each one's own.

    ckpt_ranks.py save|lazy|load|gone|differ|values|order|metrics|more|middle|tied|nothing|unlike DIRECTORY STEP

`differ`, `values`, `more` and `middle`: ranks have not what they should: a row is missing, a
value is not the same, one has a tensor more, or has it before others.
`order`, `metrics`: keys of values have another order, or metrics are not the same.
`tied`: one has two names for one tensor, and others two tensors.
`unlike`: they do not have the same numbers in a tensor that all have.
`nothing`: one tensor is all of one rank's.
`gone`: to load, and the last rank does not see any longer what is newer than that step.
"""
import sys

import numpy as np

import muster
from muster import ckpt

what, root, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
rank, world = muster.rank(), muster.world()
full = np.arange(23 * 5, dtype=np.float32).reshape(23, 5) + step
begin, end = 23 * rank // world, 23 * (rank + 1) // world
mine = full[begin:end].copy()
shared = np.arange(9) * step
is_load = what in ("load", "gone")
if is_load:
    mine[:] = 0
    shared[:] = 0
if what == "differ" and rank == 1:
    mine = mine[1:]
    begin += 1
if what == "unlike":
    shared += rank
state = {"m": ckpt.Piece(mine, full.shape, (begin, 0)), "shared": shared, "epoch": step}
if what == "values":
    state["list"] = [{"same": 1, "n": {"x": "abc", "y": 1 + rank}}, 3]
if what == "order":
    state["values"] = {"x": 1, "y": 2} if rank == 0 else {"y": 2, "x": 1}
metrics = {"loss": rank} if what == "metrics" else None
if what == "more" and rank == 1:
    state["shared2"] = shared
if what == "middle" and rank == 1:
    state = {"m": state["m"], "extra": np.zeros(3, np.float32), **state}
if what == "tied":
    state["again"] = shared if rank == 1 else shared.copy()
if what == "nothing":
    state["extra"] = ckpt.Piece(np.zeros((3 * rank, 2)), (3, 2), (0, 0))
with ckpt.Checkpoints(root) as c:
    if not is_load:
        try:
            c.save(step, state, per_rank={"rank": rank, "world": world}, lazy=what == "lazy", metrics=metrics)
            c.fence()
            mine += 1  # it has been saved
        except ckpt.CheckpointError as error:
            print(f"rank {rank}: {error.strerror}", flush=True)
            sys.exit(0)
        print(f"rank {rank} saved, due {c.due(step)}", flush=True)
        sys.exit(0)
    if what == "gone" and rank == world - 1:
        describe = c._describe

        def seen(newest):
            if newest > step:
                raise ckpt._handle.NotFound(2, f"no checkpoint of step {newest}")
            return describe(newest)

        c._describe = seen
    got = c.load(into=state)
    right = (
        np.array_equal(mine, full[begin:end])
        and np.array_equal(shared, np.arange(9) * step)
        and got.state["m"] is mine
        and got.state["epoch"] == step
    )
    own = got.per_rank["rank"] if got.per_rank else None
    print(f"rank {rank} of {world}: step {got.step}, right {right}, own {own}", flush=True)
