#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What says that the end is near: signals to muster run and to an mpirun by hand,
# and the time limit of a Slurm job, here from commands that stand for Slurm's.
# Workers hear of it in each of three ways.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

root=--allow-run-as-root
charlm="$MUSTER_BUILDDIR/examples/charlm/charlm --width 16 --heads 2 --layers 1 --batch 8 --context 16 --checkpoint-every 10000000"
field() { "$MUSTER" status run -o json 2>/dev/null | json "$1"; }
running() { [ "$(field state)" = Running ] && [ "$(field workers.0.state)" = Running ]; }
nobody_left() { ok 'nobody is left' wait_for 60 run_gone "$(json id run/run.json)"; }
fresh() { rm -rf run go; }

# Looks for the file, and hears no signal.
cat >looks <<END
#!/bin/sh
trap '' TERM USR1 USR2
echo up
until [ -e "\$MUSTER_STOP_FILE" ]; do sleep 0.1; done
echo told
until [ -e $TRASH/go ]; do sleep 0.1; done
echo left
END
chmod +x looks

test_notice() {
    local sig file
    for sig in USR1 USR2; do
        fresh
        spawn run "$MUSTER" run $root --run-dir run --nproc-per-node 2 --set limits.grace=10m -- ./looks
        ok 'two workers' wait_for 60 eval '[ "$(grep -c up run.out)" = 2 ]' || diag "$(cat run.err)"
        kill -$sig "$spawned"
        ok "are told by SIG$sig and a file" wait_for 60 eval '[ "$(grep -c told run.out)" = 2 ]' || diag "$(cat run.err)"
        kill -$sig "$spawned"
        kill -TERM "$spawned"
        ok 'and once more' wait_for 60 grep -q 'SIGTERM: asking' run.err || diag "$(cat run.err)"
        touch go
        wait_exit 60 "$spawned"
        is "$status" 75 'which ends the run' || diag "$(cat run.err)"
        is "$(grep -c left run.out)" 2 'and kills nobody' || diag "$(cat run.err)"
        nobody_left
    done
    file=$(ls -d "${TMPDIR:-/tmp}/muster-$(id -u)/$(json id run/run.json)" 2>/dev/null)
    is "$file" '' 'nor is a file left'
}

# The file is that of one generation: the next one is not told.
test_generations() {
    fresh
    run timeout 60 "$MUSTER" run $root --run-dir run --nproc-per-node 2 --set restart.backoff=1ms..1ms -- \
        sh -c '[ -e "$MUSTER_STOP_FILE" ] && exit 3
            [ $MUSTER_GENERATION = 2 ] && { echo again; exit 0; }
            [ $RANK = 1 ] && exit 1
            exec sleep 1000'
    is "$status" 0 'a restart tells those who have to stop' || show
    is "$(grep -c again out):$(field restarts)" 2:1 'and no others' || show
}

