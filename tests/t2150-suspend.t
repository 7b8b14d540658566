#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster suspend and resume: a run saves, ends, and goes on where it was, with the
# job, the hosts and the directory that it had, and with what it has spent. A job
# that is made suspended.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

root=--allow-run-as-root
charlm=$MUSTER_BUILDDIR/examples/charlm/charlm
field() { "$MUSTER" status "${dir:-run}" -o json 2>/dev/null | json "$1"; }
running() { [ "$(field state)" = Running ] && [ "$(field workers.0.state)" = Running ]; }
nobody_left() { ok 'nobody is left' wait_for 60 run_gone "$(json id "${dir:-run}/run.json")"; }
waiting='until [ -e "$MUSTER_RUN_DIR/go" ]; do sleep 0.1; done'

# The program of the issue: saves when it is told to, goes on from what it saved.
test_charlm() {
    rm -rf run
    spawn run "$MUSTER" run $root --run-dir run --nproc-per-node 2 -- "$charlm" --width 16 --heads 2 --layers 1 \
        --batch 8 --context 16 --steps 1000000 --checkpoint-every 10000000
    ok 'charlm trains' wait_for 60 grep -q 'step [0-9]*/1000000' run.out || diag "$(cat run.err)"
    run "$MUSTER" suspend run
    is "$status" 0 'and is suspended' || show
    wait_exit 60 "$spawned"
    is "$status" 75 'which ends muster run' || diag "$(cat run.err)"
    like "$(cat run.err)" 'suspended by a command' 'with this reason'
    is "$(field state):$(field verdict.resumable)" Suspended:true 'as the record says'
    local step
    step=$(field resume_step)
    num "$step" -gt 0 'its workers have saved'
    nobody_left
    spawn again "$MUSTER" resume $root run
    ok 'muster resume goes on' wait_for 60 grep -q "resumed from step $step " again.out || diag "$(cat again.out again.err)"
    ok 'and is at work' wait_for 60 eval '[ "$(field step)" -gt '"$step"' ]'
    is "$(field generation):$(field starts)" 2:2 'in its next generation'
    kill -TERM "$spawned"
    wait_exit 60 "$spawned"
    is "$status:$(field state)" 75:Stopped 'SIGTERM stops it, and suspends nothing'
    num "$(field resume_step)" -gt "$step" 'further on'
    is "$(grep -c '"resumed"' run/events.jsonl)" 1 'the journal has the second start'
    nobody_left
}

# A worker in Python that asks whether it should stop.
test_python() {
    rm -rf run
    cat >polls.py <<'END'
import os, time, muster
at = os.environ.get("MUSTER_RESUME_PATH")
step = int(open(at).read()) if at else 0
print("from", step, flush=True)
while not muster.should_stop():
    step += 1
    time.sleep(0.01)
path = os.path.join(os.environ["MUSTER_RUN_DIR"], "ckpt", "step")
if muster.rank() == 0:
    with open(path, "w") as f:
        f.write(str(step))
    muster.checkpoint_saved(path, step)
print("saved", step, flush=True)
END
    export PYTHONPATH=$MUSTER_SRCDIR/python
    spawn run "$MUSTER" run $root --run-dir run --nproc-per-node 2 -- python3 polls.py
    ok 'two workers' wait_for 60 eval '[ "$(grep -c "from 0" run.out)" = 2 ]' || diag "$(cat run.err)"
    run "$MUSTER" suspend run
    wait_exit 60 "$spawned"
    is "$status:$(field state)" 75:Suspended 'are suspended' || diag "$(cat run.err)"
    is "$(grep -c saved run.out)" 2 'after they have saved'
    run "$MUSTER" suspend run
    is "$status" 0 'once more' || show
    like "$(cat out)" 'suspended already' 'changes nothing'
    spawn again "$MUSTER" run $root --resume run
    ok 'run --resume goes on' wait_for 60 eval '[ "$(grep -c "from '"$(cat run/ckpt/step)"'" again.out)" = 2 ]' || diag "$(cat again.out again.err)"
    "$MUSTER" cancel run >/dev/null
    wait_exit 60 "$spawned"
    is "$status:$(field state)" 130:Stopped 'and is cancelled'
    run "$MUSTER" suspend run
    is "$status:$(field state)" 0:Suspended 'what was stopped can be suspended' || show
    run "$MUSTER" run $root --run-dir run -- true
    is "$status" 75 'then nothing but resume starts it' || show
    like "$(cat err)" 'muster resume' 'which is said'
    unset PYTHONPATH
    nobody_left
}

