#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints that a program writes by itself, over a run's life: which are kept,
# copies, nodes, being stopped and gone on with.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
export PYTHONDONTWRITEBYTECODE=1
mkdir -m 700 rt

# begin NAME OPTION... -- [WORD...]: a worker that saves into NAME up to step 30, where
# it waits for NAME.go and is killed; then it goes on to 40.
begin() {
    local name=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    spawn "$name" "$MUSTER" run --allow-run-as-root --name "$name" --nproc-per-node 1 --max-restarts 1 \
        --set restart.backoff=1ms..1ms --set checkpoint.watch="$TRASH/$name" --set 'checkpoint.resumeArg=--resume {path}' \
        "${options[@]}" -- python3 "$MUSTER_SRCDIR/tests/py/saver.py" "$name" 40 30 --kind "${run_kind:-trainer}" "$@"
    run_pid=$spawned
}
go_on() {
    touch "$1.go"
    wait_exit 60 $run_pid || diag "$(cat "$1.err")"
}
is_told() { grep -Eq "\"event\":\"$2\".*$3" "muster-runs/$1/latest/events.jsonl" 2>/dev/null; }
told() { ok "$4" wait_for 60 is_told "$1" "$2" "$3" || diag "$(cat "muster-runs/$1/latest/events.jsonl")"; }
began() { awk -v g="$2" '$1 == g { print $3 }' "$1.log" | paste -sd,; }
names() { ls "$1" | grep -v '^latest' | sed 's/checkpoint-//; s/iter_0*//' | sort -n | paste -sd' '; }
has() { [ "$(names "$1")" = "$2" ]; }

# eval_loss is least at step 10.
test_prune() {
    begin keep --set checkpoint.prune.keep=2 --set checkpoint.prune.every=15 --set checkpoint.prune.best=eval_loss --
    ok 'the last two, every 15th and the best are kept' wait_for 60 has keep '10 15 25 30' || ls keep
    told keep checkpoint_removed '/keep/checkpoint-20 is not kept' 'what goes is told'
    go_on keep
    is "$(began keep 2)" 30 'and the newest is where it goes on'
}

# What the agent that leads says is being copied stays until it says that it is not.
test_held() {
    local i
    for i in 5 6 7; do
        mkdir -p "held/checkpoint-$i"
        printf '\002\0\0\0\0\0\0\0{}' >"held/checkpoint-$i/model.safetensors"
        echo "{\"global_step\": $i}" >"held/checkpoint-$i/trainer_state.json"
    done
    printf '%s\n' 'hold checkpoint-5' finish >in
    "$MUSTER" ckpt-watch --keep=1 -- held <in >out
    is "$(names held):$(grep -c '"op":"removed"' out)" '5 7:1' 'what is read stays' || diag "$(cat out)"
    printf '%s\n' 'hold checkpoint-5' 'hold ' finish >in
    "$MUSTER" ckpt-watch --keep=1 -- held <in >out
    is "$(names held):$(grep -c '"op":"removed"' out)" '7:1' 'until it is not' || diag "$(cat out)"
}

put_whole() {
    mkdir -p "$1"
    printf '\002\0\0\0\0\0\0\0{}' >"$1/model.safetensors"
    echo "{\"global_step\": ${1##*-}}" >"$1/trainer_state.json"
}

# A program may save as often as its directory is looked at, or more often.
one_more() {
    n_saved=$((n_saved + 1))
    put_whole "often/checkpoint-$n_saved"
    grep -q '"op":"removed"' often.out
}
test_often() {
    local n_saved=0
    mkfifo often.in
    "$MUSTER" ckpt-watch --keep=2 -- often <often.in >often.out &
    run_pid=$!
    exec 7>often.in
    ok 'older ones go while others come without a pause' wait_for 10 one_more || diag "$(cat often.out)"
    ok 'and the newest does not' test -e "often/$(ls -v often | tail -n 1)/model.safetensors"
    exec 7>&-
    wait "$run_pid"
}

# A directory that is made later had nothing in it: all that comes is new. So it is where the
# program removes it, and makes another one.
test_later() {
    mkfifo later.in
    "$MUSTER" ckpt-watch -- later <later.in >later.out &
    run_pid=$!
    exec 7>later.in
    wait_for 20 grep -q alive later.out
    put_whole later/checkpoint-5
    ok 'what comes into a directory that was not there' wait_for 20 grep -q '"op":"whole".*"new":true' later.out ||
        diag "$(cat later.out)"
    rm -r later
    put_whole later/checkpoint-6
    ok 'or into another one in its place, is new' wait_for 20 grep -q '/checkpoint-6".*"new":true' later.out ||
        diag "$(cat later.out)"
    exec 7>&-
    wait "$run_pid"
}

