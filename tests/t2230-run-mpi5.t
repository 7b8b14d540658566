#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster run with Open MPI 5 underneath: the same job, the same results, and the
# same agents and workers when mpirun or a daemon of it is lost.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
rig_mpi5_up --hosts node1,node2,node3
cd "$SHARED" || bail_out "no $SHARED"
small=(--width 16 --heads 2 --layers 1 --context 16)
three=(--hosts node1,node2,node3 --nnodes 3 --run-dir run)
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

mrun() {
    cd "$SHARED" && rm -rf run
    run on node1 timeout 120 "$there/muster" run $root "${three[@]}" "$@"
}
start_run() {
    cd "$SHARED" && rm -rf run
    spawn run on node1 "$there/muster" run $root "${three[@]}" "$@"
    runner=$spawned
    wait_for 60 running
}
field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
running() { [ "$(field state)" = Running ] && [ "$(field workers.2.state)" = Running ]; }
event() { grep -q "$1" "$SHARED/run/events.jsonl"; }
agents() { field nodes | grep -o '"agent_pid": [0-9]*'; }
workers() { field workers | grep -o '"pid": [0-9]*'; }
cat >world.c <<'END'
#include <mpi.h>
#include <stdio.h>

int main(void)
{
    int rank, size;

    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("%d of %d\n", rank, size);
    return MPI_Finalize();
}
END
nobody_left() {
    ok 'nobody is left' wait_for 60 run_gone "$(json id "$SHARED/run/run.json")" ||
        diag "$(run_alive "$(json id "$SHARED/run/run.json")")"
}


test_run() {
    mrun --nproc-per-node 2 -- sh -c 'echo $RANK of $WORLD_SIZE on $(hostname)'
    is "$status" 0 'a job over three hosts succeeds' || show
    is "$(grep -o '[0-9] of 6 on node[123]' out | sort | tr '\n' ';')" \
        '0 of 6 on node1;1 of 6 on node1;2 of 6 on node2;3 of 6 on node2;4 of 6 on node3;5 of 6 on node3;' \
        'with a worker for each slot'
}

# A worker may be a script that runs an mpirun of its own.
test_nested() {
    on node1 mpicc -o "$SHARED/world" "$SHARED/world.c" 2>err || bail_out "$(cat err)"
    OMPI_MCA_btl=tcp,self PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe mrun --nproc-per-node 1 -- \
        sh -c 'echo btl=$OMPI_MCA_btl; mpirun --allow-run-as-root -n 2 ./world; echo ready'
    is "$status" 0 'an mpirun in each worker' || show
    is "$(sed 's/^\[.\] //' out | sort | uniq -c | sed 's/^ *//' | tr '\n' ';')" '3 0 of 2;3 1 of 2;3 btl=tcp,self;3 ready;' \
        'is a world of its own, with parameters of the user' || show
    nobody_left
}

# Open MPI 5 ends the whole world at the loss of a daemon: agents and workers go on.
test_host_loss() {
    start_run --set nodes=2..3 --nproc-per-node 1 --set heartbeat.timeout=3s -- \
        "$there/examples/charlm/charlm" "${small[@]}" --steps 3000 --step-time 10 --batch 6 --checkpoint-every 20
    is $? 0 'charlm over three hosts, of which one may be lost'
    ok 'trains' wait_for 60 eval '[ "$(field step)" -ge 21 ]'
    "$MUSTER_SRCDIR/tests/rigs/hosts" link_down "$BED" node3
    "$MUSTER_SRCDIR/tests/rigs/hosts" power_off "$BED" node3
    wait_exit 240 "$runner"
    is "$status" 0 'and to its end over two, when one is switched off' || diag "$(cat run.err)"
    is "$(field node_failures),$(field restarts),$(field generation)" 1,0,2 'by one loss, and no restart'
    like "$(cat run.err)" 'made without node3' 'in an MPI world without it'
    nobody_left
    "$MUSTER_SRCDIR/tests/rigs/hosts" power_on "$BED" node3
}

# With the agent goes its MPI rank, and with that the world.
test_lead_loss() {
    start_run --set nodes=2..3 --nproc-per-node 1 -- \
        "$there/examples/charlm/charlm" "${small[@]}" --steps 3000 --step-time 10 --batch 6 --checkpoint-every 20
    is $? 0 'charlm over three hosts'
    ok 'trains' wait_for 60 eval '[ "$(field step)" -ge 21 ]'
    kill -KILL $(pids_on node1 '^[^ ]*muster agent --dir')
    wait_exit 240 "$runner"
    is "$status" 0 'and to its end, when the agent that leads is killed' || diag "$(cat run.err)"
    is "$(field lead),$(field node_failures),$(field restarts)" 1,1,0 'led by the next'
    like "$(cat run.err)" 'generation 2: 2 processes on 2 nodes' 'over two, whatever comes back before the end'
    nobody_left
}

