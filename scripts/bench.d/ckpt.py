# SPDX-License-Identifier: Apache-2.0
"""How long a checkpoint takes, beside what memory and disk take for its bytes.

A snapshot in shared memory becomes a checkpoint on the disk of $MUSTER_BENCH_DIR (the
benchmark's own directory, where that is not set): its blocks with their digests, its
names, and COMMIT, everything synced. Beside it the same program writes the same bytes
into one file, past the page cache, several blocks at a time, and syncs that. The two
take turns; a round is compared with itself, and the median of the rounds is told."""
import os
import pathlib
import statistics
import subprocess

SIZES = ((1 << 20, "1M"), (64 << 20, "64M"), (1 << 30, "1G"))


def drain(bench, directory, size):
    program = bench.build / "ckpt/drain_bench"
    if not os.access(program, os.X_OK):
        raise bench.CannotMeasure(f"{program} is not built: run make")
    done = subprocess.run([program, directory, str(size), str(bench.rounds + 1)],
                          capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise bench.CannotMeasure(done.stderr.strip())
    rounds = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    return rounds[1:]  # the first one warms up


def measure(bench):
    directory = pathlib.Path(os.environ.get("MUSTER_BENCH_DIR", bench.directory))
    command = ["scripts/bench", "ckpt"]
    for size, label in SIZES[:2] if bench.quick else SIZES:
        rounds = drain(bench, directory, size)
        limit = statistics.median(r[0] for r in rounds)
        ratio = statistics.median(r[1] / r[0] for r in rounds)
        rate = f"write and sync of {label}: {size / limit:.2f} GB/s"
        # With less than that it is the number of syncs that counts, not the bytes.
        target = 1.15 if size >= 64 << 20 else None
        yield bench.result(f"durable, {label} a rank", ratio, "", "<=", target, rate, command)
