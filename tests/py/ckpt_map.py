# SPDX-License-Identifier: Apache-2.0
"""Workers that map what they have saved, from memory of their agent, and save on.

    ckpt_map.py DIRECTORY
"""
import os
import signal
import sys

import numpy as np

from muster import ckpt

rank = int(os.environ["RANK"])
COLUMNS = 100000


def where(array):
    """Of which file its memory is."""
    address = array.__array_interface__["data"][0]
    for line in open("/proc/self/maps"):
        words = line.split(maxsplit=5)
        begin, end = (int(n, 16) for n in words[0].split("-"))
        if begin <= address < end:
            name = os.path.basename(words[5].split(" (")[0].strip()) if len(words) > 5 else "none"
            return "agent" if name.startswith("snap-") else name
    return "nowhere"


def state(step):
    row = np.full((1, COLUMNS), step + rank, np.float32)
    return {"w": ckpt.Piece(row, (2, COLUMNS), (rank, 0)), "x": np.arange(step, step + 5)}


def say(text):
    print(f"rank {rank}: {text}", flush=True)


with ckpt.Checkpoints(sys.argv[1], keep=1) as checkpoints:
    found = checkpoints.latest()
    if found is None:
        checkpoints.save(1, state(1))
        checkpoints.wait()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()  # until all of them start again
    row = checkpoints.map_box(found, "w", (rank, 0), (1, COLUMNS), verify=True)
    own = checkpoints.map_box(found, "w", (rank, 0), (1, COLUMNS), writable=True)
    other = checkpoints.map_box(found, "w", (1 - rank, 0), (1, COLUMNS))
    own[0, 1] = -1
    say(f"step {found}: {where(row)} {where(own)} {where(other)} {row[0, 1] == 1 + rank} {other[0, 1] == 2 - rank}")
    for step in (3, 4, 5):
        checkpoints.save(step, state(step))
        checkpoints.wait()
    right = bool((row == 1 + rank).all()) and own[0, 0] == 1 + rank and own[0, 1] == -1 and bool((other == 2 - rank).all())
    say(f"then: {where(row)} {where(own)} {where(other)} {right}")
    late = checkpoints.map(5)
ok = all(bool((late.state["w"][r] == 5 + r).all()) for r in range(2)) and late.state["x"].tolist() == [5, 6, 7, 8, 9]
say(f"closed: {ok} {bool((row == 1 + rank).all())}")
