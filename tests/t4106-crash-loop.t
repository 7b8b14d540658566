#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A checkpoint may be whole and still be the state of which the program dies: after two
# generations that died at its start the next one starts from an older one
# (checkpoint.avoidAfter), so that it does not cost all restarts.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
mkdir -m 700 rt

root=--allow-run-as-root
worker=$MUSTER_BUILDDIR/tests/lib/snap_worker
field() { "$MUSTER" status run -o json 2>/dev/null | json "$1"; }
show_run() { diag "$(tail -n 40 run.out run.err run/events.jsonl)"; diag "$("$MUSTER" status run)"; }
told() { ok "$1" wait_for 60 eval '[ "$(grep -c "'"$2"'" run.out)" -ge '"$3"' ]' || show_run; }
n_told() { grep -c "$1" run.out; }
n_avoided() { grep -c '"event":"checkpoint_avoided"' run/events.jsonl; }
avoided() { sed -n 's/.*"event":"checkpoint_avoided".*"text":"\([^"]*\)".*/\1/p' run/events.jsonl | sed -n "${1}p"; }
# the_end STATUS WHAT
the_end() {
    wait_exit 60 "$spawned"
    is "$status" "$1" "$2" || show_run
}

# --- muster's own ---

# start FAR OPTION...: two workers on each node; the last one dies when it has saved a
# step, which is the death of each one that starts from it, or from those up to FAR steps
# before. Those of later generations that live wait.
start() {
    local far=$1
    shift
    rm -rf run ck
    spawn run "$MUSTER" run $root --run-dir run --agent-is-node --nproc-per-node 2 --set restart.backoff=1ms..1ms "$@" -- \
        "$worker" "$PWD/ck" 480000
    told 'workers save' 'held 30$' 2
    ok 'three are on the disk' wait_for 60 eval '[ "$(find ck -name COMMIT | wc -l)" -ge 3 ]' || show_run
    : >run/hold
    echo "$far" >run/.poison && mv run/.poison run/poison
    told 'one dies of what it has saved' 'dies at' 1
    step=$(sed -n 's/.*dies at //p' run.out)
}
dir_of() { echo "$PWD"/ck/step-"$(printf %012d "$1")"-*; }

own() { # own NODES
    local n=$((2 * $1)) bad older
    start 0 --nnodes "$1" --max-restarts 9
    told 'all start from the one before' 'avoids' "$n"
    told 'in the fourth generation' "from $((step - 10))\$" "$n"
    bad=$(dir_of "$step") older=$(dir_of $((step - 10)))
    is "$(grep -ls "poisoned by $step\$" run/logs/*/*/stdout | cut -d/ -f3 | sort -u | paste -sd,)" 2,3 'after two that died of it' || show_run
    is "$(n_told "avoids $bad\$")" "$n" 'which the workers know by its path' || show_run
    is "$(avoided 1)" "2 generations in a row started from $bad (step $step) and died before a save or a report of progress: generation 4 starts from $older (step $((step - 10)))" 'as is told'
    like "$(cat run.err)" "2 generations in a row started from $bad (step $step)" 'to those who look on, too'
    is "$(field avoided.0.path)" "$bad" 'and the status says' || show_run
    is "$(field avoided.0.step)/$(field avoided.0.deaths)/$(field resume_path)" "$step/2/$older" 'of which step it is, and what is used'
    like "$("$MUSTER" status run)" "avoided     $bad (2 starts from it died)" 'in words, too'
    run "$MUSTER" ckpt verify "$bad"
    is "$status" 0 'it is there, and whole' || show
    rm run/hold run/poison run/poisoned
    told 'they go on' "held $((step + 50))\$" "$n"
    ok 'past it, and nothing is avoided any more' wait_for 60 eval '[ -z "$(field avoided 2>/dev/null)" ]' || show_run
    : >run/go
    the_end 0 'the run ends well'
    is "$(field restarts)/$(n_avoided)" 3/1 'three restarts, and one such checkpoint'
    run "$MUSTER" ckpt verify ck
    is "$status" 0 'what is there is whole' || show
    # Three, and the one that was read again last, where that is none of them.
    matches "$(find ck -name COMMIT | wc -l)" '^[34]$' 'as many as are kept, and no more' || diag "$(ls ck)"
}

test_own() { own 1; }
test_own_two() { own 2; }

# Two older ones are tried, then the newest has its turn again, to the end.
test_all() {
    start 9999 --nnodes 1 --max-restarts 8
    wait_exit 60 "$spawned"
    isnt "$status" 0 'each one is the end of it' || show_run
    is "$(field restarts)" 8 'the budget decides'
    is "$(grep -o 'from [1-9][0-9]*$' run.out | uniq | tr '\n' ' ')" "from $step from $((step - 10)) from $((step - 20)) from $step " 'back to the newest' || show_run
    is "$(n_avoided)" 3 'each is told'
    like "$(avoided 3)" 'older ones were no better, and generation 8 starts from' 'so is that' || show_run
    is "$(field avoided 2>/dev/null)" '' 'none is avoided at the end'
    is "$(ls -d "$(dir_of "$step")" "$(dir_of $((step - 10)))" "$(dir_of $((step - 20)))" | wc -l)" 3 'all are there'
}

