# SPDX-License-Identifier: Apache-2.0
"""From the SIGKILL of one of 8 workers until all 8 new ones are in main().

Workers are killed at once (no grace), and the restart is not put off. The peers:
torchrun, and a plain loop that execs as many processes, which is the least that any
launcher needs."""
import os
import signal
import statistics
import time

WORKERS = 8
# Appends the time of its main() to the file that is its argument.
WORKER = """
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char line[64];
    struct timespec t;
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    int n;

    clock_gettime(CLOCK_MONOTONIC, &t);
    n = snprintf(line, sizeof(line), "%d %ld.%09ld\\n", (int)getpid(), (long)t.tv_sec, t.tv_nsec);
    if (argc != 2 || write(fd, line, n) != n) {
        return 1;
    }
    for (;;) {
        pause();
    }
}
"""
LOOP = """
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int n = atoi(argv[1]);
    pid_t pids[64];

    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            execv(argv[2], argv + 2);
            _exit(127);
        }
    }
    pause();
}
"""


def marks(path):
    """(pid, time of main) of all workers so far."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [(int(pid), float(at)) for pid, at in (line.split() for line in lines)]


def restart(bench, command, path):
    """One run, one kill: seconds until the last new worker is there."""
    path.unlink(missing_ok=True)
    with bench.running(command, "said") as process:
        first = bench.until(lambda: (m := marks(path)) and len(m) == WORKERS and m, process, "said")
        time.sleep(0.5)  # whoever started them has come to rest
        start = time.monotonic()
        os.kill(first[-1][0], signal.SIGKILL)
        both = bench.until(lambda: (m := marks(path)) and len(m) == 2 * WORKERS and m, process, "said")
        return max(at for _, at in both[WORKERS:]) - start


def loop(bench, command, path):
    """A plain loop: seconds until the last process is there."""
    path.unlink(missing_ok=True)
    start = time.monotonic()
    with bench.running(command, "said") as process:
        all_ = bench.until(lambda: (m := marks(path)) and len(m) == WORKERS and m, process, "said")
        for pid, _ in all_:
            os.kill(pid, signal.SIGKILL)
    return max(at for _, at in all_) - start


def measure(bench):
    path = bench.directory / "marks"
    worker = [bench.c_program("worker", WORKER), str(path)]
    muster = [bench.muster(), "run", *bench.root_option(), "--nproc-per-node", str(WORKERS),
              "--max-restarts", "1", "--set", "restart.backoff=0s", "--set", "limits.grace=0s",
              "--", *worker]
    torchrun = [bench.torchrun(), "--standalone", "--nproc-per-node", str(WORKERS),
                "--max-restarts", "1", "--no-python", *worker]
    plain = [bench.c_program("loop", LOOP), str(WORKERS), *worker]
    times = {name: [] for name in ("muster", "torchrun", "loop")}
    for _ in range(bench.rounds):
        times["muster"].append(restart(bench, muster, path))
        times["torchrun"].append(restart(bench, torchrun, path))
        times["loop"].append(loop(bench, plain, path))
    ours, torch, least = (statistics.median(t) for t in times.values())
    yield bench.result("restart.time", ours, "s", "<=", round(0.030 + least, 4),
                       f"30 ms, and a loop that execs {WORKERS} processes: {least:.4f} s", muster)
    yield bench.result("restart.vs-torchrun", ours / torch, "x", "<=", 0.05,
                       f"torchrun: {torch:.3f} s", muster)
