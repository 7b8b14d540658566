# SPDX-License-Identifier: Apache-2.0
"""How long saving and loading take, beside what memory and disk take for the bytes.

A worker of a run saves and loads through its agent, in the directory $MUSTER_BENCH_DIR
(the benchmark's own, where that is not set). The limits are measured in the same run:
a copy of the same bytes into memory that is there, or is fresh, by as many threads as
a save has; the same bytes into one file, past the page cache, several blocks at a
time, and synced; the file read likewise. Copies go from one agent to another over TCP
of this machine; the limit is a message of MPI over the same, which neither encrypts nor
authenticates it.
The peers are torch.save and torch.distributed.checkpoint, with the same tensors on the
same disk. Each round is compared with its limit, and the median of the rounds is told."""
import os
import pathlib
import shutil
import statistics
import time

SIZES = ((1 << 20, "1M", 16), (64 << 20, "64M", 64), (1 << 30, "1G", 64), (250 << 20, "1e5 tensors", 100000))
LARGE = 64 << 20  # with less it is messages and syncs that count, not bytes

# What is measured, as it comes: in which part of muster-ckpt-bench; its target over its limit, and
# what both are.
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
STARTS = ("first", "second", "third")  # of which a run has one each: as many runs as rounds
# Between two agents: the target over a message of MPI, into which memory; what it is; how
# it goes. What is encrypted costs more, which MPI's message is not.
COPIES = {
    "partner": (1.2, "present", "until a partner has a copy, in memory that it had", "signed"),
    "lost": (1.3, "fresh", "until a worker that asks at once has what another node had, in fresh memory", "signed"),
    "started": (1.3, "fresh", "the same, for a worker that takes longer to start than to copy that", "signed"),
    "partner-encrypted": (None, "present", "until a partner has a copy, by partnerEncrypt", "sealed"),
}
# Over TCP of loopback, as the links of muster on one machine go: nothing of shared memory.
MPI = ["-n", "2", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
SEND = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static char *memory(size_t n)
{
    char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return at;
}

/* Until the sender has heard that all is there. */
static void send(const char *what, char *data, int n, int rank)
{
    double begin;

    MPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    if (rank == 0) {
        MPI_Send(data, n, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("%s %.0f\n", what, (MPI_Wtime() - begin) * 1e9);
    } else {
        MPI_Recv(data, n, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    int n = atoi(argv[1]), rank;
    char *there, *fresh;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    there = memory(n);
    memset(there, rank + 1, n);
    send("warm", there, n, rank);
    send("present", there, n, rank);
    fresh = rank == 0 ? there : memory(n);
    send("fresh", fresh, n, rank);
    MPI_Finalize();
    return 0;
}
"""
# 10^6 chunks, of tensors that are cut in 1000: by rows, and so on; or of as many tensors.
PLANS = {"plan, 1e6 chunks": "rows", "plan, by columns": "columns", "plan, in a grid": "grid",
         "plan, 1e6 tensors": "whole"}
MAP = "map"  # of two sizes, with as many tensors: what takes the same time for any
PEERS = {f"{what} vs {way}": (what, way) for what, ways in
         (("blocked", ("torch", "dcp", "dcp-async")), ("durable", ("torch", "dcp", "dcp-async")),
          ("load", ("torch", "dcp"))) for way in ways}


def run(bench, command, timeout=900):
    """What it says. Where the benchmark is told to end, so is the command, which ends what it has
    started: killed, its agents would write on into the directory that is being removed."""
    with bench.running(command, "said") as process:
        process.wait(timeout)
    said = (bench.directory / "said").read_text(encoding="utf-8", errors="replace")
    if process.returncode:
        raise bench.CannotMeasure(f"status {process.returncode} of {command[0]}:\n{said[-2000:]}")
    return said


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
                told = [line.split(maxsplit=3) for line in lines if line.startswith("#")]
                bench.progress(f"{told[-1][3]}: {told[-1][1]} of {told[-1][2]}" if told else "")
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


def figures_of_starts(bench, make_worker, output, label):
    """Those of all runs, by name; each begins in an empty directory."""
    all_of = {}
    for i in range(bench.rounds):
        bench.progress(f"first saves, {label}: {i} of {bench.rounds}")
        output.write_text("")
        run(bench, run_command(bench, make_worker()))
        for name, ms in figures(output).items():
            all_of.setdefault(name, []).extend(ms)
    return all_of


def measure_ratios(bench, root, size, label, tensors, command):
    names = [name for name in RATIOS if bench.wants(f"{name}, {label}")]
    directory, output = root / "ckpt", bench.directory / "figures"

    def worker(rounds, parts):
        shutil.rmtree(directory, ignore_errors=True)
        return [program(bench, "muster-ckpt-bench"), str(directory), str(size), str(tensors), str(rounds),
                str(output), ",".join(sorted(parts))]

    starts = [name for name in names if name in STARTS]
    if starts:
        got = figures_of_starts(bench, lambda: worker(1, ["saves"]), output, label)
        for name in starts:
            yield ratio(bench, name, size, label, got, command)
    names = [name for name in names if name not in STARTS]
    if names:
        for got in figures_as_they_come(bench, worker(bench.rounds, {RATIOS[name][0] for name in names}), output):
            for name in [n for n in names if n in got and n + "-limit" in got]:
                names.remove(name)
                yield ratio(bench, name, size, label, got, command)
    shutil.rmtree(directory, ignore_errors=True)


def measure_drain(bench, root, size, label, command):
    if not bench.wants(f"drain, {label}"):
        return
    bench.progress(f"from memory to durable, {label}")
    said = run(bench, [program(bench, "ckpt/drain_bench"), str(root), str(size), str(bench.rounds + 1)])
    rounds = [[int(word) / 1e6 for word in line.split()] for line in said.splitlines()][1:]  # the first one warms up
    disk = f"{size / statistics.median(r[0] for r in rounds) / 1e6:.2f} GB/s"
    yield bench.result(f"drain, {label}", statistics.median(r[1] / r[0] for r in rounds), "", "<=",
                       1.15 if size >= LARGE else None, f"from memory to durable; write and sync: {disk}", command)


def measure_copies(bench, size, label, command):
    """Rounds of both in turn: what else the machine does meets both alike."""
    names = [name for name in COPIES if bench.wants(f"{name}, {label}")]
    if not names:
        return
    send = [bench.program("mpirun"), *MPI, bench.mpi_program("send", SEND), str(size)]
    copy = [program(bench, "launcher/copy_bench"), str(size), "1"]
    ways = {"signed": [], "sealed": ["encrypt"]}
    rounds = {way: [] for way in ways}
    for i in range(bench.rounds):
        bench.progress(f"copies between agents, {label}: {i} of {bench.rounds}")
        lines = run(bench, send).splitlines()
        for way, option in ways.items():
            if any(COPIES[name][3] == way for name in names):
                got = parse(lines + run(bench, copy + option).splitlines())
                rounds[way].append({name: ns[0] for name, ns in got.items()})
    for name in names:
        target, memory, text, way = COPIES[name]
        what = name.split("-", maxsplit=1)[0]
        took, mpi, sign, bare = (statistics.median(r[key] for r in rounds[way]) for key in (what, memory, "sign", "bare"))
        said = f"{text}: {took:.1f} ms; MPI over TCP of loopback: {mpi:.1f} ms, {size / mpi / 1e6:.2f} GB/s; " \
               f"to have it {way} alone, by one core: {sign:.1f} ms, {sign / mpi:.2f} times that of MPI; " \
               f"two threads that do only this, send and receive: {bare:.1f} ms, {bare / mpi:.2f} times " \
               f"MPI, and this {took / bare:.2f} times that"
        yield bench.result(f"{name}, {label}", statistics.median(r[what] / r[memory] for r in rounds[way]), "", "<=",
                           target if size >= LARGE else None, said, command)


def measure_map(bench, root, command):
    """A worker that starts again maps what the agent has, of the smallest size and the largest."""
    if not bench.wants(MAP):
        return
    small, large, n = 1 << 20, (2 << 20 if bench.quick else 1 << 30), 16
    output, took = bench.directory / "figures", {}
    for size in (small, large):
        bench.progress(f"maps of {size >> 20} MiB")
        shutil.rmtree(root / "ckpt", ignore_errors=True)
        run(bench, run_command(bench, [program(bench, "muster-ckpt-bench"), str(root / "ckpt"), str(size), str(n),
                                       str(10 * bench.rounds), str(output), "map"]))
        took[size] = min(figures(output)["map"])  # so short that whatever else runs is in it, else
    shutil.rmtree(root / "ckpt")
    said = f"map {n} tensors that the agent has, of {large >> 20} MiB: {1000 * took[large]:.0f} us; " \
           f"of {small >> 20} MiB: {1000 * took[small]:.0f} us"
    yield bench.result(MAP, took[large] / took[small], "", "<=", 2, said, command)


def measure_plans(bench, command):
    for name, cut in PLANS.items():
        if bench.wants(name):
            bench.progress(name)
            said = run(bench, [program(bench, "ckpt/plan_bench"), "1000000", str(bench.rounds), cut])
            value = statistics.median(int(line) / 1e6 for line in said.splitlines())
            yield bench.result(name, value, "ms", "<=", 50,
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
    if names:
        bench.progress(f"PyTorch, {label}")
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
    return [f"{name}, {label}" for label in labels
            for name in (*RATIOS, "drain", *(COPIES if label != labels[-1] else ()))] + [MAP, *PLANS] + \
        [f"{name}, {label}" for label in labels[-2:] for name in PEERS]


def measure(bench):
    root = pathlib.Path(os.environ.get("MUSTER_BENCH_DIR", bench.directory))
    command = ["scripts/bench", "ckpt"]
    for size, label, tensors in sizes(bench):
        yield from measure_ratios(bench, root, size, label, tensors, command)
        yield from measure_drain(bench, root, size, label, command)
        if label != sizes(bench)[-1][1]:  # copies know nothing of tensors
            yield from measure_copies(bench, size, label, command)
    yield from measure_map(bench, root, command)
    yield from measure_plans(bench, command)
    for size, label, tensors in sizes(bench)[-2:]:
        yield from measure_peers(bench, root, size, label, tensors, command)
