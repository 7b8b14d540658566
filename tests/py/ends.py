# SPDX-License-Identifier: Apache-2.0
"""Ends in the way that the last argument names, as a plain Python process or, in
its second generation, as a worker. In the first one it waits for the file of its
first argument."""
import atexit
import decimal
import multiprocessing
import os
import signal
import sys
import time


def square(x):
    return x * x


class Odd(Exception):
    pass


def deep(n):
    if n == 0:
        raise Odd("deep \u2713")
    deep(n - 1)


def spawned(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        print(method, pool.map(square, [2, 3]))


def pickled():
    import pickle

    f, error = pickle.loads(pickle.dumps([square, Odd("x")]))
    print(f is square, repr(error), square.__module__)


def daemon():
    """Leaves a process in a session of its own, whose parent is gone."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    os.wait()


def interrupt():
    signal.raise_signal(signal.SIGINT)


WAYS = {
    "well": lambda: print("no newline", end=""),
    "exit": lambda: sys.exit(7),
    "text": lambda: sys.exit("a text"),
    "big": lambda: sys.exit(1000),
    "raise": lambda: deep(2),
    "chain": lambda: [exec(compile("1/0", "made.py", "exec"))],
    "hard": lambda: os._exit(4),
    "segv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "abort": os.abort,
    "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "interrupt": interrupt,
    "fork": lambda: spawned("fork"),
    "spawn": lambda: spawned("spawn"),
    "forkserver": lambda: spawned("forkserver"),
    "pickle": pickled,
    "daemon": daemon,
}


def main():
    if os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.02)
        sys.exit(9)
    atexit.register(print, "at exit", decimal.Decimal(1) / 3)
    sys.stdout.write("begun\n")
    sys.stderr.write("err begun\n")
    WAYS[sys.argv[2]]()


if __name__ == "__main__":
    main()
