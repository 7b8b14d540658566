#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# checkpoint.store: what a run saves is taken to an object store while it goes on, the
# last one before it ends, and fetched where the disk was lost.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
. "$MUSTER_SRCDIR/tests/lib/object-store.sh"
need_object_store
store_up
proxy_up
export MUSTER_CHECKPOINT_DIR=$TRASH/ck
root=--allow-run-as-root
worker=$MUSTER_BUILDDIR/tests/lib/snap_worker

# start NAME OPTION...: a run in NAME that saves into ck.
start() {
    dir=$1
    shift
    rm -f "$dir".*
    spawn "$dir" "$MUSTER" run $root --run-dir "$dir" --nproc-per-node 1 --set "checkpoint.store=s3://bucket/$dir" \
        --set restart.backoff=1ms..1ms "$@" -- sh -c 'echo "path $MUSTER_RESUME_PATH"
            [ -z "$1" ] || : >"$MUSTER_RUN_DIR/$1"; shift; exec "$@"' sh "$once" "$worker" "$TRASH/ck" 4800
    run_pid=$spawned
}
once=
field() { json "$1" <"$dir/status.json" 2>/dev/null; }
event() { grep -Eq "\"event\":\"$1\".*${2:-}" "$dir/events.jsonl" 2>/dev/null; }
told() { ok "$3" wait_for 20 event "$1" "$2" || diag "$(tail -n 30 "$dir.err" "$dir/events.jsonl")"; }
go_home() {
    wait_for 20 grep -q held "$dir.out"
    : >"$dir/go"
    wait_exit 60 "$run_pid"
    is "$status" 0 "${1:-the run ends well}" || diag "$(tail -n 30 "$dir.out" "$dir.err")"
}
stored() { s3_do keys bucket "$1" | sed -n 's,.*/\(step-[^/]*\)/COMMIT$,\1,p'; }
newest() { find ck -name COMMIT | sort | tail -n 1 | cut -d/ -f2; }
pushes() { pgrep -f "ckpt push .*$TRASH/ck" || :; }

