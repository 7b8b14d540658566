#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Slurm bed behaves as a cluster does: batch jobs, steps, mpirun in a job,
# cancel that leaves nobody, requeue, preemption, a node that goes down.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
. "$MUSTER_SRCDIR/tests/lib/slurm-job.sh"
need_command sbatch mpirun
rig_slurm_up
cd "$SHARED" || bail_out "no $SHARED"

job_is() { [ "$(on ctl squeue -h -j "$1" -o %T 2>/dev/null)" = "$2" ]; }
submit() { on ctl sbatch --parsable --chdir="$SHARED" "$@"; }
node_is() { [[ "$(on ctl sinfo -h -n "$1" -p main -o %T)" == $2 ]]; }

test_batch() {
    cd "$SHARED" || return
    cat >hello <<'END'
#!/bin/sh
srun hostname >hello.srun
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -npernode 1 hostname >hello.mpirun
echo $SLURM_JOB_NUM_NODES $(hostname) >hello.job
END
    local job
    job=$(submit -N 3 hello)
    matches "$job" '^[0-9]+$' 'a job is submitted'
    ok 'and ends' wait_for 60 job_over "$job"
    is "$(cat hello.job)" '3 node1' 'its script ran on its first node'
    is "$(sort hello.srun | tr '\n' ' ')" 'node1 node2 node3 ' 'srun started a task on each node'
    is "$(sort hello.mpirun | tr '\n' ' ')" 'node1 node2 node3 ' 'and mpirun too, through Slurm' ||
        diag "$(cat slurm-*.out)"
}

test_cancel() {
    cd "$SHARED" || return
    printf '#!/bin/sh\nexport MUSTER_RUN_ID=t0011-%s\nsrun sh -c "setsid sleep 1000 & exec sleep 1000"\n' $$ >long
    local job
    job=$(submit -N 2 long)
    ok 'a job with processes in sessions of their own runs' wait_for 60 eval '[ $(run_alive t0011-$$ | grep -c "sleep 1000") -ge 4 ]'
    ok 'is cancelled' on ctl scancel "$job"
    ok 'and is over' wait_for 60 job_over "$job"
    if [ -d /sys/fs/cgroup/freezer ] || [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        ok 'with all of its processes' wait_for 60 run_gone t0011-$$
    else
        skip 'no cgroups to track processes with'
    fi
}

test_requeue() {
    cd "$SHARED" || return
    printf '#!/bin/sh\necho start $SLURM_RESTART_COUNT >>starts\n[ -n "$SLURM_RESTART_COUNT" ] || exec sleep 1000\n' >again
    local job
    job=$(submit -N 1 --requeue again)
    ok 'a job runs' wait_for 60 test -s starts
    ok 'is requeued' on ctl scontrol requeue "$job"
    ok 'and is over after its second start' wait_for 90 job_over "$job"
    is "$(tr '\n' ';' <starts)" 'start;start 1;' 'which knows that it is the second'
}

test_preempt() {
    cd "$SHARED" || return
    printf '#!/bin/sh\ntrap "echo told >>told" TERM\necho up >victim.up\nwhile :; do sleep 0.2; done\n' >victim
    local job urgent
    job=$(submit -N 4 --exclusive --requeue --open-mode=append victim)
    ok 'a job fills the cluster' wait_for 60 test -s victim.up
    urgent=$(submit -N 1 --exclusive -p urgent --wrap 'echo ran >urgent.ran')
    ok 'an urgent one takes its place' wait_for 90 test -s urgent.ran
    ok 'and it waits again or runs again' wait_for 60 eval 'job_is '"$job"' PENDING || job_is '"$job"' RUNNING'
    on ctl scancel "$job" "$urgent"
    ok 'until cancelled' wait_for 60 job_over "$job"
}

test_node_down() {
    cd "$SHARED" || return
    printf '#!/bin/sh\nsrun --no-kill --overlap sleep 1000 &\necho up >down.up; sleep 5; hostname >down.after; wait\n' >down
    local job
    job=$(submit -N 3 --no-kill down)
    ok 'a job that may lose nodes' wait_for 60 test -s down.up
    ok 'loses one' on ctl scontrol update nodename=node3 state=down reason=test
    ok 'and goes on' wait_for 60 test -s down.after
    on ctl scancel "$job"
    ok 'until cancelled' wait_for 60 job_over "$job"
    # It may have come back by itself, as ReturnToService allows.
    on ctl scontrol update nodename=node3 state=resume 2>/dev/null
    ok 'the node comes back' wait_for 60 node_is node3 'idle*'
}

run_cases
