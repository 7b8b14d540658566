#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# checkpoint.watch: scripts that save by themselves are started again from the
# newest checkpoint that is whole; what is broken is set aside.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
mkdir -m 700 rt
python=python3

# begin NAME [WORD...]: two workers that save into NAME, of which rank 0 dies after
# its step 22 once NAME.go is there; they go on to step 30.
begin() {
    local d=$1
    shift
    spawn "$d" "$MUSTER" run --allow-run-as-root --name "$d" --nproc-per-node 2 --max-restarts 1 \
        --set restart.backoff=1ms..1ms --set checkpoint.watch="$d" --set 'checkpoint.resumeArg=--resume={path}' \
        "${options[@]}" -- $python "$MUSTER_SRCDIR/tests/py/saver.py" "$d" 30 22 "$@"
    run_pid=$spawned
}
options=()

# go_on NAME: lets the first try die, and waits for the end.
go_on() {
    touch "$1.go"
    wait_exit 60 $run_pid || diag "$(cat "$1.err")"
}

# is_told NAME EVENT PATTERN: among the run's events.
is_told() { grep -Eq "\"event\":\"$2\".*$3" "muster-runs/$1/latest/events.jsonl" 2>/dev/null; }
told() {
    ok "$4" is_told "$1" "$2" "$3" || diag "$(cat "muster-runs/$1/latest/events.jsonl")"
}
# Where the ranks of a generation started.
began() { awk -v g="$2" '$1 == g { print $3 }' "$1.log" | paste -sd,; }

test_last() {
    begin last
    ok 'the newest is noticed' wait_for 60 is_told last checkpoint_saved /last/model-20
    go_on last
    is "$status" 0 'the run succeeds' || diag "$(cat last.err)"
    is "$(began last 1)" 0,0 'from the beginning'
    is "$(began last 2)" 20,20 'and from the last checkpoint'
    is "$(awk '$1 == 2 { print $4 }' last.log | sort -u)" "$TRASH/last/model-20.safetensors" 'which is in the environment, too'
    told last checkpoint_chosen 'generation 2 starts from [^ ]*/last/model-20.safetensors \(step 20\)' 'and told'
    unlike "$(cat last.err)" 'not acted on' 'nothing of it is for later'
}

