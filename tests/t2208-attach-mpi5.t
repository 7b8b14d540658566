#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster attach with Open MPI 5, which ends a whole world with any process of it: who
# took over a run makes the next one, on the host of the first front end and from
# another.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
rig_mpi5_up --hosts node1,node2,node3
cd "$SHARED" || bail_out "no $SHARED"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
running() { [ "$(field state)" = Running ] && [ "$(field workers.1.state)" = Running ]; }
event() { grep -q "$1" "$SHARED/run/events.jsonl"; }
world_of_both() { [ "$(grep -c "\"mpi_joined\".*\"epoch\":$1" "$SHARED/run/events.jsonl")" = 2 ]; }
agents() { field nodes | grep -o '"agent_pid": [0-9]*'; }
workers() { field workers | grep -o '"pid": [0-9]*'; }
alive() { run_alive "$id"; pgrep -f -a -- "--run-id=$id|/$id " | grep -v pgrep; }
nobody_left() { [ -z "$(alive)" ]; }
start_run() {
    cd "$SHARED" && rm -rf run go
    spawn run on node1 "$there/muster" run $root --run-dir run --hosts node1,node2 --nnodes 2 \
        --nproc-per-node 1 --set detach.timeout=10m -- sh -c 'until [ -e go ]; do sleep 0.1; done; echo done'
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
    id=$(json id run/run.json)
    front=$(inner_pid "$spawned")
    before=$(agents; workers)
}
# attach HOST: as $front from then on, $shown here.
attach() {
    kill -KILL "$front"
    wait_for 60 event front_lost
    rm -f attach.err
    spawn attach on "$1" "$there/muster" attach run
    shown=$spawned
    wait_for 60 grep -q '^muster: attached to run' attach.err || { diag "$(cat attach.err)"; return 1; }
    front=$(inner_pid "$shown")
}
world_lost() { kill -KILL $(pids_on node2 '^[^ ]*muster-mpi --run-id'); }
ends_well() {
    is "$(agents; workers)" "$before" 'agents and workers are those of before'
    is "$(field generation)" 1 'in their first generation'
    touch go
    wait_exit 100 "$shown"
    is "$status" 0 'its status is that of the run' || diag "$(cat attach.err)"
    is "$(sort attach.out | tr '\n' ' ')" '[0] done [1] done ' 'which it shows'
    ok 'nobody is left' wait_for 60 nobody_left || diag "$(alive)"
}

test_same_host() {
    start_run
    is $? 0 'a run over two hosts'
    attach node1
    is $? 0 'is taken over'
    is "$(field mpi_epoch):$(field mpi_lost)" 1:0 'the MPI world of the first front end is left alone'
    world_lost
    ok 'one that is lost is made anew' wait_for 100 world_of_both 2 || diag "$(cat attach.err run/mpirun.log)"
    kill -KILL $(pids_on node1 'prterun .*muster-mpi')
    ok 'and so is the next' wait_for 100 world_of_both 3 || diag "$(cat attach.err run/mpirun.log)"
    ends_well
}

test_other_host() {
    start_run
    is $? 0 'a run over two hosts'
    attach node3
    is $? 0 'is taken over from a third'
    world_lost
    ok 'which makes the next MPI world' wait_for 100 world_of_both 2 || diag "$(cat attach.err run/mpirun.log)"
    is "$(json host run/front.json)" node3 'by an mpirun of its own'
    ok 'that of the first goes' wait_for 60 eval '[ -z "$(pids_on node1 "prterun ")" ]' || diag "$(ps -ef)"
    ends_well
}

run_cases
