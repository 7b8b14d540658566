#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster's callback in a real Trainer of transformers: what it logs is reported, a
# stop ends both ranks after the same step with a checkpoint, from which the run
# goes on.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
need_module torch transformers accelerate
train=$MUSTER_SRCDIR/examples/huggingface.py
export PYTHONPATH=$MUSTER_SRCDIR/python PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore HF_HUB_OFFLINE=1
two=(--allow-run-as-root --run-dir run --nproc-per-node 2)
field() { "$MUSTER" status run -o json | json "$1"; }

test_stop_and_resume() {
    spawn one timeout 600 "$MUSTER" run "${two[@]}" --set limits.grace=300s -- \
        "$MODULE_PYTHON" "$train" --output out.d --steps 1000000 --every 1000000
    ok 'what the Trainer logs is reported' wait_for 400 eval '"$MUSTER" status run | grep -q loss' ||
        diag "$(cat one.out one.err)"
    num "$(field step)" -gt 0 'with its step'
    ok 'it can be cancelled' "$MUSTER" cancel run
    wait_exit 400 "$spawned"
    is "$status" 130 'and stops' || diag "$(cat one.out one.err)"
    stopped=$(sed -n 's/.*left after step //p' one.out | sort -u)
    matches "$stopped" '^[0-9]+$' 'both ranks after the same step' || diag "$(cat one.out one.err)"
    is "$(grep -c 'left after step' one.out)" 2 'and both by themselves'
    ok 'with a checkpoint' test -s "out.d/checkpoint-$stopped/model.safetensors"
    is "$(field resume_path)" "$TRASH/out.d/checkpoint-$stopped" 'that muster knows'
    is "$(field resume_step)" "$stopped" 'by its step'
    ok 'metrics are kept' grep -q '"name":"grad_norm"' run/metrics.jsonl
}

# Without muster the callback does nothing.
test_alone() {
    run timeout 400 "$MODULE_PYTHON" "$train" --output alone.d --steps 3
    is "$status" 0 'a Trainer by itself' || show
    like "$(cat out)" 'rank 0: left after step 3' 'trains to the end'
}

test_crash_and_resume() {
    rm -rf run
    spawn two timeout 600 "$MUSTER" run "${two[@]}" --max-restarts 1 --set restart.backoff=10ms..20ms -- \
        "$MODULE_PYTHON" "$train" --output two.d --steps 60 --every 10
    ok 'a checkpoint is told' wait_for 400 eval '"$MUSTER" status run -o json | grep -q resume_path' ||
        diag "$(cat two.out two.err)"
    from=$(field resume_step)
    kill -KILL "$(field workers.1.pid)"
    wait_exit 500 "$spawned"
    is "$status" 0 'after a crash' || diag "$(cat two.out two.err)"
    is "$(sed -n 's/.*left after step //p' two.out | tr '\n' ' ')" '60 60 ' 'training ends where it should'
    num "$(field restarts)" -eq 1 'in a second generation'
    num "$from" -ge 10 'which went on from there'
}

run_cases