test_store() {
    start kept --set checkpoint.storeKeep=1
    told checkpoint_stored 's3://bucket/kept in' 'what it saves is in the store while it runs'
    go_home
    last=$(newest)
    is "$(stored kept)" "$last" 'the last one is there at its end, and no other'
    is "$(field stored_path)" "s3://bucket/kept/$last" 'as the status says'
    is "$(field stored_step)" "$(field resume_step)" 'with its step'
    like "$("$MUSTER" status kept)" "stored      s3://bucket/kept/$last" 'to people, too'
    is "$(grep -c stored kept.err)" 0 'who are not told of each'
    rm -rf ck kept
    start kept
    step=$((10#${last:5:12}))
    ok 'a disk that was lost' wait_for 20 grep -q "from $step\$" kept.out || diag "$(head -n 30 kept.out kept.err)"
    like "$(cat kept.err)" "$TRASH/ck/$last was fetched from s3://bucket/kept in" 'has it again'
    like "$(cat kept.out)" "path $TRASH/ck/$last" 'before the workers start'
    go_home
    rm -rf kept
    start kept
    go_home 'and what is there'
    ok 'is not fetched' eval '! event checkpoint_fetched' || diag "$(head -n 30 kept/events.jsonl)"
}

# Whoever saves hears when it is there; the others of two nodes, too.
test_wait() {
    rm -rf ck
    once=store
    start waits --nnodes 2 --agent-is-node
    once=
    ok 'workers wait for their saves to be in the store' wait_for 60 eval '[ "$(grep -c "stored 30" waits.out)" = 2 ]' || diag "$(tail -n 30 waits.out waits.err)"
    step=$(sed -n 's/.*stored //p' waits.out | tail -n 1)
    like "$(stored waits)" "step-0000000000$step-" 'where they are'
    go_home
}

# The same from Python; one that was passed over is told so.
test_wait_python() {
    sanitized && { skip 'libmuster wants the sanitizer in the program' 6; return; }
    rm -rf ck
    cat >wait.py <<'END'
import sys
import muster.ckpt
with muster.ckpt.Checkpoints(sys.argv[1]) as checkpoints:
    def save(step):
        return checkpoints.save(step, {"step": step})
    first = save(1)
    checkpoints.wait(first, level="remote", timeout=60)
    print("there", checkpoints.is_durable(first, level="remote"), flush=True)
    passed, last = save(2), save(3)
    print("yet", checkpoints.is_durable(last, level="remote"), flush=True)
    checkpoints.wait(last, level="remote", timeout=60)
    try:
        checkpoints.wait(passed, level="remote")
    except muster.ckpt.CheckpointError as error:
        print(error, flush=True)
    try:
        checkpoints.wait(level="moon")
    except ValueError as error:
        print(error, flush=True)
END
    dir=python
    PYTHONPATH=$MUSTER_SRCDIR/python LIBMUSTER=$MUSTER_BUILDDIR/.libs/libmuster.so.0 run "$MUSTER" run $root --run-dir python \
        --set checkpoint.store=s3://bucket/python --set checkpoint.storeEvery=5s --max-restarts 0 -- python3 wait.py "$TRASH/ck"
    is "$status" 0 'a Python program waits for the store' || show
    like "$(cat out)" 'there True' 'its first save is there'
    like "$(cat out)" 'yet False' 'a later one not yet'
    like "$(cat out)" 'save 2 was not taken to the store: save 3, a later one, was' 'and one was passed over' || show
    like "$(cat out)" "level 'moon': expected one of memory, partner, disk, remote" 'there are four levels'
    is "$(stored python | wc -l)" 2 'two are there'
}

# What the store has refused is told to those who wait for it.
test_wait_refused() {
    sanitized && { skip 'libmuster wants the sanitizer in the program' 2; return; }
    rm -rf ck
    cat >refused.py <<'END'
import sys
import muster.ckpt
with muster.ckpt.Checkpoints(sys.argv[1]) as checkpoints:
    one = checkpoints.save(1, {"step": 1})
    try:
        checkpoints.wait(one, level="remote", timeout=60)
        print("there", flush=True)
    except muster.ckpt.CheckpointError as error:
        print(error, flush=True)
END
    AWS_SECRET_ACCESS_KEY=wrong PYTHONPATH=$MUSTER_SRCDIR/python LIBMUSTER=$MUSTER_BUILDDIR/.libs/libmuster.so.0 run "$MUSTER" run $root \
        --run-dir not_there --set checkpoint.store=s3://bucket/not_there --max-restarts 0 -- python3 refused.py "$TRASH/ck"
    is "$status" 0 'a program waits for a store that refuses' || show
    like "$(cat out)" 'it was not taken to the store' 'and hears that its save is not there' || show
}

# What the disk has spoilt is fetched again: before the first workers, and where those
# before have saved nothing.
test_spoilt() {
    local last step
    rm -rf ck
    start spoilt
    told checkpoint_stored spoilt 'a run saves'
    go_home
    last=$(newest)
    printf '\377' | dd of="ck/$last/r00000.safetensors" bs=1 seek=$(($(stat -c %s "ck/$last/r00000.safetensors") - 1)) conv=notrunc status=none
    run "$MUSTER" ckpt verify ck
    is "$status" 1 'the disk spoils its last checkpoint'
    rm -rf spoilt
    start spoilt
    told checkpoint_broken "$last is damaged" 'which the next start finds'
    told checkpoint_fetched "ck/$last was fetched from s3://bucket/spoilt" 'and mends'
    ok 'to start from it' wait_for 20 grep -q "from $((10#${last:5:12}))\$" spoilt.out || diag "$(tail -n 30 spoilt.out spoilt.err)"
    go_home
    rm -rf ck later
    spawn later "$MUSTER" run $root --run-dir later --nproc-per-node 1 --set checkpoint.store=s3://bucket/later \
        --set "checkpoint.levels=[disk]" --set restart.backoff=1ms..1ms -- sh -c '[ $MUSTER_GENERATION = 2 ] && exit 1
            [ $MUSTER_GENERATION -gt 2 ] || : >"$MUSTER_RUN_DIR/store"; exec "$@"' sh "$worker" "$TRASH/ck" 4800
    run_pid=$spawned dir=later
    ok 'another run saves' wait_for 60 grep -q 'stored 20' later.out || diag "$(tail -n 30 later.out later.err)"
    : >later/spoil
    ok 'and spoils what is in the store, too' wait_for 60 grep -q 'spoilt [0-9]' later.out || diag "$(tail -n 30 later.out later.err)"
    rm -f later/spoil later/store
    step=$(sed -n 's/.*spoilt //p' later.out)
    go_home 'the next but one'
    like "$(cat later.out)" "from $step" 'starts from it'
    is "$(field generation)" 3 'after one that has saved nothing'
}

test_refused() {
    AWS_SECRET_ACCESS_KEY=wrong start refused
    told checkpoint_trouble 'nothing was fetched from .* is refused' 'a store that refuses'
    told checkpoint_trouble 'was not taken to s3://bucket/refused: .* is refused.*the next one' 'is told'
    go_home 'and changes nothing'
    like "$(cat refused.err)" 'is refused (key of AWS_ACCESS_KEY_ID)' 'to people, too'
    is "$(grep -c testing refused/*.jsonl refused/*.json | grep -vc ':0')" 0 'no secret is in the records'
}

# No other checkpoint comes: the same one is tried again.
test_busy() {
    rm -rf ck
    rules '{"fail": {"match": "^PUT .*busy", "times": 1, "status": 503, "code": "SlowDown"}}'
    once=once
    AWS_MAX_ATTEMPTS=1 start busy
    once=
    told checkpoint_trouble 'was not taken to s3://bucket/busy: .*SlowDown.*; again in 10' 'a store that is busy is asked again'
    go_home
    is "$(stored busy)" "$(newest)" 'at the latest when the run ends'
}

test_end() {
    rules '{"stall": {"match": "^PUT .*stalled", "times": 100}}'
    rm -rf ck
    start stalled
    ok 'a store that does not answer' wait_for 20 grep -q 'PUT .*stalled' log
    : >stalled/go
    ok 'is waited for at the end' wait_for 20 grep -q 'the run ends once .* is in s3://bucket/stalled' stalled.err ||
        diag "$(cat stalled.err)"
    matches "$(field storing)" "^$TRASH/ck/step-" 'as the status says'
    is "$(field state)" Succeeded 'of a run that is over'
    num "$(pushes | wc -l)" -ge 1 'by a child'
    kill -INT "$run_pid"
    wait_exit 20 "$run_pid"
    is "$status" 0 'Ctrl-C ends it'
    matches "$(cat stalled.err)" 'step-[^ ]* is not in s3://bucket/stalled: the run ends without it' 'and says so'
    is "$(pushes)" '' 'nobody is left'
}

# A program that saves by itself, and ends as soon as it has: that one, too.
test_watched() {
    spawn watched "$MUSTER" run $root --run-dir watched --nproc-per-node 1 --set checkpoint.store=s3://bucket/watched \
        --set checkpoint.watch="$TRASH/own" -- python3 "$MUSTER_SRCDIR/tests/py/saver.py" own 20 99 --kind trainer
    wait_exit 60 "$spawned"
    is "$status" 0 'a program saves and ends' || diag "$(tail -n 30 watched.err)"
    dir=watched
    matches "$(field stored_path)" '^s3://bucket/watched/checkpoint-20-' 'its last one is in the store' || diag "$(cat watched/events.jsonl)"
    run "$MUSTER" ckpt verify "$(field stored_path)"
    is "$status" 0 'whole' || show
}

# A copy that does not come to its end is waited for as the store is.
test_copy_stalled() {
    dir=copied
    rules '{"stall": {"match": "^PUT .*copied", "times": 100}}'
    spawn copied "$MUSTER" run $root --run-dir copied --nproc-per-node 1 --set checkpoint.copy.to=s3://bucket/copied \
        --set checkpoint.copy.every=1h --set checkpoint.watch="$TRASH/own2" -- \
        python3 "$MUSTER_SRCDIR/tests/py/saver.py" own2 20 99 --kind trainer
    ok 'the last copy is waited for' wait_for 20 grep -q 'the run ends once .*checkpoint-20 is in s3://bucket/copied' copied.err ||
        diag "$(cat copied.err)"
    is "$(field storing)" "$TRASH/own2/checkpoint-20" 'as the status says'
    kill -INT "$spawned"
    wait_exit 20 "$spawned"
    is "$status" 0 'Ctrl-C ends it'
    matches "$(cat copied.err)" 'checkpoint-20 is not in s3://bucket/copied: the run ends without it' 'and says so'
    is "$(pgrep -f "ckpt push .*$TRASH/own2" || :)" '' 'nobody is left'
    rules '{}'
}

# What a run had in memory alone when it failed is its last checkpoint, and gets there.
test_failed() {
    rm -rf ck
    once=leave
    start failed --set checkpoint.diskEvery=1h --max-restarts 0
    once=
    ok 'a run saves' wait_for 20 grep -q 'held 20' failed.out || diag "$(tail -n 30 failed.out failed.err)"
    : >failed/die
    wait_exit 60 "$run_pid"
    isnt "$status" 0 'and fails'
    step=$(sed -n 's/.*dies at //p' failed.out)
    is "$((10#$(newest | cut -c 6-17)))" "$step" 'its last save is on the disk'
    is "$(stored failed | tail -n 1)" "$(newest)" 'and in the store' || diag "$(tail -n 30 failed/events.jsonl)"
}

# The next lead pushes again.
test_lead() {
    local pid
    rm -rf ck
    rules '{"stall": {"match": "^PUT .*led", "times": 1}}'
    start led --nnodes 1:2 --agent-is-node --set heartbeat.timeout=1s --set limits.nodeFailures=1
    ok 'the lead pushes' wait_for 20 grep -q 'PUT .*led' log || diag "$(cat led.err)"
    pid=$(pushes)
    isnt "$pid" '' 'by a child'
    kill -KILL "$(field nodes.0.agent_pid)"
    ok 'which goes with it' wait_for 20 gone "$pid"
    told checkpoint_stored led 'another one leads, and pushes'
    is "$(field lead)" 1 'from then on'
    go_home
    is "$(stored led | tail -n 1)" "$(newest)" 'to the last one' ||
        diag "$(find ck -name COMMIT | sort | tail -n 4; s3_do keys bucket led; tail -n 30 led/events.jsonl led.err)"
}

# The lead before may have been lost before it could tell of its last one: that is there,
# and the next workers start from it, and end.
test_lead_untold() {
    local untold
    rm -rf ck ck2
    spawn ahead "$MUSTER" run $root --run-dir ahead --nproc-per-node 1 -- \
        sh -c 'echo 300 >"$MUSTER_RUN_DIR/pace"; exec "$@"' sh "$worker" "$TRASH/ck2" 4800
    ok 'a checkpoint of the same program' wait_for 60 eval '[ -e ck2/step-000000000300-*/COMMIT ]' || diag "$(cat ahead.err)"
    : >ahead/go
    wait_exit 60 "$spawned"
    untold=$(cd ck2 && echo step-000000000300-*)
    start untold --nnodes 1:2 --agent-is-node --set heartbeat.timeout=1s --set limits.nodeFailures=1
    told checkpoint_stored untold 'a run whose checkpoints are in the store'
    : >untold/start
    kill -KILL "$(field nodes.0.agent_pid)"
    ok 'loses its lead' wait_for 20 eval '[ "$(field lead):$(field generation)" = 1:2 ]' || diag "$(tail -n 30 untold.err)"
    cp -r "ck2/$untold" ck
    : >untold/go
    rm untold/start
    wait_exit 60 "$run_pid"
    is "$status" 0 'and ends well' || diag "$(tail -n 30 untold.out untold.err)"
    like "$(cat untold.out)" 'from 300' 'having started from what nobody was told of'
    is "$(stored untold | tail -n 1)" "$untold" 'which is in the store then' || diag "$(tail -n 30 untold/events.jsonl; s3_do keys bucket untold)"
    is "$(field stored_path)" "s3://bucket/untold/$untold" 'as the status says'
}

# One that is stopped with what pushes for it goes on when the next lead has taken newer
# ones there: it has no more to say of what is kept.
test_lead_stopped() {
    local pid old n
    rm -rf ck
    rules '{"fail": {"match": "^PUT .*paused", "times": 1, "status": 503, "code": "SlowDown", "retry_after": 20}}'
    start paused --nnodes 1:2 --agent-is-node --set heartbeat.timeout=1s --set limits.nodeFailures=1 --set checkpoint.storeKeep=2
    ok 'the lead pushes' wait_for 20 grep -q 'PUT .*paused' log || diag "$(cat paused.err)"
    pid=$(pushes)
    old=$(field nodes.0.agent_pid)
    kill -STOP $pid "$old"
    ok 'and is stopped: another one leads' wait_for 60 eval '[ "$(field lead)" = 1 ]' || diag "$(tail -n 30 paused.err)"
    n=$(grep -c checkpoint_stored paused/events.jsonl)
    ok 'and pushes' wait_for 60 eval '[ "$(grep -c checkpoint_stored paused/events.jsonl)" -ge $((n + 3)) ]' || diag "$(tail -n 30 paused.err)"
    rules '{}'
    kill -CONT $pid
    ok 'what the first one had started comes to its end late' wait_for 120 eval '[ "$(ps -o stat= -p '"$pid"' | cut -c 1)" = Z ]' || diag "$(ps -o pid,stat,args -p $pid)"
    kill -CONT "$old"
    ok 'and it leaves when it goes on' wait_for 60 gone "$old" || diag "$(tail -n 30 paused.err)"
    go_home
    is "$(stored paused | tail -n 1):$(stored paused | wc -l)" "$(newest):2" 'the newest are in the store at the end' || diag "$(stored paused)"
    run "$MUSTER" ckpt verify s3://bucket/paused -o json
    is "$status:$(grep -c '"state": "whole"' out)" 0:2 'whole' || show
}

run_cases
