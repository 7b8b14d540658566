#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The example program by itself, as a world of one: it learns, repeats itself to
# the bit, goes on from a checkpoint as if nothing had happened, and refuses a
# damaged one.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"

CHARLM=${CHARLM:-$MUSTER_BUILDDIR/examples/charlm/charlm}
[ -x "$CHARLM" ] || skip_all "charlm is not built in $MUSTER_BUILDDIR"
unset MUSTER_SOCKET MUSTER_RESUME_PATH

for ((i = 0; i < 200; i++)); do
    echo "line $i: the quick brown fox jumps over the lazy dog $((i * i))"
done >text

# A model that takes a few milliseconds a step.
SMALL=("$CHARLM" --data "$TRASH/text" --width 16 --heads 2 --layers 1 --batch 8
    --context 16 --rate 0.01 --steps 20 --sample 40)
small() { "${SMALL[@]}" "$@"; }

test_usage() {
    run "$CHARLM" --help
    is "$status" 0 '--help succeeds'
    like "$(cat out)" '--checkpoint-every' 'and lists options'
    run "$CHARLM" --bogus
    is "$status" 2 'an unknown option is bad usage'
    like "$(cat err)" '--bogus: no such option' 'and named'
    run small --data missing/text
    is "$status" 1 'missing data is a failure'
    like "$(cat err)" missing/text 'and named'
}

test_learns() {
    run small --steps 150 --checkpoint-every 0
    is "$status" 0 'it trains' || show
    matches "$(cat out)" 'step 50/150: loss [0-9.]+' 'says how far it is'
    local loss
    loss=$(sed -n 's/.*final loss //p' out)
    ok "and learns (final loss $loss)" awk "BEGIN { exit !($loss > 0 && $loss < 2.5) }"
    is "$(sed -n '/sample:$/,$p' out | tail -n +2 | wc -c)" 41 'then shows a sample'
    is "$(find . -name '*.ckpt')" '' 'no checkpoint where none is wanted'
}

test_repeats() {
    run small --checkpoint-dir one
    is "$status" 0 'a first run' || show
    like "$(cat out)" '1 workers' 'of one worker'
    run small --checkpoint-dir two
    ok 'a second one is the same to the bit' cmp one/charlm-00000020.ckpt two/charlm-00000020.ckpt
    run small --checkpoint-dir three --seed 2
    not_ok 'with another seed it is not' cmp -s one/charlm-00000020.ckpt three/charlm-00000020.ckpt
}

# All workers save; by itself one does.
test_together() {
    run small --checkpoint-dir plain
    run small --checkpoint-dir shares --save-together --checkpoint-every 5 --steps 10
    is "$status" 0 'it saves by muster_ckpt.h' || show
    is "$(cd shares && echo step-* | sed 's/-[0-9a-f]\{8\}\b//g')" 'step-000000000005 step-000000000010' 'directories of their own'
    run small --checkpoint-dir shares --save-together
    like "$(cat out)" 'resumed from step 10 (shares)' 'and goes on from the newest' || show
    loss=$(sed -n 's/.*final loss //p' out)
    run small --checkpoint-dir once --checkpoint-every 20
    like "$(cat out)" "final loss $loss" 'as if nothing had happened'
    run small --checkpoint-dir shares --save-together --seed 2
    is "$status" 1 'not with another seed'
    like "$(cat err)" '--seed 1 --batch 8' 'and it says which it was'
    run small --checkpoint-dir shares --save-together --width 24
    like "$(cat err)" "tensor 'weights'" 'nor with another width' || show
    run small --checkpoint-dir shares --save-together --resume plain/charlm-00000020.ckpt
    is "$status" 2 'one way to resume at a time'
}

test_resumes() {
    run small --checkpoint-dir all --checkpoint-every 5 --keep 0
    is "$(cd all && echo *)" \
        'charlm-00000005.ckpt charlm-00000010.ckpt charlm-00000015.ckpt charlm-00000020.ckpt' \
        'checkpoints at their steps'
    is "$(stat -c %a all)/$(stat -c %a all/charlm-00000005.ckpt)" 700/600 'private'
    run small --checkpoint-dir again --resume all/charlm-00000010.ckpt
    is "$status" 0 'resumed' || show
    like "$(cat out)" 'resumed from step 10 (all/charlm-00000010.ckpt)' 'from where it says'
    ok 'it ends as if never interrupted' cmp all/charlm-00000020.ckpt again/charlm-00000020.ckpt
    run small --checkpoint-dir again --resume all/charlm-00000020.ckpt
    is "$status" 0 'resumed at the end it is done'
    run small --checkpoint-dir two --checkpoint-every 4
    is "$(cd two && echo *)" 'charlm-00000016.ckpt charlm-00000020.ckpt' 'two are kept unless told'
}

