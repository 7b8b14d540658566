#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every way in which a run ends, with workers that make it hard: grandchildren that
# have left session, parent and environment and hear no signal; workers that are
# stopped, or that even SIGKILL does not end; and an mpirun that was started by hand.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

field() { "$MUSTER" status run -o json | json "$1"; }
event() { grep -q "$1" run/events.jsonl; }
running() { [ "$(field state 2>/dev/null)" = Running ] && ! field workers | grep -q '"Waiting"'; }
begin_run() {
    rm -rf run
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run "$@"
    runner=$spawned
}
start_run() {
    begin_run "$@"
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
    id=$(json id run/run.json)
}

# Five below each worker: a child, one in a session of its own, a daemon, a daemon
# without an environment, and one that is stopped. None of them heeds a signal.
cat >family.py <<'END'
import os, signal, sys, time
def hold(what):
    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT): signal.signal(s, signal.SIG_IGN)
    with open('family/%s' % os.getpid(), 'w') as f: f.write(what)
    while True: time.sleep(1000)
def child(what, session=False, daemon=False, bare=False):
    if os.fork(): return
    if session or daemon: os.setsid()
    if daemon and os.fork(): os._exit(0)
    if bare: os.execve(sys.executable, [sys.executable, __file__, 'bare'], {})
    if what == 'stopped':
        with open('family/%s' % os.getpid(), 'w') as f: f.write(what)
        while True: os.kill(os.getpid(), signal.SIGSTOP)
    hold(what)
if sys.argv[1] == 'bare': hold('bare')
child('child')
child('session', session=True)
child('daemon', daemon=True)
child('bare', daemon=True, bare=True)
child('stopped')
while len(os.listdir('family')) < 5 * int(os.environ['WORLD_SIZE']): time.sleep(0.02)
if sys.argv[1] == 'end': sys.exit(int(sys.argv[2]))
time.sleep(1000)
END

# By the pids that they wrote down: whatever it is that they have left, these do not
# come again so soon.
family_lives() {
    local f
    for f in family/*; do
        gone "${f##*/}" || echo "${f##*/} $(cat "$f")"
    done
}
family_is_gone() { [ -z "$(family_lives)" ]; }
family_is_there() { [ "$(ls family | wc -l)" = 10 ]; }
new_family() { rm -rf family && mkdir family; }

# ending WHAT STATUS: of the run that goes on.
ending() {
    wait_exit 90 "$runner"
    is "$status" "$2" "$1 ends with $2" || diag "$(cat run.err)"
    is "$(ls family | wc -l)" 10 'ten grandchildren were there'
    ok 'and none outlives it' wait_for 60 family_is_gone || diag "$(family_lives)"
}

test_grandchildren() {
    local w="--nproc-per-node 2 --max-restarts 0 --set limits.grace=1s"
    new_family
    begin_run $w -- python3 family.py end 0
    ending 'success' 0
    new_family
    begin_run $w -- python3 family.py end 3
    ending 'a failure' 3
    new_family
    start_run $w -- python3 family.py stay
    wait_for 60 family_is_there
    ok 'a cancel' "$MUSTER" cancel run
    ending 'which' 130
    new_family
    start_run $w --set limits.grace=10m -- python3 family.py stay
    wait_for 60 family_is_there
    ok 'a forced one' "$MUSTER" cancel run --force
    ending 'which' 130
    new_family
    start_run $w -- python3 family.py stay
    wait_for 60 family_is_there
    kill -TERM "$runner"
    ending 'SIGTERM' 75
    new_family
    start_run $w --set limits.deadline=20s -- python3 family.py stay
    wait_for 60 family_is_there
    ending 'a deadline' 124
    new_family
    start_run $w --nnodes 2 --agent-is-node --nproc-per-node 1 -- python3 family.py stay
    wait_for 60 family_is_there
    kill -KILL "$(field nodes.1.agent_pid)"
    ending 'the loss of an agent' 75
}

