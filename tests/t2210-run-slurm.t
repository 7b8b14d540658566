#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster run in a batch job, with the front end in it and under an mpirun of the
# script's own: it takes the nodes that the job has, trains over them, outlives
# the loss of a worker, and leaves nobody when the job or its step ends.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
. "$MUSTER_SRCDIR/tests/lib/slurm-job.sh"
need_muster
need_command sbatch mpirun
rig_slurm_up
cd "$SHARED" || bail_out "no $SHARED"
charlm=$MUSTER_BUILDDIR/examples/charlm/charlm
small="$charlm --width 16 --heads 2 --layers 1 --context 16"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

# batch NAME N SCRIPT-LINE...: submits; the job's id in $job, what it says in
# NAME.out, the directory of its run in $dir, if that is called NAME.
batch() {
    local name=$1 n=$2 where=
    shift 2
    cd "$SHARED" || return
    { echo '#!/bin/sh'; printf '%s\n' "$@"; } >"$name"
    # Another node would do for Slurm where one of these is still being tidied.
    [ "$n" != 3 ] || where=node[1-3]
    job=$(on ctl sbatch --parsable -N "$n" ${where:+-w "$where"} --exclusive --no-kill --open-mode=append -o "$name.out" --chdir="$SHARED" "$name")
    dir=$SHARED/muster-runs/$name/$job
    at_exit "on ctl scancel $job"
}

field() { "$MUSTER" status "$dir" -o json 2>/dev/null | json "$1"; }
event() { grep -q "$1" "$dir/events.jsonl"; }
running() { [ "$(field state)" = Running ] && [ "$(field "workers.$1.state")" = Running ]; }


# Ids of jobs are small numbers, and other beds have the same: workers are told
# by the run's directory, the rest by the host.
left() {
    local p h
    for p in $(run_alive "$job" | cut -d ' ' -f 1); do
        tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -xF "MUSTER_RUN_DIR=$dir"
    done
    for h in node1 node2 node3; do pids_on "$h" '(muster|muster-mpi|muster-watch|muster-exec|orted)( |$)'; done
}
nobody_left() { ok 'nobody is left' wait_for 90 eval '[ -z "$(left)" ]' || diag "$(left)"; }

test_nodes() {
    batch nodes 3 "$MUSTER nodes -o json" 'echo status $? >&2'
    ok 'a job that asks for its nodes ends' wait_for 60 job_over "$job"
    sed -i '/^status/d' nodes.out
    is "$(json 0.name nodes.out),$(json 1.name nodes.out),$(json 2.name nodes.out)" node1,node2,node3 \
        'it is told of each' || diag "$(cat nodes.out)"
    is "$(json 0.state nodes.out),$(json 2.host nodes.out)" Up,node3 'by an answer of its own'
}

test_run() {
    batch hello 3 "$MUSTER run $root --name hello --nnodes 3 --nproc-per-node 2 -- sh -c 'echo \$RANK of \$WORLD_SIZE on \$(hostname), task \$SLURM_PROCID of \$SLURM_NTASKS'" 'echo status $?'
    ok 'a job of three nodes ends' wait_for 60 job_over "$job"
    like "$(cat hello.out)" 'status 0' 'well' || diag "$(cat hello.out)"
    is "$(grep -o '[0-9] of 6 on node[123], task [0-9] of 6' hello.out | sort | tr '\n' ';')" \
        '0 of 6 on node1, task 0 of 6;1 of 6 on node1, task 1 of 6;2 of 6 on node2, task 2 of 6;3 of 6 on node2, task 3 of 6;4 of 6 on node3, task 4 of 6;5 of 6 on node3, task 5 of 6;' \
        'with a worker for each slot, that sees itself as a task'
    ok 'the run has the id of the job' test -d "$dir"
}