# What cannot be looked at is told once for each generation.
test_no_directory() {
    : >plain
    echo choose >in
    "$MUSTER" ckpt-watch -- plain <in >out
    is "$(grep -c '"op":"trouble".*plain: Not a directory: checkpoints there are not seen' out):$(grep -c '"op":"chosen"' out)" 1:1 \
        'a file in the place of the directory is told once' || diag "$(cat out)"
    printf '%s\n' choose choose >in
    "$MUSTER" ckpt-watch -- plain <in >out
    is "$(grep -c '"op":"trouble"' out):$(grep -c '"op":"chosen"' out)" 2:2 'and once more for the next generation' || diag "$(cat out)"
    run timeout 60 "$MUSTER" run --allow-run-as-root --name plain --nproc-per-node 1 --set checkpoint.watch="$TRASH/plain" -- true
    is "$status:$(grep -c 'plain: Not a directory' err)" 0:1 'as of a run' || show
}

# Who names the checkpoint to start from, and not where it is.
test_itself() {
    local at
    for at in itself/checkpoint-5 itself/model; do
        mkdir -p "$at"
        printf '\002\0\0\0\0\0\0\0{}' >"$at/model.safetensors"
        echo '{"global_step": 5}' >"$at/trainer_state.json"
    done
    run timeout 60 "$MUSTER" run --allow-run-as-root --name itself --nproc-per-node 1 --set checkpoint.watch=itself/checkpoint-5 -- true
    is "$status:$(grep -c 'itself/checkpoint-5 is a checkpoint itself, and none is in it: expected the directory' err)" 0:1 \
        'a checkpoint in the place of the directory is told' || show
    printf '%s\n' choose choose >in
    for at in itself itself/model itself/nothing; do
        "$MUSTER" ckpt-watch -- "$at" <in >out
        is "$(grep -c '"op":"trouble"' out):$(grep -c '"op":"chosen"' out)" 0:2 "but not $at" || diag "$(cat out)"
    done
    mkdir itself/checkpoint-7
    "$MUSTER" ckpt-watch -- itself/checkpoint-7 <in >out
    is "$(grep -c '"op":"trouble"' out)" 0 'nor what is only called so, and empty' || diag "$(cat out)"
}

# By a metric that none has, as where its name is misspelt.
test_no_best() {
    begin none --set checkpoint.prune.keep=1 --set checkpoint.prune.best=eval_los --
    told none checkpoint_trouble "none in [^ ]*/none has a metric 'eval_los', .*: older ones go as if there were none\"" 'that none has the metric is told'
    ok 'and the newest stays' wait_for 60 has none 30 || ls none
    go_on none
}

# Nobody removes by hand what a run keeps, also where it has found nothing new yet.
test_by_hand() {
    mkdir -p hand/checkpoint-5 hand/checkpoint-6
    printf '\002\0\0\0\0\0\0\0{}' | tee hand/checkpoint-5/model.safetensors >hand/checkpoint-6/model.safetensors
    echo '{"global_step": 5}' >hand/checkpoint-5/trainer_state.json
    echo '{"global_step": 6}' >hand/checkpoint-6/trainer_state.json
    spawn hand "$MUSTER" run --allow-run-as-root --name hand --nproc-per-node 1 --max-restarts 0 \
        --set checkpoint.watch="$TRASH/hand" --set checkpoint.prune.keep=9 -- sh -c 'until [ -e hand.go ]; do sleep 0.1; done'
    run_pid=$spawned
    told hand checkpoint_chosen 'starts from [^ ]*/hand/checkpoint-6' 'a run starts from what is there'
    run "$MUSTER" ckpt prune hand --keep 1
    is "$status:$(names hand)" '1:5 6' 'and nothing goes by hand' || show
    like "$(cat err)" 'watches' 'as is said'
    go_on hand
    run "$MUSTER" ckpt prune hand --keep 1
    is "$status:$(names hand)" 0:6 'until it is over' || show
}

# What the library saves there is copied as soon as it is a checkpoint, and stays as long as
# that takes: each next one would remove it.
test_copy_own() {
    spawn own "$MUSTER" run --allow-run-as-root --name own --nproc-per-node 1 --max-restarts 0 \
        --set checkpoint.watch="$TRASH/own" --set checkpoint.keep=1 --set checkpoint.copy.to="$TRASH/own.copy" \
        --set checkpoint.copy.every=1s -- sh -c ': >"$MUSTER_RUN_DIR/disk"; exec "$@"' sh "$MUSTER_BUILDDIR/tests/lib/snap_worker" "$TRASH/own" 480000
    told own checkpoint_copied '/own/step-[0-9]*-[0-9a-f]* was copied to [^ ]*/own.copy' 'one of many is copied while others come'
    : >muster-runs/own/latest/go
    wait_exit 60 "$spawned"
    is "$(grep -c 'was not copied' own.err)" 0 'and none is gone meanwhile' || diag "$(cat own.err)"
    run "$MUSTER" ckpt verify own.copy
    is "$status" 0 'what was copied is whole' || show
}

