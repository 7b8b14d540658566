#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What goes wrong on one machine while a run is there: full disks, readers that
# do not read, stopped processes, workers that leave things behind, strangers at
# its sockets. Training goes on where it can, and the records say what happened.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun ss

mrun() {
    rm -rf run
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run "$@"
}
field() { "$MUSTER" status run -o json | json "$1"; }
nobody_left() { run_gone "$(json id run/run.json)"; }
start_run() {
    rm -rf run
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run "$@"
    runner=$spawned
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
    agent=$(field nodes.0.agent_pid)
    worker=$(field workers.0.pid)
    id=$(json id run/run.json)
}
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.0.state)" = Running ]; }
lines='i=0; while [ $i -lt 20000 ]; do echo a line of text, number $i; i=$((i+1)); done'

test_reader() {
    rm -rf run
    "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 -- \
        sh -c 'for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done' 2>err </dev/null | head -n 1 >out
    is "${PIPESTATUS[0]}" 0 'a reader that has seen enough does not end the run' || show
    is "$(cat run/logs/1/*/stdout | wc -l)" 10 'the log files have it all'
    like "$(cat err)" 'standard output: Broken pipe; the run goes on' 'and that is said'
    rm -rf run
    "$MUSTER" run --allow-run-as-root --run-dir run -- echo x >/dev/full 2>err </dev/null
    is $? 0 'a full disk below stdout is no failure of the run'
    like "$(cat err)" 'standard output: No space left' 'but is told'
    rm -rf run
    "$MUSTER" run --allow-run-as-root --run-dir run -- echo x >&- 2>&- <&-
    is $? 0 'nor are closed descriptors'
    rm -rf run
    { "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 --set heartbeat.timeout=1s -- \
        sh -c "$lines" 2>err </dev/null; echo $? >rc; } | { sleep 5; cat; } >out
    is "$(cat rc)" 0 'a reader that sleeps longer than any lease delays the run' || show
    is "$(grep -c 'a line of text, number [0-9]*$' out)" 40000 'and loses nothing'
    mkfifo unread
    sleep 600 <unread &
    local reader=$!
    kill_at_exit "$reader"
    rm -rf run
    "$MUSTER" run --allow-run-as-root --run-dir run -- sh -c 'while :; do echo again and again and again; done' \
        >unread 2>err </dev/null &
    runner=$!
    kill_at_exit "$runner"
    ok 'with a reader that never reads' wait_for 60 running
    kill -INT $runner
    wait_for 60 eval '[ "$(field state)" = Stopped ]'
    is $? 0 'Ctrl-C still stops the run' || show
    kill -INT $runner 2>/dev/null
    wait_exit 60 $runner
    is "$status" 130 'and the next one the command' || show
    kill $reader
    ok 'nobody is left' wait_for 60 nobody_left
}

test_output() {
    mrun --nproc-per-node 1 -- python3 -c 'import sys; sys.stdout.write("x" * 10000000)'
    is "$status" 0 '10 MB without a newline' || show
    is "$(stat -c %s run/logs/1/0/stdout)" 10000000 'are in the file'
    is "$(tr -cd x <out | wc -c)" 10000000 'and on stdout'
    mrun --nproc-per-node 1 --max-restarts 0 -- python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000); sys.exit(3)'
    is "$status" 3 'binary output' || diag "$(cat -v err)"
    is "$(stat -c %s run/logs/1/0/stdout)" 256000 'is in the file'
    ok 'and breaks no record' python3 -c 'import json
for line in open("run/events.jsonl"): json.loads(line)
json.load(open("run/status.json"))'
    run sh -c "echo secret words | '$MUSTER' run --allow-run-as-root --run-dir run1 --nproc-per-node 1 -- cat"
    is "$status:$(cat out)" 0: 'workers have no standard input' || show
    mrun -q -- sh -c 'echo x'
    unlike "$(cat err)" Running '--quiet shows no progress'
    unlike "$(cat out)" muster 'and stdout is the workers’'
}

test_many_workers() {
    mrun --nproc-per-node 300 -- true
    is "$status" 0 '300 workers on one agent' || show
    rm -rf run
    (ulimit -Sn 256; exec timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 300 -- true) >out 2>err </dev/null
    is $? 0 'even where the soft limit of open files is low' || show
    (ulimit -n 256; exec timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run1 --max-restarts 0 --nproc-per-node 300 -- true) >out 2>err </dev/null
    is $? 1 'but not where the hard limit is'
    like "$(cat err)" '300 workers need more open files than the limit of 256' 'which is told' || show
    ok 'nobody is left' wait_for 60 nobody_left
}

