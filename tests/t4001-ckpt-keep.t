#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster ckpt prune and cp in directories: which checkpoints stay, and that a copy is
# whole or is not there, whoever wrote them.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
ckpt() { "$MUSTER" ckpt "$@"; }

# make_own DIRECTORY STEP [JSON]: one of muster's; sets $step.
make_own() {
    mkdir -p "$1"
    step=$("$MUSTER_BUILDDIR/make_step" "$1" "$2" "$(printf '%08x%024x' "$2" 1)" 2 1000 ${3:+"$3"}) ||
        bail_out 'no checkpoint made'
}

# make_foreign DIRECTORY STEP LOSS: what the Hugging Face Trainer leaves.
make_foreign() {
    mkdir -p "$1/checkpoint-$2"
    printf '\002\0\0\0\0\0\0\0{}' >"$1/checkpoint-$2/model.safetensors"
    echo "{\"global_step\": $2, \"log_history\": [{\"eval_loss\": 99}, {\"eval_loss\": $3}]}" \
        >"$1/checkpoint-$2/trainer_state.json"
}

# made: steps 1 to 5, of which the second has the lowest loss and the first the highest.
made() {
    local i loss=(0 0.5 0.1 0.4 0.3 0.2)
    rm -rf p
    for i in 1 2 3 4 5; do
        make_own p "$i" "{\"loss\": ${loss[i]}, \"eval\": {\"acc\": $i, \"a.b\": -$i}}"
    done
}

# left [DIRECTORY]: the numbers of those that are there.
left() { ls "${1:-p}" | sed 's/^step-0*\([0-9]*\)-.*/\1/; s/^checkpoint-//' | sort -n | tr '\n' ' '; }
name_of() { printf 'step-%012d-%08x' "$1" "$1"; }

# Whoever copies one has a shared lock on it (ckpt/held.h).
test_in_use() {
    made
    exec 8<"p/$(name_of 2)"
    flock -s 8
    run ckpt prune p --keep 1 --dry-run
    is "$status:$(grep -c "^p/$(name_of 2)$" out)" 0:0 'what is copied would stay' || show
    run ckpt prune p --keep 1
    is "$status:$(left)" '0:2 5 ' 'and stays' || show
    like "$(cat err)" "left alone, in use: $(name_of 2): somebody copies it" 'as is told'
    exec 8<&-
    run ckpt prune p --keep 1
    is "$status:$(left)" '0:5 ' 'until it is copied' || show
}

test_rules() {
    made
    run ckpt prune p --keep 2 --dry-run
    is "$status:$(tr '\n' ' ' <out)" "0:p/$(name_of 1) p/$(name_of 2) p/$(name_of 3) " 'what would go is told' || show
    is "$(left)" '1 2 3 4 5 ' 'and stays'
    run ckpt prune p/ --keep 2
    is "$(head -1 out)" "p/$(name_of 1)" 'what goes is told'
    is "$(left)" '4 5 ' 'the newest stay'
    made
    ckpt prune p --keep 1 --every 2 >/dev/null
    is "$(left)" '2 4 5 ' 'so do multiples'
    made
    ckpt prune p --keep 1 --best loss >/dev/null
    is "$(left)" '2 5 ' 'so does the best, with the lowest'
    made
    ckpt prune p --keep 1 --best loss:max >/dev/null
    is "$(left)" '1 5 ' 'or with the highest'
    made
    ckpt prune p --keep 1 --best eval.acc:min >/dev/null
    is "$(left)" '1 5 ' 'by a number in an object'
    made
    ckpt prune p --keep 1 --best eval.a.b:max >/dev/null
    is "$(left)" '1 5 ' 'whose name may have dots'
    made
    run ckpt prune p --keep 1 --best nothing
    is "$status:$(left)" '1:1 2 3 4 5 ' 'by what none has nothing goes'
    like "$(cat err)" "none in p has a metric 'nothing': nothing is removed" 'which is said'
    run ckpt prune p --keep 6
    is "$status:$(left):$(cat out)" '0:1 2 3 4 5 :' 'fewer than that stay as they are'
    mkdir empty && run ckpt prune empty --keep 1 --best loss
    is "$status:$(cat err)" 0: 'none at all is no matter'
}

# hold FILE, let_go FILE: nobody may remove it. False: this filesystem has no such thing.
hold() { if [ "$(id -u)" = 0 ]; then chattr +i "$1" 2>/dev/null; else chmod 500 "${1%/*}"; fi; }
let_go() { if [ "$(id -u)" = 0 ]; then chattr -i "$1"; else chmod 700 "${1%/*}"; fi; }

# What cannot be removed is named, each time, and keeps nothing else.
test_held() {
    local i kept='^muster: remove p/.muster-old-checkpoint-2/model.safetensors: (Operation not permitted|Permission denied)$'
    rm -rf p && for i in 1 2 3 4; do make_foreign p "$i" 0; done
    hold p/checkpoint-2/model.safetensors || {
        skip 'chattr +i does nothing here'
        return
    }
    run ckpt prune p --keep 1
    is "$status:$(left)" '1:4 ' 'others go' || show
    matches "$(cat err)" "$kept" 'it is named'
    run ckpt prune p --keep 1
    is "$status" 1 'and once more while it is there'
    matches "$(cat err)" "$kept" 'likewise' || show
    let_go p/.muster-old-checkpoint-2/model.safetensors
    run ckpt prune p --keep 1
    is "$status:$(ls -A p)" 0:checkpoint-4 'once it may go it does'
}

# Of one step the one that was saved last is the newest, whatever its name.
test_one_step() {
    local uuid names=()
    rm -rf s && mkdir s
    for uuid in 30000000 50000000 10000000 40000000; do
        names+=("$("$MUSTER_BUILDDIR/make_step" s 7 "$(printf '%s%024x' $uuid 1)" 2 1000 {} $((${#names[@]} + 1)))")
    done
    is "$(ckpt last-valid s)" "s/${names[3]}" 'it is the last valid one' || ls s
    is "$(ckpt ls s | awk 'NR > 1 { print $1 }' | tr '\n' ' ')" "${names[3]} ${names[2]} ${names[1]} ${names[0]} " \
        'and comes first'
    is "$(ckpt prune s --keep 2 | tr '\n' ' ')" "s/${names[0]} s/${names[1]} " 'the others go, the oldest first'
    ckpt prune s --keep 1 >/dev/null
    is "$(ls s)" "${names[3]}" 'one of them stays'
}

# What somebody has put into one stays, and that it does is told.
test_strangers() {
    made
    touch "p/$(name_of 2)/notes.txt"
    run ckpt prune p --keep 3
    is "$status:$(tr '\n' ' ' <out)" "1:p/$(name_of 1) " 'one goes, and one does not' || show
    is "$(cat err)" "muster: p: $(name_of 2)/notes.txt is not muster's: it stays, in what is no checkpoint any more" \
        'it is named'
    is "$(ls "p/$(name_of 2)")" notes.txt 'all else of it has gone'
    run ckpt prune p --keep 3
    is "$status" 0 'then there is nothing to remove'
    like "$(cat err)" "left alone, unfinished: $(name_of 2)" 'and what is left is told' || show
}

