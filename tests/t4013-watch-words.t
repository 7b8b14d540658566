#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What muster ckpt-watch answers to the words of an agent: from which checkpoint to start,
# which are passed over, set aside or removed, and what it says where it cannot look.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster

# put DIRECTORY STEP [LOSS]: what the Hugging Face Trainer leaves, of one rank.
put() {
    mkdir -p "$1/checkpoint-$2"
    printf '\002\0\0\0\0\0\0\0{}' >"$1/checkpoint-$2/model.safetensors"
    echo "{\"global_step\": $2, \"log_history\": [{\"eval_loss\": ${3:-1}}]}" >"$1/checkpoint-$2/trainer_state.json"
}

# watch WORD... -- ARG...: says those words, a line each, and is gone.
watch() {
    : >words
    while [ "$1" != -- ]; do
        echo "$1" >>words
        shift
    done
    shift
    "$MUSTER" ckpt-watch "$@" <words >all 2>err
    status=$?
    grep -v '"op":"alive"' all >out
}

# said OP [FIELD]: of all that it has said with that op, a line each, that field.
said() {
    grep "\"op\":\"$1\"" out | while IFS= read -r line; do
        if [ $# -gt 1 ]; then
            echo "$line" >line
            json "$2" <line 2>/dev/null || echo none
        else
            echo "$line"
        fi
    done | paste -sd,
}

# begin ARG...: one that goes on, until end; ask WORD...: what it says up to its choice;
# hear TEXT: up to a line with that.
begin() {
    coproc WATCH { exec "$MUSTER" ckpt-watch "$@"; }
    watch_pid=$WATCH_PID
    kill_at_exit $watch_pid
    exec {to}>&"${WATCH[1]}" {from}<&"${WATCH[0]}"
}
hear() {
    local line
    : >out
    while read -r -t 60 -u $from line; do
        echo "$line" >>out
        case $line in *"$1"*) break ;; esac
    done
}
ask() {
    printf '%s\n' "$@" choose >&$to
    hear '"op":"chosen"'
}
end() {
    eval "exec ${WATCH[1]}>&-" 2>/dev/null
    exec {to}>&- {from}<&-
    wait $watch_pid 2>/dev/null
}

made() {
    local step
    rm -rf d
    for step in 5 10 15; do put d $step; done
}
left() { ls d | sed 's/^checkpoint-//' | sort -n | paste -sd' '; }

test_choose() {
    made
    watch choose -- d
    is "$status:$(said chosen)" '0:{"op":"chosen","n":3,"path":"d/checkpoint-15","kind":"hf-trainer","step":15}' \
        'the newest one, and of how many' || show
    watch 'avoid checkpoint-15' choose 'avoid checkpoint-10' choose avoid choose -- d
    is "$(said chosen step)" 10,5,15 'not one that is avoided, until none is' || show
    watch 'avoid checkpoint-15' 'avoid checkpoint-10' 'avoid checkpoint-5' choose -- d
    is "$(said chosen)" '{"op":"chosen","n":3}' 'where all are it chooses none' || show
    watch words choose 'ranks x' 'choose it' '' -- d
    is "$status:$(said chosen step)" 0:15 'what it does not know is no word' || show
}

test_not_there() {
    rm -rf d
    watch choose finish -- d
    is "$status:$(paste -sd, out)" '0:{"op":"chosen","n":0},{"op":"finished"}' 'where nothing is there is no trouble' || show
    mkdir d
    watch choose -- d
    is "$(said chosen)" '{"op":"chosen","n":0}' 'nor in an empty directory' || show
}

test_trouble() {
    rm -rf d
    : >d
    watch choose choose finish -- d
    is "$(said chosen)" '{"op":"chosen","n":0,"trouble":true},{"op":"chosen","n":0,"trouble":true}' \
        'what cannot be looked at is no answer' || show
    is "$(said trouble text | tr , '\n' | sort -u)" 'open d: Not a directory: checkpoints there are not seen' 'which is told'
    is "$(said trouble text | tr , '\n' | wc -l)" 2 'for each generation'
    rm d
}

test_broken() {
    made
    rm d/checkpoint-15/trainer_state.json
    watch choose -- d
    is "$(said passed name) $(said passed state) $(said passed aside)" 'checkpoint-15 unfinished checkpoint-15.broken' \
        'one that was not finished is set aside' || show
    like "$(said passed why)" 'it was never finished: no trainer_state.json' 'and why'
    is "$(said chosen step) $(said chosen n)" '10 3' 'the one before is chosen'
    is "$(left)" '5 10 15.broken 15.broken.why' 'it is moved' || show
    made
    rm d/checkpoint-15/trainer_state.json
    exec 8<d
    flock -x 8
    watch choose -- d
    is "$(said passed aside_why) $(said passed aside)" 'another run watches this directory none' \
        'not where somebody else watches' || show
    is "$(left):$(said chosen step)" '5 10 15:10' 'and stays'
    exec 8<&-
}

