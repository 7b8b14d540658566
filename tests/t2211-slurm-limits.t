#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A run and the limits of its Slurm job: it stops before the time limit, follows
# one that is changed, has its job requeued where that was asked for, and goes on
# where it was, with what it has spent.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
. "$MUSTER_SRCDIR/tests/lib/slurm-job.sh"
need_muster
need_command sbatch mpirun
rig_slurm_up
cd "$SHARED" || bail_out "no $SHARED"
charlm="$MUSTER_BUILDDIR/examples/charlm/charlm --width 16 --heads 2 --layers 1 --context 16 --batch 8 --checkpoint-every 10000000"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
run="$MUSTER run $root --nproc-per-node 1 --set limits.grace=5s"

# batch NAME OPTIONS SCRIPT-LINE...: submits; the job's id in $job.
batch() {
    local name=$1 options=$2
    shift 2
    cd "$SHARED" || return
    { echo '#!/bin/sh'; printf '%s\n' "$@"; } >"$name"
    job=$(on ctl sbatch --parsable --exclusive --no-kill --open-mode=append -o "$name.out" --chdir="$SHARED" $options "$name")
    at_exit "on ctl scancel $job"
}

field() { "$MUSTER" status "$SHARED/muster-runs/$1/${3:-$job}" -o json 2>/dev/null | json "$2"; }
event() { grep -q "$2" "$SHARED/muster-runs/$1/$job/events.jsonl"; }
running() { [ "$(field "$1" state)" = Running ] && [ "$(field "$1" workers.0.state)" = Running ] && [ "$(field "$1" starts)" = "${2:-1}" ]; }
state() { on ctl squeue -h -j "$1" -o %T 2>/dev/null; }
restarts() { on ctl scontrol show job "$1" | grep -o 'Restarts=[0-9]*'; }
left() { local h; for h in node1 node2 node3 node4; do pids_on "$h" '(muster|muster-mpi|muster-watch|muster-exec|orted)( |$)'; done; }
nobody_left() { ok 'nobody is left' wait_for 90 eval '[ -z "$(left)" ]' || diag "$(left | xargs -r ps -o pid,args -p)"; }

# Both take their minute: one has to be long enough to be looked at again.
test_limit() {
    local limited
    batch limit '-N 1 --time=1' 'steps=1000000; [ -z "$SLURM_RESTART_COUNT" ] || steps=1' \
        "exec $run --name limit --requeue --set slurm.margin=15s -- $charlm --steps \$steps"
    limited=$job
    batch longer '-N 1 --time=1' "exec $run --name longer --set slurm.margin=50s -- sleep 1000"
    ok 'a job of a minute runs' wait_for 60 running longer || diag "$(cat longer.out)"
    ok 'and knows its time limit' wait_for 60 field longer time_limit
    local at
    at=$(field longer time_limit | cut -d . -f 1)
    num "$at" -le $(($(date +%s) + 60)) 'a minute at most'
    on ctl scontrol update jobid="$job" timelimit=60
    ok 'it follows a limit that is changed' wait_for 60 eval '[ "$(field longer time_limit | cut -d . -f 1)" -gt '$((at + 3000))' ]' ||
        diag "$(cat longer.out; field longer time_limit)"
    is "$(field longer state)" Running 'and goes on'
    on ctl scancel "$job"
    job=$limited
    ok 'the other one stops before its time limit' wait_for 90 grep -q 'left of the time limit of Slurm job' limit.out || diag "$(cat limit.out)"
    ok 'and has its job requeued' wait_for 60 grep -q "Slurm is asked to requeue job $job" limit.out || diag "$(cat limit.out)"
    is "$(field limit state):$(field limit verdict.exit_status)" Stopped:75 'to be resumed'
    unlike "$(cat limit.out)" 'DUE TO TIME LIMIT' 'in time'
    local step
    step=$(field limit resume_step)
    num "$step" -gt 0 'with its state saved'
    ok 'it comes back' wait_for 240 eval '[ "$(field limit state)" = Succeeded ]' || diag "$(cat limit.out)"
    like "$(cat limit.out)" "resumed from step $step " 'and goes on there' || diag "$(cat limit.out)"
    is "$(field limit id):$(field limit generation):$(field limit starts)" "$job:2:2" 'in the same run'
    ok 'which says so' event limit 'Slurm has requeued its job 1 time"'
    nobody_left
}