# A name of muster's that was changed: who is given its path is told of that one.
test_renamed() {
    local verb
    made
    mv "p/$(name_of 3)" best
    run ckpt verify best -o json
    is "$status:$(json 0.name <out) $(json 0.kind <out) $(json 0.step <out) $(json 0.state <out)" '0:best muster 3 whole' 'it is read' || show
    is "$(ckpt last-valid best)" best 'it is valid'
    for verb in "cp best to" "push best s3://bucket/p"; do
        run env AWS_ACCESS_KEY_ID=k AWS_SECRET_ACCESS_KEY=s "$MUSTER" ckpt $verb
        is "$status" 1 "${verb%% *}: it does not go elsewhere"
        like "$(cat err)" "best holds the checkpoint $(name_of 3), and is not called so" 'and it is said why' || show
    done
    printf X | dd of=best/r00001.safetensors bs=1 seek=420 conv=notrunc status=none
    run ckpt verify best
    is "$status" 1 'a byte is changed' || show
    like "$(cat out)" 'best/r00001.safetensors is damaged' 'which is found'
    run ckpt last-valid best
    is "$status" 1 'it is not valid'
    run ckpt prune best --keep 1
    is "$status" 1 'nor is it a directory of others'
    rm best/COMMIT
    run ckpt verify best
    is "$status" 1 'it was never finished' || show
}

# What is no text is shown as something else; its bytes say what it is called.
test_bytes() {
    local name=$'b/x\xff %-5.safetensors'
    mkdir b
    printf '\002\0\0\0\0\0\0\0{}' | tee "$name" >b/y-6.safetensors
    run ckpt ls b -o json
    is "$(json 0.name <out) $(json 0.name_bytes <out || echo none)" 'y-6.safetensors none' 'text is itself'
    is "$(json 1.name_bytes <out)" 'x%FF%20%25-5.safetensors' 'what is none has its bytes' || show
    run ckpt verify "$name" -o json
    is "$(json 0.name_bytes <out)" 'x%FF%20%25-5.safetensors' 'by itself, too'
    run ckpt cp "$name" b2 -o json
    is "$(json name_bytes <out)" 'x%FF%20%25-5.safetensors' 'and copied'
}

# The newest that verifies is never among those that go.
test_damaged() {
    made
    printf X | dd of="p/$(name_of 5)/r00001.safetensors" bs=1 seek=420 conv=notrunc status=none
    printf X | dd of="p/$(name_of 2)/r00001.safetensors" bs=1 seek=420 conv=notrunc status=none
    run ckpt prune p --keep 1 --best loss
    is "$(left)" '2 4 5 ' 'neither the newest nor the best are those that are damaged, and these are left' || show
    like "$(cat err)" 'left alone, damaged: '"$(name_of 5)" 'which is said'
    made
    rm "p/$(name_of 1)/COMMIT" "p/$(name_of 5)/COMMIT"
    run ckpt prune p --keep 1
    is "$(left)" '1 4 5 ' 'somebody may be writing what is not finished' || show
    like "$(cat err)" 'left alone, unfinished: '"$(name_of 1)" 'which is said'
}

# COMMIT first: a removal that is cut leaves no checkpoint that looks like one, and is gone on
# with.
test_order() {
    can_trace || { skip 'no strace: see scripts/install-deps' 4; return; }
    made
    run strace -f -qq -o trace -e trace=unlinkat,renameat,renameat2,rmdir,fsync -e inject=unlinkat:signal=KILL:when=2 \
        "$MUSTER" ckpt prune p --keep 4
    like "$(grep -m 1 'unlink\|rename' trace)" '"COMMIT"' 'it goes first'
    run ckpt verify p -o json
    is "$(json 4.state <out)" unfinished 'killed then, what is left is none' || show
    is "$(json 3.state <out)" whole 'all others are'
    run ckpt prune p --keep 4
    is "$status:$(left)" '0:2 3 4 5 ' 'the next prune takes away what is left of it' || show
}

test_foreign() {
    local i
    for i in 10 20 30 40; do
        make_foreign f $i $((i == 20 ? 1 : i))
    done
    make_own f 5
    run ckpt prune f --keep 1 --best eval_loss --every 30
    is "$status:$(left f)" '0:20 30 40 ' 'those of the Trainer, by its log, and of muster' || show
    is "$(ls -A f | grep -c '^\.')" 0 'nothing is left of the others'
    exec {held}<f
    flock -n "$held" || bail_out 'no lock'
    run ckpt prune f --keep 1
    is "$status:$(left f)" '1:20 30 40 ' 'not while a run watches it'
    like "$(cat err)" 'a run watches f, or somebody prunes it or copies into it just now' 'which is said'
    exec {held}<&-
}

# What has a number, and no word that says that it is a step, may be anything.
test_numbers() {
    local name
    mkdir n
    for name in step_100 step_200 step_300 pretrained-2 data_2024 resnet50; do
        printf '\002\0\0\0\0\0\0\0{}' >n/$name.safetensors
    done
    run ckpt prune n --keep 1
    is "$status:$(tr '\n' ' ' <out)" '0:n/step_100.safetensors n/step_200.safetensors ' 'steps go' || show
    is "$(ls n | tr '\n' ' ')" 'data_2024.safetensors pretrained-2.safetensors resnet50.safetensors step_300.safetensors ' \
        'and nothing else'
    like "$(cat err)" 'left alone, no step: pretrained-2.safetensors: others are called by their step' 'which is said'
    mkdir e
    for name in gen-1 gen-2 gen-10 dis-1 dis-2 base; do
        printf '\002\0\0\0\0\0\0\0{}' >e/$name.safetensors
    done
    run ckpt prune e --keep 1
    is "$status:$(ls e | tr '\n' ' ')" '0:base.safetensors dis-2.safetensors gen-10.safetensors ' \
        'where none says a step, those that are named alike are counted together' || show
}

# put_files DIRECTORY NAME...: safetensors files without a tensor.
put_files() {
    mkdir -p "$1"
    for name in "${@:2}"; do printf '\002\0\0\0\0\0\0\0{}' >"$1/$name.safetensors"; done
}

# Several files that are one checkpoint stay, or go, together.
test_sets() {
    local i name files
    put_files parts {model,optimizer}_step{1,2,3}
    run ckpt prune parts --keep 1
    is "$status:$(tr '\n' ' ' <out)" '0:parts/model_step1.safetensors parts/model_step2.safetensors ' \
        'what belongs to a checkpoint counts for none, and stays' || show
    like "$(cat err)" 'left alone, a part: optimizer_step3.safetensors: it belongs to a checkpoint' 'which is said'
    put_files ranks ckpt_step{10,20,30}_rank{0,1,2,3}
    run ckpt prune ranks --keep 2
    is "$status:$(ls ranks | grep -c step10):$(ls ranks | wc -l)" 0:0:8 'of files a rank two steps stay' || show
    printf X >ranks/ckpt_step30_rank2.safetensors
    put_files ranks ckpt_step10_rank{0,1,2,3}
    run ckpt prune ranks --keep 1
    is "$status:$(ls ranks | grep -c step10):$(ls ranks | wc -l)" 0:0:8 'one that is damaged in one file counts for none' || show
    rm ranks/ckpt_step30_rank2.safetensors
    run ckpt prune ranks --keep 1
    is "$status:$(ls ranks | wc -l)" 0:7 'nor does one that has no file of a rank' || show
    put_files two net_step{1,2} ema_step{1,2}
    run ckpt prune two --keep 1
    is "$status:$(ls two | tr '\n' ' ')" '0:ema_step2.safetensors net_step2.safetensors ' 'files of one step are one' || show
}

