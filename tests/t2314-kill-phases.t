#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# SIGKILL of each process of a run between two generations, and while workers are
# being stopped: the run goes on to its end, or ends to be resumed, and nothing is
# left. (While workers run: t2110. Before: t2315.)
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
export XDG_RUNTIME_DIR=$TRASH/rt
mkdir -m 700 rt

field() { json "$1" <run/status.json; }
state_is() { [ "$(field state 2>/dev/null)" = "$1" ]; }

all_gone() { [ -z "$(run_traces "$id")" ]; }
no_files() { [ -z "$(find rt/muster -mindepth 1)" ]; }

# start STATE OPTION...: a run that has come to that state, and stays there.
start() {
    local state=$1
    shift
    rm -rf run ready.*
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run --set detach.timeout=1s --set heartbeat.timeout=2s "$@"
    front=$spawned
    wait_for 60 state_is "$state" || { diag "$(cat run.err)"; return 1; }
    id=$(json id run/run.json)
    wait_for 60 eval '[ -n "$(field nodes.0.agent_pid)" ] && [ "$(field nodes.0.agent_pid)" != 0 ]'
    run_parts "$id" "$front" "$(field nodes.0.agent_pid)"
}

# ends WHAT STATUS...: the front end has one of these, and nothing is left.
ends() {
    local what=$1
    shift
    wait_exit 60 "$front"
    case " $* " in
    *" $status "*) pass "$what: the run ends with $status" ;;
    *) fail "$what: the run ends with $status, expected $*" || diag "$(cat run.err)" ;;
    esac
    left "$what"
}
left() {
    ok "$1: nothing is left" wait_for 60 all_gone || diag "$(run_traces "$id")"
    ok "$1: nor a file" wait_for 60 no_files || diag "$(find rt/muster)"
}

# Between two generations: the first has failed, and the next is not due for long.
test_restarting() {
    local part
    for part in front mpirun mpi watch agent; do
        start Restarting --nproc-per-node 2 --max-restarts 3 --set restart.backoff=10m..10m -- sh -c 'exit 1'
        is $? 0 "($part) a run between two generations" || continue
        kill -KILL "${!part}"
        case $part in
        front) wait "$front" 2>/dev/null; left "($part)" ;;
        mpirun | mpi)
            kill -INT "$front"
            ends "($part)" 130
            ;;
        *) ends "($part)" 75 ;;
        esac
    done
}

# The first act of a worker is to kill its agent: its generation has been written
# down by then, and no other one gets that number.
test_at_once() {
    local i act='echo "$MUSTER_GENERATION" >>began; grep -o "\"generation\":[0-9]*" "$MUSTER_RUN_DIR/status.json" | head -1 >>known; kill -KILL $PPID; sleep 60'
    rm -rf run began known
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 --set detach.timeout=1s --set heartbeat.timeout=2s -- sh -c "$act"
    front=$spawned
    for i in 1 2 3 4; do
        wait_exit 60 "$front"
        is "$status" 75 "start $i ends to be resumed" || diag "$(cat run.err)"
        [ "$i" = 4 ] && break
        spawn run "$MUSTER" run --allow-run-as-root --resume run
        front=$spawned
    done
    id=$(json id run/run.json)
    is "$(tr '\n' ' ' <began)" '1 2 3 4 ' 'each has a generation of its own'
    is "$(sed 's/.*://' known | tr '\n' ' ')" '1 2 3 4 ' 'and its workers find it on disk'
    left 'killed at once'
}

# A run directory that takes no status holds a generation up, but not for good.
test_no_record() {
    rm -rf run
    mkdir run
    run "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- sh -c 'echo "began $MUSTER_GENERATION"; rm -f run/status.json; mkdir run/status.json; touch run/status.json/x; [ "$MUSTER_GENERATION" = 2 ]'
    is "$status" 0 'workers start without it' || show
    like "$(cat err)" 'the number of a generation could not be written' 'which is told'
}

deaf='trap "" TERM INT; echo >ready.$RANK; while :; do sleep 0.2; done'
# Workers were asked to stop, and have long for it.
test_stopping() {
    local part
    for part in mpirun mpi watch agent worker; do
        start Running --nproc-per-node 2 --set limits.grace=10m -- sh -c "$deaf"
        is $? 0 "($part) a run" || continue
        wait_for 60 test -e ready.0 -a -e ready.1
        kill -TERM "$front"
        ok "($part) is being stopped" wait_for 60 state_is Stopping
        worker=$(field workers.1.pid)
        kill -KILL "${!part}"
        case $part in
        watch | agent) ends "($part)" 75 ;;
        *)
            # Whoever goes while the others have time is no reason to hurry them.
            not_ok "($part) the others keep their time" wait_for 2 gone "$front"
            kill -INT "$front"
            ends "($part)" 75
            ;;
        esac
    done
    start Running --nproc-per-node 2 --set limits.grace=5s -- sh -c "$deaf"
    wait_for 60 test -e ready.0 -a -e ready.1
    kill -TERM "$front"
    ok '(front) is being stopped' wait_for 60 state_is Stopping
    kill -KILL "$front"
    wait "$front" 2>/dev/null
    left '(front)'
    is "$(field state)" Stopped '(front) and what it asked for was done'
}

run_cases
