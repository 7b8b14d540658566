# SPDX-License-Identifier: Apache-2.0
"""Workers of which one fails in the first try, and all are well in the next.

    crash_once.py DIR RANK HOW [SECONDS]

HOW: raise (an exception), kill (SIGKILL to itself), segv, hang (sleeps on and
ignores SIGTERM) or a number, the status to exit with. Until the worker that
fails does so, the others are at work; they would be for SECONDS (60). In each
try every worker appends a line "RANK TRY WORLD" to DIR/started, and in a try
without a failure to DIR/finished before it exits with 0. The try is
TORCHELASTIC_RESTART_COUNT, from 0. Needs no PyTorch.
"""

import os
import signal
import sys
import time


def note(directory, name, line):
    """One write with O_APPEND: lines of many processes stay whole."""
    fd = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, (line + "\n").encode())
    os.close(fd)


def fail(how):
    if how == "raise":
        raise RuntimeError("crash_once: as told")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segv":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(3600)
    sys.exit(int(how))


def count(directory, name, attempt):
    with open(os.path.join(directory, name), encoding="utf-8") as f:
        return sum(line.split()[1] == attempt for line in f)


def wait_for_all(directory, attempt, world, seconds):
    """So that each of the others is really there when one fails."""
    until = time.monotonic() + seconds
    while count(directory, "started", attempt) < world and time.monotonic() < until:
        time.sleep(0.02)


def main():
    directory, failing, how = sys.argv[1:4]
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 60.0
    rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    world = os.environ["WORLD_SIZE"]
    note(directory, "started", f"{rank} {attempt} {world}")
    print(f"rank {rank} of {world}, try {attempt}", flush=True)
    if attempt == "0":
        wait_for_all(directory, attempt, int(world), seconds)
        if rank == failing:
            fail(how)
        time.sleep(seconds)
        sys.exit(f"crash_once: rank {rank} was not stopped")
    note(directory, "finished", f"{rank} {attempt} {world}")


main()