# What is not proven to be broken is nobody's to move.
test_not_proven() {
    made
    printf '\065\0\0\0\0\0\0\0{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' >d/data-99.safetensors
    watch choose -- d
    is "$(said passed name) $(said passed state) $(said passed aside)" 'data-99.safetensors damaged none' \
        'one that is like no other is passed over' || show
    is "$(said chosen step):$(ls d | paste -sd,)" '15:checkpoint-10,checkpoint-15,checkpoint-5,data-99.safetensors' 'and stays where it is' || show
}

# two_ranks STEP: of two ranks.
two_ranks() {
    put d "$1"
    printf '\200\002}.' | tee "d/checkpoint-$1/rng_state_0.pth" >"d/checkpoint-$1/rng_state_1.pth"
}

# Of what is saved from now on it is known how many write it, of what was there it is not.
test_ranks() {
    local ranks step=20
    made
    two_ranks 15
    watch 'ranks 3' choose -- d
    is "$(said chosen step)" 15 'what was there before may be of others' || show
    begin d
    ask 'ranks 2'
    is "$(said chosen step)" 15 'it has looked'
    for ranks in 2 4294967299 x; do
        two_ranks $step
        ask "ranks $ranks"
        is "$(said chosen step)" $step "ranks $ranks: one of two is whole" || show
        step=$((step + 5))
    done
    two_ranks $step
    ask 'ranks 3'
    is "$(said chosen step)" $((step - 5)) 'of three the file of one is missing' || show
    like "$(said passed why)" 'of 3 files rng_state_<rank>.pth 2 are there' 'which is told'
    end
}

# What it notices without a word, and that it is there.
test_by_itself() {
    made
    begin --keep 2 d
    ask
    ok 'who keeps some there has the directory for himself' not flock -xn d true
    hear '"op":"alive"'
    is "$(tail -1 out)" '{"op":"alive"}' 'from time to time it says that it is there'
    put d 20
    hear checkpoint-20
    like "$(tail -1 out)" '{"op":"whole","path":"d/checkpoint-20","kind":"hf-trainer","step":20,' 'a new one is told of' || show
    like "$(tail -1 out)" '"new":true' 'and that it is one'
    hear 'checkpoint-10 is not kept any longer'
    ok 'and those go that are not kept' wait_for 60 eval '[ "$(left)" = "15 20" ]' || show
    put d 25
    hear checkpoint-25
    put d 30
    hear 'checkpoint-20 is not kept any longer'
    is "$(left)" '15 25 30' 'the one that was chosen stays, as workers may still read it' || show
    end
    made
    begin d
    ask
    ok 'who keeps none has not' flock -xn d true
    end
}

# plain STEP NAME...: files of a script's own.
plain() {
    local step=$1 name
    shift
    mkdir -p "d/step_$step"
    for name; do printf '\200\002}.' >"d/step_$step/$name"; done
}

# Of files that come one after the other each is whole: what others have is awaited.
test_plain() {
    rm -rf d
    plain 10 model.pt optim.pt
    begin d
    ask
    is "$(said chosen)" '{"op":"chosen","n":1,"path":"d/step_10","kind":"torch-dir","step":10}' 'one is known' || show
    plain 20 model.pt
    for _ in 1 2 3 4 5; do # each a second, or more: it has looked twice
        hear '"op":"alive"'
        cat out >>heard
    done
    unlike "$(cat heard)" step_20 'one that still lacks a file is not told of'
    plain 20 optim.pt
    hear '"whole"'
    like "$(tail -1 out)" '"path":"d/step_20","kind":"torch-dir","step":20,' 'until that is there' || show
    end
    plain 30 model.pt
    watch choose -- d
    is "$(said passed name) $(said passed state) $(said passed aside):$(said chosen step)" \
        'step_30 unfinished step_30.broken:20' 'one that was left so is set aside' || show
    like "$(said passed why)" 'step_20, which is whole, has optim.pt' 'and why'
}

# Who has other things there hears of how many.
test_others() {
    rm -rf d
    mkdir -p d/run_1 d/step_3.broken d/.hidden
    echo x >d/notes.txt
    watch choose -- d
    is "$(said chosen)" '{"op":"chosen","n":0,"others":2,"likely":false}' 'what is not known is counted' || show
    mkdir d/step_9
    watch choose -- d
    is "$(said chosen)" '{"op":"chosen","n":0,"others":3,"likely":true}' 'and whether it is called as one' || show
    made
    watch choose -- d
    is "$(said chosen others)" none 'not where some are' || show
}