# Who cannot accept a connection keeps waiting who makes one.
test_few_files() {
    local n
    for n in 12 24 28 63; do
        rm -rf run
        (ulimit -n "$n"; exec timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run -- true) >out 2>err </dev/null
        is $? 1 "no more than $n open files are too few" || show
        like "$(cat err)" "the limit of open files is $n (ulimit -Hn): muster needs at least 64 here, and about 4 more for each worker" 'which is told'
        ok 'nothing was made' test ! -e run
    done
    (ulimit -Sn 24; exec timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run -- true) >out 2>err </dev/null
    is $? 0 'where more may be had they are' || show
    rm -rf run
    (ulimit -n 64; exec timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 -- true) >out 2>err </dev/null
    is $? 0 'so many are enough' || show
    rm -rf run
    (ulimit -n 64; exec timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run --nnodes 20 --agent-is-node -- true) >out 2>err </dev/null
    is $? 1 'but not for an mpirun with many processes on a host' || show
    like "$(cat err)" 'is 64 (ulimit -Hn): muster needs at least 124 here' 'which is told'
    ok 'nobody is left' wait_for 60 nobody_left
}

test_file_limit() {
    rm -rf run
    (ulimit -f 2000; exec timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --max-restarts 0 --nproc-per-node 2 -- true) >out 2>err </dev/null
    is $? 1 'no agent dies of a limit of the file size' || diag "$(cat err)"
    matches "$(cat err)" 'a segment of [0-9]+ bytes: File too large' 'which is told'
}

test_left_behind() {
    mrun --nproc-per-node 2 -- python3 -c '
import os, signal, sys, time
for i in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)
            time.sleep(1000)
        os._exit(0)'
    is "$status" 0 'workers that leave daemons behind' || show
    ok 'leave nobody' wait_for 60 nobody_left
    mrun --nproc-per-node 2 -- sh -c 'sleep 1000 & echo parent done'
    is "$status" 0 'a child that holds the pipe does not hold the run' || show
    is "$(grep -c 'parent done' out)" 2 'nor its output'
    ok 'nor stays' wait_for 60 nobody_left
}

test_stopped_processes() {
    start_run --nproc-per-node 1 --set heartbeat.timeout=1s -- sh -c 'sleep 6; echo done'
    is $? 0 'a run'
    kill -STOP "$runner"
    sleep 4
    kill -CONT "$runner"
    wait_exit 60 "$runner"
    is "$status" 0 'a front end that was stopped (Ctrl-Z) for longer than the lease comes back' || diag "$(cat run.err)"
    is "$(cat run.out)" '[0] done' 'and misses nothing'
    start_run --nproc-per-node 1 --set limits.grace=2s -- sleep 1000
    kill -STOP "$worker"
    ok 'a run with a stopped worker' "$MUSTER" cancel run
    wait_exit 60 "$runner"
    is "$status" 130 'is cancelled' || diag "$(cat run.err)"
    ok 'nobody is left' wait_for 60 nobody_left
    start_run --nproc-per-node 1 --set heartbeat.timeout=1s -- sleep 1000
    kill -STOP "$agent"
    wait_exit 60 "$runner"
    is "$status" 75 'a stopped agent is given up for lost' || diag "$(cat run.err)"
    like "$(cat run.err)" 'the lead is lost: it has said nothing' 'which is told'
    kill -KILL "$agent"
    ok 'nobody is left' wait_for 60 nobody_left
}

test_full_disk() {
    [ "$(id -u)" = 0 ] && mkdir -p disk && mount -t tmpfs -o size=64k none disk 2>/dev/null ||
        { skip 'no tmpfs can be mounted here' 6; return; }
    at_exit "umount '$TRASH/disk' 2>/dev/null"
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir disk/run --nproc-per-node 2 -- sh -c "$lines; echo end"
    is "$status" 0 'a disk that fills up does not stop training' || diag "$(tail -n 5 err)"
    is "$(grep -c '\] end$' out)" 2 'nor output'
    like "$(cat err)" 'No space left on device' 'but is told'
    ok 'the status can be read' "$MUSTER" status disk/run
    umount disk && mount -t tmpfs -o size=64k,nr_inodes=4 none disk
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir disk/run -- true
    is "$status" 1 'a disk that is full at the start does' || show
    like "$(cat err)" 'No space left on device' 'and is told'
    umount disk
}

