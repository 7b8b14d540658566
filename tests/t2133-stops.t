#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How a run is stopped, and by whom: Ctrl-C once, twice and a third time, a
# terminal that closes, cancel against the end and against itself; and any one of
# its processes stopped by SIGSTOP.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

field() { "$MUSTER" status run -o json | json "$1"; }
nobody_left() { run_gone "$(json id run/run.json)"; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.0.state)" = Running ]; }
stopping() { [ "$(field state)" = Stopping ]; }
start_run() {
    rm -rf run
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run "$@"
    runner=$spawned
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
    id=$(json id run/run.json)
}
stubborn='trap "" TERM INT HUP; while :; do sleep 1; done'
# pids of muster-mpi, and of mpirun.
mpi() {
    local p
    for p in $(pgrep -f -- "muster-mpi --run-id=$id"); do
        [ "$(readlink "/proc/$p/exe" | sed 's/.*\///')" = muster-mpi ] && echo "$p"
    done
}
no_process() { [ -z "$(pgrep -f -- "--run-id=$id")" ]; }

test_twice() {
    start_run --nproc-per-node 2 --set limits.grace=10m -- sh -c "$stubborn"
    is $? 0 'a run that does not listen'
    kill -INT "$runner"
    ok 'is asked to stop by Ctrl-C' wait_for 60 stopping
    kill -INT "$runner"
    wait_exit 60 "$runner"
    is "$status" 130 'and killed by the next one' || diag "$(cat run.err)"
    like "$(cat run.err)" 'once more: kill' 'as it was told'
    ok 'nobody is left' wait_for 60 nobody_left
    start_run --nproc-per-node 2 --set limits.grace=10m -- sh -c "$stubborn"
    is $? 0 'another'
    kill -TERM "$runner"
    ok 'is asked to stop by SIGTERM' wait_for 60 stopping
    kill -INT "$runner"
    wait_exit 60 "$runner"
    is "$status" 75 'the first reason counts' || diag "$(cat run.err)"
    ok 'nobody is left' wait_for 60 nobody_left
    start_run --nproc-per-node 1 --set limits.grace=10m -- sh -c "$stubborn"
    kill -STOP "$(field nodes.0.agent_pid)"
    kill -INT "$runner"
    wait_for 60 grep -q 'asking' run.err
    kill -INT "$runner"
    wait_for 60 grep -q 'killing' run.err
    kill -INT "$runner"
    wait_exit 60 "$runner"
    is "$status" 130 'the third Ctrl-C ends the command, whatever hangs' || diag "$(cat run.err)"
    kill -CONT "$(field nodes.0.agent_pid)"
    ok 'and the run too, when it can hear again' wait_for 60 nobody_left
}

test_signals() {
    local sig
    start_run -- sleep 1000
    kill -TERM "$runner"
    wait_exit 60 "$runner"
    is "$status" 75 'SIGTERM stops the run, to be resumed' || diag "$(cat run.err)"
    ok 'nobody is left' wait_for 60 nobody_left
    start_run -- sh -c 'while [ ! -e go ]; do sleep 0.1; done; echo done'
    for sig in PIPE WINCH CONT; do
        kill -$sig "$runner" 2>/dev/null
    done
    touch go
    wait_exit 60 "$runner"
    is "$status" 0 'signals that mean nothing stop nothing' || diag "$(cat run.err)"
}

# A terminal of its own, that goes away.
test_terminal() {
    rm -rf run
    cat >term.py <<'END'
import os, pty, signal, subprocess, sys, time
pid, master = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
seen = b''
deadline = time.time() + 60
while b'Running' not in seen and time.time() < deadline:
    seen += os.read(master, 65536)
if sys.argv[1] == 'ctrl-c':
    os.write(master, b'\x03')
    try:
        while os.read(master, 65536): pass
    except OSError: pass
else:
    os.close(master)
_, how = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(how))
END
    run timeout 200 python3 term.py ctrl-c "$MUSTER" run --allow-run-as-root --run-dir run -- sleep 1000
    is "$(cat out)" 130 'Ctrl-C at a terminal' || show
    ok 'leaves nobody' wait_for 60 nobody_left
    rm -rf run
    run timeout 200 python3 term.py close "$MUSTER" run --allow-run-as-root --run-dir run -- sleep 1000
    is "$(cat out)" 129 'a terminal that closes ends the command' || show
    wait_for 60 running
    is $? 0 'but not the run' || diag "$("$MUSTER" status run)"
    is "$("$MUSTER" cancel run >/dev/null; echo $?)" 0 'which can be cancelled'
    ok 'and nobody is left' wait_for 60 nobody_left
}

