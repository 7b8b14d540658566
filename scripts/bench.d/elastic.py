# SPDX-License-Identifier: Apache-2.0
"""From a lost node until all workers of the next generation are in main().

On four hosts (tests/rigs/hosts; needs root): an agent is killed, so that its sockets
are closed; and the link of a host goes down, at default settings. The peer is torchrun
with c10d rendezvous on the same hosts, of whose workers those of a dead agent are
killed with it; where they are not all back after 60 s that counts as 60 s. Workers
hold connections to rank 0 and end when they lose it, as those of collectives do.

Further: nodes that count as lost although nothing but load, a throttled cgroup and a
run directory that stalls is wrong, in 1 minute, with --long in 30; and what a change of
view costs among 1000 agents in one process (rendezvous/view_load.c), counted; and how
long one of 64 agents of this machine is missed, for the model of doc/scaling.md.
What that says of 1000 to 100000 ranks is told with it; and what `bench warm` and
`bench tree-store` measure, of restarts and of many who start."""
import contextlib
import ctypes
import importlib.util
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import threading
import time

HOSTS = ["node1", "node2", "node3", "node4"]
PROCS = 2
PATIENCE = 60  # s, for who does not come back
HEARTBEAT = 10  # s, the default of heartbeat.timeout
ARITY = 32  # of the agents' tree
VIEWS = ["elastic.view-messages", "elastic.view-rounds", "elastic.view-cpu"]
MODELLED = 1000, 10000, 100000  # ranks
LOSSES = {"closed": ["elastic.closed", "elastic.closed-vs-torchrun"],
          "silent": ["elastic.silent", "elastic.silent-vs-torchrun"]}
OTHERS = {"warm": ["warm.time", "warm.vs-torchrun"],
          "tree-store": [f"tree-store.{n}-nodes.{what}" for n in (8, 32)
                         for what in ("connections", "messages-vs-direct", "cpu-vs-direct")]}
