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
import time

SIZES = ((1 << 20, "1M", 16), (64 << 20, "64M", 64), (1 << 30, "1G", 64), (250 << 20, "1e5 tensors", 100000))
LARGE = 64 << 20  # with less it is messages and syncs that count, not bytes

# What is measured, as it comes: in which part of muster-ckpt-bench; its target over its limit, and
# what both are. A partner's memory is not measured: it needs a second node.
RATIOS = {
    "first": ("saves", 1.2, "the first save", "copy into fresh shared memory"),
    "second": ("saves", 1.2, "the second save, after computing three times as long as the first one took", "copy"),
    "third": ("saves", 1.2, "the third save", "copy"),
    "eager": ("saves", 1.2, "a save blocks, from the third on", "copy"),
    "durable": ("saves", 1.15, "from the call to durable", "write and sync"),
    "lazy": ("lazy", 0.05, "a lazy save and its fence, computing four times as long as a copy takes", "copy"),
    "restore": ("restore", 1.2, "load from the agent's memory into fresh memory", "copy into fresh memory"),
    "cold": ("cold", 1.15, "load from the disk into fresh memory", "read into fresh memory"),
}
PLAN = "plan, 1e6 chunks"
PEERS = {f"{what} vs {way}": (what, way) for what, ways in
         (("blocked", ("torch", "dcp", "dcp-async")), ("durable", ("torch", "dcp", "dcp-async")),
          ("load", ("torch", "dcp"))) for way in ways}


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


def run_command(bench, command):
    shutil.rmtree(bench.directory / "run", ignore_errors=True)
    return [bench.muster(), "run", *bench.root_option(), "--run-dir", str(bench.directory / "run"),
            "--max-restarts", "0", "--nproc-per-node", "1", "--", *command]


def parse(lines):
    """What was written, in milliseconds."""
    words = [line.split() for line in lines if not line.startswith("#")]
    return {w[0]: [int(word) / 1e6 for word in w[1:]] for w in words}


def figures(path):
    text = path.read_text()
    path.unlink()
    return parse(text.splitlines())


def figures_as_they_come(bench, command, path):
    """What a worker has written to the file so far, each time that there is more."""
    path.write_text("")
    n_lines = 0
    with bench.running(run_command(bench, command), "worker") as process:
        while n_lines is not None:
            is_over = process.poll() is not None
            lines = path.read_text().split("\n")[:-1]
            if len(lines) > n_lines:
                yield parse(lines)
            n_lines = None if is_over else len(lines)
            time.sleep(0 if is_over else 0.5)
        if process.returncode:
            said = (bench.directory / "worker").read_text(errors="replace")
            raise bench.CannotMeasure(f"status {process.returncode} of {command[0]}:\n{said[-2000:]}")
    path.unlink()


def ratio(bench, name, size, label, got, command):
    _, target, text, over = RATIOS[name]
    value = statistics.median(a / b for a, b in zip(got[name], got[name + "-limit"]))
    took, base = statistics.median(got[name]), statistics.median(got[name + "-limit"])
    said = f"{text}: {took:.1f} ms; {over}: {base:.1f} ms, {size / base / 1e6:.2f} GB/s"
    return bench.result(f"{name}, {label}", value, "", "<=", target if size >= LARGE else None, said, command)


def measure_ratios(bench, root, size, label, tensors, command):
    names = [name for name in RATIOS if bench.wants(f"{name}, {label}")]
    if not names:
        return
    directory = root / "ckpt"
    shutil.rmtree(directory, ignore_errors=True)
    output = bench.directory / "figures"
    parts = ",".join(sorted({RATIOS[name][0] for name in names}))
    worker = [program(bench, "muster-ckpt-bench"), str(directory), str(size), str(tensors), str(bench.rounds),
              str(output), parts]
    for got in figures_as_they_come(bench, worker, output):
        for name in [n for n in names if n in got and n + "-limit" in got]:
            names.remove(name)
            yield ratio(bench, name, size, label, got, command)
    shutil.rmtree(directory)


def measure_drain(bench, root, size, label, command):
    if not bench.wants(f"drain, {label}"):
        return
    said = run(bench, [program(bench, "ckpt/drain_bench"), str(root), str(size), str(bench.rounds + 1)])
    rounds = [[int(word) / 1e6 for word in line.split()] for line in said.splitlines()][1:]  # the first one warms up
    disk = f"{size / statistics.median(r[0] for r in rounds) / 1e6:.2f} GB/s"
    yield bench.result(f"drain, {label}", statistics.median(r[1] / r[0] for r in rounds), "", "<=",
                       1.15 if size >= LARGE else None, f"from memory to durable; write and sync: {disk}", command)


def measure_plan(bench, command):
    if not bench.wants(PLAN):
        return
    said = run(bench, [program(bench, "ckpt/plan_bench"), "1000000", str(bench.rounds)])
    value = statistics.median(int(line) / 1e6 for line in said.splitlines())
    yield bench.result(PLAN, value, "ms", "<=", 50,
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
    run(bench, run_command(bench, [str(python), str(script), "save", *arguments]))
    run(bench, [str(python), str(script), "load", *arguments])
    got = figures(output)
    shutil.rmtree(root / "peers")
    return {name: statistics.median(values) for name, values in got.items()}


def measure_peers(bench, root, size, label, tensors, command):
    names = [name for name in PEERS if bench.wants(f"{name}, {label}")]
    got = peers(bench, root, size, tensors) if names else {}
    for name in names:
        what, way = PEERS[name]
        ours, theirs = got[f"muster.{what}"], got[f"{way}.{what}"]
        yield bench.result(f"{name}, {label}", theirs / ours, "times", ">=", 1,
                           f"{theirs:.1f} ms; muster {ours:.1f} ms", command)


def sizes(bench):
    return ((1 << 20, "1M", 16), (1 << 20, "1e2 tensors", 100)) if bench.quick else SIZES


def rows(bench):
    """The names of all results."""
    labels = [label for _, label, _ in sizes(bench)]
    return [f"{name}, {label}" for label in labels for name in (*RATIOS, "drain")] + [PLAN] + \
        [f"{name}, {label}" for label in labels[-2:] for name in PEERS]


def measure(bench):
    root = pathlib.Path(os.environ.get("MUSTER_BENCH_DIR", bench.directory))
    command = ["scripts/bench", "ckpt"]
    for size, label, tensors in sizes(bench):
        yield from measure_ratios(bench, root, size, label, tensors, command)
        yield from measure_drain(bench, root, size, label, command)
    yield from measure_plan(bench, command)
    for size, label, tensors in sizes(bench)[-2:]:
        yield from measure_peers(bench, root, size, label, tensors, command)