# Two saves in a row that lack a rank do not make each other whole.
test_short_sets() {
    put_files lost step{10,20,30}_rank{0,1} step{40,50}_rank1
    run ckpt prune lost --keep 2
    is "$status:$(ls lost | tr '\n' ' ')" \
        "0:$(printf 'step%s.safetensors ' 20_rank{0,1} 30_rank{0,1} 40_rank1 50_rank1)" \
        'those that lack the first rank count for none' || show
    put_files fewer step{10,20,30}_rank{0,1} step{40,50}_rank0
    run ckpt prune fewer --keep 2
    is "$status:$(ls fewer | tr '\n' ' ')" \
        "0:$(printf 'step%s.safetensors ' 30_rank{0,1} 40_rank0 50_rank0)" \
        'what may be of fewer ranks counts, and the newest of most files stays' || show
    put_files worse step{10,20,30}_rank{0,1} step{40,50}_rank0
    printf '\001\0\0\0\0\0\0\0{}' >worse/step30_rank0.safetensors
    run ckpt prune worse --keep 2
    is "$status:$(ls worse | tr '\n' ' ')" \
        "0:$(printf 'step%s.safetensors ' 20_rank{0,1} 30_rank{0,1} 40_rank0 50_rank0)" \
        'that is one that is whole' || show
}

# put_state DIRECTORY STEP RANKS: as Accelerate leaves one.
put_state() {
    local rank
    mkdir -p "$1/checkpoint-$2"
    printf '\200\2}.' >"$1/checkpoint-$2/optimizer.bin"
    for ((rank = 0; rank < $3; rank++)); do printf '\200\2}.' >"$1/checkpoint-$2/random_states_$rank.pkl"; done
}

