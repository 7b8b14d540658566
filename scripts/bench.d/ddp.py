# SPDX-License-Identifier: Apache-2.0
"""From the command to the first allreduce of 4 ranks of PyTorch, on gloo.

The peers: the same 4 ranks, started by hand with their environment set, and torchrun.
They take turns; all ranks have one thread of OpenMP. To be read from a machine that
is otherwise idle: muster's workers have a session each, and a scheduler that shares
out processors by session favours them where others want them, too."""
import shlex
import socket
import statistics
import time

RANKS = 4
# Appends the time of its first allreduce to the file that is its argument.
WORKER = """
import os
import sys
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(1)
dist.all_reduce(t)
now = time.monotonic()
assert t.item() == dist.get_world_size()
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.write(fd, f"{now}\\n".encode())
dist.destroy_process_group()
"""


def marks(path, n):
    """Of all n ranks, or nothing."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [float(line) for line in lines] if len(lines) == n else []


def start(bench, command, path):
    """Seconds until the last rank has its result."""
    path.unlink(missing_ok=True)
    begun = time.monotonic()
    with bench.running(command, "said") as process:
        last = max(bench.until(lambda: marks(path, bench.ranks(RANKS)), process, "said"))
        process.wait(120)
    return last - begun


def by_hand(n, worker):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE={n} LOCAL_WORLD_SIZE={n}"
    return ["sh", "-c", f"for r in {' '.join(map(str, range(n)))}; do"
            f" {env} RANK=$r LOCAL_RANK=$r {shlex.join(worker)} & done; wait"]


def measure(bench):
    path = bench.directory / "marks"
    program = bench.directory / "worker.py"
    program.write_text(WORKER)
    torchrun = bench.torchrun()
    n = bench.ranks(RANKS)
    worker = [torchrun.removesuffix("torchrun") + "python3", str(program), str(path)]
    bench.env["OMP_NUM_THREADS"] = "1"
    muster = [bench.muster(), "run", *bench.root_option(), "--nproc-per-node", str(n), "--", *worker]
    theirs = [torchrun, "--standalone", "--nproc-per-node", str(n), *worker[1:]]
    times = {"muster": [], "torchrun": [], "hand": []}
    if not bench.quick:
        start(bench, by_hand(n, worker), path)  # PyTorch's files are in memory then
    for _ in range(bench.rounds):
        times["muster"].append(start(bench, muster, path))
        times["torchrun"].append(start(bench, theirs, path))
        times["hand"].append(start(bench, by_hand(n, worker), path))
    ours, torch, hand = (statistics.median(t) for t in times.values())
    yield bench.result("ddp.time", ours, "s", "", None, f"{n} ranks", muster)
    yield bench.result("ddp.vs-hand", ours / hand, "x", "<=", 1.05, f"started by hand: {hand:.3f} s", muster)
    yield bench.result("ddp.vs-torchrun", ours / torch, "x", "<=", 1.0, f"torchrun: {torch:.3f} s", muster)
