# SPDX-License-Identifier: Apache-2.0
"""The store of a run under 64 clients that set, get, add and wait.

The peer: torch's own TCPStore server, with libuv, in a process of its own. The load
(rendezvous/store_load.c) is the same for both; the servers take turns. Of each server: how many
operations a second, its processor time for one, and the 99th percentile of the time
until an answer."""
import os
import statistics
import subprocess

CLIENTS = 64
ROUNDS = 1000
SERVER = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, use_libuv=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


def figures(bench, command, text):
    """Operations a second, microseconds of the server, microseconds of latency."""
    try:
        ops, cpu, p99 = (float(word) for word in text.split())
    except ValueError:
        raise bench.CannotMeasure(f"{command[0]} gave no figures: {text[-2000:]}") from None
    return ops, cpu, p99


def of_torch(bench, load, rounds):
    """A new server each time, as with muster: with no keys from before."""
    with bench.running([torch_python(bench), "-c", SERVER], "port", stdin=subprocess.PIPE) as server:
        port = bench.until(lambda: (bench.directory / "port").read_text().strip(), server, "port")
        command = [load, "127.0.0.1", port, str(server.pid), str(CLIENTS), str(rounds)]
        done = subprocess.run(command, env=bench.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=300, check=False)
    return figures(bench, command, done.stdout)


def of_muster(bench, muster):
    """The one worker is the load; its parent is the agent, which serves."""
    said = bench.directory / "figures"
    said.unlink(missing_ok=True)
    bench.seconds(muster)
    return figures(bench, muster, said.read_text() if said.exists() else "")


def torch_python(bench):
    return bench.torchrun().removesuffix("torchrun") + "python3"


def measure(bench):
    rounds = 20 if bench.quick else ROUNDS
    load = str(bench.build / "rendezvous/store_load")
    if not os.access(load, os.X_OK):
        raise bench.CannotMeasure(f"no {load}: run make, or set MUSTER_BUILDDIR")
    script = f'exec "$1" "$MASTER_ADDR" "$MASTER_PORT" $PPID {CLIENTS} {rounds} >figures'
    muster = [bench.muster(), "run", *bench.root_option(), "--nproc-per-node", "1", "--",
              bench.program("sh"), "-c", script, "sh", load]
    ours, theirs = [], []
    for _ in range(bench.rounds):
        theirs.append(of_torch(bench, load, rounds))
        ours.append(of_muster(bench, muster))
    ops, cpu, p99 = (statistics.median(f) for f in zip(*ours))
    torch_ops, torch_cpu, torch_p99 = (statistics.median(f) for f in zip(*theirs))
    yield bench.result("store.rate", ops, "ops/s", "", None, f"{CLIENTS} clients", muster)
    yield bench.result("store.rate-vs-torch", ops / torch_ops, "x", ">=", 1.0, f"torch: {torch_ops:.0f} ops/s", muster)
    yield bench.result("store.cpu-vs-torch", cpu / torch_cpu, "x", "<=", 0.7,
                       f"an operation: {cpu:.2f} us, torch: {torch_cpu:.2f} us", muster)
    yield bench.result("store.p99-vs-torch", p99 / torch_p99, "x", "<=", 1.0,
                       f"{p99:.0f} us, torch: {torch_p99:.0f} us", muster)
