#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster ckpt show and convert of what PyTorch writes as pickles, without running these: files of
# torch.save, old and new, and torch.distributed.checkpoint. All tensors are right, bit by bit.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
export PYTHONPATH=$MUSTER_SRCDIR/python PYTHONDONTWRITEBYTECODE=1 XDG_STATE_HOME=$TRASH/state
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
need_torch
"$TORCH_PYTHON" -c 'from torch.distributed._tensor import init_device_mesh' 2>/dev/null ||
    skip_rig 'no PyTorch of 2.3 or later: see scripts/install-deps'
program() { "$python" "$MUSTER_SRCDIR/tests/py/torch_files.py" "$@" 2>/dev/null; }
ckpt() { "$MUSTER" ckpt "$@"; }
python=$TORCH_PYTHON

# list FILE: each tensor with its type and shape.
list() {
    ckpt show "$1" -o json | /usr/bin/python3 -c '
import json, sys
for t in json.load(sys.stdin)["tensors"]: print(t["name"], t["dtype"], t["shape"])'
}

# check_files DIR N: what a Python has written, of N kinds and forms.
check_files() {
    local file made pairs=()
    mkdir "$1" && program make "$1" || bail_out "no files: $1"
    for file in "$1"/*.pt; do
        made=${file%.pt}.safetensors
        run ckpt convert "$file" "$made"
        is "$status" 0 "$file is converted" || show
        case $file in
        *-old.pt) like "$(cat err)" 'no checksums' 'it has none, which is told' ;;
        *) unlike "$(cat err)" 'no checksums' 'and verified' ;;
        esac
        list "$file" >"$made.list"
        pairs+=("$file" "$made")
    done
    program check "${pairs[@]}" >checked
    is "$(grep -c ': right [1-9]' checked)" "$2" 'each tensor is right, and shown so' || diag "$(cat checked)"
}

test_new() { check_files new 17; }

# Debian's, 1.13.
test_old() {
    python=/usr/bin/python3
    has_torch "$python" && [ "$python" != "$TORCH_PYTHON" ] || {
        skip 'one PyTorch only'
        return
    }
    check_files old 17
    python=$TORCH_PYTHON
}

test_left_out() {
    run ckpt convert new/odd.pt odd.safetensors -o json
    is "$status $(json tensors <out) $(json tensors_left_out <out) $(json values_left_out <out)" '0 1 5 0' 'what no file has the like of' || show
    run ckpt convert new/odd.pt odd2.safetensors
    like "$(cat err)" "5 tensors are of a type or layout that safetensors files do not have, as 'sparse': left out" 'is told, and of which' || show
    run ckpt show new/odd.pt
    like "$(cat out)" "5 more of a type or layout that safetensors files do not have, as 'sparse'" 'by show, too' || show
    "$python" -c 'import torch; torch.save({"step": 5, "wide": torch.ones(1, dtype=torch.complex128)}, "few.pt")'
    run ckpt convert few.pt few.safetensors
    is "$status" 1 'a file without any that could be written' || show
    like "$(cat err)" 'few.pt cannot be converted: nothing in it is a tensor that safetensors files have the like of' 'is refused' || show
    run ckpt show new/nested.pt
    matches "$(cat out)" 'Values: +[0-9]+ that are no tensors' 'so are values' || show
}

# Of several, one may be of another form.
test_directory() {
    mkdir -p plain/step_7
    cp new/nested.pt plain/step_7/model.pt
    cp new/alone.pt plain/step_7/extra.pt
    printf '\200\002}.' >plain/step_7/rng.pt
    run ckpt show plain/step_7
    matches "$(cat out)" 'extra +I64 +\[3, 3\] +72 B +1 +extra\.pt' 'a file that is one tensor' || show
    matches "$(cat out)" 'model\.model\.0\.weight +F32 +\[5, 7\]' 'and of another those behind its name' || show
    like "$(cat out)" 'not those of 1 file: rng.pt: it is a pickle, and none of torch.save' 'what is not looked into is told' || show
    run ckpt convert plain/step_7 plain.safetensors
    like "$(cat err)" '1 file is left out: rng.pt: ' 'also as it is converted' || show
    mkdir -p hf/checkpoint-4
    cp new/nested-old.pt hf/checkpoint-4/pytorch_model.bin
    echo '{"global_step": 4}' >hf/checkpoint-4/trainer_state.json
    run ckpt convert hf/checkpoint-4 hf.safetensors
    is "$status $(program check new/nested-old.pt hf.safetensors)" '0 new/nested-old.pt: right 35' 'weights of the Hugging Face Trainer, as they were' || show
    cp hf.safetensors hf/checkpoint-4/model.safetensors
    run ckpt convert hf/checkpoint-4 hf2.safetensors -o json
    is "$status $(json tensors <out)" '0 35' 'once, where they are there in both forms' || show
}

test_damaged() {
    cp new/layouts.pt bad.pt
    "$python" - bad.pt <<'END'
import sys, zipfile
name = sys.argv[1]
with zipfile.ZipFile(name) as z:
    at = z.getinfo(next(n for n in z.namelist() if n.endswith("/data/0"))).header_offset
with open(name, "r+b") as f:
    f.seek(at + 300)
    byte = f.read(1)
    f.seek(at + 300)
    f.write(bytes([byte[0] ^ 1]))
END
    run ckpt convert bad.pt bad.safetensors
    is "$status" 1 'a bit flipped' || show
    like "$(cat err)" "data/0', bytes " 'is told, and where' || show
    ok 'nothing is made' test ! -e bad.safetensors
    # Whose pickle says more than there is, or runs away: a shape, a place, keys that meet.
    "$python" - <<'END'
import io, pickle, sys, zipfile, torch
def change(to, old, new, name="data.pkl"):
    with zipfile.ZipFile("new/alone.pt") as z, zipfile.ZipFile(to, "w") as w:
        for n in z.namelist():
            data = z.read(n)
            if n.endswith(name):
                assert old in data, data
                data = data.replace(old, new, 1)
            w.writestr(n, data)
change("far.pt", b"K\x00K\x03K\x03", b"K\x01K\x03K\x03")
change("big.pt", b"little", b"big", "byteorder")
change("other.pt", b"_rebuild_tensor_v2", b"_rebuild_tensor_vX")
torch.save({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}, "meet.pt")
class Runs:
    def __reduce__(self):
        import os
        return os.system, ("touch ran",)
torch.save({"x": Runs(), "t": torch.ones(2)}, "runs.pt")
loop = []
loop.append(loop)
torch.save({"loop": loop}, "loop.pt")
END
    run ckpt convert far.pt far.safetensors
    is "$status" 1 'a tensor beyond its storage' || show
    like "$(cat err)" "far.pt: tensor 'tensor' reaches out of its storage" 'is told' || show
    run ckpt convert big.pt big.safetensors
    is "$status" 1 'numbers of a big-endian machine' || show
    like "$(cat err)" 'big.pt cannot be converted: its numbers are big-endian' 'are not taken for others' || show
    run ckpt show other.pt
    like "$(cat out)" '1 more of a type or layout' 'what a later PyTorch might write is not guessed' || show
    run ckpt show meet.pt
    is "$status" 1 'two of one name' || show
    like "$(cat err)" "two ways of keys in meet.pt lead to a tensor 'a.b'" 'are told' || show
    run ckpt convert runs.pt runs.safetensors
    is "$status $(list runs.pt)" '0 t F32 [2]' 'one that would run a command' || show
    ok 'runs nothing' test ! -e ran
    run ckpt show loop.pt
    is "$status" 1 'one that goes in a circle' || show
    like "$(cat err)" 'too deep, or in a circle' 'comes to an end' || show
}

test_distributed() {
    run timeout 300 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node 2 -- \
        "$TORCH_PYTHON" "$MUSTER_SRCDIR/tests/py/torch_files.py" dcp "$TRASH/parts"
    is "$status" 0 'two workers save by torch.distributed.checkpoint' || show
    run ckpt show parts
    matches "$(cat out)" 'model\.columns +F32 +\[6, 9\] +216 B +2 +__0_0\.distcp __1_0\.distcp' 'a tensor in two pieces' || show
    run ckpt convert parts parts.safetensors
    list parts >parts.safetensors.list
    is "$status $(program check parts.pt parts.safetensors)" '0 parts.pt: right 6' 'each is put together' || show
    mkdir -p fsdp/checkpoint-9
    cp -r parts fsdp/checkpoint-9/pytorch_model_fsdp_0
    echo '{"global_step": 9}' >fsdp/checkpoint-9/trainer_state.json
    run ckpt convert fsdp/checkpoint-9 fsdp.safetensors
    is "$status" 0 'and in a directory of the Trainer, as Accelerate leaves it there' || show
    ok 'to the same' cmp <(tail -c 400 parts.safetensors) <(tail -c 400 fsdp.safetensors)
    cp -r parts fsdp/checkpoint-9/pytorch_model_fsdp_1
    run ckpt show fsdp/checkpoint-9
    like "$(cat out)" 'it has several models' 'several are not put into one' || show
    run ckpt convert parts parts.d --shard-size 200
    is "$status $(ls parts.d | wc -l)" '0 5' 'also into several files' || show
    "$TORCH_PYTHON" - <<'END'
import dataclasses, pathlib, pickle, shutil
import torch
def change(to, how):
    path = pathlib.Path(to, ".metadata")
    meta = pickle.loads(pathlib.Path("parts/.metadata").read_bytes())
    how(meta)
    path.write_bytes(pickle.dumps(meta))
def swap(meta):
    info = meta.storage_data
    a, b = [k for k in info if k.fqn == "model.columns"]
    info[a], info[b] = info[b], info[a]
def forget(meta):
    del meta.storage_data[next(k for k in meta.storage_data if k.fqn == "model.rows")]
def twice(meta):
    one = meta.state_dict_metadata["model.deep"]
    one.chunks.append(one.chunks[0])
def less(meta):
    meta.state_dict_metadata["model.same"].size = torch.Size([5])
def leave(meta):
    key = next(k for k in meta.storage_data if k.fqn == "model.plain")
    meta.storage_data[key] = dataclasses.replace(meta.storage_data[key], relative_path="../parts/__1_0.distcp")
def join(meta):
    first = pathlib.Path("joined/__0_0.distcp")
    begin = first.stat().st_size
    second = pathlib.Path("joined/__1_0.distcp")
    first.write_bytes(first.read_bytes() + second.read_bytes())
    second.unlink()
    for key, one in meta.storage_data.items():
        if one.relative_path == second.name:
            meta.storage_data[key] = dataclasses.replace(one, relative_path=first.name, offset=one.offset + begin)
def empty(meta):
    key = next(k for k in meta.storage_data if k.fqn == "model.plain")
    meta.storage_data[key] = dataclasses.replace(meta.storage_data[key], offset=0, length=0)
for name, how in {"empty": empty, "joined": join, "swapped": swap, "forgot": forget, "double": twice, "more": less, "left": leave}.items():
    shutil.copytree("parts", name)
    change(name, how)
END
    run ckpt show joined
    matches "$(cat out)" 'model\.columns +F32 +\[6, 9\] +216 B +2 +__0_0\.distcp' 'two pieces in one file' || show
    unlike "$(cat out)" '__0_0.distcp __0_0.distcp' 'which is named once'
    ckpt convert joined joined.safetensors >/dev/null 2>&1
    ok 'are put together likewise' cmp <(tail -c 400 parts.safetensors) <(tail -c 400 joined.safetensors)
    run ckpt convert swapped x.safetensors
    is "$status" 1 'pieces that are each other' || show
    like "$(cat err)" "of tensor 'model.columns': it is another tensor than .metadata says" 'are told' || show
    run ckpt convert empty x.safetensors
    is "$status" 1 'a piece of no bytes' || show
    run ckpt show forgot
    is "$status" 1 'one that lies nowhere' || show
    like "$(cat err)" "tensor 'model.rows': it does not say where a piece of it lies" 'is told' || show
    for name in double more; do
        run ckpt show $name
        is "$status" 1 "one whose pieces are $name" || show
        like "$(cat err)" 'its pieces do not have each element once' 'is told' || show
    done
    run ckpt show left
    is "$status" 1 'a file outside of the directory' || show
    ok 'nothing is made of these' test ! -e x.safetensors
}

# By ranges, without a copy on this disk.
test_store() {
    . "$MUSTER_SRCDIR/tests/lib/object-store.sh"
    [ -x "$MUSTER_BUILDDIR/muster-store" ] && "$debian" -c 'import swift, boto3' 2>/dev/null || {
        skip 'no object store: see scripts/install-deps' 6
        return
    }
    store_up
    for name in new/layouts.pt parts plain/step_7; do
        ckpt push $name s3://bucket/b >foreign 2>/dev/null
        run ckpt convert "$(cat foreign)" stored.safetensors
        is "$status" 0 "$name, from a store" || show
        rm -f here.safetensors
        ckpt convert $name here.safetensors >/dev/null 2>&1
        ok 'is the same' cmp stored.safetensors here.safetensors
        rm -f stored.safetensors
    done
}

run_cases