# Whoever leads next knows of it.
test_lead_lost() {
    local bad
    start 0 --nnodes 2:3 --max-restarts 9
    told 'all start from the one before' "from $((step - 10))\$" 6
    bad=$(dir_of "$step")
    ok 'as the status says' wait_for 60 eval '[ "$(field avoided.0.path)" = "$bad" ]' || show_run
    kill -KILL "$(field nodes.0.agent_pid)"
    told 'four go on from there' "from $((step - 10))\$" 10
    is "$(field lead)/$(field avoided.0.path)" "1/$bad" 'under another lead, which does not use it either' || show_run
    is "$(n_told "avoids $bad\$")" 10 'nor do its workers' || show_run
    rm run/hold run/poison run/poisoned
    told 'they go on' "held $((step + 20))\$" 4
    : >run/go
    the_end 0 'the run ends well'
    is "$(grep -c 'starts from [^ ]* again' run/events.jsonl)" 0 'and never came back to it'
}

# A run that is gone on with knows of it as well.
test_resumed() {
    local bad
    start 0 --nnodes 1 --max-restarts 3
    told 'all start from the one before' "from $((step - 10))\$" 2
    bad=$(dir_of "$step")
    kill -KILL "$spawned" "$(field nodes.0.agent_pid)"
    wait_exit 60 "$spawned"
    rm -f run/poison run/poisoned
    spawn again "$MUSTER" resume $root run
    ok 'taken up again' wait_for 60 eval '[ "$(grep -c "from $((step - 10))\$" again.out)" -ge 2 ]' || { diag "$(cat again.out again.err)"; show_run; }
    is "$(grep -c "avoids $bad\$" again.out)" 2 'its workers do without that one' || diag "$(cat again.out again.err)"
    rm run/hold
    : >run/go
    wait_exit 60 "$spawned"
    is "$status" 0 'it ends well' || diag "$(cat again.out again.err)"
}

# --- of others ---

# watch NODES WORD...: scripts that save into `out` by themselves, to step 30; rank 0 of
# the first generation dies after its step 22.
watch() {
    local n=$1
    shift
    rm -rf run out out.log out.go out.on
    spawn run "$MUSTER" run $root --run-dir run --agent-is-node --nnodes "$n" --nproc-per-node 1 --set restart.backoff=1ms..1ms \
        --set checkpoint.watch=out --set 'checkpoint.resumeArg=--resume={path}' "${options[@]}" -- \
        python3 "$MUSTER_SRCDIR/tests/py/saver.py" out 30 22 "$@"
    ok 'the newest is noticed' wait_for 60 grep -qs '"event":"checkpoint_saved".*/out/model-20' run/events.jsonl || show_run
    touch out.go
}
# Where the ranks of a generation started; one may be ended before it can say so.
began() { awk -v g="$1" '$1 == g { print $3 }' out.log | sort -u | paste -sd,; }

foreign() { # foreign NODES
    options=(--max-restarts 4)
    watch "$1" --poison 20 --wait 22
    ok 'the newest is written again' wait_for 60 eval '[ "$(began 4)" = 15 ] && [ -z "$(field avoided 2>/dev/null)" ]' || show_run
    is "$(field resume_path)" "$PWD/out/model-20.safetensors" 'which is another one' || show_run
    touch out.on
    the_end 0 'the run goes on, to its end'
    is "$(began 2)/$(began 3)" 20/20 'two generations start from the newest, and die'
    is "$(began 4)" 15 'the next one starts from the one before' || show_run
    is "$(awk '$1 == 4 { print $4 }' out.log | sort -u)" "$PWD/out/model-15.safetensors" 'which is in the environment'
    is "$(avoided 1)" "2 generations in a row started from $PWD/out/model-20.safetensors (step 20) and died before a save or a report of progress: generation 4 starts from $PWD/out/model-15.safetensors (step 15)" 'as is told' || show_run
    ok 'nothing was set aside' test ! -e out/model-20.safetensors.broken
    ok 'or removed' test -e out/model-20.safetensors
}

test_foreign() { foreign 1; }
test_foreign_two() { foreign 2; }

# None is older: it is not given up for a start from nothing.
test_none_older() {
    options=(--max-restarts 3)
    watch 1 --every 20 --poison 20
    wait_exit 60 "$spawned"
    is "$status" 7 'the run ends as its workers do' || show_run
    is "$(began 2)$(began 3)$(began 4)" 202020 'each generation has started from it' || show_run
    like "$(avoided 1)" 'none that is older can be used, and generation 4 starts from it again' 'as is told' || show_run
}

test_number() {
    options=(--max-restarts 2 --set checkpoint.avoidAfter=1)
    watch 1 --poison 20
    the_end 0 'after one where the job says so'
    is "$(began 2)/$(began 3)" 20/15 'the next one starts from the one before' || show_run
    options=(--max-restarts 4 --set checkpoint.avoidAfter=0)
    watch 1 --poison 20
    wait_exit 60 "$spawned"
    is "$status" 7 'or never' || show_run
    is "$(began 5)/$(n_avoided)" 20/0 'to the end of the budget' || show_run
}

run_cases