# What the job was asked for is how many workers there are; more than it has CPUs for
# is said.
test_granted() {
    local where='echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $(hostname)'
    cd "$SHARED" || return
    run on ctl salloc -N 3 -n 5 -w 'node[1-3]' --no-kill "$MUSTER" run $root --name granted --nnodes 3 -- sh -c "$where"
    is "$status:$(sed 's/^\[.*\] //' out | sort | tr '\n' ';')" \
        '0:0 of 5, 0 of 2 on node1;1 of 5, 1 of 2 on node1;2 of 5, 0 of 2 on node2;3 of 5, 1 of 2 on node2;4 of 5, 0 of 1 on node3;' \
        'five tasks on three nodes are five workers' || show
    like "$(cat err)" 'procsPerNode is 2 on node1, 2 on node2, 1 on node3: the tasks that Slurm was asked for' 'which is said' || show
    run on ctl salloc -N 2 -w 'node[1-2]' --ntasks-per-node=1 --cpus-per-task=2 --no-kill "$MUSTER" run $root --name granted --nnodes 2 -- sh -c "$where"
    is "$status:$(wc -l <out)" 0:2 'a task with two CPUs is one worker' || show
    like "$(cat err)" 'procsPerNode is 1: the tasks that Slurm was asked for on each node' 'which is said, too' || show
    unlike "$(cat err)" 'workers on node1 share' 'and no word of CPUs that are shared'
    run on ctl salloc -N 2 -w 'node[1-2]' --exclusive --no-kill "$MUSTER" run $root --name granted --nnodes 2 --nproc-per-node 3 -- sh -c "$where"
    is "$status:$(wc -l <out)" 0:6 'what muster is asked for counts' || show
    like "$(cat err)" '3 workers on node1 share the 2 CPUs that Slurm has granted there' 'more than there are CPUs is said' || show
}