# The front end is gone, and nobody comes to take its place.
test_detached() {
    new_family
    start_run --nproc-per-node 2 --set limits.grace=1s --set detach.timeout=1s -- python3 family.py stay
    wait_for 60 family_is_there
    kill -KILL "$runner"
    ok 'a run whose front end has been lost for too long ends' wait_for 90 eval '[ "$(field state)" = Stopped ]'
    is "$(field verdict.exit_status)" 75 'to be resumed'
    ok 'and no grandchild outlives it' wait_for 60 family_is_gone || diag "$(family_lives)"
    ok 'nor anybody else' wait_for 60 run_gone "$id"
}

# What a stopped worker is sent, and when: it hears SIGTERM because SIGCONT wakes it,
# and SIGKILL comes when its grace is over, not before.
test_order() {
    local since ms
    cat >log.py <<'END'
import os, signal, time
log = open('signals', 'a', buffering=1)
for s in signal.SIGTERM, signal.SIGCONT:
    signal.signal(s, lambda n, _: log.write(signal.Signals(n).name + '\n'))
log.write('start\n')
os.kill(os.getpid(), signal.SIGSTOP)
while True: time.sleep(0.05)
END
    stopped() { [[ $(cat "/proc/$(field workers.0.pid)/stat" 2>/dev/null) == *') T '* ]]; }
    rm -f signals
    start_run --nproc-per-node 1 --set limits.grace=3s -- python3 log.py
    ok 'a worker that is stopped' wait_for 60 stopped
    since=$(now_ms)
    "$MUSTER" cancel run >/dev/null
    wait_exit 60 "$runner"
    ms=$(($(now_ms) - since))
    is "$status" 130 'is cancelled' || diag "$(cat run.err)"
    is "$(sort signals | tr '\n' ' ')" 'SIGCONT SIGTERM start ' 'it was woken and told'
    is "$(field workers.0.signal)" 9 'and killed, for it did not go'
    num $ms -ge 2900 'not before its grace was over'
}

# A process that even SIGKILL does not end, as in state D: one in a frozen cgroup (v1).
test_unkillable() {
    local group=/sys/fs/cgroup/freezer/muster-test.$$ pid i
    if [ "$(id -u)" != 0 ] || ! mkdir "$group" 2>/dev/null; then
        skip 'no freezer of cgroup v1 here' 12
        return
    fi
    at_exit "echo THAWED >$group/freezer.state; for i in 1 2 3 4 5 6 7 8 9 10; do rmdir $group 2>/dev/null && break; sleep 0.2; done"
    frozen() { [ "$(cat "$group/freezer.state")" = FROZEN ]; }
    for i in worker child; do
        if [ $i = worker ]; then
            start_run --nproc-per-node 2 --set limits.grace=1s -- sleep 1000
            pid=$(field workers.1.pid)
        else
            start_run --nproc-per-node 2 --set limits.grace=1s -- sh -c 'sleep 1000 & echo $! >child$RANK; wait'
            wait_for 60 test -s child1
            pid=$(cat child1)
        fi
        echo "$pid" >"$group/cgroup.procs"
        echo FROZEN >"$group/freezer.state"
        ok "a $i that cannot be killed" wait_for 60 frozen
        "$MUSTER" cancel run >/dev/null
        wait_exit 120 "$runner"
        is "$status" 130 'does not hold up the end' || diag "$(cat run.err)"
        like "$(cat run.err)" "process $pid (sleep) on $(hostname) does not die of SIGKILL" 'and is named' ||
            diag "$(cat run.err)"
        not_ok 'it is alive, as it must be' gone "$pid"
        echo THAWED >"$group/freezer.state"
        ok 'and ends as soon as it can' wait_for 60 gone "$pid"
        ok 'nobody is left' wait_for 60 run_gone "$id" || diag "$(run_alive "$id")"
    done
}

