# SPDX-License-Identifier: Apache-2.0
"""8 workers that write lines of 80 bytes, labelled, to one file.

The peer: the same 8 writers, each piped into a `cat` that appends to the file. Rates
are of the writing alone: what the same command takes with writers that write nothing
is taken off. Each byte has to arrive, once; the memory of agent and front end together
is bounded."""
import collections
import json
import shlex
import shutil
import statistics
import subprocess
import time

WORKERS = 8
LINES = 800_000
# Lines of 80 bytes: the rank, the number, and filling.
WRITER = """
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    const char *rank = getenv("RANK");

    for (int i = 0; i < atoi(argv[1]); i++) {
        printf("%04d %09d %064d\\n", atoi(rank), i, 0);
    }
    return fflush(stdout) != 0;
}
"""


def peak(pid):
    """MiB, at most so far."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            return next((int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM:")), 0.0)
    except OSError:
        return 0.0


def agents(run_dir):
    """Of this run, as far as it has them yet."""
    try:
        nodes = json.loads((run_dir / "status.json").read_text())["nodes"]
        return [node["agent_pid"] for node in nodes if node.get("agent_pid")]
    except (OSError, ValueError, KeyError):
        return []


def timed(bench, command, output):
    """Seconds, and the highest memory of the front end and the agents on the way."""
    most = collections.Counter()
    run_dir = bench.directory / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    # A new file for each: ext4 writes one that was cut to nothing to the disk when it is closed.
    for old in (bench.directory / "peer", bench.directory / "all"):
        old.unlink(missing_ok=True)
    start = time.monotonic()
    with open(output, "wb") as to, subprocess.Popen(command, env=bench.env, cwd=bench.directory, stdout=to,
                                                    stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for pid in [process.pid, *agents(run_dir)]:
                most[pid] = max(most[pid], peak(pid))
            time.sleep(0.02)
    if process.returncode:
        raise bench.CannotMeasure(f"status {process.returncode} of {shlex.join(command)}")
    return time.monotonic() - start, sum(most.values())


def wrong(output, lines, label):
    """How many lines are not there, or twice, or out of order, or something else."""
    following = [0] * WORKERS
    bad = 0
    with open(output, "rb") as f:
        for line in f:
            text = line.partition(b"] ")[2] if label else line
            rank, number, rest = text.split(b" ")
            if len(text) != 80 or int(number) != following[int(rank)] or rest != b"0" * 64 + b"\n":
                bad += 1
            following[int(rank)] += 1
    return bad + sum(abs(lines - n) for n in following)


def commands(bench, writer, lines):
    """muster's and the peer's."""
    write = shlex.join([writer, str(lines)])
    muster = [bench.muster(), "run", *bench.root_option(), "--run-dir", str(bench.directory / "run"),
              "--nproc-per-node", str(WORKERS), "--set", "logs.files=none", "--", writer, str(lines)]
    peer = ["sh", "-c", f"for r in {' '.join(map(str, range(WORKERS)))}; do"
            f" {{ RANK=$r {write} | cat >>peer; }} & done; wait"]
    return muster, peer


def measure(bench):
    lines = 1000 if bench.quick else LINES
    output = bench.directory / "all"
    writer = bench.c_program("writer", WRITER)
    muster, peer = commands(bench, writer, lines)
    idle_muster, idle_peer = commands(bench, writer, 0)
    times = collections.defaultdict(list)
    memory, bad = 0.0, 0
    for _ in range(bench.rounds):
        times["idle cat"].append(timed(bench, idle_peer, "/dev/null")[0])
        times["cat"].append(timed(bench, peer, "/dev/null")[0])
        times["idle"].append(timed(bench, idle_muster, output)[0])
        took, most = timed(bench, muster, output)
        times["muster"].append(took)
        memory = max(memory, most)
        bad += wrong(output, lines, True)
    median = {name: statistics.median(t) for name, t in times.items()}
    n_mb = WORKERS * lines * 80 / 1e6
    rate = n_mb / max(median["muster"] - median["idle"], 0.001)
    theirs = n_mb / max(median["cat"] - median["idle cat"], 0.001)
    yield bench.result("logs.rate", rate, "MB/s", "", None,
                       f"{WORKERS} workers, {lines} lines each; with start and end: {n_mb / median['muster']:.0f} MB/s",
                       muster)
    yield bench.result("logs.vs-cat", rate / theirs, "x", ">=", 0.7, f"a cat for each: {theirs:.0f} MB/s", muster)
    yield bench.result("logs.wrong", bad, "lines", "==", 0, "each byte once, in order", muster)
    yield bench.result("logs.memory", memory, "MiB", "<=", 64, "agent and front end, at most", muster)