# fake_slurm END|WORDS STATE: commands of Slurm's names; scontrol tells what it was
# asked for.
fake_slurm() {
    rm -rf bin
    mkdir bin
    cat >bin/squeue <<END
#!/bin/sh
case "\$*" in *%T*) [ ! -e $TRASH/tell ] || { kill -TERM \$PPID; sleep 0.5; }; cat $TRASH/says; exit ;; esac
[ ! -e $TRASH/hang ] || exec sleep 1000
end=\$(cat $TRASH/left)
case \$end in [0-9]*) n=\$((end - \$(date +%s))); [ \$n -ge 0 ] || n=0; printf '0:%02d\n' \$n ;; *) echo "\$end" ;; esac
END
    printf '#!/bin/sh\necho "$@" >>%s/asked\n' "$TRASH" >bin/scontrol
    chmod +x bin/*
    rm -f asked hang tell
    echo "$1" >left
    echo "$2" >says
}
in_slurm=(env "PATH=$TRASH/bin:$PATH" SLURM_JOB_ID=815 SQUEUE_FORMAT=nonsense)

test_limit() {
    fresh
    fake_slurm $(($(date +%s) + 10)) RUNNING
    run "${in_slurm[@]}" timeout 60 "$MUSTER" run $root --run-dir run --requeue --nproc-per-node 2 -- $charlm --steps 100000000
    is "$status" 75 'a run stops before its time limit' || show
    like "$(cat err)" 'left of the time limit of Slurm job 815' 'for that reason'
    is "$(cat asked)" 'requeue 815' 'and the job is requeued, once' || show
    like "$(cat err)" 'Slurm is asked to requeue job 815' 'which is said'
    fresh
    fake_slurm $(($(date +%s) + 10)) RUNNING
    printf '#!/bin/sh\nkill -9 $PPID\n' >bin/scontrol
    run "${in_slurm[@]}" timeout 60 "$MUSTER" run $root --run-dir run --requeue --nproc-per-node 1 -- $charlm --steps 100000000
    is "$status" 137 'Slurm ends who asks it' || show
    like "$(cat err)" 'Slurm is asked to requeue job 815' 'which has said so before'
    fresh
    fake_slurm $(($(date +%s) + 10)) COMPLETING
    run "${in_slurm[@]}" timeout 60 "$MUSTER" run $root --run-dir run --requeue --nproc-per-node 1 -- sleep 1000
    is "$status" 75 'that of a job that is cancelled, too' || show
    ok 'which is not requeued' test ! -e asked
    like "$(cat err)" 'it is COMPLETING' 'for that reason'
    fresh
    fake_slurm $(($(date +%s) + 10)) CANCELLED
    touch tell
    run "${in_slurm[@]}" timeout 60 "$MUSTER" run $root --run-dir run --requeue --nproc-per-node 1 -- sleep 1000
    is "$status" 75 'one that Slurm tells to stop when the run is over' || show
    like "$(cat err)" 'it is CANCELLED' 'has its last words' || show
    fresh
    fake_slurm $(($(date +%s) + 10)) RUNNING
    run "${in_slurm[@]}" timeout 60 "$MUSTER" run $root --run-dir run --nproc-per-node 1 --set slurm.margin=off -- sleep 3
    is "$status" 0 'a limit that is not to be looked at' || show
    fake_slurm UNLIMITED RUNNING
    fresh
    run "${in_slurm[@]}" timeout 60 "$MUSTER" run $root --run-dir run --requeue --nproc-per-node 1 -- true
    is "$status" 0 'none at all, and success' || show
    ok 'is no reason to be requeued' test ! -e asked
    fake_slurm 'slurm_load_jobs error: Unable to contact slurm controller' RUNNING
    fresh
    run "${in_slurm[@]}" timeout 60 "$MUSTER" run $root --run-dir run --nproc-per-node 1 -- sleep 2
    is "$status" 0 'one that is not known ends nothing' || show
    like "$(cat err)" 'is not known: slurm_load_jobs error' 'which is told'
    touch hang
    fresh
    run "${in_slurm[@]}" timeout 60 "$MUSTER" run $root --run-dir run --nproc-per-node 1 -- sleep 2
    is "$status" 0 'nor does a Slurm that hangs' || show
    nobody_left
}

# Slurm sends SIGTERM twice, and the workers have the time in between.
test_twice() {
    fresh
    fake_slurm UNLIMITED RUNNING
    spawn run "${in_slurm[@]}" "$MUSTER" run $root --run-dir run --nproc-per-node 2 --set limits.grace=10m -- ./looks
    ok 'a run in Slurm' wait_for 60 eval '[ "$(grep -c up run.out)" = 2 ]' || diag "$(cat run.err)"
    kill -TERM "$spawned"
    ok 'is told to stop' wait_for 60 eval '[ "$(grep -c told run.out)" = 2 ]' || diag "$(cat run.err)"
    kill -TERM "$spawned"
    ok 'and has its time' not_ok_for_a_while
    touch go
    wait_exit 60 "$spawned"
    is "$status:$(grep -c left run.out)" 75:2 'also when it is told again' || diag "$(cat run.err)"
    nobody_left
}
# The signal has arrived: a command that comes behind it has its answer.
not_ok_for_a_while() {
    "$MUSTER" status run >/dev/null && kill -0 "$spawned" && ! grep -q killing run.err
}

test_by_hand() {
    local step
    fresh
    spawn run mpirun $root --oversubscribe -np 2 "$MUSTER" run --run-dir run --nnodes 2 --agent-is-node --nproc-per-node 1 \
        $([ -z "$root" ] || echo $root) -- $charlm --steps 100000000
    ok 'a run under an mpirun by hand' wait_for 60 grep -q 'step [0-9]' run.out || diag "$(cat run.err)"
    kill -USR1 "$spawned"
    wait_exit 60 "$spawned"
    is "$status" 75 'SIGUSR1 to mpirun stops it' || diag "$(cat run.err)"
    is "$(field state)" Stopped 'to be resumed'
    like "$(field verdict.reason)" 'a signal to mpirun' 'for that reason'
    step=$(field resume_step)
    num "$step" -gt 0 'with its state saved'
    nobody_left
    spawn again mpirun $root --oversubscribe -np 2 "$MUSTER" run --resume run --set heartbeat.timeout=3s $root
    ok 'as it is' wait_for 60 grep -q "resumed from step $step " again.out || diag "$(cat again.out again.err)"
    ok 'and goes on' wait_for 60 eval '[ "$(field step)" -gt '"$step"' ]'
    kill -TERM "$spawned"
    ok 'SIGTERM to mpirun has the workers save' wait_for 60 eval '[ "$(grep -c checkpoint_saved run/events.jsonl)" -ge 2 ]' ||
        diag "$(tail -n 5 run/events.jsonl)"
    wait_exit 60 "$spawned"
    ok 'before the run is stopped' wait_for 60 eval '[ "$(field state)" = Stopped ]'
    is "$(sed -n 's/.*"event":"\(checkpoint_saved\|stopping\)".*/\1/p' run/events.jsonl | tail -n +3 | uniq | head -n 2 | tr '\n' ' ')" \
        'checkpoint_saved stopping ' 'in this order' || diag "$(cat run/events.jsonl)"
    nobody_left
}

