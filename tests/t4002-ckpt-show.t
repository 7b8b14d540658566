#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What muster ckpt prints of checkpoints: sizes, tables and counts, for people and for
# programs; and which sizes and names it takes. It needs no program that saves.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
ckpt() { "$MUSTER" ckpt "$@"; }
golden=step-000000000010-804f7d12
cp -r "$MUSTER_SRCDIR/tests/golden" g

# sized FILE BYTES: a tensor in a file that is so long, and takes no room on the disk.
sized() {
    local n=$(($2 - 128))
    { printf '\170\0\0\0\0\0\0\0' && printf '%-120s' "{\"w\":{\"dtype\":\"U8\",\"shape\":[$n],\"data_offsets\":[0,$n]}}"; } >"$1"
    truncate -s "$2" "$1"
}

# trainer DIRECTORY STEP: what the Hugging Face Trainer leaves.
trainer() {
    mkdir -p "$1"
    printf '\002\0\0\0\0\0\0\0{}' >"$1/model.safetensors"
    echo "{\"global_step\": $2}" >"$1/trainer_state.json"
}

test_sizes() {
    mkdir s
    sized s/step-1.safetensors 1023
    sized s/step-2.safetensors 1024
    sized s/step-3.safetensors 1536
    sized s/step-4.safetensors 1048576
    sized s/step-5.safetensors 1610612736
    sized s/step-6.safetensors 1048525 # 1023.95 KiB would be shown as 1024.0
    sized s/step-7.safetensors 1048524
    run ckpt ls s
    is "$status:$(awk 'NR > 1 { print $3, $4, $5 }' out | tr '\n' ,)" \
        '0:7 1023.9 KiB,6 1.0 MiB,5 1.5 GiB,4 1.0 MiB,3 1.5 KiB,2 1.0 KiB,1 1023 B,' 'sizes are told in units that people read' || show
    is "$(head -1 out | tr -s ' ')" 'NAME KIND STEP SIZE STATE WHY' 'under a head'
    is "$(grep -c ' whole *structure only: no checksums, or not for all$' out)" 7 'and that nothing can be verified'
    run ckpt ls s -o json
    is "$(json 6.bytes <out) $(json 6.files <out) $(json 6.structure_only <out) $(json 6.step <out)" '1023 1 true 1' \
        'for programs in bytes' || show
    is "$(json 6.why <out || echo none)" none 'with no reason where nothing is wrong'
    truncate -s 1022 s/step-1.safetensors
    run ckpt ls s
    matches "$(tail -1 out)" '^step-1.safetensors +safetensors +1 +- +damaged +step-1' 'one that is damaged has no size' || show
    run ckpt ls s -o json
    is "$(json 6.bytes <out || echo none) $(json 6.state <out)" 'none damaged' 'for programs neither'
    like "$(json 6.why <out)" 'step-1.safetensors: ' 'but a reason'
}

# A name without a step is none to go on from, but it is told.
test_no_step() {
    mkdir n
    sized n/model.safetensors 200
    run ckpt ls n
    matches "$status:$(tail -1 out)" '^0:model.safetensors +safetensors +- +200 B +whole ' 'a name that says no step' || show
    run ckpt ls n -o json
    is "$(json 0.step <out || echo none)" none 'says none to programs'
    run ckpt show n/model.safetensors
    unlike "$status:$(cat out)" 'Step:' 'nor does show'
    is "$(grep '^Size:' out)" 'Size:       200 B in 1 file' 'of one file'
    is "$(grep '^Tensors:' out)" 'Tensors:    1, 72 B' 'and of one tensor'
    unlike "$(cat out)" 'Saved:' 'which says nothing of who saved it'
}

