#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Nodes that Slurm takes from a job, or loses, while a run goes on in it: with
# --no-kill it goes on in what is left of the job, without it the job comes back.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
. "$MUSTER_SRCDIR/tests/lib/slurm-job.sh"
need_muster
need_command sbatch mpirun
need_torch
rig_slurm_up
cd "$SHARED" || bail_out "no $SHARED"
charlm="$MUSTER_BUILDDIR/examples/charlm/charlm --width 16 --heads 2 --layers 1 --context 16"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
run="$MUSTER run $root --nproc-per-node 1"
# Says where it stands; the first generation then waits to be disturbed.
tell='echo "$MUSTER_GENERATION: $RANK/$WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $(hostname)"'
wait_once="sh -c '$tell; [ \$MUSTER_GENERATION -ge 2 ] || exec sleep 1000'"

# batch NAME OPTIONS SCRIPT-LINE...: submits, once all of $free are, so that the job
# has the first of them; its id in $job, the directory of its run in $dir.
free='node1 node2 node3 node4'
batch() {
    local name=$1 options=$2
    shift 2
    cd "$SHARED" || return
    { echo '#!/bin/sh'; printf '%s\n' "$@"; } >"$name"
    wait_for 90 all_idle $free || diag "$(on ctl sinfo -N -l)"
    job=$(on ctl sbatch --parsable --exclusive --open-mode=append -o "$name.out" --chdir="$SHARED" $options "$name")
    dir=$SHARED/muster-runs/$name/$job
    out=$SHARED/$name.out
    at_exit "on ctl scancel $job"
}

. "$MUSTER_SRCDIR/tests/lib/run-status.sh"
there=$MUSTER_BUILDDIR
. "$MUSTER_SRCDIR/tests/lib/left-behind.sh"
field() { "$MUSTER" status "$dir" -o json 2>/dev/null | json "$1"; }
event() { grep -q "$1" "$dir/events.jsonl"; }
restarts() { on ctl scontrol show job "$job" | grep -o 'Restarts=[0-9]*'; }
said() { sed 's/^\[[^]]*\] *//' "$out" | grep "^$1: " | sort -t ' ' -k 2n | cut -d ' ' -f 2- | tr '\n' ';'; }
left() { local h; for h in node1 node2 node3 node4; do pids_on "$h" '(muster|muster-mpi|muster-watch|muster-exec|orted)( |$)|^sleep 1000'; done; }
# nobody_left HOST...: Slurm has killed all that was on those, at once.
nobody_left() {
    local h
    ok 'nobody is left' wait_for 90 eval '[ -z "$(left)" ]' || diag "$(left | xargs -r ps -o pid,args -p)"
    for h; do sweep "$h"; done
    nothing_left
}
show_job() { diag "$(grep -v charlm: "$out" | tail -n 60)"; diag "$(tail -n 20 "$dir/events.jsonl")"; }

down() { on ctl scontrol update nodename="$1" state=DOWN reason=test; }
all_idle() { local h; for h; do is_idle "$h" || return 1; done; }
is_idle() { on ctl sinfo -h -n "$1" -o %t | grep -qx idle; }
# Back into service, for the tests after this one.
resume() {
    on ctl scontrol update nodename="$1" state=RESUME >/dev/null 2>&1 # it may have come back by itself
    wait_for 60 is_idle "$1" || diag "$1 stays $(on ctl sinfo -h -n "$1" -o '%t %E')"
}

remember

test_down() {
    batch down '-N 4 --no-kill' "$run --name down --nnodes 2:4 -- $wait_once" 'echo status $?'
    ok 'a job of four nodes' wait_for 90 running 4 || show_job
    down node4
    ok 'of which Slurm takes one' wait_for 120 job_over || show_job
    like "$(cat "$out")" 'status 0' 'goes on to its end' || show_job
    is "$(said 2)" '0/3 0/3 node1;1/3 1/3 node2;2/3 2/3 node3;' 'over those that are left' || show_job
    is "$(field nodes.3.state),$(field node_failures),$(field restarts)" Lost,1,0 'which status tells'
    is "$(restarts)" Restarts=0 'in the same job'
    nobody_left node4
    resume node4
}