# Before the job has come to the agents there is no lead that could be told: mpirun is
# held, and the front end killed meanwhile.
early_ctl() { ls "$rt/muster/$id" 2>/dev/null | grep -c '^agent-[01][.]ctl$'; }
early_there() { [ "$(early_ctl)" = 2 ]; }
begin_held() {
    rm -rf run held go
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run --agent-is-node --nnodes 2 --nproc-per-node 1 \
        --mpirun "$TRASH/held-mpirun" -- sleep 1000
    runner=$spawned
    wait_for 60 test -e held && id=$(json id run/run.json)
}
test_early_cancel() {
    local rt=$TRASH/rt
    mkdir -m 700 "$rt"
    local -x XDG_RUNTIME_DIR=$rt
    cat >held-mpirun <<END
#!/bin/sh
case "\$*" in
*muster-mpi*)
    touch "$TRASH/held"
    while [ ! -e "$TRASH/go" ]; do sleep 0.1; done
    ;;
esac
exec "$(command -v mpirun)" "\$@"
END
    chmod +x held-mpirun
    begin_held
    is $? 0 'a run that is being put together'
    run "$MUSTER" cancel run
    is "$status" 0 'can be cancelled' || show
    wait_exit 60 "$runner"
    is "$status" 130 'and ends as one that was' || diag "$(cat run.err)"
    touch go
    ok 'nobody is left' wait_for 60 nobody_left
    begin_held
    kill -KILL "$runner"
    wait_exit 60 "$runner"
    touch go
    ok 'agents without a front end wait for a job' wait_for 60 early_there || diag "$(ls -R rt)"
    run "$MUSTER" suspend run
    is "$status" 1 'what cannot be passed on to anybody is refused' || show
    like "$(cat err)" 'only being put together' 'with the reason' || show
    run "$MUSTER" cancel run
    is "$status" 0 'it can be cancelled' || show
    like "$(cat out)" 'cancelling' 'which is not said to be passed on' || show
    ok 'and nobody is left, long before they would have given up' wait_for 60 nobody_left
}

# In the background of a terminal whoever reads from it is stopped (SIGTTIN): nobody
# does, neither muster nor a worker.
test_background() {
    rm -rf run
    cat >back.py <<'END'
import os, pty, select, sys, time
pid, master = pty.fork()
if pid == 0:
    os.execv('/bin/bash', ['bash', '-c', 'set -m; "$@" & wait -f $!; echo "status $?"', 'bash'] + sys.argv[1:])
os.write(master, b'typed\n')
seen = b''
deadline = time.time() + 60
while b'status ' not in seen and time.time() < deadline:
    if select.select([master], [], [], 1)[0]:
        try: seen += os.read(master, 65536)
        except OSError: break
sys.stdout.buffer.write(seen)
os.close(master)
END
    run timeout 200 python3 back.py "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 -- sh -c 'cat; echo read all'
    like "$(cat out)" 'status 0' 'a run in the background of a terminal is not stopped' || show
    is "$(grep -c 'read all' out)" 2 'and its workers have nothing to read' || show
    ok 'nobody is left' wait_for 60 nobody_left
}

test_cancel() {
    local i a b bad=0
    start_run --nproc-per-node 2 -- sh -c 'trap "sleep 1; exit 0" TERM; while :; do sleep 0.1; done'
    "$MUSTER" cancel run >a.out 2>&1 & a=$!
    "$MUSTER" cancel run >b.out 2>&1 & b=$!
    wait $a; a=$?
    wait $b; b=$?
    is "$a:$b" 0:0 'two cancels at once' || diag "$(cat a.out b.out)"
    wait_exit 60 "$runner"
    is "$status" 130 'are one' || diag "$(cat run.err)"
    for i in 1 2 3 4 5 6; do
        rm -rf run go
        start_run --nproc-per-node 2 -- sh -c 'while [ ! -e go ]; do :; done'
        touch go
        [ $((i % 2)) = 0 ] || sleep 0.0$i
        "$MUSTER" cancel run >cancel.out 2>&1
        a=$?
        wait_exit 60 "$runner"
        b=$(field verdict.exit_status)
        case $a:$status:$b in
        0:0:0 | 0:130:130) ;;
        *) bad=1; diag "cancel $a, run $status, record $b: $(cat cancel.out run.err)" ;;
        esac
    done
    rm -f go
    is $bad 0 'cancel against the end: one of them, and all agree'
    ok 'nobody is left' wait_for 60 nobody_left
}