# A directory that lacks the file of the last rank: nothing in it says so, but others do.
test_short_directories() {
    local step
    for step in 10 20; do put_state few $step 2; done
    put_state few 30 1
    run ckpt last-valid few
    is "$status:$(cat out)" 0:few/checkpoint-20 'one that lacks a rank is passed over' || show
    like "$(cat err)" 'passed over, unfinished: checkpoint-30: it was never finished: of what each rank writes 1 are' \
        'which is told'
    run ckpt verify few
    is "$status:$(grep -c ' whole ' out):$(grep -c '^checkpoint-30 .* unfinished ' out)" 1:2:1 \
        'it is unfinished beside others' || show
    run ckpt verify few/checkpoint-30
    is "$status" 0 'and by itself nothing is known of others' || show
    run ckpt prune few --keep 1
    is "$status:$(ls few | tr '\n' ' ')" '0:checkpoint-20 checkpoint-30 ' 'it counts for none' || show
    put_state few 40 1
    run ckpt last-valid few
    is "$status:$(cat out)" 0:few/checkpoint-40 'two in a row are of fewer ranks' || show
    run ckpt prune few --keep 1
    run ckpt prune few --keep 1
    is "$status:$(ls few | tr '\n' ' ')" '0:checkpoint-20 checkpoint-30 checkpoint-40 ' \
        'both stay, and the newest that surely is whole' || show
    run ckpt last-valid few
    is "$status:$(cat out)" 0:few/checkpoint-40 'so that they still say it' || show
    rm few/checkpoint-20/optimizer.bin few/checkpoint-30/*
    run ckpt last-valid few
    is "$status:$(cat out)" 0:few/checkpoint-40 'what is not whole tells nothing of others' || show
}

# Nobody starts from half of one.
test_last_valid_sets() {
    put_files half step{10,20}_rank{0,1} step30_rank0
    run ckpt last-valid half
    is "$status:$(cat out)" 0:half/step20_rank1.safetensors 'one that lacks a rank is passed over' || show
    like "$(cat err)" 'passed over, unfinished: step30_rank0.safetensors: a file of its step is missing' 'which is told'
    printf '\001\0\0\0\0\0\0\0{}' >half/step20_rank0.safetensors
    run ckpt last-valid half
    is "$status:$(cat out)" 0:half/step10_rank1.safetensors 'one with a damaged file is, too' || show
    like "$(cat err)" 'passed over, damaged: step20_rank0.safetensors: ' 'which is told'
    run ckpt last-valid half/step20_rank1.safetensors
    is "$status:$(cat out)" 0:half/step20_rank1.safetensors 'who asks for a file hears of it' || show
    put_files short step{10,20}_rank{0,1} step30_rank1
    run ckpt verify short
    is "$status:$(grep -c ' whole ' out)" 1:4 'verify tells it of a place' || show
    like "$(grep ^step30 out)" 'unfinished  step30_rank1.safetensors: a file of its step is missing' 'with the reason'
    run ckpt verify short step30_rank1.safetensors
    is "$status" 1 'and of its file by name' || show
    run ckpt verify short/step30_rank1.safetensors
    is "$status" 0 'a path is of that file alone' || show
    is "$(ckpt ls short -o json | json 0.state)" unfinished 'and so does ls'
}

# What is in a checkpoint is no place for some.
test_itself() {
    local to
    make_foreign i 60 1
    printf '\002\0\0\0\0\0\0\0{}' | tee i/checkpoint-60/model-00001-of-00002.safetensors >i/checkpoint-60/part_1.safetensors
    cp i/checkpoint-60/part_1.safetensors i/checkpoint-60/part_2.safetensors
    run ckpt prune i/checkpoint-60 --keep 1
    is "$status:$(ls i/checkpoint-60 | wc -l)" 1:5 'nothing goes from a checkpoint' || show
    like "$(cat err)" 'i/checkpoint-60 is a checkpoint itself: expected the directory that it is in' 'which is said'
    for to in saved saved4; do # what it is called says nothing
        make_foreign $to 70 1
        make_foreign $to 80 1
        cp $to/checkpoint-80/* $to
        run ckpt prune $to --keep 1
        is "$status:$(ls -d $to/checkpoint-* | paste -sd,)" 0:$to/checkpoint-80 \
            'where the Trainer has put its last model beside others is a directory' || show
    done
}

# A home directory may be one that others may only go through.
test_closed_above() {
    local verb nobody="setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent"
    [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || { skip 'not root, or no setpriv' 8; return; }
    chmod 755 "$TRASH"
    mkdir -p bin && cp "$MUSTER" bin/
    put_files home/out step{1,2,3}
    chown -R 65534:65534 home/out && chmod 711 home
    for verb in ls verify last-valid; do
        run $nobody bin/muster ckpt $verb home/out
        is "$status" 0 "$verb below a directory that may not be read" || show
        like "$(cat out)" step3.safetensors 'finds what is there'
    done
    run $nobody bin/muster ckpt verify home/out/step2.safetensors
    is "$status" 0 'and so it is of one by its name' || show
    run $nobody bin/muster ckpt prune home/out --keep 1
    is "$status:$(ls home/out)" 0:step3.safetensors 'prune works there, too' || show
}

test_cp() {
    made
    run ckpt cp "p/$(name_of 3)" to/there/
    is "$status:$(cat out)" "0:to/there/$(name_of 3)" 'a copy says where it is' || show
    ok 'the same' diff -r "p/$(name_of 3)" "to/there/$(name_of 3)"
    is "$(ckpt verify to/there -o json | json 0.state)" whole 'is a checkpoint'
    is "$(stat -c %a "to/there/$(name_of 3)") $(stat -c %a "to/there/$(name_of 3)/COMMIT")" '700 600' 'for nobody else'
    run ckpt cp "p/$(name_of 3)" to/there
    is "$status:$(cat out)" "0:to/there/$(name_of 3)" 'again: it is there'
    like "$(cat err)" 'it was there already, the same: ' 'which is said'
    rm "to/there/$(name_of 3)/COMMIT" "to/there/$(name_of 3)/manifest.json"
    run ckpt cp "p/$(name_of 3)" to/there
    is "$status" 0 'what was cut is done again' || show
    is "$(ckpt verify to/there -o json | json 0.state)" whole 'to the end'
    run ckpt cp "p/$(name_of 4)" to/there --dry-run
    is "$status:$(left to/there)" '0:3 ' 'a dry run copies nothing' || show
    like "$(cat err)" 'would have copied' 'and says what it would'
    printf X | dd of="p/$(name_of 4)/r00000.safetensors" bs=1 seek=420 conv=notrunc status=none
    run ckpt cp "p/$(name_of 4)" to/there
    is "$status:$(left to/there)" '1:3 ' 'a damaged one is not copied' || show
    like "$(cat err)" "not copied: $(name_of 4)/r00000.safetensors is damaged" 'which is said'
    run ckpt cp "p/$(name_of 4)" to/new --dry-run
    is "$status:$(ls to)" 1:there 'nor would it be, as a dry run says' || show
    like "$(cat err)" "not copied: $(name_of 4)/r00000.safetensors is damaged" 'likewise'
    run ckpt cp "p/$(name_of 3)" to/new/one --dry-run
    is "$status:$(cat out)" "0:to/new/one/$(name_of 3)" 'a dry run says where to in what is not there' || show
    is "$(ls to)" there 'and makes nothing'
    : >to/file
    run ckpt cp "p/$(name_of 3)" to/file/below
    is "$status:$(cat out)" 1: 'nothing is copied where no directory can be made' || show
    like "$(cat err)" 'not copied: ' 'which is said'
    run ckpt cp "p/$(name_of 3)" to/file
    is "$status" 1 'nor into a file' || show
    rm to/file
    run ckpt cp "p/$(name_of 4)" to/new//one/
    is "$status:$(ls to)" 1:there 'and leaves no directory that was made for it' || show
    mkdir to/empty
    run ckpt cp "p/$(name_of 4)" to/empty/one
    is "$status:$(ls to | paste -sd,)" 1:empty,there 'nor takes away one that was there before' || show
    rmdir to/empty
    run ckpt cp "p/$(name_of 4)" p
    is "$status" 1 'nor over itself'
    ok 'and it is still there' test -e "p/$(name_of 4)/COMMIT"
    make_foreign f2 10 1
    echo '{}' >f2/checkpoint-10/config.json
    run ckpt cp f2/checkpoint-10 to/there --dry-run
    matches "$(cat err)" 'would have copied [0-9]+ B in 3 files' 'of others all files count'
    run ckpt cp f2/checkpoint-10 to/there -o json
    is "$(json name <out) $(json files <out) $(json bytes <out)" \
        "checkpoint-10 3 $(cat f2/checkpoint-10/* | wc -c)" 'one of the Trainer' || show
    ok 'the same' diff -r f2/checkpoint-10 to/there/checkpoint-10
    run ckpt cp p to/there
    is "$status" 1 'no directory of them'
    make_foreign f2 20 1
    truncate -s 9 f2/checkpoint-20/model.safetensors
    run ckpt cp f2/checkpoint-20 to/there
    is "$status" 1 'nor a damaged one of the Trainer'
    matches "$(cat err)" '^muster: not copied: checkpoint-20: model.safetensors: ' 'told by its own name' || show
}

# Another one of that name stays, and nobody is told that it was copied.
# Who takes the second path for the name of the copy: nothing is put into a checkpoint.
test_cp_into() {
    local to
    rm -rf p f into && made
    make_foreign f 10 1
    for to in "p/$(name_of 2)" f/checkpoint-10; do
        run ckpt cp "p/$(name_of 3)" "$to"
        is "$status" 1 "into ${to%%/*}/..: refused" || show
        like "$(cat err)" "$to is a checkpoint itself: expected the directory" 'and it is said what was expected'
        is "$(ls "$to" | grep -c step-)" 0 'nothing is there'
    done
    truncate -s 1 "p/$(name_of 2)/r00000.safetensors"
    run ckpt cp "p/$(name_of 3)" "p/$(name_of 2)"
    is "$status:$(ls "p/$(name_of 2)" | grep -c step-)" 1:0 'nor into one that is damaged' || show
    for to in into/out into/run4; do # as Trainer.save_model() and save_state() leave them
        make_foreign $to 5 1
        mv $to/checkpoint-5/* $to && rm -r $to/checkpoint-5
        echo '{}' >$to/config.json
        run ckpt cp "p/$(name_of 3)" $to
        is "$status" 0 'where the Trainer has put its last model is a directory' || show
        rm $to/trainer_state.json
        rm -r $to/step-*
        run ckpt cp "p/$(name_of 3)" $to
        is "$status" 0 'also without its state' || show
    done
    mkdir -p into/checkpoint-2024
    run ckpt cp "p/$(name_of 3)" into/checkpoint-2024
    is "$status" 0 'one that is only called so is a directory' || show
}

test_cp_over() {
    local from
    make_foreign a 10 1
    make_foreign b 10 2
    printf '\002\0\0\0\0\0\0\0{}' >a/m-10.safetensors
    printf '\003\0\0\0\0\0\0\0{} ' >b/m-10.safetensors
    for from in checkpoint-10 m-10.safetensors; do
        ckpt cp a/$from over >/dev/null 2>&1
        run ckpt cp b/$from over --dry-run
        is "$status" 1 "$from: a dry run says so, too" || show
        run ckpt cp b/$from over
        is "$status:$(cat out)" 1: "$from: another one is there" || show
        like "$(cat err)" "$from is in over already, and is not what is to be copied: move it away" 'which is said'
        ok 'and stays' diff -r a/$from over/$from
        run ckpt cp a/$from over -o json
        is "$status:$(json was_there <out)" 0:true 'and the same was there' || show
    done
    is "$(ls over | tr '\n' ' ')" 'checkpoint-10 m-10.safetensors ' 'nothing else has come'
}

# checkpoint.copy.keep: the rule of prune, where a copy has just been made.
test_copies() {
    local name
    copy() { "$MUSTER" ckpt-copy --keep="$1" "$2" kept >out 2>err || show; }
    mkdir from kept
    for name in step_100 step_200 step_300 epoch_7; do
        printf '\002\0\0\0\0\0\0\0{}' >from/$name.safetensors
    done
    cp from/step_300.safetensors kept/data_2024.safetensors
    for name in 100 200 300; do
        copy 2 from/step_$name.safetensors
    done
    is "$(ls kept | tr '\n' ' ')" 'data_2024.safetensors step_200.safetensors step_300.safetensors ' \
        'of copies two stay, and what has only a number counts for nothing'
    is "$(cat out err)" '' 'which is not told'
    copy 2 from/step_100.safetensors
    is "$(ls kept | tr '\n' ' ')" 'data_2024.safetensors step_100.safetensors step_200.safetensors step_300.safetensors ' \
        'what has just been copied stays, whatever its step'
    make_foreign from 400 1
    copy 2 from/checkpoint-400
    is "$(ls kept | tr '\n' ' ')" 'checkpoint-400 data_2024.safetensors step_300.safetensors ' \
        'whatever words their names have steps are of one series'
    ln -s step_300.safetensors kept/latest
    make_foreign from 500 1
    make_foreign from 600 1
    copy 1 from/checkpoint-500
    copy 1 from/checkpoint-600
    is "$(ls kept | tr '\n' ' ')" 'checkpoint-600 data_2024.safetensors latest step_300.safetensors ' \
        'what is named as the last one stays'
}

# Onto itself or into itself nothing is copied, nor made, nor lost.
test_cp_itself() {
    local to one
    made
    make_foreign f3 10 1
    ln -s "$PWD/f3" link
    for one in "p/$(name_of 3)" f3/checkpoint-10; do
        cp -a "$one" before
        find "${one%/*}" | sort >names
        for to in "$one" "$one/" "./$one/../${one##*/}" "$one/sub" "$one/sub/sub"; do
            run ckpt cp "$one" "$to"
            is "$status" 1 "$one into $to" || show
            like "$(cat err)" "not copied: $to is ${one##*/} itself, or lies in it" 'is refused'
        done
        for to in "${one%/*}" "${one%/*}/" "$one/.."; do
            run ckpt cp "$one" "$to"
            is "$status" 1 "$one into $to" || show
            like "$(cat err)" "not copied: ${one##*/} lies in $to already" 'is refused'
        done
        run ckpt cp "$one" "$one/sub" --dry-run
        is "$status" 1 'a dry run says the same' || show
        ok 'nothing is lost' diff -r before "$one"
        is "$(find "${one%/*}" | sort | diff - names)" '' 'nor made'
        rm -rf before
    done
    run ckpt cp link/checkpoint-10 link/checkpoint-10/sub
    is "$status" 1 'nor by a link' || show
    printf '\065\0\0\0\0\0\0\0{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}x' >f3/checkpoint-10/model.safetensors
    for to in f3/checkpoint-10/m.safetensors link/checkpoint-10/sub f3/checkpoint-10/sub/ f3/checkpoint-10; do
        run ckpt convert f3/checkpoint-10 "$to"
        is "$status" 1 "converted to $to" || show
        like "$(cat err)" "$to is checkpoint-10 itself, or lies in it" 'is refused, too'
    done
    is "$(ls f3/checkpoint-10 | tr '\n' ' ')" 'model.safetensors trainer_state.json ' 'and nothing made'
    run ckpt convert f3/checkpoint-10 f3/checkpoint-10/../m.safetensors
    is "$status:$(ls f3 | tr '\n' ' ')" '0:checkpoint-10 m.safetensors ' 'but beside it' || show
    run ckpt cp f3/checkpoint-10 f3/more/of
    is "$status" 0 'a new directory beside it is another one' || show
    run ckpt push "p/$(name_of 3)" "p/$(name_of 3)"
    is "$status" 2 'pushed it goes to a store only' || show
    like "$(cat err)" 'expected a checkpoint here and s3://BUCKET/PREFIX' 'which is said'
    run ckpt pull p p
    is "$status" 2 'and pulled it comes from one' || show
}

# Killed at each of its writes, a copy leaves nothing that passes for a checkpoint.
test_cp_killed() {
    can_trace || { skip 'no strace: see scripts/install-deps' 3; return; }
    local n=0 bad=0 state
    made
    while
        n=$((n + 1))
        rm -rf cut
        strace -f -qq -o /dev/null -e inject=fsync,renameat,renameat2:signal=KILL:when=$n \
            "$MUSTER" ckpt cp "p/$(name_of 5)" cut >out 2>err
        [ $? != 0 ]
    do
        state=$([ ! -d cut ] || ckpt verify cut -o json | python3 -c 'import json,sys; print(*[c["state"] for c in json.load(sys.stdin)])')
        case $state in '' | unfinished | whole) ;; *) bad=$((bad + 1)) ;; esac
        [ $n -lt 50 ] || break
    done
    num $n -ge 8 'killed at each of them'
    num $n -lt 50 'until there is none left'
    is "$bad" 0 'it leaves one that is whole, or none'
}

# odd HOW COMMAND...: strace lets calls answer so; nothing waits for ever.
odd() {
    rm -rf odd
    mkdir odd
    run timeout 120 strace -f -qq -o /dev/null -e "inject=$1" "$MUSTER" ckpt "${@:2}"
}

# What a kernel may answer besides all or an error: nothing, and "again".
test_odd_answers() {
    can_trace || { skip 'no strace: see scripts/install-deps' 9; return; }
    local how one first
    made
    one=$(name_of 5)
    make_tensor odd-1.safetensors 3000000
    # The loader of programs reads, too.
    strace -f -qq -o trace -e trace=pread64 "$MUSTER" ckpt ls nowhere >out 2>err
    first=$(($(wc -l <trace) + 1))
    for how in retval=0 error=EAGAIN; do
        odd "write:$how:when=1" cp "p/$one" odd
        is "$status:$(ls -A odd)" 1: "where a write answers $how a copy ends, and leaves nothing" || show
        odd "pread64:$how:when=$first+" cp "p/$one" odd
        is "$status:$(ls -A odd)" 1: "so it does where reads do" || show
        odd "pwrite64:$how:when=1+" convert odd-1.safetensors odd/m.safetensors
        is "$status:$(ls -A odd)" 1: "and convert" || show
    done
    odd 'write:error=EINTR:when=1..7+2' cp "p/$one" odd
    ok 'a copy whose writes are interrupted goes on' diff -r "p/$one" "odd/$one" || show
    odd "pread64:error=EINTR:when=$first+2" cp "p/$one" odd
    ok 'or its reads' diff -r "p/$one" "odd/$one" || show
    odd 'pwrite64:error=EINTR:when=1+2' convert odd-1.safetensors odd/m.safetensors
    is "$status:$(ls -A odd)" 0:m.safetensors 'and so does convert' || show
}

# Ten thousand files, and as deep as programs make them.
test_many_files() {
    make_foreign many 5 1
    python3 - many/checkpoint-5 <<'END'
import os, sys
for i in range(100):
    at = os.path.join(sys.argv[1], *("shard_%02d" % (i // 10), "layers", "block", "part_%d" % (i % 10)))
    os.makedirs(at)
    for k in range(100):
        with open(os.path.join(at, "%05d.dat" % k), "w") as f:
            f.write("%d %d" % (i, k))
END
    run ckpt verify many -o json
    is "$status $(json 0.state <out)" '0 whole' 'a checkpoint of many files is verified' || show
    run ckpt cp many/checkpoint-5 many2
    is "$status $(find many2 -type f | wc -l)" '0 10002' 'and copied' || show
    ok 'the same' diff -r many/checkpoint-5 many2/checkpoint-5
    make_foreign many2 6 1
    run ckpt prune many2 --keep 1
    is "$status:$(ls -A many2)" 0:checkpoint-6 'and removed' || show
}

# on_terminal COMMAND...: what it shows there is in out, a line each time.
on_terminal() { TERM=xterm script -qec "$*" /dev/null </dev/null | tr '\r' '\n' >out; }

# On a terminal people see how far it is, which is gone at the end.
test_progress() {
    command -v script >/dev/null || { skip 'no script, of bsdutils' 6; return; }
    local verb
    rm -rf big
    mkdir big
    "$MUSTER_BUILDDIR/make_step" big 7 "$(printf '%032x' 7)" 2 50000000 >/dev/null || bail_out 'no checkpoint made'
    for verb in verify last-valid 'prune --keep 1'; do
        TERM=xterm script -qec "'$MUSTER' ckpt $verb big 2>err 3>&2 2>&3" /dev/null >out </dev/null
        is "$(grep -c reading err out)" $'err:0\nout:0' "$verb: a file is not told of what takes no time"
        on_terminal "'$MUSTER' ckpt $verb big"
        matches "$(cat out)" "reading step-000000000007-.*: [0-9.]+ [KMiB]+ of 95\.4 MiB, [0-9]+%, .*/s" "$verb: a terminal is" || show
    done
    made
    on_terminal "'$MUSTER' ckpt prune p --keep 2"
    like "$(cat out)" 'removing checkpoints: 0 of 3' 'prune tells what goes' || show
    is "$(sed 's/.*\x1b\[K//' out | grep -c '^p/step-')" 3 'and each on a line of its own' || show
    on_terminal "'$MUSTER' ckpt cp big/step-* to/big"
    matches "$(cat out)" 'copying step-000000000007-.*: [0-9.]+ [KMiB]+ of 190\.7 MiB, [0-9]+%, .*/s' 'cp, too' || show
    is "$(grep -c $'^\033\[K' out)" 1 'and in the end no more'
    make_tensor big/step_9.safetensors 90000000
    on_terminal "'$MUSTER' ckpt convert big/step_9.safetensors big/model"
    matches "$(cat out)" 'converting: [0-9.]+ [KMiB]+ of 85\.8 MiB, [0-9]+%, .*/s' 'convert, too' || show
    is "$(grep -c $'^\033\[K' out)" 1 'and in the end no more'
    rm -r big/*
}

# In a log a line is written now and then.
test_progress_logged() {
    can_trace || { skip 'no strace: see scripts/install-deps' 2; return; }
    local pids=()
    rm -rf big to
    mkdir big
    "$MUSTER_BUILDDIR/make_step" big 7 "$(printf '%032x' 7)" 1 90000000 >/dev/null || bail_out 'no checkpoint made'
    slowly() { strace -f -qq -o /dev/null -e inject=pread64:delay_enter=700000 "$MUSTER" ckpt "$@"; }
    slowly verify big >out1 2>err1 & pids+=($!)
    slowly cp big/step-* to >out2 2>err2 & pids+=($!)
    wait "${pids[@]}"
    is "$?" 0 'they take more than ten seconds'
    matches "$(cat err1)" '^muster: reading step-[^ ]*: [0-9.]+ MiB of 85\.8 MiB, [0-9]+%, [0-9.]+ MiB/s$' 'to verify' || show
    num "$(grep -c copying err2)" -ge 1 'to copy' || diag "$(cat err2)"
    num "$(grep -c copying err2)" -le 3 'but not often'
}

# while_gone VERB...: of three the second newest is removed after all were listed.
while_gone() {
    local i strace
    rm -rf g && mkdir g && : >trace
    for i in 10 20 30; do make_foreign g $i 1; done
    [ "$1" != last-valid ] || echo '{' >g/checkpoint-30/trainer_state.json
    strace -f -qq -o trace -P trainer_state.json -e inject=openat:signal=STOP:when=1 "$MUSTER" ckpt "$@" >out 2>err &
    strace=$!
    wait_for 60 grep -q 'stopped by SIGSTOP' trace || bail_out "ckpt $* does not stop: $(cat trace err)"
    rm -r g/checkpoint-20
    kill -CONT "$(pgrep -P $strace)"
    status=0
    wait $strace || status=$?
}

test_gone() {
    can_trace || { skip 'no strace: see scripts/install-deps' 5; return; }
    while_gone verify g
    is "$status:$(awk '{ print $1 }' out | tr '\n' ' ')" '0:NAME checkpoint-30 checkpoint-10 ' 'what a prune takes meanwhile is not unfinished' || show
    while_gone ls g -o json
    is "$status:$(grep -c '"name"' out)" 0:2 'nor in a list' || show
    while_gone verify g checkpoint-30 checkpoint-20
    is "$status:$(grep -c '^checkpoint-20 .*unfinished' out)" 1:1 'but where it is asked for' || show
    while_gone last-valid g
    is "$status:$(cat out)" 0:g/checkpoint-10 'the last valid one' || show
    is "$(grep -c checkpoint-20 err)" 0 'is told without it' || show
}

# interrupted WHEN CALL COMMAND...: SIGINT comes at that one of such system calls.
interrupted() {
    strace -f -qq -o /dev/null -e "inject=$2:signal=INT:when=$1" "$MUSTER" ckpt "${@:3}" >out 2>err
    status=$?
}

# at_each CHECK CALL...: runs CHECK N CALL, with N from 1 on (each fourth under sanitizers), until nothing is interrupted
# any more; $n of all calls were, and CHECK fails of $bad.
at_each() {
    local check=$1 i call every=1
    ! sanitized || every=4
    shift
    n=0 bad=0 said=0
    for call; do
        for ((i = 1; i < 100; i += every)); do
            $check "$i" "$call" || bad=$((bad + 1))
            [ "$status" != 0 ] || break
            n=$((n + 1))
            [ "$status" = 130 ] || bad=$((bad + 1))
            said=$((said + $(grep -c 'ended by a signal, and nothing is left' err)))
        done
    done
    is "$status" 0 'until there is none left'
}

# make_tensor FILE BYTES: a safetensors file of zeros.
make_tensor() {
    local head="{\"w\":{\"dtype\":\"U8\",\"shape\":[$2],\"data_offsets\":[0,$2]}}"
    printf "\\$(printf %o ${#head})\0\0\0\0\0\0\0%s" "$head" >"$1"
    truncate -s +"$2" "$1"
}

# Ctrl-C at any moment leaves nothing in parts: it is whole, or not there.
test_interrupted() {
    can_trace || { skip 'no strace: see scripts/install-deps' 3; return; }
    local one n bad said
    cp_is_whole() {
        rm -rf to5
        interrupted "$1" "$2" cp "$one" to5
        [ -z "$(ls -A to5 2>/dev/null)" ] || { diff -r "$one" "to5/${one##*/}" && [ "$(ls -A to5)" = "${one##*/}" ]; }
    }
    convert_is_whole() {
        rm -rf to6
        mkdir to6
        interrupted "$1" "$2" convert ten-1.safetensors to6/m
        case $(ls -A to6) in '' | m) ;; *) false ;; esac
    }
    made
    make_foreign f4 10 1
    make_tensor ten-1.safetensors 90000000
    for one in "p/$(name_of 5)" f4/checkpoint-10; do
        at_each cp_is_whole pread64 write fsync mkdirat renameat
        num $n -ge 4 "cp ${one##*/}: interrupted at each of $n calls"
        is $bad 0 'it leaves all of it or nothing, and ends by the signal'
        num $said -ge 1 'which it says'
    done
    at_each convert_is_whole pread64 pwrite64 fsync renameat2
    num $n -ge 4 "convert: at each of $n calls"
    is $bad 0 'neither does that'
    num $said -ge 1 'which it says'
    interrupted 5+ pread64 cp "p/$(name_of 5)" to7
    is $status 130 'a second signal ends it at once'
}

