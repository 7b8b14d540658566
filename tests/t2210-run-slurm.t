#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster run in a batch job, with the front end in it and under an mpirun of the
# script's own: it takes the nodes that the job has, trains over them, outlives
# the loss of a worker, and leaves nobody when the job or its step ends.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command sbatch mpirun
rig_slurm_up
cd "$SHARED" || bail_out "no $SHARED"
charlm=$MUSTER_BUILDDIR/examples/charlm/charlm
small="$charlm --width 16 --heads 2 --layers 1 --context 16"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

job_over() { [ -z "$(on ctl squeue -h -j "$1" -t pending,running,completing 2>/dev/null)" ]; }

# batch NAME N SCRIPT-LINE...: submits; the job's id in $job, what it says in
# NAME.out, the directory of its run in $dir, if that is called NAME.
batch() {
    local name=$1 n=$2
    shift 2
    cd "$SHARED" || return
    { echo '#!/bin/sh'; printf '%s\n' "$@"; } >"$name"
    job=$(on ctl sbatch --parsable -N "$n" --exclusive --no-kill --open-mode=append -o "$name.out" --chdir="$SHARED" "$name")
    dir=$SHARED/muster-runs/$name/$job
    at_exit "on ctl scancel $job"
}

field() { "$MUSTER" status "$dir" -o json 2>/dev/null | json "$1"; }
event() { grep -q "$1" "$dir/events.jsonl"; }
running() { [ "$(field state)" = Running ] && [ "$(field "workers.$1.state")" = Running ]; }

# pids_on HOST PATTERN: of processes there, as seen from here.
pids_on() {
    local ns p
    ns=$(readlink "/proc/$(hosts pid "$1")/ns/pid")
    for p in $(pgrep -f -- "$2"); do
        [ "$(readlink "/proc/$p/ns/pid" 2>/dev/null)" != "$ns" ] || echo "$p"
    done
}

# Ids of jobs are small numbers, and other beds have the same: workers are told
# by the run's directory, the rest by the host.
left() {
    local p h
    for p in $(run_alive "$job" | cut -d ' ' -f 1); do
        tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -xF "MUSTER_RUN_DIR=$dir"
    done
    for h in node1 node2 node3; do pids_on "$h" '(muster|muster-mpi|muster-watch|muster-exec|orted)( |$)'; done
}
nobody_left() { ok 'nobody is left' wait_for 30 eval '[ -z "$(left)" ]' || diag "$(left)"; }

test_run() {
    batch hello 3 "$MUSTER run $root --name hello --nnodes 3 --nproc-per-node 2 -- sh -c 'echo \$RANK of \$WORLD_SIZE on \$(hostname), task \$SLURM_PROCID of \$SLURM_NTASKS'" 'echo status $?'
    ok 'a job of three nodes ends' wait_for 60 job_over "$job"
    like "$(cat hello.out)" 'status 0' 'well' || diag "$(cat hello.out)"
    is "$(grep -o '[0-9] of 6 on node[123], task [0-9] of 6' hello.out | sort | tr '\n' ';')" \
        '0 of 6 on node1, task 0 of 6;1 of 6 on node1, task 1 of 6;2 of 6 on node2, task 2 of 6;3 of 6 on node2, task 3 of 6;4 of 6 on node3, task 4 of 6;5 of 6 on node3, task 5 of 6;' \
        'with a worker for each slot, that sees itself as a task'
    ok 'the run has the id of the job' test -d "$dir"
}

test_charlm() {
    batch charlm 3 "$MUSTER run $root --name charlm --nnodes 3 --nproc-per-node 1 -- $small --steps 20 --batch 6" 'echo status $?'
    ok 'charlm trains over three nodes' wait_for 120 job_over "$job"
    like "$(cat charlm.out)" 'status 0' 'to its end' || diag "$(cat charlm.out)"
    ok 'and leaves a checkpoint' eval 'ls "$dir"/ckpt/* >/dev/null'
    is "$(field id):$(field state):$(field verdict.exit_status)" "$job:Succeeded:0" 'status tells from the login node' ||
        diag "$("$MUSTER" status "$dir" -o json)"
    run on ctl "$MUSTER" logs "$dir"
    like "$(cat out)" 'step 20/20' 'and so do its logs' || show
    nobody_left
}

test_by_hand() {
    batch hand 3 "mpirun $root -np 3 --map-by ppr:1:node $MUSTER run --name hand --nnodes 3 --nproc-per-node 1 -- $small --steps 5 --batch 6" 'echo status $?'
    ok 'the same under an mpirun by hand' wait_for 120 job_over "$job"
    like "$(cat hand.out)" 'status 0' 'ends well' || diag "$(cat hand.out)"
    like "$(cat hand.out)" 'step 5/5' 'and shows the output'
    is "$(field state)" Succeeded 'and the run'
    nobody_left
    batch handfails 2 "mpirun $root -np 2 --map-by ppr:1:node $MUSTER run --name handfails --nnodes 2 --nproc-per-node 1 --max-restarts 0 -- sh -c '[ \$RANK = 0 ] || exit 9; sleep 1000'" 'echo status $?'
    ok 'and one that fails' wait_for 60 job_over "$job"
    like "$(cat handfails.out)" 'status 9' 'has the status of its worker' || diag "$(cat handfails.out)"
    nobody_left
}