test_readers() {
    local i
    start_run --nproc-per-node 2 -- sh -c 'i=0; while [ ! -e go ]; do echo line $i; i=$((i+1)); sleep 0.01; done'
    "$MUSTER" logs run -f 2>logs.err | head -n 3 >logs.out
    is "$(wc -l <logs.out)" 3 'a reader of logs -f that goes' || diag "$(cat logs.err)"
    is "$(cat logs.err)" '' 'goes in peace'
    "$MUSTER" logs run | head -n 1 >logs.out
    is "${PIPESTATUS[0]}:$(wc -l <logs.out)" "${PIPESTATUS[0]}:1" 'or one of logs'
    touch go
    wait_exit 60 "$runner"
    is "$status" 0 'the run does not notice' || diag "$(cat run.err)"
    for i in status list 'status -o json' version --help 'run --help'; do
        (timeout 20 "$MUSTER" $i) >/dev/full 2>full.err
        num $? -lt 126 "$i onto a full device ends"
    done
    rm go
}

# SIGSTOP of each process in turn.
test_stopped() {
    local pid
    start_run --nnodes 2 --agent-is-node --nproc-per-node 1 -- sh -c 'while [ ! -e go ]; do sleep 0.1; done'
    is $? 0 'a run of two agents'
    ok 'with an MPI world' wait_for 60 eval '[ "$(mpi | wc -l)" = 2 ]'
    kill -STOP $(mpi)
    touch go
    wait_exit 120 "$runner"
    is "$status" 0 'ends with its muster-mpis stopped' || diag "$(cat run.err)"
    ok 'and takes them along' wait_for 60 no_process || diag "$(pgrep -af -- "--run-id=$id")"
    rm go
    start_run --nnodes 2 --agent-is-node --nproc-per-node 1 -- sh -c 'while [ ! -e go ]; do sleep 0.1; done'
    pid=$(child_of "$runner")
    kill -STOP "$pid"
    touch go
    wait_exit 120 "$runner"
    is "$status" 0 'and with mpirun stopped' || diag "$(cat run.err)"
    ok 'too' wait_for 60 no_process || diag "$(pgrep -af -- "--run-id=$id")"
    rm go
    start_run --nnodes 2 --agent-is-node --nproc-per-node 1 --set heartbeat.timeout=2s -- sleep 1000
    pid=$(field nodes.1.agent_pid)
    kill -STOP "$pid"
    wait_exit 120 "$runner"
    is "$status" 75 'an agent that is stopped is lost' || diag "$(cat run.err)"
    is "$(run_alive "$id" | grep -c 'sleep 1000')" 1 'its worker goes on as long as it cannot hear'
    kill -CONT "$pid"
    ok 'and ends as soon as it can' wait_for 60 nobody_left
    start_run --nproc-per-node 1 -- sh -c 'while [ ! -e go ]; do sleep 0.1; done; echo done'
    pid=$(awk '{ sub(/.*\) /, ""); print $2 }' "/proc/$(field nodes.0.agent_pid)/stat")
    kill -STOP "$pid"
    touch go
    wait_exit 120 "$runner"
    is "$status" 0 'a stopped muster-watch hinders nobody' || diag "$(cat run.err)"
    kill -CONT "$pid"
    rm go
}

# What a core dump of each process would hold, the job key is not in.
test_dumps() {
    local part pid watch
    start_run --nnodes 2 --agent-is-node --nproc-per-node 1 -- sleep 1000
    is $? 0 'a run'
    wait_for 60 eval '[ "$(mpi | wc -l)" = 2 ]'
    cat >dump.py <<'END'
import binascii, re, sys
key = open('run/key', 'rb').read()
mem = open('/proc/%s/mem' % sys.argv[1], 'rb', 0)
found = total = 0
area = None
for line in open('/proc/%s/smaps' % sys.argv[1]):
    m = re.match(r'([0-9a-f]+)-([0-9a-f]+) (\S+)', line)
    if m:
        area = m
    elif line.startswith('VmFlags:') and area[3][0] == 'r' and ' dd' not in line and ' io' not in line:
        start, end = int(area[1], 16), int(area[2], 16)
        try:
            mem.seek(start)
            data = mem.read(end - start)
        except (OSError, ValueError, OverflowError):
            continue
        total += len(data)
        for secret in key, key[:16], key[16:], binascii.hexlify(key):
            found += secret in data
print(found, 'of', total > 100000)
END
    if ! python3 dump.py "$runner" >dump.out 2>dump.err; then
        skip "memory cannot be read here: $(tail -n 1 dump.err)" 5
    else
        watch=$(awk '{ sub(/.*\) /, ""); print $2 }' "/proc/$(field nodes.0.agent_pid)/stat")
        for part in "front:$runner" "lead:$(field nodes.0.agent_pid)" "agent:$(field nodes.1.agent_pid)" \
            "mpi:$(mpi | head -n 1)" "watch:$watch"; do
            pid=${part#*:}
            is "$(python3 dump.py "$pid" 2>&1)" '0 of True' "no key in a dump of the ${part%:*}"
        done
    fi
    kill -INT "$runner"
    wait_exit 60 "$runner"
    is "$status" 130 'all the same' || diag "$(cat run.err)"
}

run_cases
