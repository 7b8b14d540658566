#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster ckpt show and convert: what is in a checkpoint that several workers have saved,
# and files made of it that the safetensors library reads.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
export PYTHONPATH=$MUSTER_SRCDIR/python PYTHONDONTWRITEBYTECODE=1 XDG_STATE_HOME=$TRASH/state
export LIBMUSTER=$MUSTER_BUILDDIR/.libs/libmuster.so.0
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
! nm -D "$LIBMUSTER" 2>/dev/null | grep -q __asan || {
    skip 'libmuster wants the sanitizer in the program'
    done_testing
}
need_module numpy safetensors
program() { "$MODULE_PYTHON" "$MUSTER_SRCDIR/tests/py/ckpt_convert.py" "$@"; }
ckpt() { "$MUSTER" ckpt "$@"; }

mkdir ck
run timeout 300 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node 3 -- \
    "$MODULE_PYTHON" "$MUSTER_SRCDIR/tests/py/ckpt_convert.py" save "$TRASH/ck"
is "$status" 0 'three workers save' || show
step=$(basename "$(echo ck/step-*)")

test_show() {
    run ckpt show "ck/$step"
    is "$status" 0 'show' || show
    like "$(cat out)" "By:         3 ranks on 1 node, committed by $(hostname)" 'says who saved it'
    matches "$(cat out)" 'model\.weight +F32 +\[90, 100\] +35\.2 KiB +3 +r00000\.safetensors r00001\.safetensors r00002\.safetensors' 'a tensor, its pieces and files'
    matches "$(cat out)" 'scale +F64 +\[\] +8 B +1 ' 'one without dimensions'
    matches "$(cat out)" 'python\.tree +replicated +1' 'blobs'
    run ckpt show "ck/$step/" -o json
    is "$(json step <out) $(json ranks <out) $(json tensor_bytes <out)" '30 3 36808' 'as JSON'
    is "$(json host <out)" "$(hostname)" 'with the host that wrote COMMIT'
    is "$(json tensors.1.name <out) $(json tensors.1.shape.0 <out) $(json tensors.1.dtype <out) $(json tensors.1.files.2 <out)" \
        'model.weight 90 F32 r00002.safetensors' 'with all of each tensor'
    mkdir names
    printf '\002\0\0\0\0\0\0\0{}' >names/model-00001-of-00003.safetensors
    cp names/model-*.safetensors names/llama-7b.safetensors
    cp names/model-*.safetensors names/iter_0000070.safetensors
    run ckpt show names/model-00001-of-00003.safetensors
    unlike "$(cat out)" 'Step:' 'a number of files is no step'
    run ckpt show names/llama-7b.safetensors -o json
    is "$(json kind <out) $(json step <out || echo none)" 'safetensors none' 'nor is any other number'
    run ckpt show names/iter_0000070.safetensors
    like "$(cat out)" 'Step:       70' 'but for one of which the name says so'
    run ckpt show nowhere
    is "$status" 1 'none'
    run ckpt show ck
    is "$status" 1 'no directory of them'
    like "$(cat err)" 'muster ckpt ls' 'which says what lists those'
    run ckpt show
    is "$status" 2 'of nothing'
}

test_convert() {
    run ckpt convert "ck/$step" model.safetensors
    is "$status" 0 'to a file' || show
    is "$(cat out)" model.safetensors 'whose name is printed'
    like "$(cat err)" 'left out' 'what is no tensor is told'
    is "$(program read model.safetensors)" 'right 3' 'the library reads it, and all is right'
    run ckpt convert "ck/$step" hub --shard-size 36100
    is "$status" 0 'to a directory' || show
    is "$(cd hub && echo *)" 'model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json' 'by the names that others look for'
    is "$(program read hub)" 'right 3' 'all is right'
    run ckpt convert "ck/$step" one -o json
    is "$(json files <out) $(json tensors <out) $(json verified <out)" '1 3 true' 'a small one is one file, as JSON'
    is "$(program read one)" 'right 3' 'all is right'
    run ckpt show one
    matches "$status:$(cat out)" '^0:.*hf-model.*model\.weight' 'and shown, by its path' || show
    run ckpt convert one/ again.safetensors
    is "$status:$(program read again.safetensors)" '0:right 3' 'and converted again' || show
    run ckpt convert one one/x
    is "$status:$(ls one)" 1:model.safetensors 'but not into itself' || show
    mkdir hf && mv hub hf/checkpoint-30 && echo '{"global_step": 30}' >hf/checkpoint-30/trainer_state.json
    run ckpt show hf/checkpoint-30
    like "$(cat out)" 'hf-trainer' 'others are shown'
    run ckpt convert hf/checkpoint-30 back.safetensors
    like "$(cat err)" 'no checksums' 'and converted'
    is "$(program read back.safetensors)" 'right 3' 'all is right'
}