# The lead has stopped, and is lost: the next one hears of what all others were told.
test_by_hand_stopped_lead() {
    local agent
    fresh
    spawn run mpirun $root --oversubscribe --enable-recovery -np 3 "$MUSTER" run --run-dir run --nnodes 2:3 --agent-is-node \
        --nproc-per-node 1 --set heartbeat.timeout=3s $([ -z "$root" ] || echo $root) -- sleep 1000
    ok 'three nodes under an mpirun by hand' wait_for 60 eval 'running && [ "$(field workers.2.state)" = Running ]' || diag "$(cat run.err)"
    agent=$(field nodes.0.agent_pid)
    kill -STOP "$agent"
    kill -USR1 "$spawned"
    ok 'stop by a notice that their lead does not hear' wait_for 60 eval '[ "$(field state)" = Stopped ]' || diag "$(tail -n 5 run/events.jsonl)"
    is "$(field lead):$(field verdict.exit_status)" 1:75 'under the next one'
    like "$(field verdict.reason)" 'a signal to mpirun' 'for that reason'
    kill -CONT "$agent"
    kill -KILL "$spawned" 2>/dev/null
    nobody_left
}

# A node that was lost long ago does not make of a stop the loss of another.
test_by_hand_after_loss() {
    local since
    fresh
    spawn run mpirun $root --oversubscribe --enable-recovery -np 3 "$MUSTER" run --run-dir run --nnodes 2:3 --agent-is-node \
        --nproc-per-node 1 --set heartbeat.timeout=3s $([ -z "$root" ] || echo $root) -- sleep 1000
    ok 'three nodes under an mpirun by hand' wait_for 60 eval 'running && [ "$(field workers.2.state)" = Running ]' || diag "$(cat run.err)"
    kill -KILL "$(field nodes.2.agent_pid)"
    ok 'go on as two' wait_for 60 eval '[ "$(field generation)" = 2 ] && running' || diag "$(cat run.err)"
    since=$(now_ms)
    # Two heartbeats later, and what ranks may need to leave MPI.
    wait_for 60 eval '[ $(($(now_ms) - since)) -gt 17000 ]'
    kill -TERM $(pgrep -P "$spawned")
    ok 'a SIGTERM stops the run' wait_for 60 eval '[ "$(field state)" = Stopped ]' || diag "$(tail -n 5 run/events.jsonl)"
    like "$(field verdict.reason)" 'mpirun was told to end' 'for that reason'
    kill -KILL "$spawned" 2>/dev/null
    nobody_left
}

run_cases