# Strangers at every door: garbage, silence, half-open connections.
test_strangers() {
    start_run --nproc-per-node 2 --set heartbeat.timeout=2s --set "env.API_TOKEN=hunter2-secret" -- \
        sh -c 'until [ -e "$1" ]; do sleep 0.1; done; echo done' sh "$TRASH/enough"
    is $? 0 'a run'
    is "$(grep -l hunter2-secret -r run | tr '\n' ' ')" '' 'no file of it has the secret'
    cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' >cmdlines # first: grep's own has it
    is "$(grep -c "$(python3 -c 'print(open("run/key", "rb").read().hex())')" cmdlines)" 0 \
        'no command line has the key'
    is "$(python3 -c 'import os
key = open("run/key", "rb").read()
found = [p for d, _, fs in os.walk("run") for p in [os.path.join(d, f) for f in fs] if key in open(p, "rb").read()]
print(found)')" "['run/key']" 'the key is in its own file alone'
    is "$(find run -perm /077 ! -path '*/logs/*' | tr '\n' ' ')" '' 'everything is private'
    local ports
    ports=$(ss -ltnpH | grep -E "pid=($runner|$agent)," | awk '{ sub(/.*:/, "", $4); print $4 }' | sort -u)
    num "$(wc -w <<<"$ports")" -ge 2 'front end and agent listen'
    ok 'strangers come to every door' timeout 60 python3 - "${TMPDIR:-/tmp}/muster-$(id -u)/$id" $ports <<'END'
import os, socket, struct, sys
words = [b'', b'GET / HTTP/1.0\r\n\r\n', b'\0' * 100000, os.urandom(100000), struct.pack('>I', 0xffffffff) * 10,
         b'garbage\n', b'{}\n', b'{"op":5}\n', b'{"v":1,"op":"exec"}\n', b'{"v":1,"op":"cancel"', b'x' * 1000000,
         b'[' * 100000 + b'\n', b'\0\0\n']
doors = [(socket.AF_INET, ('127.0.0.1', int(p))) for p in sys.argv[2:]]
doors += [(socket.AF_UNIX, os.path.join(sys.argv[1], f)) for f in os.listdir(sys.argv[1]) if f.endswith('.ctl') or '-w' in f]
assert any(f.endswith('.ctl') for _, f in doors if isinstance(f, str)), doors
held = []
for family, door in doors:
    for word in words + [b''] * 100:
        s = socket.socket(family)
        s.settimeout(0.5)
        try:
            s.connect(door)
            s.sendall(word)
        except OSError:
            pass
        held.append(s)
        if len(held) % 3 == 0:
            held.pop(0).close()
END
    touch enough
    wait_exit 60 "$runner"
    is "$status" 0 'and disturb nothing' || diag "$(cat run.err)"
    is "$(sort -u run.out | tr '\n' ' ')" '[0] done [1] done ' 'workers least of all'
    unlike "$(cat run.err)" 'muster: muster:' 'messages have one prefix'
}

