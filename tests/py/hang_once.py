# SPDX-License-Identifier: Apache-2.0
"""Workers of which one hangs in the first try; in the next all are well.

    hang_once.py RANK HOW [gloo|say|report]

HOW: sleep, or spin. With gloo, a step is an all-reduce of PyTorch, so that the
others wait for the one that hangs; with say it is a line of output, with report
one that muster is told of. The try is TORCHELASTIC_RESTART_COUNT, from 0.
"""

import os
import sys
import time

STEPS = 8
AT = 4


def stuck(how):
    while True:
        if how == "sleep":
            time.sleep(3600)


def make_step(kind):
    if kind == "gloo":
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        return lambda step: model(torch.ones(2, 4)).sum().backward()
    if kind == "report":
        import muster

        return lambda step: muster.report(step)
    return lambda step: print("step", step, flush=True)


def main():
    failing, how = sys.argv[1:3]
    step = make_step(sys.argv[3])
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    for i in range(STEPS):
        if first and i == AT and os.environ["RANK"] == failing:
            stuck(how)
        step(i)
        time.sleep(0.05)
    while first and sys.argv[3] != "gloo":
        if os.path.exists("others_go_on"):
            step(i := i + 1)
        time.sleep(0.1)


main()