test_refused() {
    run ckpt convert "ck/$step" model.safetensors
    is "$status" 1 'nothing is written over'
    like "$(cat err)" 'there already' 'which is said'
    run ckpt convert "ck/$step" x.safetensors --shard-size 1Mi
    is "$status" 2 'a file of several files'
    run ckpt convert "ck/$step" x.safetensors/
    is "$status" 2 'a file that is to be a directory'
    ok 'is not made' test ! -e x.safetensors
    run ckpt convert "ck/$step" x.pt
    is "$status" 2 'what has the name of a file of PyTorch' || show
    like "$(cat err)" 'expected NAME.safetensors, or the name of a directory' 'with what was expected'
    ok 'is not made either' test ! -e x.pt
    run ckpt convert "ck/$step" nowhere/x.safetensors
    is "$status" 1 'a directory that is not there'
    printf '\200\002}.' >old.bin
    run ckpt convert old.bin x.safetensors
    is "$status" 1 'a pickle'
    like "$(cat err)" 'it is a pickle, and none of torch.save' 'with the reason'
    run ckpt show old.bin
    is "$status" 0 'can be shown'
    like "$(cat out)" 'not known' 'but for its tensors'
    run ckpt convert "ck/$step" s3://b/p/x
    is "$status" 2 'into a store'
    like "$(cat err)" 'muster ckpt push brings it there' 'says what to do'
    cp -r ck bad
    printf X | dd of="bad/$step/r00001.safetensors" bs=1 seek=4200 conv=notrunc status=none
    run ckpt verify bad
    like "$(cat out)" "r00001.safetensors is damaged: bytes 0 to " 'what is damaged is named'
    like "$(cat out)" "with tensor 'model.weight' and 2 more of rank 1, do not have their digest" 'with tensors and rank' || show
    run ckpt convert "bad/$step" x.safetensors
    is "$status" 1 'a damaged one'
    like "$(cat err)" 'r00001.safetensors' 'which is named'
    is "$(ls -A | grep -c '^x\|^\.x')" 0 'nothing is left of it'
    truncate -s 9 names/llama-7b.safetensors
    run ckpt show names/llama-7b.safetensors
    is "$status" 1 'a file that is cut'
    is "$(grep -o 'llama-7b.safetensors' err | wc -l)" 1 'is named once' || show
    like "$(cat err)" "names/llama-7b.safetensors: " 'by its path'
    rm "bad/$step/r00001.safetensors"
    run ckpt show "bad/$step"
    is "$(grep -o "$step" err | wc -l)" 1 'so is a directory' || show
    like "$(cat err)" "bad/$step/r00001.safetensors is missing" 'with what is wrong in it'
}

# flip FILE BYTE: the file with another bit there.
flip() {
    "$MODULE_PYTHON" - "$1" "$2" <<'END'
import sys
with open(sys.argv[1], "rb") as f:
    data = bytearray(f.read())
data[int(sys.argv[2])] ^= 4
sys.stdout.buffer.write(data)
END
}