# What the program names as its last stays: it may start from that by itself.
test_named() {
    run_kind=megatron begin named --set checkpoint.prune.keep=1 -- --track 10
    ok 'the last one, and what the tracker names' wait_for 60 has named '10 30' || ls named
    is "$(cat named/latest_checkpointed_iteration.txt)" 10 'which is older'
    go_on named
    is "$(began named 2)" 30 'and nobody starts from it' || diag "$(cat named.err)"
    ok 'kept it is to the end' test -e named/iter_0000010
    run "$MUSTER" ckpt prune named --keep 1 --dry-run
    is "$status:$(grep -c iter_0000010 out)" 0:0 'nor does ckpt prune remove it' || show
    rm named/latest_checkpointed_iteration.txt
    run "$MUSTER" ckpt prune named --keep 1 --dry-run
    like "$(cat out)" named/iter_0000010 'which it does once nobody names it' || show
}

test_last() {
    run_kind=lightning begin lit --set checkpoint.prune.keep=1 --
    ok 'of those with a step one is kept, beside the last' wait_for 60 has lit 'epoch=0-step=30.ckpt last.ckpt' || ls lit
    run "$MUSTER" ckpt ls lit -o json
    is "$(json 0.name <out) $(json 0.step <out) $(json 1.name <out) $(json 1.step <out)" 'epoch=0-step=30.ckpt 30 last.ckpt 30' \
        'ls has the step that is in it' || show
    go_on lit
    is "$(began lit 2)" 30 'and all goes on'
    run "$MUSTER" ckpt prune lit --keep 1 --dry-run
    is "$status:$(grep -c last.ckpt out)" 0:0 'ckpt prune leaves it, too' || show
}

test_copy() {
    begin copied --set checkpoint.copy.to="$TRASH/copy" --set checkpoint.copy.every=1s --set checkpoint.copy.keep=1 --
    told copied checkpoint_copied 'checkpoint-30 was copied to [^ ]*/copy' 'the newest is copied'
    is "$(names copy)" 30 'it alone'
    run "$MUSTER" ckpt verify copy
    is "$status" 0 'whole'
    go_on copied
}

test_no_room() {
    begin cramped --set checkpoint.copy.to=/dev/null/copy --set checkpoint.copy.every=1s --
    told cramped checkpoint_trouble 'was not copied to /dev/null/copy: .*Not a directory' 'a copy that fails is told'
    go_on cramped
    is "$status" 0 'and the run goes on'
}

# ends NAME OPTION...: a worker that saves into NAME up to step 20, and ends then.
ends() {
    local name=$1
    shift
    spawn "$name" "$MUSTER" run --allow-run-as-root --name "$name" --nproc-per-node 1 \
        --set checkpoint.watch="$TRASH/$name" "$@" -- python3 "$MUSTER_SRCDIR/tests/py/saver.py" "$name" 20 99 --kind trainer
    run_pid=$spawned
}
resume_path() { json resume_path <"muster-runs/$1/latest/status.json"; }

# Nobody has looked at it twice by then.
test_last_save() {
    ends over --set checkpoint.prune.keep=2 --set checkpoint.copy.to="$TRASH/second" --set checkpoint.copy.every=1h
    wait_exit 60 $run_pid
    is "$status" 0 'a program saves and ends' || diag "$(cat over.err)"
    is "$(resume_path over)" "$TRASH/over/checkpoint-20" 'what it has saved last is the checkpoint of the run' ||
        diag "$(cat muster-runs/over/latest/events.jsonl)"
    is "$(names over)" '15 20' 'older ones go by the rule'
    is "$(names second)" 20 'and it is copied before the run ends'
    run "$MUSTER" ckpt verify second
    is "$status" 0 'whole'
    ends lame --set checkpoint.copy.to=/dev/null/copy --set checkpoint.copy.every=1h
    wait_exit 60 $run_pid
    is "$status" 0 'where that cannot be it ends all the same'
    told lame checkpoint_trouble 'checkpoint-20 was not copied to /dev/null/copy' 'and says so'
    like "$(cat lame.err)" 'was not copied to /dev/null/copy' 'to people, too'
}