test_show() {
    run ckpt show g/$golden
    is "$status:$(grep '^Checkpoint:' out)" "0:Checkpoint: $golden" "one of muster's" || show
    is "$(grep -c '^$' out)" 2 'with an empty line before each table'
    is "$(grep '^Kind:' out)" 'Kind:       muster' 'its kind'
    is "$(grep '^Step:' out)" 'Step:       10' 'its step'
    matches "$(grep '^Saved:' out)" '^Saved:      2026-.*, by muster [^ ]*, generation 1, token 4294967296$' 'when, and by whom'
    is "$(grep '^By:' out)" 'By:         1 rank on 1 node, committed by node0' 'how many'
    is "$(grep '^Size:' out)" 'Size:       5.4 KiB in 3 files' 'its size'
    is "$(grep '^Tensors:' out)" 'Tensors:    1, 24 B' 'that of its tensors'
    is "$(grep '^JSON:' out)" 'JSON:       config' 'its values'
    is "$(grep -A 1 '^TENSOR' out | tr -s ' ')" $'TENSOR DTYPE SHAPE SIZE PIECES FILES\nw F32 [2, 3] 24 B 1 r00000.safetensors' 'its tensors'
    is "$(grep -A 1 '^BLOB' out | tr -s ' ')" $'BLOB KIND RANKS\nrng per-rank 1' 'and its blobs'
    run ckpt show g/$golden -o json
    is "$(json name <out) $(json kind <out) $(json step <out) $(json bytes <out) $(json files <out)" \
        "$golden muster 10 5479 3" 'the same for programs' || show
    is "$(json generation <out) $(json token <out) $(json ranks <out) $(json nodes <out) $(json host <out)" \
        '1 4294967296 1 1 node0' 'who saved it'
    is "$(json blobs.0.name <out) $(json blobs.0.kind <out) $(json blobs.0.ranks <out) $(json state.0 <out)" \
        'rng per-rank 1 config' 'what is no tensor'
    is "$(json tensor_bytes <out) $(json tensors.0.name <out) $(json tensors.0.dtype <out) $(json tensors.0.shape.1 <out)" \
        '24 w F32 3' 'what is one'
    is "$(json tensors.0.bytes <out) $(json tensors.0.pieces <out) $(json tensors.0.files.0 <out)" '24 1 r00000.safetensors' \
        'and where it lies'
    is "$(json time <out | cut -d. -f1)" 1795899252 'and when it was saved'
    run ckpt show g/$golden -o yaml
    like "$status:$(cat out)" "name: $golden" 'as YAML' || show
}

test_several_files() {
    local i comma=
    mkdir m
    for i in 1 2 3 4 5; do
        sized m/model-0000$i-of-00005.safetensors 129
        sed -i "1s/\"w\"/\"$i\"/" m/model-0000$i-of-00005.safetensors
    done
    cat >m/model.safetensors.index.json <<END
{"metadata": {"total_size": 5}, "weight_map": {$(for i in 1 2 3 4 5; do printf '%s"%s": "model-0000%s-of-00005.safetensors"' "$comma" $i $i; comma=', '; done)}}
END
    run ckpt show m
    is "$status:$(grep '^Size:' out)" '0:Size:       645 B in 5 files' 'of several files' || show
    is "$(grep '^Tensors:' out)" 'Tensors:    5, 5 B' 'and several tensors'
    is "$(awk '$2 == "U8" { print $1, $NF }' out | tail -1)" '5 model-00005-of-00005.safetensors' 'each with its file'
    run ckpt convert m m.safetensors
    is "$status:$(head -1 err)" '0:muster: converted 5 tensors, 5 B, into 1 file' 'which become one' || show
    run ckpt convert m m.d --shard-size 2
    is "$status:$(head -1 err)" '0:muster: converted 5 tensors, 5 B, into 3 files' 'or several others' || show
}

# What files say of themselves is kept where all say the same.
test_metadata() {
    local i
    mkdir k
    for i in 1 2; do
        { printf '\360\0\0\0\0\0\0\0' && printf '%-240s' \
            "{\"__metadata__\":{\"format\":\"pt\",\"part\":\"$i\"},\"$i\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}} " &&
            printf x; } >k/model-0000$i-of-00002.safetensors
    done
    echo '{"weight_map": {"1": "model-00001-of-00002.safetensors", "2": "model-00002-of-00002.safetensors"}}' \
        >k/model.safetensors.index.json
    run ckpt convert k k.safetensors
    is "$status:$(grep -c 'muster: 1 key of __metadata__ differs from file to file: left out' err)" 0:1 \
        'what differs is left out, and told' || show
    like "$(head -c 200 k.safetensors | tail -c +9)" '"format":"pt"' 'what does not is kept'
    unlike "$(head -c 200 k.safetensors | tail -c +9)" '"part"' 'and no other'
    run ckpt convert k k2.safetensors -o json
    is "$(json metadata_left_out <out)" 1 'for programs, too' || show
}

