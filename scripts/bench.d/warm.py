# SPDX-License-Identifier: Apache-2.0
"""From the SIGKILL of one of 4 PyTorch workers until all 4 new ones can train.

Which is: they are past `import torch` and init_process_group. muster forks them from
the interpreter of restart.preload; the peer is torchrun, and for comparison there is
muster without it. Where the workers of torchrun do not come past init_process_group a
second time, its time is that until they are past the import, which is less."""
import os
import pathlib
import signal
import statistics
import time

WORKERS = 4
PATIENCE = 10  # s, for a peer that has imported and may hang
# Appends what it is past, its pid and the time to the file that is its argument.
WORKER = """
import os
import sys
import time
import torch
import torch.distributed as dist

def mark(what):
    with open(sys.argv[1], "a") as f:
        f.write("%s %d %.6f\\n" % (what, os.getpid(), time.monotonic()))

mark("import")
dist.init_process_group("gloo")
mark("init")
while True:
    time.sleep(1000)
"""


def marks(path, what):
    """(pid, time) of those that are past it."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = (line.split() for line in lines)
    return [(int(pid), float(at)) for kind, pid, at in found if kind == what]


def has_warmed_up(run):
    events = run / "events.jsonl"
    return events.exists() and "has imported" in events.read_text()


def restart(bench, command, path, run=None, patience=120):
    """One run, one kill: seconds until the last new worker can train, and whether
    it could; else until it has imported."""
    path.unlink(missing_ok=True)

    n = bench.ranks(WORKERS)

    def all_past(what, generations):
        found = marks(path, what)
        return len(found) >= generations * n and found

    with bench.running(command, "said") as process:
        first = bench.until(lambda: all_past("init", 1), process, "said")
        if run:
            bench.until(lambda: has_warmed_up(run), process, "said")
        time.sleep(0.5)  # whoever started them has come to rest
        start = time.monotonic()
        os.kill(first[-1][0], signal.SIGKILL)
        ends = bench.until(lambda: all_past("import", 2), process, "said")
        has_trained = True
        try:
            ends = bench.until(lambda: all_past("init", 2), process, "said", patience)
        except bench.CannotMeasure:
            has_trained = False
            if run:
                raise
        return max(at for _, at in ends[n:]) - start, has_trained


def measure(bench):
    path, script = bench.directory / "marks", bench.directory / "worker.py"
    script.write_text(WORKER)
    torchrun = bench.torchrun()
    n = str(bench.ranks(WORKERS))
    worker = [str(pathlib.Path(torchrun).with_name("python3")), str(script), str(path)]

    def muster(run, *options):
        return [bench.muster(), "run", *bench.root_option(), "--run-dir", str(run),
                "--nproc-per-node", n, "--max-restarts", "1", "--set", "restart.backoff=0s",
                "--set", "limits.grace=0s", *options, "--", *worker]

    peer = [torchrun, "--standalone", "--nproc-per-node", n, "--max-restarts", "1",
            str(script), str(path)]
    times = {name: [] for name in ("warm", "plain", "torchrun")}
    trained = []
    for number in range(bench.rounds):
        warm, plain = (bench.directory / f"{kind}{number}" for kind in ("warm", "plain"))
        times["warm"].append(restart(bench, muster(warm, "--set", "restart.preload=[torch]"), path, warm)[0])
        times["plain"].append(restart(bench, muster(plain), path)[0])
        took, has_trained = restart(bench, peer, path, patience=PATIENCE)
        times["torchrun"].append(took)
        trained.append(has_trained)
    ours, cold, torch = (statistics.median(t) for t in times.values())
    command = muster("RUN", "--set", "restart.preload=[torch]")
    until = "" if all(trained) else ", until its workers have imported; some never train again"
    yield bench.result("warm.time", ours, "s", "<=", None, f"without restart.preload: {cold:.3f} s", command)
    yield bench.result("warm.vs-torchrun", ours / torch, "x", "<=", 0.1, f"torchrun: {torch:.3f} s{until}", command)