# Nodes are named in files: a run may have thousands.
test_order() {
    batch order 3 "$MUSTER run $root --name order --hosts node3,node1 --nnodes 2 --nproc-per-node 1 -- sh -c 'echo \$RANK on \$(hostname)'" 'echo status $?'
    ok 'a job on two nodes of three ends' wait_for 60 job_over "$job"
    like "$(cat order.out)" 'status 0' 'well' || diag "$(cat order.out)"
    is "$(grep -o '[0-9] on node[123]' order.out | sort | tr '\n' ';')" '0 on node3;1 on node1;' 'in the order that was asked for'
    is "$(tr '\n' ' ' <"$dir/agents.nodes"):$(tr '\n' ' ' <"$dir/hostfile")" 'node3 node1 :node3 node1 ' 'as the files have it'
    batch several 3 "$MUSTER run $root --name several --hosts node3,node1 --nnodes 4 --agent-is-node --nproc-per-node 1 -- sh -c 'echo \$RANK on \$(hostname)'" 'echo status $?'
    ok 'a job with two agents on a node ends' wait_for 60 job_over "$job"
    is "$(grep -o '[0-9] on node[123]' several.out | sort | tr '\n' ';')" '0 on node3;1 on node3;2 on node1;3 on node1;' 'in that order, too' ||
        diag "$(cat several.out)"
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
        [ -n "$python" ] && has_torch "$python" && break
    done
    [ -n "$python" ] || { skip 'no PyTorch: see scripts/install-deps' 4; return; }
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

# step NAME: the id of the job's step of that name.
step() { on ctl squeue -h -s -j "$job" -o '%i %j' | sed -n "s/ $1\$//p" | head -n 1; }
has_step() { [ -n "$(step "$1")" ]; }
sleepers() { local h; for h in node1 node2 node3; do pids_on "$h" '^sleep 1000'; done | sort | tr '\n' ' '; }
joined() { local h; for h in node1 node2 node3; do [ "$(grep -c "\"mpi_joined\".*$h" "$dir/events.jsonl")" = "$1" ] || return 1; done; }

# Slurm kills all of a step with the step: that of mpirun takes nobody along, for
# agents have one of their own.
test_step_dies() {
    batch step 3 "$MUSTER run $root --name step --nnodes 3 --nproc-per-node 1 -- sh -c 'setsid sleep 1000 & exec sleep 1000'" 'echo status $?'
    ok 'a job that runs' wait_for 60 running 2
    local before
    ok 'with all of its workers' wait_for 60 eval '[ "$(sleepers | wc -w)" = 6 ]'
    before=$(sleepers)
    ok 'has a step of mpirun' wait_for 60 has_step orted
    on ctl scancel --signal=KILL "$(step orted)" 2>/dev/null
    ok 'makes a new MPI world when that step is killed' wait_for 90 joined 1 || diag "$(cat step.out; tail -n 5 "$dir/events.jsonl"; cat "$dir/mpirun.log")"
    on ctl scancel "$(step orted)" 2>/dev/null
    ok 'and when it is cancelled' wait_for 120 joined 2 || diag "$(cat step.out; tail -n 5 "$dir/events.jsonl"; cat "$dir/mpirun.log")"
    kill -KILL "$(pids_on node1 "^[^ ]*mpirun .*--run-id=$job( |\$)" | head -n 1)"
    ok 'and when mpirun is killed' wait_for 120 joined 3 || diag "$(cat step.out; tail -n 5 "$dir/events.jsonl"; cat "$dir/mpirun.log")"
    is "$(sleepers)" "$before" 'with the workers of before'
    is "$(field generation)" 1 'in their first generation'
    on node2 "$MUSTER" cancel "$dir" >/dev/null
    ok 'a command ends it' wait_for 60 job_over "$job"
    like "$(cat step.out)" 'status 130' 'cancelled' || diag "$(cat step.out)"
    nobody_left
}

# The agents' own step: a signal to it is for the run, and its end is theirs.
test_agents_step() {
    batch mine 3 "$MUSTER run $root --name mine --nnodes 3 --nproc-per-node 1 -- $small --steps 100000 --batch 6 --checkpoint-every 1000000" 'echo status $?'
    ok 'a job that trains' wait_for 120 grep -q 'step [1-9]' mine.out
    on ctl scancel --signal=TERM "$(step muster-agents)"
    ok 'ends when the step of its agents is told to' wait_for 120 job_over "$job"
    matches "$(cat mine.out)" 'asked for by Slurm.*status 75' 'resumable' || diag "$(cat mine.out)"
    ok 'with its state saved' eval 'ls "$dir"/ckpt/* >/dev/null'
    nobody_left
    batch ended 3 "$MUSTER run $root --name ended --nnodes 3 --nproc-per-node 1 -- sh -c 'setsid sleep 1000 & exec sleep 1000'" 'echo status $?'
    ok 'a job that runs' wait_for 60 running 2
    on ctl scancel "$(step muster-agents)" 2>/dev/null
    ok 'ends when that step is cancelled' wait_for 120 job_over "$job"
    matches "$(cat ended.out)" 'Slurm has ended the step of the agents.*status 75' 'for this reason' || diag "$(cat ended.out)"
    nobody_left
}

# Another front end in the same job, and a shell where a worker is.
test_attach() {
    batch taken 3 "$MUSTER run $root --name taken --nnodes 3 --nproc-per-node 1 -- sh -c 'until [ -e go ]; do sleep 0.1; done; echo \$RANK done' &" \
        'front=$!' 'until [ -e lose ]; do sleep 0.1; done' 'kill -KILL $front; wait $front' "$MUSTER attach muster-runs/taken/\$SLURM_JOB_ID; echo status \$?"
    wait_for 90 running 2
    is $? 0 'a run' || diag "$(cat taken.out)"
    run on ctl "$MUSTER" shell "$dir" 2 -- sh -c 'echo "$RANK on $(hostname), $1"; exit 7' sh "a 'b'  c"
    is "$status:$(cat out)" "7:2 on node3, a 'b'  c" 'a command where worker 2 is, by a step of the job' || show
    touch lose
    ok 'another front end takes the run over' wait_for 90 event '"front_back"' || diag "$(cat taken.out)"
    kill -KILL $(pids_on node1 'mpirun .*muster-mpi')
    ok 'it makes the next MPI world' wait_for 90 event 'node3 is in a new MPI world' || diag "$(cat taken.out "$dir/mpirun.log")"
    is "$(field generation)" 1 'and the workers do not notice'
    touch go
    ok 'the job ends' wait_for 90 job_over "$job"
    like "$(cat taken.out)" 'status 0' 'well' || diag "$(cat taken.out)"
    is "$(grep -c '\] [0-2] done' taken.out)" 3 'with the output of all'
    nobody_left
}

# The same from another node of the job, while the mpirun of the first one hangs.
test_attach_elsewhere() {
    local old
    cd "$SHARED" && rm -f go
    batch away 3 "$MUSTER run $root --name away --nnodes 3 --nproc-per-node 1 -- sh -c 'until [ -e go ]; do sleep 0.1; done; echo \$RANK done' &" \
        'front=$!; echo $front >front' 'until [ -e end ]; do sleep 0.1; done' # it is not waited for: the job goes on
    wait_for 90 running 2
    is $? 0 'a run' || diag "$(cat away.out)"
    old=$(pids_on node1 'mpirun .*muster-mpi')
    kill -STOP "$old"
    on node1 kill -KILL "$(cat front)"
    wait_for 60 event '"front_lost"'
    spawn there on ctl srun --overlap --jobid="$job" --nodes=1 --ntasks=1 --nodelist=node2 "$MUSTER" attach "$dir"
    ok 'that is taken over from the second node' wait_for 90 grep -q '^muster: attached to run' there.err || diag "$(cat there.err)"
    kill -KILL $(pids_on node3 'muster-mpi --run-id')
    ok 'gets its next MPI world from there' wait_for 90 event 'node3 is in a new MPI world' || diag "$(cat there.err "$dir/mpirun.log")"
    ok 'and the old mpirun is ended on the first' wait_for 60 gone "$old" || diag "$(cat there.err "$dir/mpirun.log")"
    touch go
    wait_exit 90 "$spawned"
    is "$status" 0 'the run comes to its end' || diag "$(cat there.err)"
    touch end
    ok 'and the job, too' wait_for 90 job_over "$job"
    nobody_left
    rm -f go end front
}

# What a job script does with a run that was preempted: it comes back.
test_requeue() {
    batch back 3 'trap "kill -TERM \$pid" TERM' \
        "$MUSTER run $root --name back --nnodes 3 --nproc-per-node 1 -- $charlm --width 48 --layers 1 --steps 150 --batch 6 --checkpoint-every 100000 &" \
        'pid=$!; wait $pid; s=$?; [ $s -lt 128 ] || { wait $pid; s=$?; }; echo status $s' \
        '[ $s != 75 ] || scontrol requeue $SLURM_JOB_ID'
    ok 'a job that trains' wait_for 120 grep -q 'step 50/150' back.out
    ok 'is told to go' on ctl scancel --batch --signal=TERM "$job"
    ok 'saves, and ends resumable' wait_for 60 grep -q 'status 75' back.out || diag "$(cat back.out)"
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

# What srun is told to tell: to the batch step, and to all others.
test_notice() {
    batch notice 3 "$MUSTER run $root --name notice --nnodes 3 --nproc-per-node 1 -- $small --steps 100000 --batch 6 --checkpoint-every 1000000" 'echo status $?'
    ok 'a job that trains' wait_for 120 grep -q 'step [1-9]' notice.out
    on ctl scancel --signal=USR1 "$job"
    ok 'ends after SIGUSR1 to its steps' wait_for 120 job_over "$job"
    matches "$(cat notice.out)" 'asked for by Slurm.*status 75' 'resumable' || diag "$(cat notice.out)"
    ok 'with its state saved' eval 'ls "$dir"/ckpt/* >/dev/null'
    batch notice2 3 "exec $MUSTER run $root --name notice2 --nnodes 3 --nproc-per-node 1 -- $small --steps 100000 --batch 6 --checkpoint-every 1000000"
    ok 'another one' wait_for 120 grep -q 'step [1-9]' notice2.out
    on ctl scancel --batch --signal=USR1 "$job"
    ok 'ends after SIGUSR1 to its batch step' wait_for 120 job_over "$job"
    is "$(field verdict.exit_status)" 75 'resumable' || diag "$(cat notice2.out)"
    ok 'with its state saved' eval 'ls "$dir"/ckpt/* >/dev/null'
    batch notice3 1 "$MUSTER run $root --name notice3 --nproc-per-node 1 -- $small --steps 100000 --batch 6 --checkpoint-every 1000000" 'echo status $?'
    ok 'a job on one node' wait_for 120 grep -q 'step [1-9]' notice3.out
    on ctl scancel --signal=USR1 "$job"
    ok 'ends in the same way' wait_for 120 job_over "$job"
    matches "$(cat notice3.out)" 'asked for by Slurm.*status 75' 'resumable' || diag "$(cat notice3.out)"
    nobody_left
}

# Nodes that have a different number of tasks: workers are told of their own.
test_uneven() {
    cd "$SHARED" || return
    printf '#!/bin/sh\necho tasks "$SLURM_TASKS_PER_NODE"\n%s\necho status $?\n' \
        "$MUSTER run $root --name uneven --nnodes 3 --nproc-per-node 1 -- sh -c 'env >uneven.\$RANK'" >uneven
    job=$(on ctl sbatch --parsable -N 3 -w 'node[1-3]' -n 5 --no-kill -o uneven.out --chdir="$SHARED" uneven)
    at_exit "on ctl scancel $job"
    ok 'a job of uneven nodes ends' wait_for 90 job_over "$job"
    matches "$(cat uneven.out)" 'tasks 2.x2.,1.*status 0' 'well' || diag "$(cat uneven.out)"
    is "$(grep -h -E '^SLURM_(PROCID|LOCALID|NODEID|NTASKS|NTASKS_PER_NODE|CPUS_ON_NODE)=|^SLURMD_NODENAME=' uneven.2 | sort | tr '\n' ' ')" \
        'SLURMD_NODENAME=node3 SLURM_CPUS_ON_NODE=1 SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_NTASKS=3 SLURM_NTASKS_PER_NODE=1 SLURM_PROCID=2 ' \
        'a worker sees its own place and node'
    is "$(grep -c -E '^(SLURM_STEP_?ID|SLURM_TASKS_PER_NODE|SLURM_GTIDS|SLURM_TASK_PID|SLURM_OVERLAP|PMIX)' uneven.2)" 0 'and nothing of the steps'
}

# Several runs of one job at once: of one name, of another, from elsewhere.
test_two_runs() {
    batch two 3 'mkdir -p below' \
        "$MUSTER run $root --name two --nnodes 3 --nproc-per-node 1 -- sh -c 'echo \$MUSTER_RUN_ID; until [ -e two.go ]; do sleep 0.2; done' & a=\$!" \
        "$MUSTER run $root --name two --nnodes 3 --nproc-per-node 1 -- sh -c 'echo \$MUSTER_RUN_ID; until [ -e two.go ]; do sleep 0.2; done' & b=\$!" \
        "(cd below && exec $MUSTER run $root --name other --nnodes 3 --nproc-per-node 1 -- sh -c 'echo \$MUSTER_RUN_ID; until [ -e ../two.go ]; do sleep 0.2; done') & c=\$!" \
        'wait $a; a=$?; wait $b; b=$?; wait $c; echo status $a $b $?'
    ok 'three runs are there at the same time' wait_for 120 eval '[ $(grep -c "\] '"$job"'\(\.[23]\)\?$" two.out) = 9 ]' || diag "$(cat two.out)"
    is "$(grep -o "\] $job.*" two.out | sort | uniq -c | tr -s ' \n' ' ')" " 3 ] $job 3 ] $job.2 3 ] $job.3 " 'each with an id of its own'
    touch two.go
    ok 'and end' wait_for 90 job_over "$job"
    like "$(cat two.out)" 'status 0 0 0' 'well' || diag "$(cat two.out)"
    nobody_left
}

test_srun() {
    batch tasks 3 "srun -n 3 $MUSTER run $root --name tasks --nnodes 3 -- true" 'echo status $?' \
        "srun --mpi=pmix -n 3 --ntasks-per-node=1 $MUSTER run $root --name tasks --nnodes 3 --nproc-per-node 1 -- sh -c 'echo \$RANK by pmix on \$(hostname)'" 'echo status $?' \
        "srun -n 1 -N 1 $MUSTER run $root --name tasks --nnodes 3 --nproc-per-node 1 -- sh -c 'echo \$RANK by one on \$(hostname)'" 'echo status $?'
    ok 'muster run by srun ends' wait_for 120 job_over "$job"
    like "$(cat tasks.out)" 'one of 3 tasks of srun' 'tasks are not runs' || diag "$(cat tasks.out)"
    matches "$(cat tasks.out)" 'status 2.*status 0.*status 0' 'which is wrong usage; an MPI launch and one task are not' || diag "$(cat tasks.out)"
    is "$(grep -o '[0-9] by [a-z]* on node[123]' tasks.out | sort | tr '\n' ';')" \
        '0 by one on node1;0 by pmix on node1;1 by one on node2;1 by pmix on node2;2 by one on node3;2 by pmix on node3;' \
        'and take all nodes'
    nobody_left
}

test_salloc() {
    cd "$SHARED" || return
    run on ctl salloc -N 3 -w 'node[1-3]' --exclusive --no-kill sh -c "$MUSTER run $root --name interactive --hosts node2,node3 --nnodes 2 --nproc-per-node 1 -- sh -c 'echo \$RANK on \$(hostname)'"
    is "$status" 0 'muster run in a shell of salloc' || show
    is "$(grep -o '[0-9] on node[123]' out | sort | tr '\n' ';')" '0 on node2;1 on node3;' 'on some of its nodes'
    unlike "$(cat err)" 'no step' 'with a step for the agents'
}

# A Slurm that cannot give the agents a step: an srun that does not know the option.
test_old_srun() {
    cd "$SHARED" || return
    mkdir -p old
    printf '#!/bin/sh\ncase "$*" in *--overlap*) echo "srun: unrecognized option --overlap" >&2; exit 1 ;; esac\nexec %s "$@"\n' "$(command -v srun)" >old/srun
    chmod +x old/srun
    batch old-srun 3 "PATH=$SHARED/old:\$PATH" "$MUSTER run $root --name old-srun --nnodes 3 --nproc-per-node 1 -- hostname" 'echo status $?'
    ok 'without a step of their own' wait_for 90 job_over "$job"
    like "$(cat old-srun.out)" 'status 0' 'agents live in that of mpirun' || diag "$(cat old-srun.out)"
    like "$(cat old-srun.out)" 'no step of their own, and will end with that of mpirun: srun: unrecognized option --overlap' 'which is said'
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
