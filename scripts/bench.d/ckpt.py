# SPDX-License-Identifier: Apache-2.0
"""How long saving and loading take, beside what memory and disk take for the bytes.

A worker of a run saves and loads through its agent, in the directory $MUSTER_BENCH_DIR
(the benchmark's own, where that is not set). The limits are measured in the same run:
a copy of the same bytes into memory that is there, or is fresh, by as many threads as
a save has; the same bytes into one file, past the page cache, several blocks at a
time, and synced; the file read likewise. The peers are torch.save and
torch.distributed.checkpoint, with the same tensors on the same disk. A round is
compared with a limit's median, and the median of the rounds is told."""
import os
import pathlib
import shutil
import statistics
import subprocess

SIZES = ((1 << 20, "1M", 16), (64 << 20, "64M", 64), (1 << 30, "1G", 64), (250 << 20, "1e5 tensors", 100000))
LARGE = 64 << 20  # with less it is messages and syncs that count, not bytes

# What is measured, its target over its limit, and what both are. A partner's memory is
# not measured: it needs a second node.
RATIOS = (
    ("eager", 1.2, "a save blocks, from the third on", "copy"),
    ("second", 1.2, "the second save, after computing three times as long as the first one took", "copy"),
    ("third", 1.2, "the third save", "copy"),
    ("first", 1.2, "the first save", "copy into fresh shared memory"),
    ("lazy", 0.05, "a lazy save and its fence, computing four times as long as a copy takes", "copy"),
    ("restore", 1.2, "load from the agent's memory into fresh memory", "copy into fresh memory"),
    ("cold", 1.15, "load from the disk into fresh memory", "read into fresh memory"),
    ("durable", 1.15, "from the call to durable", "write and sync"),
)


def run(bench, command, timeout=900):
    done = subprocess.run(command, cwd=bench.directory, env=bench.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=timeout, check=False)
    if done.returncode:
        raise bench.CannotMeasure(f"status {done.returncode} of {command[0]}:\n{done.stdout[-2000:]}")
    return done.stdout


def program(bench, name):
    path = bench.build / name
    if not os.access(path, os.X_OK):
        raise bench.CannotMeasure(f"{path} is not built: run make")
    return str(path)


def as_worker(bench, command):
    shutil.rmtree(bench.directory / "run", ignore_errors=True)
    run(bench, [bench.muster(), "run", *bench.root_option(), "--run-dir", str(bench.directory / "run"),
                "--max-restarts", "0", "--nproc-per-node", "1", "--", *command])


def figures(path):
    """What was written, in milliseconds."""
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    path.unlink()
    return {words[0]: [int(word) / 1e6 for word in words[1:]] for words in lines}


def drain(bench, directory, size):
    said = run(bench, [program(bench, "ckpt/drain_bench"), str(directory), str(size), str(bench.rounds + 1)])
    return [[int(word) / 1e6 for word in line.split()] for line in said.splitlines()][1:]  # the first one warms up


def measure_size(bench, root, size, label, tensors, command):
    directory = root / "ckpt"
    shutil.rmtree(directory, ignore_errors=True)
    output = bench.directory / "figures"
    program_arguments = [str(directory), str(size), str(tensors), str(bench.rounds), str(output)]
    rounds = drain(bench, root, size)
    limit = statistics.median(r[0] for r in rounds)
    as_worker(bench, [program(bench, "muster-ckpt-bench"), *program_arguments])
    got = figures(output)
    shutil.rmtree(directory)
    for name, target, text, over in RATIOS:
        value = statistics.median(a / b for a, b in zip(got[name], got[name + "-limit"]))
        took, base = statistics.median(got[name]), statistics.median(got[name + "-limit"])
        said = f"{text}: {took:.1f} ms; {over}: {base:.1f} ms, {size / base / 1e6:.2f} GB/s"
        yield bench.result(f"{name}, {label}", value, "", "<=", target if size >= LARGE else None, said, command)
    disk = f"{size / limit / 1e6:.2f} GB/s"
    yield bench.result(f"drain, {label}", statistics.median(r[1] / r[0] for r in rounds), "", "<=",
                       1.15 if size >= LARGE else None, f"from memory to durable; write and sync: {disk}", command)


def measure_plan(bench, command):
    said = run(bench, [program(bench, "ckpt/plan_bench"), "1000000", str(bench.rounds)])
    value = statistics.median(int(line) / 1e6 for line in said.splitlines())
    yield bench.result("plan, 1e6 chunks", value, "ms", "<=", 50,
                       "read the index, and plan what one of 64 ranks reads", command)


def peers(bench, root, size, tensors):
    """Of each way to save: ms blocked, until durable, and to load from the disk."""
    python = bench.cache / "venv/bin/python"
    if not os.access(python, os.X_OK):
        raise bench.CannotMeasure(f"no {python}: run scripts/install-deps check")
    script = bench.top / "scripts/bench.d/ckpt-peers"
    output = bench.directory / "figures"
    bench.env |= {"PYTHONPATH": str(bench.top / "python"), "PYTHONDONTWRITEBYTECODE": "1",
                  "LIBMUSTER": str(bench.build / ".libs/libmuster.so.0")}
    arguments = [str(root / "peers"), str(size), str(tensors), str(bench.rounds), str(output)]
    as_worker(bench, [str(python), str(script), "save", *arguments])
    run(bench, [str(python), str(script), "load", *arguments])
    got = figures(output)
    shutil.rmtree(root / "peers")
    return {name: statistics.median(values) for name, values in got.items()}


def measure_peers(bench, root, size, label, tensors, command):
    got = peers(bench, root, size, tensors)
    for what, ways in (("blocked", ("torch", "dcp", "dcp-async")), ("durable", ("torch", "dcp", "dcp-async")),
                       ("load", ("torch", "dcp"))):
        for way in ways:
            ours, theirs = got[f"muster.{what}"], got[f"{way}.{what}"]
            yield bench.result(f"{what} vs {way}, {label}", theirs / ours, "times", ">=", 1,
                               f"{theirs:.1f} ms; muster {ours:.1f} ms", command)


def measure(bench):
    root = pathlib.Path(os.environ.get("MUSTER_BENCH_DIR", bench.directory))
    command = ["scripts/bench", "ckpt"]
    sizes = ((1 << 20, "1M", 16), (1 << 20, "1e2 tensors", 100)) if bench.quick else SIZES
    for size, label, tensors in sizes:
        yield from measure_size(bench, root, size, label, tensors, command)
    yield from measure_plan(bench, command)
    for size, label, tensors in sizes[-2:]:
        yield from measure_peers(bench, root, size, label, tensors, command)