# What dies is the agent alone; the step that it lived in ends with the run.
test_agent() {
    local began
    batch agent '-N 4 --no-kill' "$run --name agent --nnodes 2:4 -- $wait_once" 'echo status $?'
    ok 'a job of four nodes' wait_for 90 running 4 || show_job
    kill -KILL $(pids_on node3 '^[^ ]*muster agent --dir')
    began=$(now_ms)
    ok 'ends' wait_for 120 job_over || show_job
    num $(($(now_ms) - began)) -lt 40000 'soon'
    like "$(cat "$out")" 'status 0' 'well, without the one whose agent was killed' || show_job
    is "$(said 2)" '0/3 0/3 node1;1/3 1/3 node2;2/3 2/3 node4;' 'over the others' || show_job
    nobody_left
}

# The user, or who has to do with the machine, makes the job smaller while it runs.
test_shrunk() {
    batch shrunk '-N 4 --no-kill' "$run --name shrunk --nnodes 2:4 -- sh -c '$tell; until [ -e \$MUSTER_RUN_DIR/go ]; do sleep 0.1; done'" 'echo status $?'
    ok 'a job of four nodes' wait_for 90 running 4 || show_job
    run on ctl scontrol update jobid="$job" numnodes=2
    is "$status" 0 'is to have two from here on' || show
    ok 'goes on over those' wait_for 120 eval '[ "$(field generation)" -ge 2 ] && running 2 "$(field generation)"' || show_job
    is "$(on ctl squeue -h -j "$job" -o %N)" 'node[1-2]' 'which it keeps'
    is "$(field nodes.2.state),$(field nodes.3.state),$(field restarts)" Lost,Lost,0 'and by no restart' || show_job
    touch "$dir/go"
    ok 'to its end' wait_for 90 job_over || show_job
    like "$(cat "$out")" 'status 0' 'well' || show_job
    is "$(said "$(field generation)")" '0/2 0/2 node1;1/2 1/2 node2;' 'as two workers' || show_job
    is "$(restarts)" Restarts=0 'in the same job'
    nobody_left node3 node4
}

# charlm's collectives need an MPI world: mpirun makes it, in a job that has shrunk.
test_world() {
    batch world '-N 4 --no-kill' "$run --name world --nnodes 2:4 -- $charlm --steps 100000 --batch 12 --checkpoint-every 20" 'echo status $?'
    ok 'charlm over four nodes' wait_for 90 eval 'running 4 && [ "$(field step)" -ge 5 ]' || show_job
    down node3
    ok 'goes on over three' wait_for 90 running 3 2 || show_job
    ok 'in a new MPI world' wait_for 90 grep -q 'the new MPI world is made without node3' "$out" || show_job
    local step
    step=$(field step)
    ok 'and trains' wait_for 90 eval '[ "$(field step)" -gt '$((step + 50))' ]' || show_job
    on ctl scancel --signal=USR1 "$job"
    ok 'until it is told to stop' wait_for 90 job_over || show_job
    like "$(cat "$out")" 'status 75' 'which it does' || show_job
    nobody_left node3
    resume node3
}

# An unmodified PyTorch script.
test_ddp() {
    batch ddp '-N 3 -w node[1-3] --no-kill' "export OMP_NUM_THREADS=1 TORCHINDUCTOR_CACHE_DIR=$SHARED/inductor" \
        "$run --name ddp --nnodes 2:3 -- $TORCH_PYTHON $MUSTER_SRCDIR/examples/ddp.py --steps 80 --step-time 0.2" 'echo status $?'
    ok 'PyTorch over three nodes' wait_for 90 grep -q 'step 20 ' "$out" || show_job
    down node2
    ok 'loses one' wait_for 120 job_over || show_job
    like "$(cat "$out")" 'status 0' 'and goes on' || show_job
    matches "$(cat "$out")" 'world 2: from step [246]0 to 80' 'from a checkpoint'
    like "$(cat "$out")" 'done: accuracy' 'to the end'
    nobody_left node2
    resume node2
}

test_spare() {
    batch spare '-N 4 --no-kill' "$run --name spare --nnodes 3 --set elastic.spares=1 -- $wait_once" 'echo status $?'
    ok 'three nodes of four' wait_for 90 running 3 || show_job
    down node2
    ok 'lose one' wait_for 90 job_over || show_job
    like "$(cat "$out")" 'status 0' 'and go on' || show_job
    is "$(said 2)" '0/3 0/3 node1;1/3 1/3 node3;2/3 2/3 node4;' 'with the spare in its place' || show_job
    nobody_left node2
    resume node2
}