hand_over() { case $(field state) in Stopped | Failed) ;; *) return 1 ;; esac; }
# start_hand OPTION...: two agents under an mpirun that was started by hand.
start_hand() {
    rm -rf run ready.*
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 spawn run mpirun -n 2 --oversubscribe "$MUSTER" run \
        --agent-is-node --nnodes 2 --nproc-per-node 1 --run-dir run "$@"
    runner=$spawned
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
    id=$(json id run/run.json)
}

# SIGTERM to an mpirun that was started by hand: a stop, if all is well otherwise.
test_hand() {
    start_hand --set heartbeat.timeout=2s -- sh -c 'trap "echo saved; exit 0" TERM; echo >ready.$RANK; while :; do sleep 0.1; done'
    is $? 0 'a run under an mpirun by hand'
    wait_for 60 test -e ready.0 -a -e ready.1
    kill -TERM "$runner"
    ok 'stops when mpirun is told to end' wait_for 60 hand_over || diag "$(cat run.err; "$MUSTER" status run)"
    is "$(field verdict.exit_status)" 75 'to be resumed'
    like "$(field verdict.reason)" 'mpirun was told to end' 'for that reason'
    is "$(grep -h -c saved run/logs/1/*/stdout | tr '\n' ' ')" '1 1 ' 'its workers were told'
    wait_exit 60 "$runner"
    isnt "$status" 0 'mpirun does not end as if all were well'
    ok 'nobody is left' wait_for 60 run_gone "$id" || diag "$(run_alive "$id")"
    start_hand --set heartbeat.timeout=4s -- sleep 1000
    is $? 0 'another one'
    kill -TERM "$runner"
    kill -KILL "$(field nodes.1.agent_pid)"
    ok 'that loses a node in that moment ends' wait_for 60 hand_over || diag "$(cat run.err; "$MUSTER" status run)"
    unlike "$(field verdict.reason)" 'mpirun was told to end' 'for the loss'
    is "$(field verdict.exit_status)" 75 'to be resumed, too'
    ok 'nobody is left' wait_for 60 run_gone "$id" || diag "$(run_alive "$id")"
}

# No signal tells anybody anything: mpirun is stopped while its ranks die, and dies
# before it can see it.
lose_mpi_world() {
    kill -STOP "$runner"
    kill -KILL $(pgrep -P "$runner")
    kill -KILL "$runner"
    wait "$runner" 2>/dev/null
}

# Nobody makes another MPI world: that is only for those who need none.
test_hand_without_mpi() {
    local worker=$MUSTER_BUILDDIR/tests/lib/comm_worker
    at_exit '"$MUSTER" cancel --force run >/dev/null 2>&1'
    start_hand --set heartbeat.timeout=2s -- sh -c 'echo >ready.$RANK; until [ -e go ]; do sleep 0.1; done'
    is $? 0 'a run by hand with collectives of its own'
    wait_for 60 test -e ready.0 -a -e ready.1
    lose_mpi_world
    ok 'loses its MPI world' wait_for 60 event mpi_lost
    touch go
    ok 'and goes on to its end' wait_for 60 eval '[ "$(field state)" = Succeeded ]' || diag "$("$MUSTER" status run)"
    rm -f go
    [ -x "$worker" ] || { skip "no $worker"; return; }
    start_hand --set heartbeat.timeout=2s -- "$worker" "$PWD/never"
    is $? 0 "a run by hand with muster's collectives"
    wait_for 60 eval '[ "$(field step)" -ge 2 ]'
    lose_mpi_world
    ok 'ends without its MPI world' wait_for 60 hand_over || diag "$("$MUSTER" status run)"
    is "$(field verdict.exit_status)" 75 'to be resumed'
    like "$(field verdict.reason)" 'wait in a collective for an MPI world' 'for that reason'
    is "$(cat run/logs/1/*/stdout | sort)" 'rank 0: -103 the MPI world is lost
rank 1: -103 the MPI world is lost' 'its workers are told, and need no grace time'
    ok 'nobody is left' wait_for 60 run_gone "$id" || diag "$(run_alive "$id")"
}

run_cases