# By ranges, without a copy on this disk.
test_store() {
    . "$MUSTER_SRCDIR/tests/lib/object-store.sh"
    [ -x "$MUSTER_BUILDDIR/muster-store" ] && "$debian" -c 'import swift, boto3' 2>/dev/null || {
        skip 'no object store: see scripts/install-deps' 17
        return
    }
    store_up
    ckpt push "ck/$step" s3://bucket/own >/dev/null 2>&1
    ckpt show "ck/$step" >want
    run ckpt show "s3://bucket/own/$step"
    ok 'show tells of one in a store what it tells of it here' cmp want out || show
    run ckpt convert "s3://bucket/own/$step" from-store.safetensors
    is "$status:$(cat out)" 0:from-store.safetensors 'convert makes a file of it' || show
    is "$(program read from-store.safetensors)" 'right 3' 'in which all is right'
    ok 'nothing else is made here' test "$(ls -A | grep -c from-store)" = 1
    ckpt push hf/checkpoint-30 s3://bucket/others >foreign 2>/dev/null
    ckpt show hf/checkpoint-30 -o json >want
    run ckpt show "$(cat foreign)" -o json
    ok 'so of one of another program' cmp want out || show
    run ckpt convert "$(cat foreign)" of-others.safetensors -o json
    is "$status $(json verified <out)" '0 true' 'which is held against the digests of the copy' || show
    ok 'converts to the same' cmp of-others.safetensors back.safetensors
    ckpt push old.bin s3://bucket/others >foreign 2>/dev/null
    run ckpt show "$(cat foreign)"
    like "$(cat out)" 'not known' 'a pickle can be shown, but for its tensors'
    "$MODULE_PYTHON" - wide.safetensors <<'END'
import json, struct, sys
h = json.dumps({"w": {"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}}).encode().ljust(262140)
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(h)) + h + bytes(9))
END
    ckpt push wide.safetensors s3://bucket/wide >foreign 2>/dev/null
    ckpt show wide.safetensors -o json >want
    run ckpt show "$(cat foreign)" -o json
    ok 'what is read across a border of what is fetched at once is the same' cmp want out || show
    run ckpt show s3://bucket/own
    is "$status" 1 'no directory of them'
    like "$(cat err)" 'muster ckpt ls' 'which says what lists those'
    flip "ck/$step/r00001.safetensors" 9000 >flipped
    s3_do send bucket "own/$step/r00001.safetensors" flipped
    run ckpt verify s3://bucket/own -o json
    matches "$(json 0.why <out)" "^$step/r00001.safetensors is damaged: bytes 0 to [0-9]+, with tensor 'model.weight'.* of rank 1, do not have" \
        'what is damaged is told as it is here' || show
    s3_do rm bucket "own/$step/r00001.safetensors"
    run ckpt convert "s3://bucket/own/$step" lost.safetensors
    is "$status" 1 'one that lacks a file'
    like "$(cat err)" "$step/r00001.safetensors is missing" 'which is named'
    is "$(ls -A | grep -c lost)" 0 'nothing is left of it'
    AWS_SECRET_ACCESS_KEY=wrong run ckpt show "s3://bucket/own/$step"
    is "$status" 1 'wrong credentials are told' || show
}

# Every malformed file that the reader's own test has, read by the reference library, too.
test_reference() {
    mkdir differ
    ok 'the table as files' "$MUSTER_BUILDDIR/ckpt/safetensors_test" --dump differ
    run "$MODULE_PYTHON" "$MUSTER_SRCDIR/tests/py/safetensors_differ.py" differ "$MUSTER"
    is "$status $(wc -l <out)" '0 1' 'what the library refuses is refused here, and more only for a reason' || show
    matches "$(cat out)" '^[0-9]{2} taken by both, [0-9]{2} refused by both, [0-9]+ by muster alone$' 'of so many'
    diag "$(cat out)"
}

# A disk that is full, and a kill in the middle.
test_cut() {
    can_trace || { skip 'no strace: see scripts/install-deps' 6; return; }
    run strace -f -qq -o /dev/null -e inject=fallocate:error=ENOSPC "$MUSTER" ckpt convert "ck/$step" cut
    is "$status" 1 'a full disk'
    like "$(cat err)" 'No space left' 'is told'
    is "$(ls -A | grep -c '^cut\|^\.cut')" 0 'nothing is left'
    run strace -f -qq -o /dev/null -e inject=fsync:signal=KILL:when=1 "$MUSTER" ckpt convert "ck/$step" cut --shard-size 8000
    ok 'killed while it writes it leaves no such name' test ! -e cut
    run ckpt convert "ck/$step" cut --shard-size 40000
    is "$(program read cut)" 'right 3' 'the next one makes it'
    is "$(ls -A | grep -c '^\.cut')" 0 'and takes away what was left'
}

run_cases