test_torch() {
    for python in "$MUSTER_CACHE/venv/bin/python3" ''; do
        [ -n "$python" ] && "$python" -c 'import torch' 2>/dev/null && break
    done
    [ -n "$python" ] || { skip 'no PyTorch' 4; return; }
    batch ddp 2 "$MUSTER run $root --name ddp --nnodes 2 --nproc-per-node 1 -- $python $MUSTER_SRCDIR/examples/ddp.py --steps 40" 'echo status $?'
    ok 'PyTorch trains over two nodes' wait_for 180 job_over "$job"
    like "$(cat ddp.out)" 'status 0' 'to its end' || diag "$(cat ddp.out)"
    like "$(cat ddp.out)" 'world 2: from step 0 to 40' 'as one group'
    nobody_left
}

test_status() {
    batch fails 2 "$MUSTER run $root --name fails --nnodes 2 --nproc-per-node 1 --max-restarts 0 -- sh -c '[ \$RANK = 0 ] || exit 9; sleep 1000'" 'echo status $?'
    ok 'a job whose worker fails ends' wait_for 60 job_over "$job"
    like "$(cat fails.out)" 'status 9' 'with the status of that worker' || diag "$(cat fails.out)"
    nobody_left
}

test_worker_dies() {
    batch again 3 "$MUSTER run $root --name again --nnodes 3 --nproc-per-node 1 --set restart.backoff=1s..1s -- sh -c '[ \$MUSTER_GENERATION = 2 ] && exit 0; exec sleep 1000'" 'echo status $?'
    ok 'a job that runs' wait_for 60 running 2
    kill -KILL "$(pids_on node3 '^sleep 1000')"
    ok 'ends after the loss of a worker' wait_for 60 job_over "$job"
    like "$(cat again.out)" 'status 0' 'well, with all started again' || diag "$(cat again.out)"
    like "$(cat again.out)" 'node3' 'the host is named'
    is "$(field restarts)" 1 'and the restart counted'
    nobody_left
}

# Slurm tracks a step by its cgroup: with the step that mpirun made, all that
# was started in it goes, agents too.
test_step_dies() {
    batch step 3 "$MUSTER run $root --name step --nnodes 3 --nproc-per-node 1 -- sh -c 'setsid sleep 1000 & exec sleep 1000'" 'echo status $?'
    ok 'a job that runs' wait_for 60 running 2
    on ctl scancel --signal=KILL "$job.0" 2>/dev/null
    ok 'is over when the step of mpirun is killed' wait_for 60 job_over "$job"
    like "$(cat step.out)" 'status 75' 'resumable' || diag "$(cat step.out)"
    matches "$(cat step.out)" 'node[23]' 'a node that was lost is named'
    is "$(field verdict.exit_status)" 75 'and it is on record' || diag "$("$MUSTER" status "$dir" -o json)"
    nobody_left
}

# What a job script does with a run that was preempted: it comes back.
test_requeue() {
    batch back 3 'trap "kill -TERM \$pid" TERM' \
        "$MUSTER run $root --name back --nnodes 3 --nproc-per-node 1 -- $charlm --steps 150 --batch 6 --checkpoint-every 100000 &" \
        'pid=$!; wait $pid; s=$?; [ $s -lt 128 ] || { wait $pid; s=$?; }; echo status $s' \
        '[ $s != 75 ] || scontrol requeue $SLURM_JOB_ID'
    ok 'a job that trains' wait_for 120 grep -q 'step 50/150' back.out
    ok 'is told to go' on ctl scancel --batch --signal=TERM "$job"
    ok 'saves, and ends resumable' wait_for 30 grep -q 'status 75' back.out || diag "$(cat back.out)"
    ok 'it comes back' wait_for 240 job_over "$job"
    like "$(cat back.out)" 'resumed from step' 'goes on from its checkpoint' || diag "$(cat back.out)"
    matches "$(cat back.out)" 'step 150/150.*status 0' 'to its end'
    is "$(field state):$(field id):$(field generation)" "Succeeded:$job:2" 'in the same run'
    nobody_left
}

test_cancel() {
    batch long 3 "exec $MUSTER run $root --name long --nnodes 3 --nproc-per-node 2 -- sh -c 'echo up; setsid sleep 1000 & exec sleep 1000'"
    ok 'a job that runs' wait_for 60 eval '[ $(grep -c up long.out) = 6 ]'
    isnt "$(left | grep -c .)" 0 'has processes'
    ok 'is cancelled' on ctl scancel "$job"
    ok 'and is over' wait_for 60 job_over "$job"
    is "$(field state):$(field verdict.resumable)" Stopped:true 'the run was told to stop, and can be resumed' || diag "$("$MUSTER" status "$dir" -o json)"
    nobody_left
}

# The last one: the host does not come back, and Slurm waits for it.
test_node_dies() {
    batch loss 3 "$MUSTER run $root --name loss --nnodes 3 --nproc-per-node 1 --set heartbeat.timeout=3s -- sleep 1000" 'echo status $?'
    ok 'a job that runs' wait_for 60 running 2
    hosts power_off node3
    ok 'ends when a host is lost' wait_for 60 grep -q status loss.out
    like "$(cat loss.out)" 'status 75' 'resumable' || diag "$(cat loss.out)"
    matches "$(cat loss.out)" 'lost node . \(node[23]\)' 'a node is named'
    nobody_left
}

run_cases