# A signal ahead of time; what was spent before counts after it.
test_requeue() {
    batch back '-N 2' "exec $run --name back --nnodes 2 --requeue --max-restarts 1 --set restart.backoff=1ms..1ms -- \
        sh -c '[ \$MUSTER_GENERATION = 1 ] && exit 1; [ \$MUSTER_GENERATION = 2 ] && exec sleep 1000; exit 9'"
    ok 'a run that has spent its restart' wait_for 90 eval 'running back && [ "$(field back restarts)" = 1 ]' || diag "$(cat back.out)"
    on ctl scancel --signal=USR1 "$job"
    ok 'is stopped by a signal to its steps' wait_for 90 grep -q "Slurm is asked to requeue job $job" back.out || diag "$(cat back.out)"
    ok 'comes back' wait_for 240 eval '[ "$(field back state)" = Failed ]' || diag "$(cat back.out)"
    is "$(field back verdict.exit_status):$(field back restarts):$(field back generation)" 9:1:3 'and has none left' || diag "$(cat back.out)"
    ok 'what has failed is not requeued' wait_for 60 job_over "$job"
    is "$(grep -c 'asked to requeue job' back.out)" 1 'again'
    nobody_left
}

# Slurm takes the nodes for a job that is more urgent.
test_preempted() {
    local victim
    batch victim '-N 4' 'steps=1000000; [ -z "$SLURM_RESTART_COUNT" ] || steps=1' \
        "exec $run --name victim --nnodes 4 --requeue -- $charlm --steps \$steps"
    victim=$job
    ok 'a job on all nodes' wait_for 90 grep -q 'step [1-9]' victim.out || diag "$(cat victim.out)"
    batch urgent '-N 1 -p urgent' 'until [ -e urgent.go ]; do sleep 0.2; done'
    ok 'gives way to another one' wait_for 90 eval '[ "$(state '"$job"')" = RUNNING ]' || diag "$(cat victim.out)"
    job=$victim
    is "$(field victim state):$(field victim verdict.exit_status)" Stopped:75 'with its state saved' || diag "$(cat victim.out)"
    touch urgent.go
    ok 'and comes back after it' wait_for 240 eval '[ "$(field victim state)" = Succeeded ]' || diag "$(cat victim.out)"
    like "$(cat victim.out)" 'resumed from step' 'to go on' || diag "$(cat victim.out)"
    is "$(restarts "$job")" Restarts=1 'requeued once'
    nobody_left
}

# Whoever cancels or suspends does not want it back.
test_not_requeued() {
    batch cancelled '-N 1' "exec $run --name cancelled --requeue -- sleep 1000"
    ok 'a job that may come back' wait_for 90 running cancelled || diag "$(cat cancelled.out)"
    on ctl scancel "$job"
    ok 'is cancelled' wait_for 90 eval '[ "$(field cancelled state)" = Stopped ]' || diag "$(cat cancelled.out)"
    ok 'and over' wait_for 90 job_over "$job"
    like "$(cat cancelled.out)" "job $job is not requeued: it is " 'which it sees' || diag "$(cat cancelled.out)"
    is "$(restarts "$job")" Restarts=0 'and heeds'
    batch suspended '-N 1' "exec $run --name suspended --requeue -- sh -c 'echo \$SLURM_JOB_ID; [ -e suspended.go ] || exec sleep 1000'"
    local first=$job
    ok 'another one' wait_for 90 running suspended || diag "$(cat suspended.out)"
    run on ctl "$MUSTER" suspend "$SHARED/muster-runs/suspended/$job"
    is "$status" 0 'is suspended from the login node' || show
    ok 'and gives up its nodes' wait_for 90 job_over "$job"
    is "$(field suspended state)" Suspended 'for long' || diag "$(cat suspended.out)"
    is "$(restarts "$job")" Restarts=0 'without being requeued'
    run on ctl "$MUSTER" resume $root "$SHARED/muster-runs/suspended/$job"
    is "$status" 2 'it cannot go on without nodes' || show
    like "$(cat err)" 'resume it in another job' 'which is said'
    touch suspended.go
    batch resumed '-N 1' "exec $MUSTER resume $root muster-runs/suspended/$first"
    ok 'another job resumes it' wait_for 120 eval '[ "$(field suspended state '"$first"')" = Succeeded ]' || diag "$(cat resumed.out)"
    like "$(cat resumed.out)" "] $job" 'in its own nodes' || diag "$(cat resumed.out)"
    nobody_left
}

run_cases