# What the program was about to write when it ended is no checkpoint, and stays.
test_last_unfinished() {
    mkdir half
    spawn half "$MUSTER" run --allow-run-as-root --name half --nproc-per-node 1 --max-restarts 0 --set checkpoint.watch="$TRASH/half" -- \
        sh -c 'python3 "$0" half 20 99 --kind trainer; mkdir half/checkpoint-25; exit 3' "$MUSTER_SRCDIR/tests/py/saver.py"
    wait_exit 60 $spawned
    is "$status" 3 'a run fails'
    is "$(resume_path half)" "$TRASH/half/checkpoint-20" 'the last one that is whole is its checkpoint'
    ok 'and what is not is left alone' test -d half/checkpoint-25
}

watcher() { pgrep -f "ckpt-watch .*$TRASH/$1\$"; }

# Its directory hangs, as a file server that is gone.
test_last_hung() {
    local pid
    begin hung --set heartbeat.timeout=3s --max-restarts 0 --
    told hung checkpoint_saved checkpoint-30 'a checkpoint is there'
    pid=$(watcher hung)
    kill -STOP "$pid"
    touch hung.go
    wait_exit 60 $run_pid
    isnt "$status" 0 'a run ends while nobody answers'
    told hung checkpoint_trouble 'hung: the directory does not answer' 'and says so'
    ok 'nobody is left' wait_for 20 gone "$pid"
    begin slow --set heartbeat.timeout=60s --max-restarts 0 --
    told slow checkpoint_saved checkpoint-30 'a checkpoint is there'
    pid=$(watcher slow)
    kill -STOP "$pid"
    touch slow.go
    ok 'one that takes long is told' wait_for 20 grep -q 'the run ends once what was saved last in .*/slow has been read' slow.err
    is "$(json storing <muster-runs/slow/latest/status.json)" "$TRASH/slow" 'and in the status'
    kill -INT $run_pid
    wait_exit 20 $run_pid
    isnt "$status" 130 'Ctrl-C ends that, and not the run, which has failed'
    told slow checkpoint_trouble 'what was saved last has not been read: the run ends without' 'which is told'
    ok 'nobody is left' wait_for 20 gone "$pid"
}

# Stopped and gone on with: the run has its checkpoint then, too.
test_suspend() {
    begin slept --
    told slept checkpoint_saved checkpoint-30 'a checkpoint is there'
    run "$MUSTER" suspend slept --force
    wait_exit 60 $run_pid
    is "$status" 75 'the run is stopped'
    truncate -s -1 slept/checkpoint-30/model.safetensors
    touch slept.go
    run timeout 60 "$MUSTER" resume --allow-run-as-root slept
    is "$status" 0 'and resumed' || show
    is "$(began slept 2)" 25 'from what is whole by then'
}

# One agent decides for all.
test_nodes() {
    begin nodes --nnodes 2 --agent-is-node --
    told nodes checkpoint_saved checkpoint-30 'a checkpoint is there'
    rm nodes/checkpoint-30/trainer_state.json
    go_on nodes
    is "$status" 0 'two nodes' || diag "$(cat nodes.err)"
    is "$(began nodes 2)" 25,25 'go on from one'
    is "$(grep -c '"event":"checkpoint_broken"' muster-runs/nodes/latest/events.jsonl)" 1 'set aside once'
}

# A path that a node does not have.
test_unseen() {
    run env PYTHONPATH="$MUSTER_SRCDIR/python" "$MUSTER" run --allow-run-as-root --name unseen --nproc-per-node 1 \
        --max-restarts 1 --set restart.backoff=1ms..1ms -- python3 -c '
import muster, os, sys, time
if os.environ["MUSTER_GENERATION"] == "1":
    muster.checkpoint_saved("/nowhere/step-5", 5)
    sys.exit(7)
while "does not see" not in open(muster.run_dir() + "/events.jsonl").read():
    time.sleep(0.1)'
    is "$status" 0 'it is said' || diag "$(cat err)"
    told unseen note 'does not see the checkpoint that its workers start from, /nowhere/step-5' 'and what'
}

# What is broken to one run may be unfinished to another.
test_shared() {
    begin shared --
    told shared checkpoint_saved checkpoint-30 'a checkpoint is there'
    mkdir shared/checkpoint-35
    exec 8<shared
    ok 'another one has the directory' flock -n 8
    go_on shared
    exec 8<&-
    told shared checkpoint_broken 'checkpoint-35 was not set aside: another run watches' 'it is left alone'
    is "$(began shared 2)" 30 'and passed over'
}

run_cases