test_convert() {
    local line
    run ckpt convert g/$golden hub
    is "$status:$(cat out):$(cat err)" "0:hub:muster: converted 1 tensor, 24 B, into 1 file
muster: 1 blob is no tensor: left out" 'what was made, and what was left out' || show
    run ckpt convert g/$golden one.safetensors -o json
    is "$status:$(cat err)" 0: 'nothing more is said to programs' || show
    is "$(json path <out) $(json files <out) $(json tensors <out) $(json bytes <out)" 'one.safetensors 1 1 24' 'what was made' || show
    is "$(json blobs_left_out <out) $(json metadata_left_out <out) $(json verified <out)" '1 0 true' 'and what was not'
    run ckpt convert one.safetensors again.safetensors
    is "$status:$(tail -1 err)" '0:muster: what it was converted from has no checksums, or not for all' 'of others nothing is verified' || show
    unlike "$(cat err)" 'left out' 'and nothing left out'
    run ckpt convert g/$golden "$TRASH/below/../abs.safetensors"
    is "$status" 1 'into a directory that is not there' || show
    like "$(cat err)" "open $TRASH/below/..: No such file" 'which is named'
    run ckpt convert g/$golden "$(printf '%05000d' 0)"
    is "$status" 1 'by a name that is longer than any may be' || show
    like "$(cat err)" 'File name too long' 'as is said'
    run ckpt convert g/$golden "$TRASH/abs.safetensors"
    is "$status:$(cat out)" "0:$TRASH/abs.safetensors" 'by a whole path' || show
    for line in . .. / // ./; do
        run ckpt convert g/$golden $line
        is "$status" 1 "$line is no name" || show
        like "$(cat err)" "$line is there already: expected the name of what is to be made" 'as is said'
    done
    for line in hub hub// one.safetensors; do
        run ckpt convert g/$golden $line
        is "$status" 1 "not over $line" || show
        like "$(cat err)" 'is there already, and is not written over' 'as is said'
    done
    for line in x.pt x.pth x.bin x.ckpt x.pt/ x.ckpt// .pt; do
        run ckpt convert g/$golden $line
        is "$status" 2 "no $line is written" || show
        like "$(cat err)" "ckpt convert: $line has the name of a file that convert does not write" 'as is said'
    done
    for line in x.safetensors/ x.safetensors//; do
        run ckpt convert g/$golden $line
        is "$status" 2 "$line is neither" || show
        like "$(cat err)" 'the name of a file, and the slash of a directory' 'as is said'
    done
    run ckpt convert g/$golden x.pt.d/
    is "$status:$(ls x.pt.d)" 0:model.safetensors 'but any other name is that of a directory' || show
    ok 'nothing else was made' test -z "$(ls -d x.* .x* .pt 2>/dev/null | grep -v '^x.pt.d$')"
}

test_shard_sizes() {
    local size
    for size in 5Gi 5120Mi 1Ki 7; do
        run ckpt convert g/$golden sized --shard-size $size
        is "$status" 0 "shards of $size" || show
        rm -rf sized
    done
    for size in 0 6Gi 5121Mi 5242881Ki 5368709121 99999999999999999999 1Ti; do
        run ckpt convert g/$golden sized --shard-size $size
        is "$status" 2 "none of $size" || show
        like "$(cat err)" "'$size': expected 1 to 5Gi" 'as is said'
    done
    for size in K 12Q 1K 1KiB 1Kib 1B -1 1.5Gi 'x'; do
        run ckpt convert g/$golden sized "--shard-size=$size"
        is "$status" 2 "$size is none" || show
        like "$(cat err)" "'$size' is no size: expected one like 64Mi" 'as is said'
    done
    run ckpt convert g/$golden one.safetensors --shard-size 1Gi
    is "$status" 2 'one file has no shards' || show
    ok 'nothing is made' test ! -e sized
}

