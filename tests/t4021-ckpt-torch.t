#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints from PyTorch: tensors of every kind, shards of FSDP and of meshes saved
# by four workers and loaded by one and three, and torch.distributed.checkpoint.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
PY=$MUSTER_SRCDIR/tests/py
export PYTHONPATH=$MUSTER_SRCDIR/python PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
export LIBMUSTER=$MUSTER_BUILDDIR/.libs/libmuster.so.0 XDG_STATE_HOME=$TRASH/state OMP_NUM_THREADS=1
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
! nm -D "$LIBMUSTER" 2>/dev/null | grep -q __asan || {
    skip 'libmuster wants the sanitizer in the program'
    done_testing
}
need_module torch # to import it takes seconds: the processes here are few

test_tensors() {
    rm -rf run sharded.d* alone.d*
    run timeout 400 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node 4 -- \
        "$MODULE_PYTHON" "$PY/ckpt_sharded.py" "$TRASH/sharded.d"
    is "$status" 0 'four workers save shards of all kinds' || show
    is "$(grep -c 'of 4: save, right' out)" 4 'all of them'
    for dir in sharded.d sharded.d.dcp sharded.d.group; do
        is "$("$MUSTER" ckpt verify "$dir" -o json | json 0.state)" whole "$dir is whole"
    done
    run timeout 400 "$MODULE_PYTHON" "$PY/ckpt_torch.py" alone.d "$TRASH/sharded.d"
    is "$status" 0 'the test of muster.ckpt with PyTorch' || show
    is "$(grep -c 'rank . of [13]: load, right' out)" 4 'and of what it loads, by four ranks'
    while read -r line; do
        case $line in
        'ok '*'# SKIP'*) skip "${line#*# SKIP }" ;;
        'ok '*) pass "${line#* - }" ;;
        'not ok '*) fail "${line#* - }" ;;
        esac
    done <out
    matches "$(tail -n 1 out)" '^1\.\.[0-9]+$' 'to its end'
}

# Of a damaged one dcp.load() goes back to the one before: by one rank, and by two of which
# one alone reads what is damaged.
test_back() {
    local n
    for n in 1 2; do
        rm -rf run back
        run timeout 400 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node $n -- \
            "$MODULE_PYTHON" "$PY/ckpt_back.py" "$TRASH/back"
        is "$status" 0 "dcp.load() goes back, with $n" || show
        is "$(grep -c "of $n: 8 facts, right" out)" "$n" 'as all of them say' || show
    done
}

# Where there is no checkpoint an optimizer is as new as without them.
test_fresh() {
    rm -rf run
    run timeout 200 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node 2 -- \
        "$MODULE_PYTHON" "$MUSTER_SRCDIR/examples/ckpt_fsdp.py" --steps 1 --checkpoints "$TRASH/fresh"
    is "$status" 0 'the example takes one step' || show
    run "$MODULE_PYTHON" -c 'from muster import ckpt
moments = ckpt.Checkpoints("fresh").load().state["optimizer"]["state"]
print({float(m["step"]) for m in moments.values()})'
    is "$(cat out)" '{1.0}' 'which is the first one of its optimizer' || show
}

# The example: on request, after the loss of a worker, and before it is stopped.
test_example() {
    rm -rf run
    spawn example timeout 400 "$MUSTER" run $root --run-dir run --max-restarts 3 --set restart.backoff=10ms..20ms \
        --nproc-per-node 2 -- "$MODULE_PYTHON" "$MUSTER_SRCDIR/examples/ckpt_fsdp.py" --every 0 --steps 1000000 --step-time 0.05
    ok 'the example trains' wait_for 60 grep -q 'rank 1 of 2: from step 0' example.out || diag "$(cat example.out example.err)"
    "$MUSTER" checkpoint run >/dev/null
    ok 'it saves when it is asked' wait_for 60 grep -q 'saved (REQUESTED)' example.out || diag "$(cat example.out example.err)"
    step=$(sed -n 's/.*step \([0-9]*\) .*saved (REQUESTED).*/\1/p' example.out | tail -n 1)
    ok 'which muster knows of' wait_for 60 eval '[ "$(json resume_step <run/status.json)" = "$step" ]'
    kill -KILL "$(json workers.1.pid <run/status.json)"
    ok 'it goes on from there after the loss of a worker' wait_for 60 grep -q "rank 1 of 2: from step $step\$" example.out ||
        diag "$(cat example.out example.err)"
    ok 'and trains again' wait_for 60 grep -q '"generation":2,"rank":0,"step"' run/metrics.jsonl
    "$MUSTER" cancel run >/dev/null
    wait_exit 60 "$spawned"
    is "$(grep -c ': stopped after step' example.out)" 2 'and stops, all ranks after one step' || diag "$(cat example.out example.err)"
    last=$(sed -n 's/.*stopped after step \([0-9]*\)$/\1/p' example.out | sort -u)
    like "$(cat example.out)" "step $last loss" 'which it has saved'
    like "$(grep "step $last loss" example.out)" STOPPING 'for that reason'
    is "$("$MUSTER" ckpt ls run/ckpt -o json | json 0.step)" "$last" 'as the newest'
}

run_cases
