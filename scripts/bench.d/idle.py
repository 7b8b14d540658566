# SPDX-License-Identifier: Apache-2.0
"""What a run costs while its 8 workers sleep: processor time and memory.

That of the agent, its watch and muster-mpi together. An MPI program that only
sleeps is the peer in memory: what MPI takes is not ours."""
import json
import pathlib
import time

WORKERS = 8
SECONDS = 60
SLEEPER = """
#include <mpi.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    pause();
    MPI_Finalize();
}
"""


def children(pid):
    """All descendants of a process."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *children(int(child))]
    return found


def name(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def named(pid, what):
    """The first descendant of that name, or None."""
    return next((p for p in children(pid) if name(p) == what), None)


def cpu_ns(pid):
    """Of all threads; the clock of ps has ticks of 10 ms."""
    return sum(int(t.read_text().split()[0]) for t in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"))


def rss(pid):
    """MiB."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def processes(bench, front, run_dir):
    """agent, watch, muster-mpi of the run, once all workers run."""
    try:
        status = json.loads((run_dir / "status.json").read_text())
    except (OSError, ValueError):
        return None
    workers = [w for w in status.get("workers", []) if w["state"] == "Running"]
    mpi = named(front.pid, "muster-mpi")
    if len(workers) < WORKERS or mpi is None:
        return None
    agent = status["nodes"][0]["agent_pid"]
    stat = pathlib.Path(f"/proc/{agent}/stat").read_text()
    return agent, int(stat.rpartition(") ")[2].split()[1]), mpi


def mpi_alone(bench):
    """MiB of an MPI program that does nothing."""
    command = [bench.program("mpirun"), "-n", "1", bench.mpi_program("sleeper", SLEEPER)]
    with bench.running(command, "said") as process:
        pid = bench.until(lambda: named(process.pid, "sleeper"), process, "said")
        time.sleep(2)
        return rss(pid)


def measure(bench):
    run_dir = bench.directory / "run"
    seconds = 2 if bench.quick else SECONDS
    muster = [bench.muster(), "run", *bench.root_option(), "--run-dir", str(run_dir),
              "--nproc-per-node", str(WORKERS), "--", bench.program("sleep"), "1000"]
    with bench.running(muster, "said") as process:
        ours = bench.until(lambda: processes(bench, process, run_dir), process, "said")
        time.sleep(3)  # what starting left to do
        before = sum(cpu_ns(p) for p in ours)
        start = time.monotonic()
        time.sleep(seconds)
        share = (sum(cpu_ns(p) for p in ours) - before) / (time.monotonic() - start) / 1e7
        agent, watch, mpi = (rss(p) for p in ours)
    alone = mpi_alone(bench)
    yield bench.result("idle.cpu", share, "% of a core", "<=", 0.2,
                       f"{WORKERS} sleeping workers, {seconds} s", muster)
    yield bench.result("idle.memory", agent + watch + max(mpi - alone, 0), "MiB", "<=", 30,
                       f"agent {agent:.1f}, watch {watch:.1f}, muster-mpi {mpi:.1f}, less an MPI program: {alone:.1f}",
                       muster)