# What is not there, or something else.
test_no_checkpoint() {
    local verb
    echo words >notes.txt
    mkdir nothing
    for verb in ls verify last-valid; do
        run ckpt $verb missing
        is "$status:$(cat out)" 1: "$verb of what is not there" || show
        like "$(cat err)" 'open missing: No such file' 'which is named'
        run ckpt $verb notes.txt
        is "$status:$(cat out)" "$([ $verb = verify ] && echo 3 || echo 1):" "$verb of a file of something else" || show
        like "$(cat err)" 'notes.txt is no checkpoint that is known' 'which is called so'
    done
    for verb in 'show notes.txt' 'convert notes.txt made'; do
        run ckpt $verb
        is "$status" 1 "$verb: likewise" || show
        like "$(cat err)" 'notes.txt is no checkpoint that is known: those in a directory are told by muster ckpt ls' \
            'which tells what lists those that are'
    done
    run ckpt ls nothing
    is "$status:$(cat out):$(cat err)" '0::muster: no checkpoints' 'a list may be empty' || show
    run ckpt ls nothing -o json
    is "$status:$(cat out)" '0:[]' 'for programs, too' || show
    run ckpt verify nothing
    is "$status:$(cat err)" '1:muster: no checkpoints' 'but where nothing is nothing is whole' || show
    run ckpt last-valid nothing
    is "$status:$(cat err)" '1:muster: no valid checkpoint in nothing' 'nor valid' || show
}

# A directory of checkpoints may look like one itself.
test_output() {
    trainer o 7
    run ckpt verify o
    is "$status:$(awk 'NR > 1 { print $1 }' out)" 0:o 'where the Trainer has saved its last model it is one' || show
    trainer o/checkpoint-5 5
    run ckpt verify o
    like "$status:$(cat out)" 'checkpoint-5' 'but for those that are in it, though it be one alone' || show
    run ckpt last-valid o
    is "$status:$(cat out)" 0:o/checkpoint-5 'from which there is one to go on' || show
    run ckpt last-valid o/
    is "$status:$(cat out)" 0:o/checkpoint-5 'with one slash' || show
    run ckpt prune o --keep 1
    is "$status:$(cat out)" 0: 'and that one stays' || show
}

# ls looks at no byte of what has checksums, and verify at all.
test_flipped() {
    cp -r g flipped
    printf X | dd of=flipped/$golden/r00000.safetensors bs=1 seek=4096 conv=notrunc status=none
    run ckpt ls flipped
    is "$status:$(grep -c ' whole' out)" 0:1 'a byte that is wrong is none that ls looks at' || show
    run ckpt verify flipped
    is "$status:$(grep -c ' damaged ' out)" 1:1 'verify does' || show
    like "$(cat out)" "r00000.safetensors is damaged" 'and tells the file'
    run ckpt last-valid flipped
    is "$status:$(cat out)" 1: 'there is none to go on from' || show
    like "$(cat err)" "muster: passed over, damaged: $golden" 'which is told'
    like "$(cat err)" 'muster: no valid checkpoint in flipped' 'and that no other one is there'
    run ckpt show flipped/$golden
    is "$status" 0 'what is in it can be shown' || show
    run ckpt convert flipped/$golden flipped.safetensors
    is "$status" 1 'but not converted' || show
    ok 'nothing is left' test ! -e flipped.safetensors
}

# As many words as a verb has.
test_words() {
    local line
    while read -r line; do
        run ckpt $line
        is "$status" 2 "ckpt $line" || show
    done <<END
ls
show
ls g g
last-valid g g
show g/$golden g/$golden
bench g g
convert g/$golden
convert g/$golden a b
prune g g --keep 1
END
    run ckpt show g/$golden g
    like "$(cat err)" 'ckpt show: expected a checkpoint, and nothing else' 'what show has'
    run ckpt convert g/$golden
    like "$(cat err)" 'ckpt convert: expected a checkpoint and what to make of it, and nothing else' 'what convert has'
    run ckpt bench g g
    like "$(cat err)" 'ckpt bench: expected a directory, and nothing else' 'what bench has'
    run ckpt bench s3://b/p
    like "$status:$(cat err)" 'expected a directory here: stores are not measured' 'where it does not'
    run ckpt ls g g
    like "$(cat err)" 'ckpt ls: one directory, and nothing else' 'what ls has'
    run ckpt prove g
    is "$status" 2 'what no verb is' || show
    like "$(cat err)" "ckpt: unknown 'prove', expected ls, verify, last-valid, show, convert, push, pull, cp, prune or bench" \
        'is told which there are'
    run ckpt verify g $golden $golden
    is "$status:$(grep -c whole out)" 0:1 'names may be many, of which each is told once' || show
    run ckpt verify g $golden nothing
    is "$status:$(cat out)" 1: 'but all have to be there' || show
    like "$(cat err)" "no checkpoint 'nothing' in g" 'which is told'
}

run_cases
