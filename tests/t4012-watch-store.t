#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# checkpoint.copy to an object store: what a program saves by itself is pushed
# there while it runs.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
. "$MUSTER_SRCDIR/tests/lib/object-store.sh"
need_object_store
store_up
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state PYTHONDONTWRITEBYTECODE=1
mkdir -m 700 rt

is_told() { grep -Eq "\"event\":\"$1\".*$2" muster-runs/$which/latest/events.jsonl 2>/dev/null; }
which=stored

spawn stored "$MUSTER" run --allow-run-as-root --name stored --nproc-per-node 1 --max-restarts 1 \
    --set restart.backoff=1ms..1ms --set checkpoint.watch=stored --set checkpoint.copy.every=1s \
    --set checkpoint.copy.keep=1 --set checkpoint.copy.to=s3://bucket/run --set 'checkpoint.resumeArg=--resume={path}' -- \
    python3 "$MUSTER_SRCDIR/tests/py/saver.py" stored 40 30 --kind trainer
ok 'the newest goes to the store' wait_for 60 is_told checkpoint_copied 'checkpoint-30 was copied to s3://bucket/run' ||
    diag "$(cat muster-runs/stored/latest/events.jsonl)"
run ckpt verify s3://bucket/run
is "$status" 0 'and is whole there' || show
matches "$(cat out)" 'checkpoint-30[^ ]* +hf-trainer +30 ' 'by its step'
touch stored.go
wait_exit 60 $spawned
is "$status" 0 'the run ends well'

# A script's first directory is whole while its second file is not begun, however long that
# takes: what was taken then is not all there is.
rm -rf grown
spawn grown "$MUSTER" run --allow-run-as-root --name grown --nproc-per-node 1 --set checkpoint.watch=grown \
    --set checkpoint.copy.every=1s --set checkpoint.copy.to="$TRASH/mirror" --set checkpoint.store=s3://bucket/grown -- sh -c '
    file() { printf "\002\0\0\0\0\0\0\0{}" >"grown/step_10/$1.safetensors"; }
    mkdir -p grown/step_10; file model
    until [ -e grown.go ]; do sleep 0.1; done; file optim'
which=grown
ok 'the first file is copied' wait_for 60 test -e mirror/step_10/model.safetensors
ok 'and stored' wait_for 60 is_told checkpoint_stored step_10
touch grown.go
wait_exit 60 $spawned
is "$status:$(ls mirror/step_10 | paste -sd' ')" '0:model.safetensors optim.safetensors' 'the copy has the second one at the end' ||
    diag "$(cat muster-runs/grown/latest/events.jsonl)"
rm -r grown
run timeout 60 "$MUSTER" run --allow-run-as-root --name again --nproc-per-node 1 --set checkpoint.watch=grown \
    --set checkpoint.store=s3://bucket/grown -- ls grown/step_10
matches "$(cat out)" 'model.safetensors.*optim.safetensors' 'and so has the store' || show
done_testing