# A worker at the socket of another one: by itself, and from a session of its own.
test_other_worker() {
    cat >other.py <<'END'
import os, socket, struct, sys, time
mine, rank = os.environ['MUSTER_SOCKET'], int(os.environ['RANK'])
assert mine.endswith('-w%d' % rank), mine
def ask(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    # With a report for whoever it is taken for.
    s.sendall(struct.pack('>IHHI', 8, 1, 1, os.getpid()) +
              struct.pack('>IHqHI4sd', 2 + 8 + 2 + 4 + 4 + 8, 6, 77, 1, 4, b'loss', 0.5))
    data = b''
    while len(data) < 6:
        got = s.recv(4096)
        if not got: break
        data += got
    kind = struct.unpack('>H', data[4:6])[0]
    if kind == 2:
        time.sleep(0.2)
    return {2: 'welcome', 3: 'refused'}.get(kind, kind)
if rank == 1:
    while not os.path.exists('ready'): time.sleep(0.05)
    other = mine[:-1] + '0'
    print('mine', ask(mine), 'other', ask(other), flush=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            print('child', ask(mine), 'other', ask(other), flush=True)
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
else:
    open('ready', 'w').close()
END
    mrun --nproc-per-node 2 --log-prefix none -- python3 other.py
    is "$status" 0 'a worker that opens the socket of another' || show
    like "$(cat out)" 'mine welcome other refused' 'is refused there' || show
    like "$(cat out)" 'child welcome other refused' 'and so is a child of it in a session of its own'
    is "$(python3 -c 'import json
print(sorted({json.loads(l)["rank"] for l in open("run/metrics.jsonl")}))')" '[1]' 'nothing is said for the other'
}

# Whoever feigns a newer MPI world at the agent's own socket: a worker, a process that
# it has hidden as well as it can, and one that is none but lacks the key.
test_feigned_world() {
    cat >feign.py <<'END'
import os, socket, struct, sys
path, version, epoch, protocol = sys.argv[1:5]
def text(b): return struct.pack('>I', len(b)) + b
def ask():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(60)
    s.connect(path)
    s.send(struct.pack('>HHQ', 1, int(protocol), int(epoch)) + text(version.encode()) + text(bytes(32)))
    data = s.recv(65536)
    return ''.join(c for c in data[2:].decode(errors='replace') if c.isprintable()) if data[:2] == b'\0\3' else 'taken in'
if len(sys.argv) == 5:
    print(ask(), flush=True)
elif os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        # All parents are gone, and so is the environment.
        os.execve(sys.executable, [sys.executable] + sys.argv[:5], {})
    os._exit(0)
else:
    os.wait()
END
    version=$("$MUSTER" version | sed -n '1s/^muster //p')
    protocol=$(sed -n 's/.*COMPANION_VERSION = \([0-9]*\),.*/\1/p' "$MUSTER_SRCDIR/comm/companion.h")
    start_run --nnodes 2 --agent-is-node --nproc-per-node 1 --log-prefix none -- \
        sh -c '[ $RANK = 0 ] || exec sleep 1000; until [ -e socket ]; do sleep 0.1; done
               { read -r path; read -r version; read -r rest; } <socket
               python3 feign.py "$path" "$version" $rest; python3 feign.py "$path" "$version" $rest daemon; exec sleep 1000'
    is $? 0 'a run of two agents'
    socket=$(find "${TMPDIR:-/tmp}" -path "*$id/mpi-0" 2>/dev/null)
    printf '%s\n' "$socket" "$version" "99 $protocol" >socket.new && mv socket.new socket
    ok 'two ask' wait_for 60 eval '[ $(wc -l <run.out) = 2 ]' || diag "$(cat run.out run.err)"
    is "$(grep -ac 'it comes from a worker of this agent' run.out)" 2 'a worker is refused, and so is a daemon that it made' || diag "$(cat run.out)"
    run python3 feign.py "$socket" "$version" 99 "$protocol"
    like "$(cat out)" 'it does not show the key of the run' 'as is whoever lacks the key' || show
    is "$(field mpi_epoch):$(field mpi_lost)" 1:0 'the MPI world is what it was'
    unlike "$(cat run/events.jsonl)" '"mpi_lost"' 'and nobody has lost it'
    kill -INT "$runner"
    wait_exit 60 "$runner"
    rm -f socket
}

test_mpi_dies() {
    local i pid
    start_run --nnodes 2 --agent-is-node --nproc-per-node 1 -- sleep 1000
    is $? 0 'a run of two agents'
    mpi() {
        pgrep -f -- "muster-mpi --run-id=$id" | while read -r p; do
            [ "$(readlink "/proc/$p/exe" | sed 's/.*\///')" = muster-mpi ] && echo "$p"
        done
    }
    for i in 1 2 3; do
        wait_for 60 eval '[ "$(mpi | wc -l)" = 2 ]' && wait_for 60 eval "[ \"\$(grep -c mpi_joined run/events.jsonl)\" -ge $((2 * i - 2)) ]"
        is $? 0 "MPI world $i is there"
        kill -KILL $(mpi | head -n 1)
    done
    ok 'another one is made each time' wait_for 60 eval '[ "$(grep -c mpi_joined run/events.jsonl)" -ge 6 ]' ||
        diag "$(cat run.err)"
    is "$(field generation)" 1 'and the workers do not notice'
    "$MUSTER" cancel run >out 2>&1
    wait_exit 60 "$runner"
    is "$status" 130 'the run can still be cancelled' || diag "$(cat run.err)"
    ok 'nobody is left' wait_for 60 nobody_left
}

# in_fake COMMAND...: where the cgroups of this machine are what is in ./fake.
in_fake() { unshare -m sh -c 'mount --bind fake /sys/fs/cgroup && exec "$@"' sh "$@"; }
can_fake() { [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; }

# The kernel kills a worker for lack of memory, and its cgroup has counted that before.
test_memory_kill() {
    local file
    can_fake || { skip 'no mount namespace' 9; return; }
    for file in memory.events memory/memory.oom_control; do
        rm -rf run fake && mkdir -p fake/memory
        printf 'oom 1\noom_kill 5\n' >"fake/$file"
        run in_fake timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 --max-restarts 2 -- \
            sh -c "[ \$RANK = 0 ] && exec sleep 1000; printf 'oom 2\noom_kill 6\n' >fake/$file; kill -KILL \$\$"
        is "$status:$(field failure.rank):$(field restarts)" 137:1:0 "$file: a worker for which memory did not suffice is not started again" || show
        like "$(cat err)" 'was killed by the kernel for lack of memory' 'the reason is named' || show
        like "$(cat err)" 'advice: the memory of the host' 'with what may help' || show
    done
    rm -rf run
    run in_fake timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 --max-restarts 1 \
        --set restart.backoff=1ms..1ms -- sh -c '[ $RANK = 0 ] && exec sleep 1000; kill -KILL $$'
    is "$status:$(field restarts)" 137:1 'one that somebody killed is, whatever was counted before' || show
    unlike "$(cat err)" 'lack of memory' 'and that is not its reason'
    ok 'nobody is left' wait_for 60 nobody_left
}

# On a machine without cgroups of its own only the host's kills are counted, which may
# have been anybody's.
test_memory_kill_of_host() {
    can_fake || { skip 'no mount namespace' 6; return; }
    rm -rf run fake && mkdir fake
    printf 'pgfault 3\noom_kill 5\n' >fake/vmstat
    bare() { unshare -m sh -c 'mount --bind fake /sys/fs/cgroup && mount --bind fake/vmstat /proc/vmstat && exec "$@"' sh "$@"; }
    run bare timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 --max-restarts 2 -- \
        sh -c "[ \$RANK = 0 ] && exec sleep 1000; printf 'pgfault 4\noom_kill 6\n' >fake/vmstat; kill -KILL \$\$"
    is "$status:$(field failure.rank):$(field restarts)" 137:1:0 'a worker that dies with a kill of the host' || show
    like "$(cat err)" 'was killed by the kernel for lack of memory' 'was killed for lack of memory' || show
    rm -rf run
    run bare timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 --max-restarts 1 \
        --set restart.backoff=1ms..1ms -- sh -c '[ $RANK = 0 ] && exec sleep 1000; kill -KILL $$'
    is "$status:$(field restarts)" 137:1 'one that somebody killed was not' || show
    rm -rf run
    run bare timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 --max-restarts 0 -- \
        sh -c "[ \$RANK = 0 ] && exec sleep 1000; printf 'pgfault 4\noom_kill 9\n' >fake/vmstat; sleep 15; kill -KILL \$\$"
    is "$status" 137 'nor one that died long after another kill' || show
    unlike "$(cat err)" 'lack of memory' 'whatever was counted'
    rm -rf run
    printf 'oom_kill 5\n' >fake/vmstat
    run bare timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 --set 'restart={policy: ExitCode, exitCodes: [137], max: 1, backoff: 1ms..1ms}' -- \
        sh -c "[ \$TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; printf 'oom_kill 6\n' >fake/vmstat; kill -KILL \$\$"
    is "$status:$(field restarts)" 0:1 'who lists its code is started again' || show
}

# The kernel killed all of a cgroup at once: the next start in it finds the count.
test_group_kill() {
    can_fake || { skip 'no mount namespace' 4; return; }
    rm -rf run fake && mkdir -p fake/memory
    printf 'low 0\nmax 7\noom 2\noom_kill 5\noom_group_kill 2\n' >fake/memory.events
    run in_fake "$MUSTER" run --allow-run-as-root --run-dir run --max-restarts 0 -- sh -c \
        'until grep -q "\"state\":\"Running\"" run/status.json; do sleep 0.1; done; kill -KILL $PPID; sleep 100'
    is "$status" 75 'a run whose agent is killed' || show
    unlike "$(cat err)" 'of this cgroup' 'had no earlier life to ask for'
    run in_fake "$MUSTER" run --allow-run-as-root --run-dir run --max-restarts 0 -- true
    is "$status" 0 'is gone on with' || show
    like "$(cat err)" 'killed all processes of this cgroup for lack of memory 2 times before this start' 'and hears what it may have ended of' || show
}

run_cases
