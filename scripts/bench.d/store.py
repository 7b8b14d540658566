# SPDX-License-Identifier: Apache-2.0
"""The store of a run under 64 clients that set, get, add and wait.

The peer: torch's own TCPStore server, with libuv, in a process of its own. All servers live
through the measurement and take turns under the same load (rendezvous/store_load.c). Of each:
how many operations a second, its processor time for one, and the 99th percentile of the time
until an answer.

Most of that is the kernel's, and much of it depends on where the scheduler puts server and
clients. So that is settled here, both ways: "apart" on a processor each, as with clients on
other hosts; "near" on the same one, where nothing is said but how much work there is. What a
server costs that only receives and sends is told beside it (rendezvous/store_bare.c).

That is the limit: where bare-vs-torch is above 0.7, no server on TCP meets the target, and
cpu-vs-bare tells how far muster is from what can be reached. Apart it is so: of each exchange,
the buffers and both ends of the connection are memory of the other processor's, which costs more
than all the rest, and costs torch's server the same. Other system calls do not change it:
io_uring, with receives that stay armed and all sends in one call, saved a bare server a tenth near
and nothing apart; nor did edge-triggered epoll, or answers that carry the acknowledgement of what
was asked."""
import os
import statistics
import subprocess

CLIENTS = 64
ROUNDS = 500
TURNS = 3  # of each server in each of the benchmark's rounds
PROGRAM = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, use_libuv=True, wait_for_workers=False)
print("127.0.0.1", store.port, flush=True)
sys.stdin.read()
"""


def pin(pid, processor):
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {processor})


def load(bench, server, rounds, placement):
    """Operations a second, microseconds of the server, microseconds of latency."""
    host, port, pid = server
    pin(pid, placement[0])
    command = [str(bench.build / "rendezvous/store_load"), host, port, pid, str(CLIENTS), str(rounds)]
    done = subprocess.run(command, env=bench.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=300, check=False,
                          preexec_fn=lambda: os.sched_setaffinity(0, {placement[1]}))
    try:
        ops, cpu, p99 = (float(word) for word in done.stdout.split())
    except ValueError:
        raise bench.CannotMeasure(f"{command[0]} gave no figures: {done.stdout[-2000:]}") from None
    return ops, cpu, p99


def said(bench, name, n):
    """The words of a file, once they are there."""
    path = bench.directory / name
    words = path.read_text().split() if path.exists() else []
    return words if len(words) >= n else None


def compare(bench, servers, rounds, placement):
    """The medians of each server."""
    figures = {name: [] for name in servers}
    for _ in range(bench.rounds * (1 if bench.quick else TURNS)):
        for name, server in servers.items():
            figures[name].append(load(bench, server, rounds, placement))
    return {name: [statistics.median(f) for f in zip(*taken)] for name, taken in figures.items()}


def results(bench, where, figures, command):
    (ops, cpu, p99), (torch_ops, torch_cpu, torch_p99) = figures["muster"], figures["torch"]
    bare = figures["bare"][1]
    yield bench.result(f"store.{where}.rate-vs-torch", ops / torch_ops, "x", ">=", 1.0,
                       f"{CLIENTS} clients: {ops:.0f} ops/s, torch: {torch_ops:.0f} ops/s", command)
    yield bench.result(f"store.{where}.cpu-vs-torch", cpu / torch_cpu, "x", "<=", 0.7,
                       f"an operation: {cpu:.2f} us, torch: {torch_cpu:.2f} us", command)
    yield bench.result(f"store.{where}.bare-vs-torch", bare / torch_cpu, "x", "", None,
                       f"receive and send alone: {bare:.2f} us", command)
    yield bench.result(f"store.{where}.cpu-vs-bare", cpu / bare, "x", "", None,
                       f"receive and send alone: {bare:.2f} us", command)
    yield bench.result(f"store.{where}.p99-vs-torch", p99 / torch_p99, "x", "<=", 1.0,
                       f"{p99:.0f} us, torch: {torch_p99:.0f} us", command)


def measure(bench):
    rounds = 20 if bench.quick else ROUNDS
    for program in ("store_load", "store_bare"):
        if not os.access(bench.build / "rendezvous" / program, os.X_OK):
            raise bench.CannotMeasure(f"no rendezvous/{program} in {bench.build}: run make, or set MUSTER_BUILDDIR")
    # The parent of the one worker is the agent, which serves.
    script = 'echo "$MASTER_ADDR" "$MASTER_PORT" "$PPID" >serves; read _ <end || :'
    os.mkfifo(bench.directory / "end")
    muster = [bench.muster(), "run", *bench.root_option(), "--nproc-per-node", "1", "--",
              bench.program("sh"), "-c", script]
    python = bench.torchrun().removesuffix("torchrun") + "python3"
    with bench.running(muster, "muster.out") as run, \
            bench.running([python, "-c", PROGRAM], "torch.out", stdin=subprocess.PIPE) as torch, \
            bench.running([str(bench.build / "rendezvous/store_bare")], "bare.out") as bare:
        servers = {
            "muster": bench.until(lambda: said(bench, "serves", 3), run, "muster.out"),
            "torch": [*bench.until(lambda: said(bench, "torch.out", 2), torch, "torch.out"), str(torch.pid)],
            "bare": ["127.0.0.1", *bench.until(lambda: said(bench, "bare.out", 1), bare, "bare.out"), str(bare.pid)],
        }
        here = sorted(os.sched_getaffinity(0))
        for where, placement in {"apart": here[:2], "near": here[:1] * 2}.items():
            if len(placement) == 2:
                yield from results(bench, where, compare(bench, servers, rounds, placement), muster)
        os.close(os.open(bench.directory / "end", os.O_WRONLY | os.O_NONBLOCK))
        run.wait(60)