test_history() {
    small --checkpoint-dir part --checkpoint-every 8 --keep 0 >/dev/null
    run "$CHARLM" --history part/charlm-00000020.ckpt
    is "$status:$(cat out)" '0:steps 1 to 20: generation 1, 1 workers, 160 sequences' 'a checkpoint tells what went into it' || show
    small --checkpoint-dir part --resume part/charlm-00000008.ckpt --steps 12 >/dev/null
    run "$CHARLM" --history part/charlm-00000012.ckpt
    is "$(cat out)" 'steps 1 to 12: generation 1, 1 workers, 96 sequences' 'and not what came after the one that it goes on from'
    run "$CHARLM" --history missing/x
    is "$status" 1 'no checkpoint has none'
    like "$(cat err)" missing/x 'and is named'
}

loss_of() { small --evaluate "$1" | sed -n 's/^charlm: loss of the text \([0-9.]*\)$/\1/p'; }
test_evaluate() {
    local early late
    small --checkpoint-dir eval --checkpoint-every 10 --keep 0 >/dev/null
    early=$(loss_of eval/charlm-00000010.ckpt)
    late=$(loss_of eval/charlm-00000020.ckpt)
    ok "a model is better later: loss $early, then $late" awk "BEGIN { exit !(0 < $late && $late < $early) }"
    is "$(loss_of eval/charlm-00000020.ckpt)" "$late" 'whoever asks'
    is "$(small --batch 7 --seed 3 --evaluate eval/charlm-00000020.ckpt)" "charlm: loss of the text $late" \
        'however it was trained'
    run small --evaluate eval/none.ckpt
    is "$status" 1 'no checkpoint, no loss'
    like "$(cat err)" eval/none.ckpt 'and it is named'
    run small --evaluate eval/charlm-00000020.ckpt --width 32
    is "$status" 1 'nor one of another shape'
}

test_refuses() {
    run small --checkpoint-dir good
    cp good/charlm-00000020.ckpt bad
    printf '\377' | dd of=bad bs=1 seek=2000 conv=notrunc status=none
    run small --resume bad
    is "$status" 1 'a damaged checkpoint is refused'
    like "$(cat err)" 'checkpoint bad is damaged' 'and named'
    run small --resume good/charlm-00000020.ckpt --width 32
    is "$status" 1 'so is one of another shape'
    like "$(cat err)" 'width 16' 'which is told'
    run small --resume good/charlm-00000020.ckpt --seed 5
    is "$status" 1 'or of another seed'
    run small --resume missing/x.ckpt
    is "$status" 1 'or none'
    like "$(cat err)" missing/x.ckpt 'named'
    touch file
    run small --checkpoint-dir file
    is "$status" 1 'a directory that cannot be made is found at the start'
    unlike "$(cat out)" 'step ' 'before any step'
}

test_diverges() {
    run small --rate 1e38 --warmup 0 --checkpoint-every 1 --checkpoint-dir d
    is "$status" 1 'a rate that is far too high is a failure'
    matches "$(cat err)" 'step [0-9]+ diverged' 'at that step'
    run small --resume "d/$(ls d | sort | tail -n 1)" --steps 0
    is "$status" 0 'and what was saved can be read'
}

test_killed() {
    local last= i
    mkdir k
    run small --steps 200 --checkpoint-every 5 --checkpoint-dir straight --keep 0
    for ((i = 0; i < 6; i++)); do
        spawn killed "${SMALL[@]}" --steps 200 --checkpoint-every 5 --checkpoint-dir k ${last:+--resume "$last"}
        wait_for 60 eval '[ "$(ls k | sort | tail -n 1)" != "${last#k/}" ] || gone $spawned'
        { kill -KILL "$spawned"; wait "$spawned"; } 2>/dev/null
        last=k/$(ls k | sort | tail -n 1)
        ok "killed, it leaves a whole one (${last#k/})" cmp "$last" "straight/${last#k/}"
    done
    run small --steps 200 --checkpoint-every 5 --checkpoint-dir k --resume "$last"
    is "$status" 0 'and ends at last' || show
    ok 'as if nothing had happened' cmp k/charlm-00000200.ckpt straight/charlm-00000200.ckpt
    is "$(ls -A k | tr '\n' ' ')" 'charlm-00000195.ckpt charlm-00000200.ckpt ' 'with nothing else left'
}

test_gradients() {
    run small --dump-gradients g --steps 0
    is "$status" 0 'the gradient of the first step' || show
    ok 'is written for each weight' test "$(wc -l <g)" = "$(sed -n 's/charlm: \([0-9]*\) weights.*/\1/p' out)"
    matches "$(head -n 1 g)" '^tokens 0 -?[0-9]' 'one a line'
    run small --dump-gradients missing/g
    is "$status" 1 'a file that cannot be written is a failure'
}

run_cases