# What was read goes as soon as nobody reads it, and not with the next one that is saved.
test_hold() {
    made
    begin --keep 1 d
    echo 'hold checkpoint-5' >&$to
    hear 'checkpoint-10 is not kept any longer'
    is "$(left)" '5 15' 'one that is read stays' || show
    echo 'hold ' >&$to
    hear 'checkpoint-5 is not kept any longer'
    is "$(left)" 15 'until nobody reads it' || show
    end
}

# What was there before counts as well.
test_from_before() {
    made
    begin --keep 2 d
    hear 'checkpoint-5 is not kept any longer'
    is "$(left)" '10 15' 'of three that were there two stay' || show
    end
    made
    begin d
    hear '"op":"whole"'
    matches "$(tail -1 out)" '"step":15,.*"new":false' 'one that was there is told of' || show
    echo finish >&$to
    hear '"op":"finished"'
    unlike "$(cat out)" '"op":"whole"' 'once, also at the end' || show
    end
    rm -rf d
    begin d
    hear '"op":"alive"'
    put d 20
    hear '"op":"whole"'
    like "$(tail -1 out)" '"new":true' 'where nothing was the first is new' || show
    end
}

# A directory may be made anew, or come late.
test_made_anew() {
    local open
    rm -rf d old
    begin d
    ask
    is "$(said chosen)" '{"op":"chosen","n":0}' 'nothing is there' || show
    made
    ask
    is "$(said chosen step)" 15 'then it is' || show
    open=$(ls /proc/$watch_pid/fd | wc -l)
    mv d old
    put d 7
    ask
    is "$(said chosen step) $(said chosen n)" '7 1' 'and then another one' || show
    is "$(ls /proc/$watch_pid/fd | wc -l)" "$open" 'that one is not open any more'
    rm -r d
    ask
    is "$(said chosen)" '{"op":"chosen","n":0}' 'and none' || show
    end
}

test_finish() {
    made
    watch finish -- d
    is "$status:$(said whole path) $(said whole new) $(said finished)" '0:d/checkpoint-15 false {"op":"finished"}' \
        'the last one is told at the end' || show
    is "$(left)" '5 10 15' 'and all stay'
    rm d/checkpoint-15/trainer_state.json
    watch finish -- d
    is "$(said whole step) $(said passed)" '10 ' 'one that is not whole is not told ...' || show
    is "$(left)" '5 10 15' '... nor set aside: nobody starts from it'
}

test_keep() {
    made
    mkdir d/.muster-old-checkpoint-1
    watch finish -- --keep 2 d
    ok 'what somebody has begun to remove goes' not test -e d/.muster-old-checkpoint-1
    is "$(said removed text):$(left)" 'd/checkpoint-5 is not kept any longer:10 15' 'the newest stay' || show
    made
    put d 20
    watch finish -- --keep 3 d
    is "$(left)" '10 15 20' 'as many as are to' || show
    made
    watch finish -- --keep 1 --every 5 d
    is "$(left)" '5 10 15' 'and those whose step is a multiple' || show
    watch finish -- --keep 1 --every 10 d
    is "$(left)" '10 15' 'of that number' || show
    made
    watch 'hold checkpoint-5' finish -- --keep 1 d
    is "$(left)" '5 15' 'and one that is read' || show
    watch 'hold checkpoint-5' 'hold ' finish -- --keep 1 d
    is "$(left)" 15 'until nobody reads it' || show
    made
    watch choose finish -- --keep 1 d
    is "$(left)" 15 'the one that was chosen is among the newest' || show
    made
    exec 8<d
    flock -x 8
    watch finish -- --keep 1 d
    is "$(said removed):$(left)" ':5 10 15' 'nothing goes where somebody else watches' || show
    exec 8<&-
}

test_best() {
    rm -rf d
    put d 5 3
    put d 10 1
    put d 15 2
    put d 20 2
    watch finish -- --keep 1 --best eval_loss d
    is "$(left)" '10 20' 'the best one stays, which is the lowest' || show
    rm -rf d
    put d 5 3
    put d 10 1
    put d 15 2
    watch finish -- --keep 1 --best eval_loss --highest d
    is "$(left)" '5 15' 'or the highest' || show
    made
    watch finish -- --keep 1 --best acc d
    is "$(left)" 15 'without such a metric they go as if there were none' || show
    like "$(said trouble text)" "none in d has a metric 'acc', by which the best is to stay (checkpoint.prune.best)" 'which is told'
}

test_itself() {
    made
    watch choose -- d/checkpoint-10
    is "$(said chosen)" '{"op":"chosen","n":0}' 'in a checkpoint there is none' || show
    like "$(said trouble text)" 'd/checkpoint-10 is a checkpoint itself, and none is in it: expected the directory that it is in' 'which is told'
}

run_cases