# Whatever cannot be opened, the best does not go: what nobody can judge stays.
test_prune_unreadable() {
    can_trace || { skip 'no strace: see scripts/install-deps' 3; return; }
    local i n gone=0 said=0 every=1
    ! sanitized || every=4
    rm -rf u
    for i in 10 20 30 40; do
        make_foreign u $i $((i == 20 ? 1 : i))
    done
    strace -f -qq -o trace -e trace=openat "$MUSTER" ckpt prune u --keep 1 --best eval_loss --dry-run >out
    is "$(sed 's/.*-//' out | tr '\n' ' ')" '10 30 ' 'the best stays' || show
    n=$(wc -l <trace)
    for ((i = $(grep -n -m 1 '"u"' trace | cut -d: -f1); i <= n; i += every)); do
        run strace -f -qq -o /dev/null -e "inject=openat:error=EIO:when=$i" \
            "$MUSTER" ckpt prune u --keep 1 --best eval_loss --dry-run
        ! grep -q 'checkpoint-20$' out || gone=$((gone + 1))
        ! grep -q 'left alone, unreadable: read checkpoint-20/trainer_state.json: Input/output error' err || said=$((said + 1))
    done
    is $gone 0 'whichever of its calls fails'
    sanitized || num $said -ge 1 'and what could not be read is told'
}

