# SPDX-License-Identifier: Apache-2.0
"""The program ends while a daemon thread is in a call of some checkpoints, and others are
open. Tells which are closed then; who waits for the thread, waits for ever.

    ckpt_exit.py DIRECTORY
"""
import atexit
import sys
import threading


def tell():
    print("closed:", *(name for name, c in (("busy", busy), ("idle", idle)) if not c._handle._finalizer.alive), flush=True)


atexit.register(tell)  # before that of muster, which so comes first

from muster import ckpt  # noqa: E402

root = sys.argv[1]
is_in, forever = threading.Event(), threading.Event()


def gather(data):
    if threading.current_thread() is not threading.main_thread():
        is_in.set()
        forever.wait()
    return [data]


idle = ckpt.Checkpoints(root + ".idle")  # of the run, where there is one
busy = ckpt.Checkpoints(root + ".busy", group=(0, 1, gather))
if sys.argv[2:] == ["busy"]:
    threading.Thread(target=busy.latest, daemon=True).start()
    assert is_in.wait(30)