# However the directory is written.
test_slash() {
    options=(--set checkpoint.watch=.//slash/)
    begin slash
    options=()
    ok 'the newest is noticed' wait_for 60 is_told slash checkpoint_saved /slash/model-20
    go_on slash
    is "$(awk '$1 == 2 { print $4 }' slash.log | sort -u)" "$TRASH/slash/model-20.safetensors" 'one path, by its slashes'
}

broken() { # broken KIND NEWEST BEFORE HOW...
    local kind=$1 newest=$2 before=$3
    shift 3
    begin $kind --kind $kind
    wait_for 60 is_told $kind checkpoint_saved $newest || diag "$(cat $kind.err)"
    "$@"
    go_on $kind
    is "$status" 0 "$kind: the run succeeds" || diag "$(cat $kind.err)"
    is "$(began $kind 2)" 15,15 "all go on from the one before"
    ok "the broken one is set aside" test -e $kind/$newest.broken
    like "$(cat $kind/$newest.broken.why)" "$newest" "with the reason"
    ok "and was saved again" test -e $kind/$newest
    told $kind checkpoint_broken "$newest is .*set aside as $newest.broken" 'which is told'
    told $kind checkpoint_chosen "starts from [^ ]*$before \(step 15\)" 'and where it goes on'
    like "$(cat $kind.err)" "set aside as $newest.broken" 'to those who look on, too'
}

test_safetensors() {
    broken safetensors model-20.safetensors model-15.safetensors truncate -s -1 safetensors/model-20.safetensors
}

test_trainer() {
    broken trainer checkpoint-20 checkpoint-15 rm trainer/checkpoint-20/trainer_state.json
}

# The last rank has not written its file: the run knows how many there are.
test_ranks() {
    broken ranks checkpoint-20 checkpoint-15 rm ranks/checkpoint-20/rng_state_1.pth
    told ranks checkpoint_broken 'of 2 files rng_state_<rank>.pth 1 are there' 'and whose file is missing'
}

# Of Accelerate's none has a trainer_state.json, and that is no fault.
test_accelerate() {
    broken accelerate checkpoint-20 checkpoint-15 rm accelerate/checkpoint-20/random_states_0.pkl
    like "$(cat accelerate/checkpoint-20.broken.why)" 'checkpoint-15, which is whole, has random_states_#.pkl' 'which the one before shows'
    run ls accelerate
    is "$(tr '\n' ' ' <out)" 'checkpoint-10 checkpoint-15 checkpoint-20 checkpoint-20.broken checkpoint-20.broken.why checkpoint-25 checkpoint-30 checkpoint-5 ' \
        'and nothing else was touched'
}

# Megatron and DeepSpeed name their last one in a file: it proves nothing, and where
# nothing is wrong they agree.
test_megatron() {
    broken megatron iter_0000020 iter_0000015 rm megatron/iter_0000020/mp_rank_00/model_optim_rng.pt
    is "$(cat megatron/latest_checkpointed_iteration.txt)" 30 'its tracker is its own'
}

test_deepspeed() {
    broken deepspeed global_step20 global_step15 truncate -s 2 deepspeed/global_step20/mp_rank_00_model_states.pt
    is "$(cat deepspeed/latest)" global_step30 'its tracker is its own'
}

# Lightning writes over its last one: by what is in it that is later than all that say a
# step.
test_lightning() {
    begin lightning --kind lightning --every 7
    ok 'the last one is noticed' wait_for 60 is_told lightning checkpoint_saved /lightning/last.ckpt || diag "$(cat lightning.err; tail -n 3 muster-runs/lightning/latest/events.jsonl)"
    go_on lightning
    is "$status" 0 'the run succeeds' || diag "$(cat lightning.err)"
    # The other rank may come so late that the first one has written over it: these two
    # do not wait for each other, as those of a real program do.
    is "$(awk '$1 == 2 && $2 == 0 { print $3 }' lightning.log)" 21 'it goes on from that'
    is "$(awk '$1 == 2 { print $4 }' lightning.log | sort -u)" "$TRASH/lightning/last.ckpt" 'which is in the environment, too'
    told lightning checkpoint_chosen 'starts from [^ ]*/lightning/last.ckpt \(step 21\)' 'with its step'
}

# What lies beside checkpoints, and is none, is neither moved nor started from.
test_beside() {
    mkdir -p data/checkpoint-7
    for i in vocab.bin train.bin train-1.bin x.ckpt training_args.bin optimizer.pt; do echo "words of $i" >data/$i; done
    printf '\200\002}.' >data/training_args.bin
    printf '\002\0\0\0\0\0\0\0{}' | tee data/model.safetensors >data/checkpoint-7/model.safetensors
    python3 -c '
import zipfile
with zipfile.ZipFile("data/export-step-9.pt", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("m/constants.pkl", b"\x80\x02).")
    z.writestr("m/code/__torch__.py", "class A:\n" * 50)'
    find data -type f -exec md5sum {} + | sort >before
    run "$MUSTER" run --allow-run-as-root --name data --max-restarts 1 --set restart.backoff=1ms..1ms \
        --nproc-per-node 1 --set checkpoint.watch=data -- sh -c 'echo "${MUSTER_RESUME_PATH:-none}" >>data.log; exit 9'
    is "$(tr '\n' ' ' <data.log)" 'none none ' 'twice from the beginning' || show
    find data -type f -exec md5sum {} + | sort >after
    ok 'all is where it was' cmp before after || diag "$(diff before after)"
    told data checkpoint_broken 'checkpoint-7 is unfinished: .*passed over' 'what looks like one is told'
    ok 'but not of files of something else' not is_told data checkpoint_broken '(vocab|train|train-1)\.bin|export'
}

# A directory that hangs: whoever looks at it says nothing any more.
test_hang() {
    options=(--set heartbeat.timeout=1s)
    begin hang
    options=()
    wait_for 60 is_told hang checkpoint_saved model-20 || diag "$(cat hang.err)"
    kill -STOP "$(pgrep -f -- "ckpt-watch -- $TRASH/hang\$")"
    go_on hang
    is "$status" 0 'the run succeeds' || diag "$(cat hang.err)"
    is "$(began hang 2)" 20,20 'from what was known before'
    told hang checkpoint_trouble 'the directory does not answer' 'which is told'
}

# No child is left, and what was there before a run counts.
test_again() {
    mkdir again
    begin first
    go_on first
    rm -r again && mv first again
    spawn again "$MUSTER" run --allow-run-as-root --name again --set checkpoint.watch=again -- \
        sh -c 'echo "1 0 $MUSTER_RESUME_PATH" >again.log'
    wait_exit 60 $spawned
    is "$(began again 1)" "$TRASH/again/model-30.safetensors" 'what was there before the run'
    told again checkpoint_chosen 'generation 1 starts from' 'told'
    ok 'nobody looks any more' wait_for 60 not pgrep -f -- "ckpt-watch -- $TRASH"
}

test_alarm() {
    run "$MUSTER" run --allow-run-as-root --name late --set checkpoint.alarm.after=1s -- \
        sh -c 'until grep -q checkpoint_late "$MUSTER_RUN_DIR/status.json"; do sleep 0.1; done'
    is "$status" 0 'the run goes on' || diag "$(cat err)"
    told late checkpoint_late 'no checkpoint for [0-9]+s, and checkpoint.alarm.after is 1s' 'it is told'
    like "$(cat err)" 'no checkpoint for' 'to those who look on, too'
    run "$MUSTER" run --allow-run-as-root --name stopped --set checkpoint.alarm.after=1s --set checkpoint.alarm.then=stop -- \
        sleep 1000
    is "$status" 75 'or the run is ended, to be resumed'
    run "$MUSTER" status stopped
    like "$(cat out)" 'no checkpoint for' 'and says why'
}

test_torch() {
    need_torch
    python=$TORCH_PYTHON
    broken torch model-20.pt model-15.pt truncate -s -100 torch/model-20.pt
    python=python3
}

# plain NAME PATTERN HOW START [WORD...]: a script that dies in its second save, and starts from
# that then.
plain() {
    local d=$1 pattern=$2 how=$3 start=$4
    shift 4
    run timeout 120 "$MUSTER" run --allow-run-as-root --name "$d" --nproc-per-node 1 --max-restarts 1 \
        --set restart.backoff=1ms..1ms --set checkpoint.watch="$d" -- \
        "$TORCH_PYTHON" "$MUSTER_SRCDIR/tests/py/plain_saver.py" "$d" "$pattern" 30 "$how" "$@"
    is "$status" 0 "$d: the run succeeds" || show
    is "$(cat "$d.log")" "1 0 None
2 10 $TRASH/$d/$start" 'it goes on from what is whole' || show
}

# Files of a script's own in a directory of each step: nothing but the one before says which
# there have to be.
test_torch_dir() {
    need_torch
    plain between step_%d between step_10
    told between checkpoint_broken 'step_20 is unfinished: .*step_10, which is whole, has (optim.pt|meta.json); set aside as step_20.broken' \
        'what it lacks is told'
    ok 'it is there' test -e between/step_20.broken/model.pt
    run "$MUSTER" ckpt ls between
    is "$(awk 'NR > 1 { print $1, $2, $3, $6 }' out)" 'step_30 torch-dir 30 whole
step_20 torch-dir 20 whole
step_10 torch-dir 10 whole' 'all are listed' || show
    plain within epoch_%d within epoch_10
    told within checkpoint_broken 'epoch_20 is damaged: .*optim.pt.*set aside as epoch_20.broken' 'a file that is cut'
    like "$(cat within/epoch_20.broken.why)" 'optim.pt' 'with the reason'
    plain number %d between 10
    told number checkpoint_broken '/20 is unfinished: .*set aside as 20.broken' 'a name that is a number'
}

# What is called as a checkpoint, and is not known, is no silence.
test_nothing_known() {
    mkdir -p odd/step_9/weights odd/notes
    run "$MUSTER" run --allow-run-as-root --name odd --nproc-per-node 1 --set checkpoint.watch=odd -- true
    is "$status" 0 'the run succeeds' || show
    told odd checkpoint_chosen 'generation 1 starts without a checkpoint: there is none in [^ ]*/odd: of 2 entries none is one that muster knows' \
        'that none of what is there is known is told'
}

# A program that tells of a file in it starts from that.
test_torch_dir_told() {
    need_torch
    export PYTHONPATH=$MUSTER_SRCDIR/python LIBMUSTER=$MUSTER_BUILDDIR/.libs/libmuster.so.0
    plain said step_%d between step_10/model.pt --told
    plain early step_%d within step_10 --early
    unset PYTHONPATH LIBMUSTER
}

run_cases
