# SPDX-License-Identifier: Apache-2.0
"""What programs do with muster.ckpt that they should not, or that is rare, in a world of
one: threads, signal handlers, odd numbers and names. Prints TAP.

    ckpt_refused.py DIRECTORY
"""
import os
import signal
import sys
import threading

import numpy as np

from muster import ckpt

root = sys.argv[1]
count = 0


def ok(fact, name):
    global count
    count += 1
    print(f"{'ok' if fact else 'not ok'} {count} - {name}", flush=True)


def failure(call):
    """What it raises; None: nothing."""
    try:
        call()
    except Exception as error:
        return error
    return None


def is_told(error, kind, *texts):
    return isinstance(error, kind) and all(text in str(error) for text in texts)


def threads(where):
    """Each of them saves a state of its own, and all are as they were."""
    states = {10 + i: {"x": np.full(1 << 18, i), "i": i, "pad": list(range(2000))} for i in range(4)}
    errors = []
    with ckpt.Checkpoints(where) as c:

        def work(step):
            for _ in range(3):
                errors.append(failure(lambda: c.save(step, states[step])))
                errors.append(failure(lambda: c.load(step, into={"x": np.zeros(1 << 18, int)})))

        workers = [threading.Thread(target=work, args=(step,)) for step in states]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        ok(not any(errors), f"threads that save and load by one handle: {[e for e in errors if e][:1]}")
        got = {step: c.load(step).state for step in states}
        ok(all(s["i"] == step - 10 and (s["x"] == s["i"]).all() for step, s in got.items()), "have each what it saved")


def within(where):
    """A call in the midst of a save of the same thread."""
    told, armed = [], []

    def on_signal(*_):
        told.append(failure(lambda: c.save(8, {"x": np.ones(3)})))

    def gather(data):
        if armed and not told:
            signal.raise_signal(signal.SIGUSR1)
            told.append(failure(c.latest))
            told.append(c.should_stop())
        return [data]

    signal.signal(signal.SIGUSR1, on_signal)
    with ckpt.Checkpoints(where) as c:
        c.save(6, {"x": np.zeros(3)})
    with ckpt.Checkpoints(where, group=(0, 1, gather)) as c:
        armed.append(True)
        c.save(7, {"x": np.arange(3)})
        ok(is_told(told[0], ckpt.CheckpointError, "this thread is in another call") and told[0].errno == 35, f"a save in a signal handler: {told[0]}")
        ok(is_told(told[1], ckpt.CheckpointError, "this thread is in another call"), "latest() in one")
        ok(told[2] is False, "should_stop() may be asked")
        ok(c.load().step == 7 and (c.load().state["x"] == np.arange(3)).all(), "and the save is right")
        ok(c.save(8, {"x": np.ones(3)}) and c.latest() == 8, "another one can be made behind it")


threads(root + ".threads")
within(root + ".within")
print(f"1..{count}")