# Where it was started, on as many nodes, with the job as it was: from elsewhere.
test_as_it_was() {
    rm -rf run work other
    mkdir work other
    local dir=$TRASH/run
    (cd work && exec "$MUSTER" run $root --run-dir ../run --nnodes 2 --agent-is-node --nproc-per-node 1 --set env.A='x y' -- \
        sh -c "echo \$(pwd), \$A, \$RANK of \$WORLD_SIZE; $waiting") >run.out 2>run.err </dev/null &
    local front=$!
    kill_at_exit "$front"
    ok 'a run of two nodes' wait_for 60 running || diag "$(cat run.err)"
    run "$MUSTER" suspend "$dir"
    wait_exit 60 "$front"
    is "$status" 75 'is suspended'
    touch run/go
    cd other || return
    run timeout 120 "$MUSTER" resume $root "$(json id ../run/run.json)"
    is "$status" 0 'and ends well when it is resumed from elsewhere' || show
    is "$(grep -o '/.* of 2' out | sort | tr '\n' ';')" "$TRASH/work, x y, 0 of 2;$TRASH/work, x y, 1 of 2;" \
        'in the directory and with the job of before'
    run "$MUSTER" resume $root "$dir"
    is "$status" 1 'what has succeeded is not resumed'
    like "$(cat err)" 'nothing to resume' 'which is said'
    run "$MUSTER" suspend "$dir"
    is "$status" 1 'nor suspended'
    nobody_left
    cd "$TRASH" || return
}

test_created() {
    rm -rf run
    cat >job.yaml <<END
apiVersion: muster/v1
kind: Job
name: later
suspend: true
procsPerNode: 1
command: [sh, -c, 'echo generation \$MUSTER_GENERATION']
END
    run "$MUSTER" run $root --run-dir run job.yaml
    is "$status" 75 'a job with suspend: true is not run' || show
    like "$(cat err)" 'muster resume' 'and what starts it is said'
    is "$(field state):$(field generation):$(field starts)" Suspended:0:0 'the run is there'
    run "$MUSTER" run $root --run-dir run job.yaml
    is "$status:$(field state)" 75:Suspended 'and stays as it is'
    run "$MUSTER" list
    like "$(cat out)" Suspended 'it is in the list'
    run "$MUSTER" gc --stopped --keep 0
    ok 'gc leaves it alone' test -e run/status.json || show
    run timeout 120 "$MUSTER" resume $root run
    is "$status" 0 'resume runs it' || show
    like "$(cat out)" 'generation 1' 'from its beginning'
    like "$(cat run/spec.yaml)" 'name: later' 'as itself'
    cat >ome.yaml <<END
apiVersion: ome.io/v1beta1
kind: TrainingJob
metadata: {name: ome}
spec:
  suspend: true
  trainer: {image: x, command: [sh], args: [-c, 'echo here'], numNodes: 1, numProcPerNode: 1}
END
    rm -rf run
    run "$MUSTER" run $root --run-dir run ome.yaml
    is "$status:$(field state)" 75:Suspended 'another dialect has the same key' || show
    run timeout 120 "$MUSTER" resume $root run
    is "$status:$(cat out)" '0:[0] here' 'to the same end' || show
}