# slurmd dies, and what it has started lives: nothing is lost before it is back, and
# ends what Slurm has given up meanwhile.
test_slurmd() {
    batch slurmd '-N 3 -w node[1-3] --no-kill' "$run --name slurmd --nnodes 2:3 -- sh -c '$tell; until [ -e \$MUSTER_RUN_DIR/go ]; do sleep 0.1; done'" 'echo status $?'
    ok 'a job of three nodes' wait_for 90 running 3 || show_job
    slurmd_dies node3
    is "$(on ctl squeue -h -j "$job" -o %N)" 'node[1-2]' 'whose third one Slurm gives up, because its slurmd is gone'
    ok 'keeps its workers' running 3 || show_job
    slurmd_starts node3
    ok 'until that one is back' wait_for 90 running 2 2 || show_job
    touch "$dir/go"
    ok 'the run ends' wait_for 90 job_over || show_job
    like "$(cat "$out")" 'status 0' 'well' || show_job
    nobody_left node3
}
slurmd_dies() {
    kill -KILL $(pids_on "$1" '^slurmd( |$)')
    down "$1"
    wait_for 60 not is_idle "$1"
}
slurmd_starts() {
    on "$1" slurmd -N "$1"
    wait_for 60 is_idle "$1"
}

# Slurm ends a job without --no-kill, and requeues it of itself.
test_requeued() {
    local lost
    for lost in node3 node1; do
        batch "on-$lost" '-N 3 --requeue' "exec $run --name on-$lost --nnodes 3 -- $charlm --batch 12 --checkpoint-every 20 --steps \$((SLURM_RESTART_COUNT ? 1 : 1000000))"
        ok 'a job of three nodes' wait_for 90 eval 'running 3 && [ "$(field resume_step)" -gt 0 ]' || show_job
        slurmd_dies $lost
        ok "loses $lost, and is requeued" wait_for 120 eval '[ "$(restarts)" = Restarts=1 ]' || show_job
        ok 'it goes on without it' wait_for 240 eval '[ "$(field state)" = Succeeded ]' || show_job
        like "$(cat "$out")" 'resumed from step' 'where it was' || show_job
        is "$(field id):$(field starts):$(field nodes | grep -c "$lost")" "$job:2:0" 'in the same run' || show_job
        slurmd_starts $lost
        nobody_left $lost
    done
}

# Slurm gives the job what is there; too little in the end.
test_fewer() {
    on ctl scontrol update nodename=node4 state=DRAIN reason=test
    local free='node1 node2 node3'
    batch fewer '-N 2-4 -w node[1-3] --no-kill' "$run --name fewer --nnodes 2:4 -- sh -c '$tell; exec sleep 1000'" 'echo status $?'
    ok 'a job of two to four nodes gets three' wait_for 90 running 3 || show_job
    is "$(said 1)" '0/3 0/3 node1;1/3 1/3 node2;2/3 2/3 node3;' 'which the run takes'
    down node3
    ok 'and goes on with two' wait_for 90 running 2 2 || show_job
    down node2
    ok 'one is too few' wait_for 90 job_over || show_job
    like "$(cat "$out")" 'status 75' 'to be resumed' || show_job
    like "$(field verdict.reason)" '1 node is left, and the job needs 2' 'which is said'
    nobody_left node2 node3
    for h in node2 node3 node4; do resume $h; done
}

# One node of three on which muster-mpi never starts.
test_late() {
    cd "$SHARED" || return
    . "$MUSTER_SRCDIR/tests/lib/held-mpirun.sh"
    batch late '-N 3 -w node[1-3] --no-kill' "$run --name late --nnodes 3 --set gang.timeout=5s --mpirun $SHARED/held-mpirun -- true" 'echo status $?'
    ok 'a job in which a node does not come' wait_for 90 job_over || diag "$(cat "$out")"
    like "$(cat "$out")" 'status 69' 'ends in time' || diag "$(cat "$out")"
    like "$(cat "$out")" 'nothing was heard of it from node3' 'and names it' || diag "$(cat "$out")"
    nobody_left
}