test_order() {
    run on node2 timeout 120 "$there/muster" run $root --run-dir ordered --hosts node3,node1,node2 --nnodes 3 \
        --nproc-per-node 1 -- sh -c 'echo $RANK $(hostname)'
    is "$status" 0 'a job from a host in the middle of its list' || show
    is "$(sed 's/^\[.*\] //' out | sort | tr '\n' ';')" '0 node3;1 node1;2 node2;' 'goes by the list'
    rm -rf ordered
}

test_charlm() {
    mrun --nproc-per-node 1 --max-restarts 0 -- "$there/examples/charlm/charlm" "${small[@]}" --steps 20 --batch 6
    is "$status" 0 'charlm trains over three hosts' || show
    like "$(cat out)" 'step 20/20' 'to its last step'
    ok 'and leaves a checkpoint' eval 'ls run/ckpt/* >/dev/null'
    nobody_left
}

test_by_hand() {
    cd "$SHARED" && rm -rf run
    run on node1 timeout 120 mpirun $root --prtemca plm_ssh_agent "$BED/ssh" --host node1:1,node2:1,node3:1 \
        "$there/muster" run --run-dir run --nnodes 3 --nproc-per-node 1 -- \
        "$there/examples/charlm/charlm" "${small[@]}" --steps 5 --batch 6
    is "$status" 0 'and under an mpirun by hand' || show
    is "$(field state)" Succeeded 'as the status says'
    nobody_left
}

# SIGTERM to an mpirun that was started by hand.
test_by_hand_term() {
    cd "$SHARED" && rm -rf run
    spawn run on node1 mpirun $root --prtemca plm_ssh_agent "$BED/ssh" --host node1:1,node2:1,node3:1 \
        "$there/muster" run --run-dir run --nnodes 3 --nproc-per-node 1 --set heartbeat.timeout=2s -- \
        sh -c 'trap "echo saved; exit 0" TERM; while :; do sleep 0.1; done'
    runner=$spawned
    ok 'a run under an mpirun by hand' wait_for 60 running || diag "$(cat run.err)"
    kill -TERM "$(inner_pid "$runner")"
    ok 'ends when mpirun is told to end' wait_for 60 eval '[ "$(field state)" = Stopped ]' ||
        diag "$(cat run.err; cat run/events.jsonl)"
    is "$(field verdict.exit_status)" 75 'to be resumed'
    is "$(cat run/logs/1/*/stdout | grep -c saved)" 3 'its workers were told'
    nobody_left
}

test_worker_dies() {
    start_run --nproc-per-node 1 --max-restarts 1 --set restart.backoff=1s..1s -- \
        sh -c 'echo g$MUSTER_GENERATION of $RANK; [ $MUSTER_GENERATION != 1 ] || exec sleep 1000'
    is $? 0 'a run'
    kill -KILL "$(pids_on node3 '^sleep 1000')"
    wait_exit 240 "$runner"
    is "$status" 0 'goes on after the loss of a worker' || diag "$(cat run.err)"
    is "$(grep -o 'g2 of [0-9]' run.out | sort | tr '\n' ';')" 'g2 of 0;g2 of 1;g2 of 2;' 'with all workers again'
    like "$(cat run.err)" 'node3' 'the host is named'
    nobody_left
}

test_mpirun_dies() {
    local before
    start_run --nproc-per-node 1 -- sleep 1000
    is $? 0 'a run'
    before=$(agents; workers)
    kill -KILL $(pids_on node1 'prterun .*muster-mpi')
    ok 'after the loss of mpirun the agents join a new MPI world' wait_for 60 event '"epoch":2' ||
        diag "$(cat run.err; tail -n 20 run/mpirun.log)"
    kill -KILL $(pids_on node3 'prted')
    ok 'and after the loss of a daemon another' wait_for 60 event '"epoch":3' ||
        diag "$(cat run.err; tail -n 20 run/mpirun.log)"
    is "$(agents; workers)" "$before" 'they are the same agents and workers'
    is "$(field generation)" 1 'still in their first generation'
    is "$(pids_on node3 '^sleep 1000' | wc -l)" 1 'alive'
    kill -INT "$(inner_pid "$runner")"
    wait_exit 240 "$runner"
    is "$status" 130 'the run can be cancelled' || diag "$(cat run.err)"
    nobody_left
}

test_agent_dies() {
    start_run --nproc-per-node 1 -- sh -c 'setsid sleep 1000 & exec sleep 1000'
    is $? 0 'a run'
    kill -KILL $(pids_on node2 '^[^ ]*muster agent --dir')
    wait_exit 240 "$runner"
    is "$status" 75 'ends resumable after the loss of an agent' || diag "$(cat run.err)"
    like "$(cat run.err)" 'node2' 'the node is named'
    nobody_left
}

test_status() {
    mrun --nproc-per-node 1 --max-restarts 0 -- sh -c '[ $RANK != 1 ] || exit 9; exec sleep 1000'
    is "$status" 9 'a failed job ends with the status of its worker' || show
    nobody_left
}

run_cases