# Time that was used is used, in whatever start; time in between is not.
test_deadline() {
    rm -rf run
    spawn run "$MUSTER" run $root --run-dir run --nproc-per-node 1 --set limits.deadline=1h -- sleep 1000
    ok 'a run with a deadline' wait_for 60 running || diag "$(cat run.err)"
    num "$(field deadline | cut -d . -f 1)" -gt "$(date +%s)" 'tells when that is'
    run "$MUSTER" suspend run
    wait_exit 60 "$spawned"
    ok 'and how long it ran' eval '[ "$(field ran)" != 0.0 ]'
    python3 - run/status.json <<'END'
import json, sys
s = json.load(open(sys.argv[1]))
s["ran"] = 3597
json.dump(s, open(sys.argv[1], "w"))
END
    run timeout 120 "$MUSTER" resume $root run
    is "$status" 124 'the rest of it is what a second start has' || show
    run "$MUSTER" resume $root run
    is "$status" 124 'a third one has none' || show
    like "$(cat err)" 'limits.deadline is 1h00m' 'which is said'
    is "$(field starts)" 2 'and is not counted'
    spawn again "$MUSTER" resume $root --set limits.deadline=2h run
    ok 'unless it is given more' wait_for 60 eval 'running && [ "$(field starts)" = 3 ]' || diag "$(cat again.err)"
    run "$MUSTER" suspend --force run
    wait_exit 60 "$spawned"
    is "$status:$(field state)" 75:Suspended 'suspended without mercy' || diag "$(cat again.err)"
    ok 'the time of all starts is kept' eval '[ "$(field ran | cut -d . -f 1)" -ge 3600 ]' || diag "$(field ran)"
    nobody_left
}

# A start that comes to nothing leaves what was before.
test_nothing() {
    rm -rf run
    spawn run "$MUSTER" run $root --run-dir run --nproc-per-node 1 --set restart.backoff=1ms..1ms -- \
        sh -c '[ $MUSTER_GENERATION = 1 ] && exit 1; exec sleep 1000'
    ok 'a run that was restarted' wait_for 60 eval 'running && [ "$(field generation)" = 2 ]' || diag "$(cat run.err)"
    run "$MUSTER" suspend run
    wait_exit 60 "$spawned"
    run env CUDA_VISIBLE_DEVICES= timeout 120 "$MUSTER" resume $root --set procsPerNode=gpu run
    isnt "$status" 0 'cannot go on with GPUs that are not there' || show
    is "$(field generation):$(field restarts)" 2:1 'and has not' || diag "$("$MUSTER" status run)"
    spawn again "$MUSTER" resume $root --set procsPerNode=1 run
    ok 'but can' wait_for 60 eval 'running && [ "$(field generation)" = 3 ]' || diag "$(cat again.err)"
    "$MUSTER" cancel --force run >/dev/null
    wait_exit 60 "$spawned"
    nobody_left
}

# Two at once, and a front end that is gone.
test_two() {
    rm -rf run
    spawn run "$MUSTER" run $root --run-dir run --nproc-per-node 1 -- sh -c "$waiting"
    ok 'a run' wait_for 60 running || diag "$(cat run.err)"
    run "$MUSTER" resume $root run
    is "$status" 1 'that runs is not resumed' || show
    { kill -KILL "$spawned"; wait_exit 60 "$spawned"; } 2>/dev/null
    run "$MUSTER" resume $root run
    is "$status" 1 'nor one that runs without its front end' || show
    like "$(cat err)" 'muster attach' 'which can be had'
    run "$MUSTER" suspend run
    is "$status" 0 'such a one can be suspended' || show
    ok 'and is' wait_for 60 eval '[ "$(field state)" = Suspended ]'
    nobody_left
    touch run/go
    "$MUSTER" resume $root run >one.out 2>&1 & local one=$!
    "$MUSTER" resume $root run >two.out 2>&1 & local two=$!
    wait $one; one=$?
    wait $two; two=$?
    ok 'of two who resume it one does' eval '[ $one$two = 01 ] || [ $one$two = 10 ]' ||
        diag "$one $two $(cat one.out two.out)"
    is "$(field state):$(field starts)" Succeeded:2 'and it was started once'
    nobody_left
}

test_wrong() {
    run "$MUSTER" resume $root nobody
    is "$status" 1 'there is no such run'
    run "$MUSTER" suspend nobody
    is "$status" 1 'to suspend, either'
    run "$MUSTER" resume
    is "$status" 2 'or none is named'
    run "$MUSTER" run $root --resume run job.yaml
    is "$status" 2 'a run has a job already'
    run "$MUSTER" run $root --resume run --run-dir other
    is "$status" 2 'and a directory'
}

run_cases
