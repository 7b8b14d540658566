#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Collectives of real workers on several hosts while things go wrong: whoever can
# get no result gets an error at once that says why, and every result is right.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
WORKER=$MUSTER_BUILDDIR/tests/lib/comm_worker
[ -x "$WORKER" ] || skip_all "no $WORKER"
rig_hosts_up --hosts node1,node2,node3
cd "$SHARED" || bail_out "no $SHARED"

# A grace time so long that workers end by themselves, or the test fails.
start_run() {
    cd "$SHARED" && rm -rf run stop
    spawn run on node1 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node1,node2 --nnodes 2 \
        --nproc-per-node 2 --set limits.grace=300s "$@"
    runner=$spawned
}
field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
steps() { [ "$(field generation)" = "$1" ] && [ "$(field step)" -ge "$2" ]; }
nobody_left() { run_gone "$(json id "$SHARED/run/run.json")"; }
# told GENERATION: what its workers have printed, sorted.
told() { cat "$SHARED/run/logs/$1"/*/stdout | sort; }
right='rank 0: right
rank 1: right
rank 2: right
rank 3: right'


test_worker_killed() {
    start_run --max-restarts 1 -- "$WORKER" "$SHARED/stop"
    ok 'collectives over two hosts' wait_for 120 steps 1 3 || diag "$(cat run.err)"
    kill -KILL "$(pids_on node2 '^[^ ]*comm_worker ' | head -n 1)"
    ok 'go on in the next generation when a worker is killed in one' wait_for 120 steps 2 3 || diag "$(cat run.err)"
    touch stop
    wait_exit 120 "$runner"
    is "$status" 0 'to a good end' || diag "$(cat run.err)"
    is "$(told 2)" "$right" 'with the right values'
    is "$(told 1 | grep -c '^rank [0-3]: -103 ')" 3 'the others had got an error, by themselves' || diag "$(told 1)"
    is "$(told 1 | wc -l)" 3 'and nothing else'
}

test_faults() {
    local fault
    for fault in count kind; do
        start_run --max-restarts 0 -- "$WORKER" "$SHARED/stop" $fault@3
        wait_exit 120 "$runner"
        is "$status" 1 "$fault: a worker that calls something else" || diag "$(cat run.err)"
        is "$(told 1 | grep -c '^rank [23]: -22 calls differ: worker . called .*, worker . ')" 2 \
            'is named on its node' || diag "$(told 1)"
        is "$(told 1 | grep -cE '^rank [01]: -(22 calls differ|103 )')" 2 'and nobody waits on the other' ||
            diag "$(told 1)"
        like "$(told 1)" "$([ $fault = kind ] && echo broadcast || echo allreduce)" 'with what it called'
    done
    start_run --max-restarts 0 -- "$WORKER" "$SHARED/stop" huge@1
    wait_exit 120 "$runner"
    is "$(told 1 | grep -v '^rank 1: -22 allreduce: 4611686018427387903 elements$' | cut -c 1-13 | tr '\n' ' ')" \
        'rank 0: -103  rank 2: -103  rank 3: -103  ' 'a count that cannot be is refused, and the others do not wait' ||
        diag "$(told 1)"
    start_run --max-restarts 0 -- "$WORKER" "$SHARED/stop" leave@2
    wait_exit 120 "$runner"
    like "$(told 1)" 'rank 3: -103 worker 2 has ended, and others wait for it in a collective' \
        'nor for one that has ended too early' || diag "$(told 1)"
    is "$(told 1 | cut -c 1-13 | tr '\n' ' ')" 'rank 0: -103  rank 1: -103  rank 3: -103  ' 'on either host' || diag "$(told 1)"
    start_run --max-restarts 0 -- "$WORKER" "$SHARED/stop" leave@2 pause@3
    wait_exit 120 "$runner"
    like "$(told 1)" 'rank 3: -103 worker 2 has ended, and others wait for it in a collective' \
        'also who hears of it after all others have failed of that' || diag "$(told 1)"
    # On a slow machine the others could be seen to end before it is.
    start_run --max-restarts 0 -- "$WORKER" "$SHARED/stop" fail@2 hold@0 hold@1 hold@3
    ok 'nor for one that has failed' wait_for 120 grep -q '"worker_failed".*rank 2 ' run/events.jsonl
    touch stop
    wait_exit 120 "$runner"
    is "$status" 3 'whose status is the run'"'"'s' || diag "$(cat run.err)"
    is "$(told 1 | cut -c 1-13 | tr '\n' ' ')" 'rank 0: -103  rank 1: -103  rank 3: -103  ' 'on either host' || diag "$(told 1)"
}

joined() { [ "$(grep -c mpi_joined run/events.jsonl)" -ge "$1" ]; }

test_mpi_killed() {
    local i before
    start_run --max-restarts 0 -- "$WORKER" "$SHARED/stop"
    for i in 1 2 3; do
        ok "MPI world $i is there" wait_for 120 joined $((2 * i - 2)) || diag "$(cat run.err)"
        before=$(field step)
        ok 'and workers go on' wait_for 120 steps 1 $((before + 3))
        kill -KILL $(pids_on node$((1 + i % 2)) "muster-mpi --run-id" | tail -n 1)
    done
    wait_for 120 joined 6
    touch stop
    wait_exit 120 "$runner"
    is "$status" 0 'a run whose muster-mpi is killed again and again ends well' || diag "$(cat run.err)"
    is "$(told 1)" "$right" 'in its first generation, with the right values'
}

test_agents() {
    start_run --max-restarts 0 -- "$WORKER" "$SHARED/stop"
    ok 'a run' wait_for 120 steps 1 2
    kill -KILL $(pids_on node2 '^[^ ]*muster agent --dir')
    wait_exit 120 "$runner"
    is "$status" 75 'ends when an agent is killed in a collective' || diag "$(cat run.err)"
    ok 'nobody is left' wait_for 60 nobody_left
    start_run --max-restarts 0 --set heartbeat.timeout=3s -- "$WORKER" "$SHARED/stop"
    ok 'another run' wait_for 120 steps 1 2
    local agent
    agent=$(pids_on node2 '^[^ ]*muster agent --dir')
    kill -STOP "$agent"
    wait_exit 120 "$runner"
    is "$status" 75 'ends when an agent is stopped' || diag "$(cat run.err)"
    is "$(told 1 | grep -c right)" 0 'without a result'
    kill -KILL "$agent"
    ok 'nobody is left then' wait_for 60 nobody_left
}

# world EPOCH N: so many nodes have joined it.
world() { [ "$(grep -c "mpi_joined.*\"epoch\":$1" run/events.jsonl)" = "$2" ]; }

# Too few to go on by itself, it keeps its agent; what it has missed is a world, and
# the front end that knew of that is gone.
test_away() {
    start_run --hosts node1,node2,node3 --nnodes 2:3 --nproc-per-node 1 --max-restarts 3 --set heartbeat.timeout=3s \
        --set limits.grace=1s --set restart.backoff=1ms..1ms -- "$WORKER" "$SHARED/stop"
    ok 'collectives over three hosts' wait_for 120 steps 1 3 || diag "$(cat run.err)"
    hosts pause node3
    ok 'go on over two while one is stopped' wait_for 60 steps 2 3 || diag "$(cat run.err run/events.jsonl)"
    ok 'in an MPI world without it' wait_for 60 world 2 2 || diag "$(cat run.err run/events.jsonl)"
    kill -KILL "$(inner_pid "$runner")" # who hears of no loss is not told that there was one
    ok 'whose front end is gone' wait_for 60 grep -q front_lost run/events.jsonl
    hosts resume node3
    ok 'which is there again, with the agent that it had' wait_for 60 grep -q node_back run/events.jsonl ||
        diag "$(cat run.err run/events.jsonl)"
    spawn attach on node1 "$MUSTER" attach run
    runner=$spawned
    ok 'another front end takes the run over' wait_for 60 grep -q '^muster: attached to run' attach.err || diag "$(cat attach.err)"
    kill -KILL $(pids_on node2 '^[^ ]*comm_worker ')
    ok 'and all three are in another MPI world' wait_for 30 world 3 3 || diag "$(cat attach.err run/events.jsonl)"
    touch stop
    wait_exit 60 "$runner"
    is "$status" 0 'where they come to a good end' || diag "$(cat attach.err)"
    is "$(told 3)" "$(head -n 3 <<<"$right")" 'with the right values'
}

run_cases