# Appends the time of its main() to the file that is its argument; then all are
# connected to rank 0, and end when that breaks.
WORKER = """
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
static void mark(const char *path)
{
    char line[64];
    struct timespec t;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600), n;

    clock_gettime(CLOCK_MONOTONIC, &t);
    n = snprintf(line, sizeof(line), "%ld.%09ld\\n", (long)t.tv_sec, t.tv_nsec);
    if (write(fd, line, n) != n)
        exit(1);
}
static int join(struct sockaddr_in *to)
{
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)to, sizeof(*to)) == 0)
            return fd;
        close(fd);
        usleep(20000);
    }
}
int main(int argc, char **argv)
{
    struct pollfd all[64];
    struct sockaddr_in at = {.sin_family = AF_INET};
    int n = 0, world, on = 1, s;

    if (argc < 2)
        return 2;
    mark(argv[1]);
    if (!getenv("MASTER_ADDR"))
        return 0;
    if (argc < 3)
        for (;;)
            pause();
    world = atoi(getenv("WORLD_SIZE"));
    at.sin_port = htons(atoi(getenv("MASTER_PORT")) + 1);
    if (atoi(getenv("RANK")) > 0) {
        inet_pton(AF_INET, argv[2], &at.sin_addr);
        all[n++].fd = join(&at);
    } else {
        s = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(s, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(s, 64) < 0)
            return 3;
        while (n < world - 1)
            all[n++].fd = accept(s, NULL, NULL);
    }
    for (int i = 0; i < n; i++)
        all[i].events = POLLIN;
    while (poll(all, n, -1) < 0 && errno == EINTR)
        ;
    return 1;
}
"""
LOOP = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    for (int i = atoi(argv[1]); i > 0; i--) {
        if (fork() == 0) {
            execv(argv[2], argv + 2);
            _exit(127);
        }
    }
    while (wait(NULL) > 0)
        ;
    return 0;
}
"""


class Bed:
    """Four hosts, until the end of the `with`."""

    def __init__(self, bench, name="bed"):
        self.bench = bench
        self.dir = bench.directory / name
        self.program = str(bench.top / "tests/rigs/hosts")
        self.shared = self.dir / "shared"
        self.env = bench.env | {"MUSTER_SRCDIR": str(bench.top), "MUSTER_BUILDDIR": str(bench.build.resolve()),
                                "MUSTER_CACHE": str(bench.cache)}

    def do(self, verb, *args):
        done = subprocess.run([self.program, verb, str(self.dir), *args], env=self.env, cwd=self.bench.directory,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode:
            raise self.bench.CannotMeasure(f"hosts {verb}: {done.stdout}")
        return done.stdout

    def __enter__(self):
        self.do("up", "--owner", str(os.getpid()))
        return self

    def __exit__(self, *_):
        self.do("down")

    def start(self, host, command, output):
        """What it runs ends with the bed."""
        with open(self.bench.directory / output, "wb") as to:
            return subprocess.Popen([self.program, "run", str(self.dir), host, "--", *command], env=self.env,
                                    cwd=self.bench.directory, stdin=subprocess.DEVNULL, stdout=to,
                                    stderr=subprocess.STDOUT)

    def pids(self, host, *words):
        """Of processes on that host whose command lines have all these words."""
        space = os.readlink(f"/proc/{self.do('pid', host).strip()}/ns/pid")
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{entry}/ns/pid") == space:
                    with open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as f:
                        line = f.read().replace("\0", " ")
                    if all(word in line for word in words):
                        found.append(int(entry))
        return found


def marks(path):
    """When workers came to main(), in order."""
    return sorted(float(line) for line in path.read_text().splitlines()) if path.exists() else []


def muster_command(bench, bed, worker):
    return [bench.muster(), "run", *bench.root_option(), "--run-dir", str(bed.shared / "run"), "--hosts",
            ",".join(HOSTS), "--nnodes", "3:4", "--nproc-per-node", str(PROCS), "--max-restarts", "3",
            "--set", "restart.backoff=0s", "--set", "limits.grace=0s", "--", *worker]


def start_muster(bench, bed, worker):
    bed.start("node1", muster_command(bench, bed, worker), "said")


def start_torchrun(bench, bed, worker):
    for host in HOSTS:
        address = bed.do("address", host).strip()
        bed.start(host, [bench.torchrun(), "--nnodes", "3:4", "--nproc-per-node", str(PROCS), "--max-restarts", "3",
                         "--rdzv-backend", "c10d", "--rdzv-endpoint", "10.77.0.1:29400", "--rdzv-id", "bench",
                         "--local-addr", address, "--no-python", *worker], f"said.{host}")


def kill_agent(bed, words):
    """Of node 4, with its workers. Its watch sees to those of muster."""
    agents = bed.pids("node4", *words)
    workers = [] if "agent" in words else bed.pids("node4", str(bed.bench.directory / "worker"), "marks")
    for pid in [*agents, *workers]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def cut_link(bed, _):
    bed.do("link_down", "node4")


def recover(bench, start, words, fault, patience=PATIENCE):
    """Seconds from the fault until all workers of three nodes are in main(), or None."""
    # A place of its own: the hosts go, and what they shared stays.
    with Bed(bench, f"bed{len(os.listdir(bench.directory))}") as bed:
        path = bed.shared / "marks"
        start(bench, bed, [str(bench.directory / "worker"), str(path), bed.do("address", "node1").strip()])
        end = time.monotonic() + 120
        while len(marks(path)) < len(HOSTS) * PROCS:
            if time.monotonic() > end:
                raise bench.CannotMeasure("the first generation did not start")
            time.sleep(0.05)
        time.sleep(1)  # all have met, and whoever started them has come to rest
        first, new = len(marks(path)), (len(HOSTS) - 1) * PROCS
        begun = time.monotonic()
        fault(bed, words)
        while time.monotonic() - begun < patience:
            if len(marks(path)) >= first + new:
                return marks(path)[first + new - 1] - begun
            time.sleep(0.02)
    return None


def exec_seconds(bench, n=(len(HOSTS) - 1) * PROCS):
    """A plain loop that execs as many."""
    path = bench.directory / "loop.marks"
    path.unlink(missing_ok=True)
    begun = time.monotonic()
    subprocess.run([str(bench.directory / "loop"), str(n), str(bench.directory / "worker"), str(path)],
                   env=bench.env, check=True)
    return max(marks(path)) - begun


def told(name, times):
    lost = sum(t is None for t in times)
    value = statistics.median(PATIENCE if t is None else t for t in times)
    return value, f"{name}: {value:.3f} s" + (f", not back in {lost} of {len(times)}" if lost else "")


def losses(bench):
    bench.c_program("worker", WORKER)
    bench.c_program("loop", LOOP)
    command = muster_command(bench, Bed(bench), ["worker"])
    for name, fault, times, extra, share in (("closed", kill_agent, bench.rounds, 0.1, 0.1),
                                             ("silent", cut_link, min(bench.rounds, 2), HEARTBEAT + 1, 1 / 3)):
        if not wants_any(bench, LOSSES[name]):
            continue
        ours, theirs, execs = [], [], []
        for _ in range(times):
            ours.append(recover(bench, start_muster, ["muster agent", "agent"], fault))
            theirs.append(recover(bench, start_torchrun, ["bin/torchrun"], fault, 3 if bench.quick else PATIENCE))
            execs.append(exec_seconds(bench))
        value, _ = told("muster", ours)
        peer, words = told("torchrun", theirs)
        least = statistics.median(execs) if name == "closed" else 0
        against = f"{extra * 1000:.0f} ms, and exec of as many: {least:.4f} s" if name == "closed" else \
            f"heartbeat.timeout {HEARTBEAT} s, and 1 s"
        yield bench.result(f"elastic.{name}", value, "s", "<=", round(extra + least, 4), against, command)
        yield bench.result(f"elastic.{name}-vs-torchrun", value / peer, "x", "<=", round(share, 4), words, command)


# --- what is only slow ---

def own_mounts():
    """This process gets a mount namespace: what it mounts goes with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x20000):  # CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def throttle(bed):
    """Each host to a fifth of a processor; False where there is no such cgroup."""
    done = 0
    for host in HOSTS:
        for group in (bed.dir / f"state/{host}.cgroups").read_text().split():
            for name, value in (("cpu.cfs_quota_us", "20000"), ("cpu.max", "20000 100000")):
                with contextlib.suppress(OSError), open(f"{group}/{name}", "w", encoding="ascii") as f:
                    f.write(value)
                    done += 1
    return done >= len(HOSTS)