# What has begun to go is gone before a signal ends it.
test_prune_interrupted() {
    can_trace || { skip 'no strace: see scripts/install-deps' 3; return; }
    local n bad said
    prune_is_clean() {
        local all=(1 2 3 4 5 10 20)
        made
        make_foreign p 10 1
        make_foreign p 20 1
        interrupted "$1" "$2" prune p --keep 1
        [ "$(ckpt verify p -o json | grep -c unfinished)" = 0 ] && [ -z "$(ls -A p | grep '^\.')" ] &&
            [ "$(left)" = "${all[*]:$(wc -l <out)} " ]
    }
    at_each prune_is_clean unlinkat renameat
    num $n -ge 4 "prune: at each of $n calls"
    is $bad 0 'what goes is all gone, and told'
}

# left_over STEP WHEN: what a save that was killed WHEN leaves.
left_over() {
    rm -rf "p/$(name_of "$1")"
    make_own p "$1"
    rm "p/$(name_of "$1")/COMMIT"
    touch -d "$2" "p/$(name_of "$1")"/* "p/$(name_of "$1")"
}

# Saves that were killed stay where nothing is said of them: who saves may be at it.
test_unfinished() {
    made
    left_over 6 '3 hours ago'
    left_over 7 '10 minutes ago'
    left_over 2 '2 days ago'
    run ckpt prune p --keep 9
    is "$status:$(left)" '0:1 2 3 4 5 6 7 ' 'without a word of them all stay' || show
    like "$(cat err)" "left alone, unfinished: $(name_of 6) has no COMMIT: it was never finished" 'and are told of'
    like "$(tail -1 err | sed 's/take [0-9.]* KiB/take so much/')" \
        'muster: 3 unfinished take so much: --unfinished 1h removes those' 'with what they take'
    run ckpt prune p --unfinished 1h --dry-run
    is "$status:$(tr '\n' ' ' <out):$(left)" "0:p/$(name_of 2) p/$(name_of 6) :1 2 3 4 5 6 7 " 'what would go is told' || show
    run ckpt prune p --unfinished 1h
    is "$status:$(tr '\n' ' ' <out):$(left)" "0:p/$(name_of 2) p/$(name_of 6) :1 3 4 5 7 " \
        'what nobody has written to for so long goes, and nothing else' || show
    like "$(cat err)" "$(name_of 7): it was written to 10m" \
        'and when one was written to that stays'
    like "$(cat err)" 'and who saves may be at it: expected 1h without a change' 'and why'
    unlike "$(cat err)" 'removes those' 'who has read of it is not told again'
    ls -A p | grep -v ^step- >out
    is "$(cat out)" '' 'no file is left of that'
    left_over 6 '3 hours ago'
    run ckpt prune p --keep 2 --unfinished 5m
    is "$status:$(left)" '0:4 5 ' 'beside what has to go by the rule' || show
}

# mark STEP [PLACE]: as its rank 0 does once it has a lock (ckpt/saver.h).
mark() {
    echo "${2:-$(cat /proc/sys/kernel/random/boot_id) $(stat -c %Hd:%Ld p)}" >"p/$(name_of "$1")/.saver"
}

# Of some it is known that their program has ended.
test_unfinished_ended() {
    made
    left_over 6 'now'
    left_over 7 'now'
    left_over 8 'now'
    mark 6
    mark 7
    mark 8 'another-boot 8:1'
    exec 8<"p/$(name_of 7)"
    flock -s 8
    run ckpt ls p
    matches "$(grep "^$(name_of 6)" out)" 'unfinished .*has no COMMIT: who saved it has ended' 'ls tells it' || show
    matches "$(grep "^$(name_of 7)" out)" 'unfinished .*has no COMMIT: it is being saved' 'and of one that is being saved'
    matches "$(grep "^$(name_of 8)" out)" 'unfinished .*has no COMMIT: it was never finished' 'and where nobody knows'
    run ckpt prune p --keep 9 --dry-run
    is "$status:$(tr '\n' ' ' <out):$(left)" "0:p/$(name_of 6) :1 2 3 4 5 6 7 8 " 'what would go is told' || show
    run ckpt prune p --keep 9
    is "$status:$(tr '\n' ' ' <out):$(left)" "0:p/$(name_of 6) :1 2 3 4 5 7 8 " 'and goes' || show
    like "$(tail -1 err)" 'muster: 2 unfinished take' 'the others take so much'
    exec 8<&-
    touch -d '61 minutes ago' "p/$(name_of 8)"/{*,.saver} "p/$(name_of 8)"
    run ckpt prune p --keep 9
    is "$status:$(left)" '0:1 2 3 4 5 ' 'once they have ended, and after an hour on another host' || show
    left_over 6 'now'
    mark 6
    echo mine >"p/$(name_of 6)/notes.txt"
    run ckpt prune p --keep 9
    is "$status:$(ls -A "p/$(name_of 6)")" '1:notes.txt' 'files of somebody else stay' || show
    like "$(cat err)" "$(name_of 6)/notes.txt is not muster's: it stays" 'which is told'
    mark 5
    run ckpt verify p "$(name_of 5)"
    is "$status" 0 'a mark that has stayed in a whole one is no part of it' || show
    is "$(ckpt last-valid p)" "p/$(name_of 5)" 'which counts'
    run ckpt cp "p/$(name_of 5)" q
    is "$status:$(ls -A q/step-* | grep -c saver)" 0:0 'nor is it copied' || show
    run ckpt prune p --keep 1
    is "$status:$(ls -d p/step-*/COMMIT | wc -l)" 0:1 'and whole it stays' || show
    rm -rf q
}

