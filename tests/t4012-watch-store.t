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

is_told() { grep -Eq "\"event\":\"$1\".*$2" muster-runs/stored/latest/events.jsonl 2>/dev/null; }

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
done_testing