# An mpirun fails that is to start anything on node3, whose agent is well, while there is
# no file "pass". After a moment: what fails within a lease is one failure.
test_refused() {
    cd "$SHARED" || return
    cat >refused-mpirun <<END
#!/bin/bash
for word; do
    [ -e "$SHARED/pass" ] || { [ "\$word" != node3 ] && ! { [ -f "\$word" ] && grep -qx node3 "\$word"; }; } ||
        { sleep 2; echo "srun: error: Unable to create step" >&2; exit 1; }
done
exec "$(command -v mpirun)" "\$@"
END
    chmod +x refused-mpirun
    : >pass
    batch refused '-N 3 -w node[1-3] --no-kill' "$run --name refused --nnodes 2:3 --mpirun $SHARED/refused-mpirun --set heartbeat.timeout=3s --set gang.timeout=25s --set elastic.growInterval=1s --set limits.grace=5s -- $charlm --steps 1000000 --step-time 10 --batch 6 --checkpoint-every 20" 'echo status $?'
    ok 'charlm over three nodes' wait_for 120 eval 'running 3 && [ "$(field step)" -ge 25 ]' || show_job
    local agent step
    agent=$(field nodes.2.agent_pid)
    rm pass
    kill -KILL $(pids_on node1 '^[^ ]*mpirun .*muster-mpi')
    ok 'one at which mpirun fails is excluded' \
        wait_for 240 event '"node_excluded".*(node3): mpirun fails there: 3 MPI worlds in a row failed' || show_job
    ok 'the others go on, as two' wait_for 90 running 2 2 || show_job
    step=$(field resume_step)
    ok 'from a checkpoint, in an MPI world of their own' \
        wait_for 120 eval '[ "$(field step)" -gt '$((step + 25))' ]' || show_job
    is "$(field nodes.2.state):$(field nodes.2.agent_pid):$(field restarts):$(field node_failures)" \
        "Excluded:$agent:0:0" 'which is no loss, and no restart' || show_job
    : >pass
    run on node1 "$MUSTER" scale "$dir" 3
    is "$status" 0 'all three are wanted' || show
    ok 'where mpirun does not fail any more' wait_for 180 event '"node_readmitted"' || show_job
    ok 'it takes part again' wait_for 120 eval 'running 3 3 && [ "$(field nodes.2.agent_pid)" = '"$agent"' ]' || show_job
    step=$(field resume_step)
    ok 'in an MPI world of all' wait_for 120 eval '[ "$(field step)" -gt '$((step + 25))' ]' || show_job
    on ctl scancel --signal=USR1 "$job"
    ok 'until it is told to stop' wait_for 90 job_over || show_job
    like "$(cat "$out")" 'status 75' 'which it does' || show_job
    nobody_left
}

# MPI launches of the script's own: agents live in their steps. One that outlives the
# loss keeps the run going; mpirun's does not (and no exit status is to be trusted).
test_by_hand() {
    batch tasks '-N 3 -w node[1-3] --no-kill' "srun --no-kill --mpi=pmix -n 3 --ntasks-per-node=1 $MUSTER run --nproc-per-node 1 --name tasks --nnodes 2:3 -- $wait_once"
    ok 'tasks of srun --no-kill' wait_for 90 running 3 || show_job
    down node3
    ok 'lose one' wait_for 120 job_over || show_job
    is "$(field state):$(field verdict.exit_status):$(said 2)" 'Succeeded:0:0/2 0/2 node1;1/2 1/2 node2;' 'the others come to the end' || show_job
    nobody_left node3
    resume node3
    batch hand '-N 3 -w node[1-3] --no-kill' "mpirun $root -np 3 --map-by ppr:1:node $MUSTER run --nproc-per-node 1 --name hand --nnodes 2:3 -- sh -c '$tell; exec sleep 1000'"
    ok 'ranks of mpirun' wait_for 90 running 3 || show_job
    down node3
    ok 'lose one' wait_for 120 job_over || show_job
    is "$(field state):$(field verdict.exit_status):$(field verdict.resumable)" Stopped:75:true 'and stop, to be resumed' || show_job
    # mpirun ends the daemons of the others then: one of these may be missed first.
    matches "$(cat "$out")" 'lost node [12] \(node[23]\)' 'because of it' || show_job
    nobody_left node2 node3 # the step of mpirun's daemons ends on both
    resume node3
}

run_cases