# One file that is written to, of many that are not; one that has grown to a checkpoint.
test_unfinished_at_work() {
    rm -rf p
    left_over 6 '3 hours ago'
    touch "p/$(name_of 6)/r00001.safetensors"
    run ckpt prune p --unfinished 1h
    is "$status:$(left)" '0:6 ' 'one that is written to stays' || show
    touch -d '3 hours ago' "p/$(name_of 6)"/*
    exec 8<"p/$(name_of 6)"
    flock -s 8
    run ckpt prune p --unfinished 1h
    is "$status:$(left)" '0:6 ' 'and one that somebody copies' || show
    like "$(cat err)" 'somebody saves or copies it' 'as is told'
    exec 8<&-
    touch p/.muster-run-20260101-000000-abcdef
    run ckpt prune p --unfinished 1h
    is "$status:$(left)" '0:6 ' 'and all where a run saves' || show
    like "$(cat err)" 'run 20260101-000000-abcdef saves there' 'as is told'
    touch -d '2 minutes ago' p/.muster-run-20260101-000000-abcdef
    echo mine >"p/$(name_of 6)/notes.txt"
    touch -d '3 hours ago' "p/$(name_of 6)"/* "p/$(name_of 6)"
    run ckpt prune p --unfinished 1h
    is "$status" 1 'one with files of somebody else is told'
    like "$(cat err)" "$(name_of 6)/notes.txt is not muster's: it stays" 'with the file'
    is "$(ls "p/$(name_of 6)")" notes.txt 'which is all that is left'
    rm -r "p/$(name_of 6)" p/.muster-run-*
    left_over 6 'tomorrow'
    run ckpt prune p --unfinished 1h
    is "$status:$(left)" '0:6 ' 'one of a time that is to come stays' || show
    like "$(cat err)" 'written to after now' 'which is told'
}

test_unfinished_usage() {
    rm -rf p
    made
    for time in '' 1 0 -1h soon 59s; do
        run ckpt prune p --unfinished "$time"
        is "$status" 2 "no time: '$time'"
    done
    like "$(cat err)" 'option --unfinished: expected a time of at least 1m' 'which is said'
    run ckpt prune s3://b/p --unfinished 1h
    is "$status" 2 'nor a store'
    like "$(cat err)" "expected a directory, found 's3://b/p'" 'which is said'
    run ckpt prune p --unfinished 1h --best loss
    is "$status" 2 'a rule without --keep'
    run ckpt ls p --unfinished 1h
    is "$status:$(left)" '2:1 2 3 4 5 ' 'and no other verb has it'
}

test_usage() {
    made
    run ckpt prune p
    is "$status" 2 'not without --keep'
    like "$(cat err)" 'ckpt prune: --keep N is needed' 'which is said'
    run ckpt prune p --keep 0
    is "$status" 2 'at least one'
    run ckpt prune p --keep 1 --every -1
    is "$status" 2 'every -1'
    run ckpt prune p --keep 1 --every 0 --dry-run
    is "$status" 2 'nor every 0'
    run ckpt prune p --keep 1 --best :max
    is "$status" 2 'a metric has a name'
    run ckpt prune p --keep 1 --best loss:foo
    is "$status" 2 'and behind a colon is min or max'
    run ckpt prune p q --keep 1
    is "$status" 2 'two directories'
    run ckpt prune nowhere --keep 1
    is "$status" 1 'one that is not there'
    is "$(left)" '1 2 3 4 5 ' 'nothing has gone'
}

# What a verb does not have is not taken and forgotten.
test_options() {
    local line
    made
    while read -r line; do
        run ckpt $line
        is "$status" 2 "ckpt $line" || show
        like "$(cat err)" 'has no option --' 'is told'
    done <<END
convert p/$(name_of 1) made --dry-run
cp p/$(name_of 1) made --keep 1
cp p/$(name_of 1) made --newer
pull s3://nobody/there made --keep 1
cp s3://nobody/there made --keep 1
push p/$(name_of 1) s3://nobody/there --shard-size 1Mi
ls p --dry-run
verify p --best loss
verify s3://nobody/there name --newer
last-valid p -o json
prune p --keep 1 --dry-run -o yaml
show p/$(name_of 1) --ranks 2
bench p --jobs 2
END
    run ckpt push "p/$(name_of 1)" s3://nobody/there --every 2
    is "$status" 2 'which stay, of all' || show
    like "$(cat err)" '--keep N is needed, too, where there is --every' 'is told'
    ok 'nothing was made' test ! -e made
    is "$(left)" '1 2 3 4 5 ' 'and nothing has gone'
    run ckpt ls p --jobs 2 -o wide
    is "$status" 0 'how to talk to stores may be said everywhere' || show
}

# As "$(muster ckpt last-valid DIRECTORY)" is where none is valid.
test_empty_words() {
    local line
    made
    for line in ls verify last-valid show bench 'prune --keep 1' 'convert p' 'cp p' 'verify p' 'push p' 'pull s3://nobody/there'; do
        run ckpt $line ''
        is "$status" 2 "ckpt $line ''" || show
        like "$(cat err)" "muster: ckpt ${line%% *}: expected a path or a name, found an empty one" 'is told'
    done
    run ckpt cp '' made
    is "$status" 2 'an empty one first' || show
    ok 'nothing is made' test ! -e made
}

once_is_enough test_cp_killed test_progress_logged
run_cases
