# SPDX-License-Identifier: Apache-2.0
"""The store in init_process_group of 256 ranks: a tree of stores against one for all.

What the ranks ask was recorded (tree-store.trace) and is replayed by as many clients
(rendezvous/store_replay.c), on 8 nodes of 32 and on 32 nodes of 8; the stores of the nodes
are processes of their own (tests/lib/store_serve.c). Of the one that has the keys: its
connections, the messages (requests, or frames of trunks) it gets, and its processor time. All share one machine, so time until the end says
little."""
import contextlib
import os
import pathlib
import signal
import statistics
import time

NODES = 8, 32
TRACE = pathlib.Path(__file__).with_name("tree-store.trace")


def cpu_ms(pid):
    return sum(int((task / "schedstat").read_text().split()[0])
               for task in pathlib.Path(f"/proc/{pid}/task").iterdir()) / 1e6


def sockets(pid):
    n = 0
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            n += os.readlink(fd).startswith("socket:")
    return n


def ports(bench, output):
    path = bench.directory / output
    words = path.read_text().split() if path.exists() else []
    return words if len(words) == 2 else None


class Stores:
    """One with the keys, and one for each of so many nodes, or none."""

    def __init__(self, bench, stack, n_nodes):
        serve = str(bench.build / "tests/lib/store_serve")
        self.bench = bench
        self.output = f"keys-{n_nodes}.out"
        self.keys, own = self.start(stack, [serve], self.output)
        self.idle = sockets(self.keys.pid)
        self.ports = [own[0]]
        if n_nodes:
            nodes = [self.start(stack, [serve, "--upstream", own[1]], f"node-{n_nodes}-{i}.out")
                     for i in range(n_nodes)]
            self.ports = [port for _, (port, _) in nodes]
            deadline = time.monotonic() + 60
            while sockets(self.keys.pid) - self.idle < n_nodes:
                if time.monotonic() > deadline:
                    raise bench.CannotMeasure("the stores of the nodes do not connect")
                time.sleep(0.01)

    def start(self, stack, command, output):
        process = stack.enter_context(self.bench.running(command, output))
        return process, self.bench.until(lambda: ports(self.bench, output), process, output)

    def replay(self):
        """Milliseconds of the processor, connections, and messages to the keys and from there."""
        command = [str(self.bench.build / "rendezvous/store_replay"), str(TRACE), "127.0.0.1", *self.ports]
        begin, most = cpu_ms(self.keys.pid), 0
        with self.bench.running(command, "replay.out") as replay:
            while replay.poll() is None:
                most = max(most, sockets(self.keys.pid) - self.idle)
                time.sleep(0.02)
        if replay.returncode != 0:
            raise self.bench.CannotMeasure((self.bench.directory / "replay.out").read_text()[-2000:])
        figures = cpu_ms(self.keys.pid) - begin, most
        os.kill(self.keys.pid, signal.SIGUSR1)  # tells what it was asked, and forgets the keys
        said = self.bench.until(self.said, self.keys, self.output)
        return *figures, said["frames-in"] or said["requests"], said["frames-out"]

    def said(self):
        for line in (self.bench.directory / self.output).read_text().splitlines()[2:]:
            words = line.split()
            return dict(zip(words[::2], map(int, words[1::2])))
        return None


def measure_one(bench, n_nodes):
    figures = []
    for _ in range(bench.rounds):
        with contextlib.ExitStack() as stack:
            figures.append(Stores(bench, stack, n_nodes).replay())
    return [statistics.median(f) for f in zip(*figures)]


def measure(bench):
    for program in ("rendezvous/store_replay", "tests/lib/store_serve"):
        if not os.access(bench.build / program, os.X_OK):
            raise bench.CannotMeasure(f"no {program} in {bench.build}: run make, or set MUSTER_BUILDDIR")
    command = ["store_replay", TRACE.name]
    direct_ms, direct, asked, _ = measure_one(bench, 0)
    for n_nodes in NODES:
        tree_ms, tree, heard, said = measure_one(bench, n_nodes)
        yield bench.result(f"tree-store.{n_nodes}-nodes.connections", tree / n_nodes, "a node", "<=", 1.0,
                           f"{tree:.0f} at the keys, without a tree {direct:.0f}", command)
        yield bench.result(f"tree-store.{n_nodes}-nodes.messages-vs-direct", heard / asked, "x", "<=", 0.1,
                           f"{heard / n_nodes:.0f} of each node, {heard:.0f} in all, and {said:.0f} back; "
                           f"without a tree {asked:.0f}", command)
        yield bench.result(f"tree-store.{n_nodes}-nodes.cpu-vs-direct", tree_ms / direct_ms, "x", "<=", 0.25,
                           f"at the keys {tree_ms:.0f} ms, without a tree {direct_ms:.0f} ms", command)
