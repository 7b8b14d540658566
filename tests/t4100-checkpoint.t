#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster checkpoint: all workers are asked to save, once for each request, and go on.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
need_command python3

root=--allow-run-as-root
export PYTHONPATH=$MUSTER_SRCDIR/python
field() { "$MUSTER" status run -o json 2>/dev/null | json "$1"; }
id() { json id run/run.json; }
start() {
    rm -rf run
    cat >work.py <<'END'
import os, time, muster
run = os.environ["MUSTER_RUN_DIR"]
n = 0
print("here", flush=True)
while not os.path.exists(run + "/go"):
    if muster.checkpoint_requested():
        n += 1
        muster.barrier()
        if muster.rank() == 0:
            open("%s/ckpt/%d" % (run, n), "w").close()
            muster.checkpoint_saved("%s/ckpt/%d" % (run, n), n)
        print("saved", n, flush=True)
    time.sleep(0.02)
END
    spawn run "$MUSTER" run $root --run-dir run --agent-is-node --nproc-per-node 2 "$@" -- python3 work.py
    ok 'a run' wait_for 60 eval '[ "$(grep -c here run.out)" -ge 2 ] && [ "$(field state)" = Running ]' || diag "$(cat run.out run.err)"
}
saved() { ok "$1" wait_for 60 eval '[ "$(grep -c "saved '"$2"'\$" run.out)" -ge '"$3"' ]' || diag "$(cat run.out run.err)"; }
go_home() {
    : >run/go
    wait_exit 60 "$spawned"
    is "$status" 0 'it went on, and ends well' || diag "$(cat run.out run.err)"
}

test_asked() {
    start --nnodes 2
    run "$MUSTER" checkpoint run
    is "$status" 0 'is asked to save' || show
    saved 'each of its workers does' 1 4
    run "$MUSTER" checkpoint "$(id)"
    saved 'and again' 2 4
    ok 'which status knows' wait_for 60 eval '[ "$(field resume_step)" = 2 ]' || diag "$(cat run/status.json run.err)"
    is "$(field generation)" 1 'nobody was started again'
    go_home
    is "$(grep -c 'asks for a checkpoint' run/events.jsonl)" 2 'the journal knows who asked'
}

test_by_file() {
    start --nnodes 1
    mkdir -p run/control
    echo '{"v":1,"op":"checkpoint","from":"somebody elsewhere"}' >run/control/x.tmp
    mv run/control/x.tmp run/control/x.json
    saved 'a file for the lead is as good' 1 2
    go_home
    like "$(cat run/events.jsonl)" 'somebody elsewhere asks for a checkpoint' 'and says from whom'
}

test_not_alive() {
    start --nnodes 1
    go_home
    run "$MUSTER" checkpoint run
    is "$status" 1 'a run that is over'
    like "$(cat err)" 'is over: Succeeded' 'is said to be'
    run "$MUSTER" checkpoint nobody
    is "$status" 1 'and one that never was'
    run "$MUSTER" checkpoint
    is "$status" 2 'needs a run'
}

# The example that users are given goes on from a checkpoint of muster's. Its model is
# made small here.
test_example() {
    local charlm=$MUSTER_BUILDDIR/examples/charlm step
    for ((i = 0; i < 200; i++)); do echo "line $i: the quick brown fox $((i * i))"; done >text
    sed "s/\"300\", --checkpoint-every, \"50\"/\"60\", --checkpoint-every, \"20\", --step-time, \"20\", --data, text, \
        --width, \"16\", --heads, \"2\", --layers, \"1\", --batch, \"8\", --context, \"16\"/" \
        "$MUSTER_SRCDIR/examples/charlm.yaml" >example.yaml
    is "$(grep -c 'width' example.yaml)" 1 'the example, with a small model'
    rm -rf run
    PATH=$charlm:$PATH spawn run "$MUSTER" run $root --run-dir run example.yaml
    ok 'saves' wait_for 60 eval '[ "$(field resume_step)" -ge 20 ]' || diag "$(cat run.out run.err)"
    kill -KILL "$(field workers.2.pid)"
    wait_exit 60 "$spawned"
    is "$status" 0 'and ends well with one of its workers killed' || diag "$(cat run.out run.err)"
    is "$(field restarts)" 1 'after a restart'
    step=$(sed -n "s|.*resumed from step \([0-9]*\) (.*/run/ckpt)\$|\1|p" run.out)
    ok "which went on from step $step" test "${step:-0}" -ge 20 || diag "$(cat run.out)"
    matches "$(field resume_path)" '/run/ckpt/step-000000000060-[0-9a-f]+$' 'the last one is in the format of muster'
    is "$(find run -name '*.ckpt')" '' 'there are no others'
    run "$MUSTER" ckpt verify run/ckpt
    is "$status" 0 'they are whole' || show
}

run_cases