def stall(path, until):
    """The directory answers nobody for 4 of 10 seconds."""
    while time.monotonic() < until:
        time.sleep(6)
        subprocess.run(["fsfreeze", "-f", path], check=False)
        time.sleep(4)
        subprocess.run(["fsfreeze", "-u", path], check=False)


def alarms(bench):
    seconds = 1800 if bench.long else 10 if bench.quick else 60
    n_cores = os.cpu_count()
    n_loads = 1 if bench.quick else 4 * n_cores  # others may be at work here
    own_mounts()
    bed = Bed(bench, "slow")
    bed.shared.mkdir(parents=True)
    image = bench.directory / "image"
    subprocess.run(["truncate", "-s", "128M", image], check=True)
    subprocess.run([bench.program("mkfs.ext4"), "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, bed.shared], check=True)
    charlm = bench.build.resolve() / "examples/charlm/charlm"
    command = [bench.muster(), "run", *bench.root_option(), "--run-dir", str(bed.shared / "run"), "--hosts",
               ",".join(HOSTS), "--nnodes", "1:4", "--nproc-per-node", "1", "--", str(charlm), "--steps", "100000000",
               "--batch", "8", "--width", "16", "--heads", "2", "--layers", "1", "--step-time", "50",
               "--checkpoint-every", "50"]
    load = []
    try:
        with bed:
            process = bed.start("node1", command, "said")
            status = [bench.muster(), "status", str(bed.shared / "run"), "-o", "json"]

            def state():
                said = subprocess.run(status, env=bench.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                      text=True, check=False).stdout
                return json.loads(said) if said.startswith("{") else {}

            bench.until(lambda: (state().get("step") or 0) > 10, process, "said")
            if not throttle(bed):
                raise bench.CannotMeasure("no cgroup with a limit on processor time")
            load = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(n_loads)]
            until = time.monotonic() + seconds
            stalls = threading.Thread(target=stall, args=(str(bed.shared), until))
            stalls.start()
            stalls.join()
            end = state()
    finally:
        for process in load:
            process.kill()
            process.wait()
        subprocess.run(["umount", bed.shared], check=False)
    yield bench.result("elastic.alarms", end["node_failures"] + end["generation"] - 1, "", "==", 0,
                       f"losses and restarts in {seconds} s at load {n_loads} on {n_cores} cores, hosts at a "
                       f"fifth of one, run directory stalled 4 of 10 s; step {end.get('step')}", command)


# --- a thousand agents ---

def views(bench):
    program = bench.build / "rendezvous/view_load"
    if not os.access(program, os.X_OK):
        raise bench.CannotMeasure(f"no {program}: run make")
    found = {}
    for n in (250, 1000):
        command = [str(program), str(n), str(ARITY)]
        runs = [list(map(float, subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()))
                for _ in range(bench.rounds)]
        found[n] = [statistics.median(column) for column in zip(*runs)]
    messages, volume, rounds, depth, cpu, wall, start = found[1000]
    few = found[250][0] / 250
    yield bench.result("elastic.view-messages", messages / 1000, "a node", "<=", round(1.1 * few, 4),
                       f"1000 agents; 250 agents: {few:.3f}; {volume / 1e6:.2f} MB", command)
    yield bench.result("elastic.view-rounds", rounds, "", "<=", 5 * depth + 1,
                       f"five ways through a tree {depth:.0f} deep; 250 agents: {found[250][2]:.0f}", command)
    yield bench.result("elastic.view-cpu", cpu, "s", "<=", 1, f"1000 agents together; {wall:.3f} s of time; their start: {start:.3f} s", command)


# --- as many as fit here ---

def many(bench):
    n = 8 if bench.quick else 64
    worker, path, run = bench.c_program("worker", WORKER), bench.directory / "many.marks", bench.directory / "many"
    bench.c_program("loop", LOOP)
    command = [bench.muster(), "run", *bench.root_option(), "--run-dir", str(run), "--agent-is-node", "--nnodes",
               f"1:{n}", "--nproc-per-node", "1", "--set", "restart.backoff=0s", "--set", "limits.grace=0s",
               "--set", "gang.timeout=5m", "--", worker, str(path)]
    with bench.running(command, "said") as process:
        bench.until(lambda: len(marks(path)) == n, process, "said")
        time.sleep(2)  # who started them has come to rest
        agents = json.loads(subprocess.run([bench.muster(), "status", str(run), "-o", "json"], env=bench.env,
                                           stdout=subprocess.PIPE, text=True, check=True).stdout)["nodes"]
        begun = time.monotonic()
        os.kill(agents[-1]["agent_pid"], signal.SIGKILL)
        bench.until(lambda: len(marks(path)) == 2 * n - 1, process, "said")
        value = marks(path)[-1] - begun
    yield bench.result("elastic.many", value, "s", "", None,
                       f"{n} agents of this machine, one killed; exec of {n - 1} workers: "
                       f"{exec_seconds(bench, n - 1):.4f} s", command)


# --- what is measured elsewhere ---

def sibling(name):
    """Another benchmark of this folder."""
    spec = importlib.util.spec_from_file_location("bench_" + name.replace("-", "_"),
                                                  pathlib.Path(__file__).with_name(name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model_row(ranks):
    return f"elastic.model, {ranks} ranks"


def model(bench):
    """What scripts/model says, of the constants that are in it."""
    command = [sys.executable, str(bench.top / "scripts/model"), "-o", "json", *map(str, MODELLED)]
    said = subprocess.run(command, env=bench.env, stdout=subprocess.PIPE, text=True, check=True).stdout
    for one in json.loads(said)["results"]:
        costs = []
        for case in ("start", "change of view", "failure, silent node"):
            term, most = max(one[case].items(), key=lambda item: item[1])
            costs.append(f"{case}: {sum(one[case].values()):.3g} s, most of it {term} ({most:.3g})")
        yield bench.result(model_row(one["ranks"]), sum(one["failure, socket closed"].values()), "s", "", None,
                           f"by doc/scaling.md, after a closed socket; {'; '.join(costs)}", command)


def wants_any(bench, names):
    return any(map(bench.wants, names))


ON_HOSTS = [*LOSSES["closed"], *LOSSES["silent"], "elastic.alarms"]


def rows(_):
    """The names of all results."""
    return [*VIEWS, "elastic.many", *map(model_row, MODELLED), *OTHERS["tree-store"], *OTHERS["warm"], *ON_HOSTS]


def all_of(bench):
    if wants_any(bench, VIEWS):
        yield from views(bench)
    if bench.wants("elastic.many"):
        yield from many(bench)
    if wants_any(bench, map(model_row, MODELLED)):
        yield from model(bench)
    for name in ("tree-store", "warm"):
        if wants_any(bench, OTHERS[name]):
            yield from sibling(name).measure(bench)
    if wants_any(bench, ON_HOSTS) and os.geteuid() != 0:
        raise bench.CannotMeasure("not root, as the test bed of four hosts needs (tests/rigs/hosts)")
    if wants_any(bench, ON_HOSTS[:-1]):
        yield from losses(bench)
    if bench.wants("elastic.alarms"):
        yield from alarms(bench)


def measure(bench):
    """Some are measured together; those that were not asked for are not told."""
    for result in all_of(bench):
        if bench.wants(result["name"]):
            yield result
