# SPDX-License-Identifier: Apache-2.0
"""Workers that leave it to the run when to save, and tell why it was time. Those of the
first generation fail where there is to be a second, once status tells how often they would
save.

    ckpt_due.py DIRECTORY GENERATIONS
"""
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from muster import ckpt

root, generations = sys.argv[1], int(sys.argv[2])
if int(os.environ["MUSTER_GENERATION"]) < generations:
    status = Path(os.environ["MUSTER_RUN_DIR"]) / "status.json"
    with ckpt.Checkpoints(root) as c:
        c.due(0)
        end = time.monotonic() + 20
        while "save_plan" not in (told := json.loads(status.read_text())) and time.monotonic() < end:
            time.sleep(0.05)
    print(f"before a save: {told.get('save_plan', {}).get('assumed')}", flush=True)
    sys.exit(1)
state = {"w": np.arange(6)}
with ckpt.Checkpoints(root) as c:
    c.save(0, state)
    step, why = 0, 0
    while not why:
        time.sleep(0.05)
        step += 1
        why = c.due(step)
    c.save(step, state)
    print(f"due {int(why)}, after {os.environ['MUSTER_FAILURE_COUNT']} failures", flush=True)
