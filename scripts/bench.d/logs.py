# SPDX-License-Identifier: Apache-2.0
"""8 workers that write lines of 80 bytes, labelled, to one file.

The peer: the same 8 writers, each piped into a `cat` that appends to the file. Each
byte has to arrive, once; the memory of agent and front end together is bounded."""
import collections
import shlex
import statistics
import subprocess
import time

WORKERS = 8
LINES = 400_000
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


def pids(name):
    return subprocess.run(["pgrep", "-f", name], capture_output=True, text=True, check=False).stdout.split()


def timed(bench, command, output):
    """Seconds, and the highest memory of the front end and the agent on the way."""
    most = collections.Counter()
    start = time.monotonic()
    with open(output, "wb") as to, subprocess.Popen(command, env=bench.env, cwd=bench.directory, stdout=to,
                                                    stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for pid in [process.pid, *pids(f"{bench.muster()} agent")]:
                most[pid] = max(most[pid], peak(pid))
            time.sleep(0.05)
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


def measure(bench):
    lines = 1000 if bench.quick else LINES
    output = bench.directory / "all"
    writer = [bench.c_program("writer", WRITER), str(lines)]
    muster = [bench.muster(), "run", *bench.root_option(), "--nproc-per-node", str(WORKERS),
              "--set", "logs.files=none", "--", *writer]
    peer = ["sh", "-c", f"for r in {' '.join(map(str, range(WORKERS)))}; do"
            f" {{ RANK=$r {shlex.join(writer)} | cat >>peer; }} & done; wait"]
    ours, cats, memory, bad = [], [], 0.0, 0
    for _ in range(bench.rounds):
        (bench.directory / "peer").unlink(missing_ok=True)
        cats.append(timed(bench, peer, "/dev/null")[0])
        took, most = timed(bench, muster, output)
        ours.append(took)
        memory = max(memory, most)
        bad += wrong(output, lines, True)
    n_bytes = WORKERS * lines * 80
    rate, theirs = (n_bytes / statistics.median(t) / 1e6 for t in (ours, cats))
    yield bench.result("logs.rate", rate, "MB/s", "", None, f"{WORKERS} workers, {lines} lines each, all told", muster)
    yield bench.result("logs.vs-cat", rate / theirs, "x", ">=", 0.7, f"a cat for each: {theirs:.0f} MB/s", muster)
    yield bench.result("logs.wrong", bad, "lines", "==", 0, "each byte once, in order", muster)
    yield bench.result("logs.memory", memory, "MiB", "<=", 64, "agent and front end, at most", muster)
