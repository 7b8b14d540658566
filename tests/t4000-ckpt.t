#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster ckpt on what real writers leave: which checkpoints are whole, which are
# not and why, and from which one to start again.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_torch
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
write() { # write DIRECTORY PYTHON
    "$2" "$MUSTER_SRCDIR/tests/py/make_checkpoints.py" "$1" >made 2>&1 || bail_out "no checkpoints: $(cat made)"
}
write whole.d "$TORCH_PYTHON"
debian=/usr/bin/python3

# fresh [FROM]: a copy to be damaged.
fresh() { rm -rf d && cp -r "${1:-whole.d}" d; }

# state_of NAME: as verify says.
state_of() { "$MUSTER" ckpt verify d "$1" -o json | json 0.state; }
why_of() { "$MUSTER" ckpt verify d "$1" -o json | json 0.why; }

test_whole() {
    fresh
    run "$MUSTER" ckpt verify d
    is "$status" 0 'all are whole' || show
    unlike "$(cat out)" 'damaged' 'none is damaged'
    num "$(grep -c whole out)" -eq "$(find d -mindepth 1 -maxdepth 1 | wc -l)" 'each is told'
    like "$(grep -E '^checkpoint-60 +hf-trainer +60 ' out)" 'whole' 'with its kind and step'
    like "$(grep '^old-5.bin' out)" 'structure only' 'an old pickle has nothing to verify'
    run "$MUSTER" ckpt ls d -o json
    is "$status" 0 'as JSON'
    is "$(json 0.name <out)" checkpoint-60 'the newest first'
    is "$(json 0.files <out)" 4 'its files'
    run "$MUSTER" ckpt last-valid d
    is "$(cat out)" d/checkpoint-60 'the last valid one'
}

# An older PyTorch writes other archives.
test_older() {
    [ "$TORCH_PYTHON" != $debian ] && $debian -c 'import torch' 2>/dev/null || {
        skip 'no second PyTorch: see scripts/install-deps'
        return
    }
    write older.d $debian
    fresh older.d
    run "$MUSTER" ckpt verify d
    is "$status" 0 'all are whole' || show
    truncate -s -1 d/model-20.pth
    is "$(state_of model-20.pth)" damaged 'cut by a byte'
}

test_damaged() {
    fresh
    truncate -s -1 d/model-20.pth
    is "$(state_of model-20.pth)" damaged 'cut by a byte'
    fresh
    echo >>d/model-20.pth
    is "$(state_of model-20.pth)" damaged 'a byte too long'
    fresh
    "$TORCH_PYTHON" - d/model-20.pth <<'END'
import sys, zipfile
name = sys.argv[1]
info = next(i for i in zipfile.ZipFile(name).infolist() if i.filename.endswith("data/0"))
with open(name, "r+b") as f:
    f.seek(info.header_offset + 1000)
    b = f.read(1)
    f.seek(-1, 1)
    f.write(bytes([b[0] ^ 4]))
END
    is "$("$MUSTER" ckpt ls d -o json | python3 -c '
import json, sys
print(next(c["state"] for c in json.load(sys.stdin) if c["name"] == "model-20.pth"))')" whole 'a flipped bit: ls does not see it'
    is "$(state_of model-20.pth)" damaged 'verify does'
    like "$(why_of model-20.pth)" "data/0', bytes" 'and says where'
    : >d/model-10.pt
    is "$(state_of model-10.pt)" damaged 'an empty file'
    head -c 1000 /dev/urandom >d/model-10.pt
    is "$(state_of model-10.pt)" damaged 'anything else'
    run "$MUSTER" ckpt verify d
    is "$status" 1 'the exit status'
}

# What the Trainer's own way of choosing falls for.
test_unfinished() {
    fresh
    rm d/checkpoint-60/trainer_state.json
    is "$(state_of checkpoint-60)" unfinished 'without what comes last'
    run "$MUSTER" ckpt last-valid d
    is "$(cat out)" d/checkpoint-50 'the one before is the last valid'
    like "$(cat err)" 'passed over, unfinished: checkpoint-60: it was never finished: no trainer_state.json' 'and why'
    rm d/checkpoint-50/pytorch_model.bin
    is "$(state_of checkpoint-50)" unfinished 'without weights'
    fresh
    truncate -s 100 d/checkpoint-60/optimizer.pt
    is "$(state_of checkpoint-60)" damaged 'with half an optimizer'
    like "$(why_of checkpoint-60)" 'checkpoint-60: optimizer.pt: the archive is cut' 'named'
    fresh
    rm d/checkpoint-60/rng_state_0.pth
    like "$(why_of checkpoint-60)" 'of 2 files rng_state_<rank>.pth 1 are there' 'a rank is missing'
    fresh
    echo '{"global_step": 59}' >d/checkpoint-60/trainer_state.json
    like "$(why_of checkpoint-60)" 'of another step, 59' 'another step'
    echo '{"global_step": 60' >d/checkpoint-60/trainer_state.json
    is "$(state_of checkpoint-60)" damaged 'half a state'
}

test_others() {
    fresh
    if [ -d d/step-40 ]; then
        rm d/step-40/.metadata
        is "$(state_of step-40)" unfinished 'a DCP directory without .metadata'
    else
        skip 'this PyTorch has no torch.distributed.checkpoint.save: see scripts/install-deps'
    fi
    if [ -f d/model-30.safetensors ]; then
        truncate -s -1 d/model-30.safetensors
        is "$(state_of model-30.safetensors)" damaged 'a safetensors file, cut'
        matches "$(why_of model-30.safetensors)" 'expected [0-9]+ bytes, found [0-9]+' 'by how much'
    else
        skip 'this PyTorch has no safetensors: see scripts/install-deps'
    fi
}

test_usage() {
    fresh
    run "$MUSTER" ckpt prove d
    is "$status" 2 'an unknown verb'
    like "$(cat err)" 'expected ls, verify, last-valid, show, convert, push, pull, cp, prune or bench' 'and which there are'
    run "$MUSTER" ckpt verify d nothing
    is "$status" 1 'an unknown name'
    run "$MUSTER" ckpt ls missing.d
    is "$status" 1 'a directory that is not there'
    like "$(cat err)" 'open missing.d: No such file' 'named'
    mkdir empty.d
    run "$MUSTER" ckpt last-valid empty.d
    is "$status" 1 'nothing there'
    like "$(cat err)" 'no valid checkpoint in empty.d' 'said'
}

run_cases
