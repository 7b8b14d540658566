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

# flip FILE BYTE: one bit of it.
flip() {
    python3 -c '
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2]))
    b = f.read(1)
    f.seek(-1, 1)
    f.write(bytes([b[0] ^ 4]))' "$1" "$2"
}

# state_of NAME: as verify says.
state_of() { "$MUSTER" ckpt verify d "$1" -o json | json 0.state; }
why_of() { "$MUSTER" ckpt verify d "$1" -o json | json 0.why; }

test_whole() {
    fresh
    run "$MUSTER" ckpt verify d
    is "$status" 0 'all are whole' || show
    unlike "$(cat out)" 'damaged' 'none is damaged'
    num "$(grep -c whole out)" -eq "$(find d -mindepth 1 -maxdepth 1 -name '*[0-9]*' | wc -l)" 'each is told'
    like "$(grep -E '^checkpoint-60 +hf-trainer +60 ' out)" 'whole' 'with its kind and step'
    like "$(grep '^old-5.bin' out)" 'structure only' 'an old pickle has nothing to verify'
    run "$MUSTER" ckpt ls d -o json
    is "$status" 0 'as JSON'
    is "$(json 0.name <out)" checkpoint-60 'the newest first'
    is "$(json 0.files <out)" 4 'its files'
    run "$MUSTER" ckpt last-valid d
    is "$(cat out)" d/checkpoint-60 'the last valid one'
    is "$("$MUSTER" ckpt last-valid d/)" d/checkpoint-60 'with one slash'
}

# An older PyTorch writes other archives.
test_older() {
    [ "$TORCH_PYTHON" != $debian ] && has_torch $debian || {
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
    seq 300 >d/model-10.pt # random bytes begin like a pickle at times
    is "$(state_of model-10.pt)" unknown 'anything else may be of another program'
    run "$MUSTER" ckpt verify d
    is "$status" 1 'the exit status'
}

# A gradient that was none stands in the Trainer's log as Python writes it.
test_nan() {
    fresh
    python3 - d/checkpoint-60/trainer_state.json <<'END'
import json, sys
with open(sys.argv[1]) as f:
    state = json.load(f)
state["log_history"] = [{"grad_norm": float("nan"), "loss": float("inf")}]
with open(sys.argv[1], "w") as f:
    json.dump(state, f)
END
    like "$(cat d/checkpoint-60/trainer_state.json)" 'NaN' 'the log of the Trainer has it'
    run "$MUSTER" ckpt last-valid d
    is "$(cat out)" d/checkpoint-60 'and the checkpoint is whole' || show
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

# A name may be made for the terminal of whoever looks: a line of its own, colours.
test_names() {
    local name=$'checkpoint-70\nmuster: all is well\x1b[31m'
    fresh
    mkdir "d/$name"
    echo '{"global_step": 7}' >"d/$name/trainer_state.json"
    run "$MUSTER" ckpt last-valid d
    is "$status" 0 'one with a name that is none'
    is "$(grep -c 'all is well' err)" 1 'is told' || show
    is "$(grep -c '^muster: all is well' err)" 0 'and gets no line of its own' || diag "$(cat -v err)"
    is "$(grep -c $'\x1b' err)" 0 'nor what a terminal acts on' || diag "$(cat -v err)"
    run "$MUSTER" ckpt prune d --keep 1 --dry-run
    is "$(grep -c $'\x1b' err)" 0 'where it is left alone, too' || diag "$(cat -v err)"
}

# Whoever else calls theirs checkpoint-N.
test_writers() {
    fresh whole.d/deepspeed
    run "$MUSTER" ckpt verify d -o json
    is "$status $(json 0.kind <out) $(json 0.state <out)" '0 hf-trainer whole' "DeepSpeed's weights are elsewhere" || show
    rm d/checkpoint-90/global_step90/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt
    is "$(state_of checkpoint-90)" unfinished 'without the part of the highest rank'
    like "$(why_of checkpoint-90)" 'of 2 files *_optim_states.pt 1 are there' 'which a file of the first one tells'
    [ -d whole.d/accelerate ] || { skip 'this PyTorch has no Accelerate: see scripts/install-deps'; return; }
    fresh whole.d/accelerate
    run "$MUSTER" ckpt verify d -o json
    is "$status $(json 0.kind <out) $(json 0.state <out)" '0 accelerate whole' "Accelerate's has no trainer_state.json" || show
    truncate -s -1 d/checkpoint-80/random_states_0.pkl
    is "$(state_of checkpoint-80)" damaged 'what it writes last, cut'
    rm d/checkpoint-80/random_states_0.pkl
    is "$(state_of checkpoint-80)" unfinished 'or not there'
    run "$MUSTER" ckpt last-valid d
    is "$(cat out)" d/checkpoint-70 'the one before is the last valid'
}

# DeepSpeed and Megatron say in a file how many others there are.
test_counted() {
    "$TORCH_PYTHON" - <<'END' || bail_out 'no checkpoints'
import argparse
import os
import torch


def save(name, what):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    torch.save(what, name)


for step in (10, 20):
    save(f"zero/global_step{step}/mp_rank_00_model_states.pt",
         {"module": {"w": torch.ones(4)}, "optimizer": None, "dp_world_size": 2, "mp_world_size": 1,
          "ds_config": {"zero_optimization": {"stage": 2}}})
    save(f"meg/iter_{step:07d}/mp_rank_00/model_optim_rng.pt",
         {"args": argparse.Namespace(tensor_model_parallel_size=3 - step // 10, pipeline_model_parallel_size=1)})
for rank in range(2):
    save(f"zero/global_step10/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", {"x": torch.ones(4)})
save("meg/iter_0000010/mp_rank_01/model_optim_rng.pt", {})
END
    run "$MUSTER" ckpt last-valid zero
    is "$status:$(cat out)" 0:zero/global_step10 "one without the optimizer's states is passed over" || show
    like "$(cat err)" 'global_step20: it was never finished: no file *_optim_states.pt' 'which is told'
    run "$MUSTER" ckpt prune zero --keep 1
    is "$status:$(ls zero | tr '\n' ' ')" '0:global_step10 global_step20 ' 'and the whole one stays' || show
    run "$MUSTER" ckpt last-valid meg
    is "$status:$(cat out)" 0:meg/iter_0000020 'one that says that it has fewer parts is whole' || show
    run "$MUSTER" ckpt prune meg --keep 1
    is "$status:$(ls meg)" 0:iter_0000020 'and the others can go' || show
}

# Weights alone, as Hugging Face libraries write them.
test_models() {
    fresh
    if [ -d d/step-48 ]; then
        for step in 46 47 48; do
            "$MUSTER" ckpt verify d step-$step -o json >out
            is "$(json 0.kind <out) $(json 0.state <out) $(json 0.structure_only <out)" 'hf-model whole true' \
                "a directory of HuggingFaceStorageWriter, $step"
        done
        rm d/step-46/model.safetensors.index.json
        is "$(state_of step-46)" unfinished 'without the index, which comes last'
        truncate -s -1 d/step-47/shard-00001-model-00001-of-00001.safetensors
        is "$(state_of step-47)" damaged 'pieces of a rank, cut'
    else
        skip 'this PyTorch has no HuggingFaceStorageWriter'
    fi
    [ -d whole.d/pretrained ] || { skip 'no Transformers: see scripts/install-deps'; return; }
    fresh whole.d/pretrained
    run "$MUSTER" ckpt verify d
    is "$status" 0 'what save_pretrained() writes' || show
    is "$(grep -c ' hf-model .* whole ' out)" 3 'in one file, and in several' || show
    run "$MUSTER" ckpt show d/step-4
    is "$status $(grep -c embed_tokens out)" '0 1' 'and what is in it' || show
    run "$MUSTER" ckpt last-valid d
    is "$(cat out)" d/step-4 'the last valid one'
    rm d/step-4/model-00001-of-*.safetensors
    like "$(why_of step-4)" 'names model-00001-of-' 'one of several is missing'
    truncate -s -1 d/step-3/model.safetensors
    run "$MUSTER" ckpt last-valid d
    is "$status" 1 'a model that has no step is none to go on from' || show
}

# Pieces of a DCP directory, and old files, are held against what they say of themselves.
test_cut_inside() {
    fresh
    if [ -d d/step-40 ]; then
        "$MUSTER" ckpt verify d step-40 -o json >out
        is "$(json 0.state <out) $(json 0.structure_only <out)" 'whole true' 'a DCP directory: what says where things are has no checksum'
        size=$(stat -c %s d/step-40/__0_0.distcp)
        truncate -s $((size / 2)) d/step-40/__0_0.distcp
        is "$(state_of step-40)" damaged 'half a .distcp file'
        like "$(why_of step-40)" 'step-40: __0_0.distcp: it is cut: expected ' 'says what is missing'
        is "$("$MUSTER" ckpt ls d -o json | python3 -c '
import json, sys
print(next(c["state"] for c in json.load(sys.stdin) if c["name"] == "step-40"))')" damaged 'which ls sees, too'
        cp whole.d/step-40/__0_0.distcp d/step-40/__0_0.distcp
        flip d/step-40/__0_0.distcp $((size / 4))
        is "$(state_of step-40)" damaged 'a flipped bit'
        cp whole.d/step-40/__0_0.distcp d/step-40/__0_0.distcp
        flip d/step-40/__0_0.distcp 0
        is "$(state_of step-40)" damaged 'also in the first byte'
        rm d/step-40/__0_0.distcp
        like "$(why_of step-40)" '__0_0.distcp is missing' 'a file that .metadata names'
    else
        skip 'this PyTorch has no torch.distributed.checkpoint.save: see scripts/install-deps'
    fi
    if [ -d d/step-45 ]; then
        is "$(state_of step-45)" whole 'a DCP directory of safetensors'
        truncate -s -1 d/step-45/__0_0.distcp
        is "$(state_of step-45)" damaged 'cut by a byte'
    else
        skip 'this PyTorch has no DCP of safetensors'
    fi
    [ ! -d d/step-41 ] || is "$(state_of step-41)" whole 'a DCP directory of nothing'
    if [ -d d/step-42 ]; then
        "$MUSTER" ckpt verify d step-42 -o json >out
        is "$(json 0.kind <out) $(json 0.state <out) $(json 0.structure_only <out)" 'dcp whole true' \
            'a DCP directory of ranks by themselves'
        flip d/step-42/__0_0.distcp $(($(stat -c %s d/step-42/__0_0.distcp) / 4))
        is "$(state_of step-42)" damaged 'a flipped bit'
        cp whole.d/step-42/__0_0.distcp d/step-42/__0_0.distcp
        truncate -s -1 d/step-42/__0.metadata
        like "$(why_of step-42)" '__0.metadata: the pickle is cut' 'half of what says where things are'
        rm d/step-42/__0.metadata
        is "$(state_of step-42)" unfinished 'and nothing of it'
    else
        skip 'this PyTorch has no DCP without collectives'
    fi
    size=$(stat -c %s d/old-5.bin)
    for cut in 1 $((size / 2)) $((size - 20)); do
        cp whole.d/old-5.bin d && truncate -s -$cut d/old-5.bin
        is "$(state_of old-5.bin)" damaged "an old file, cut by $cut bytes"
    done
    cp whole.d/old-5.bin d && echo >>d/old-5.bin
    like "$(why_of old-5.bin)" 'too long a file' 'or a byte too long'
    for protocol in 0 1 4; do
        for cut in 1 60; do
            cp whole.d/pickle$protocol-2.pt d && truncate -s -$cut d/pickle$protocol-2.pt
            is "$(state_of pickle$protocol-2.pt)" damaged "an old file by protocol $protocol, cut by $cut bytes"
        done
        truncate -s -1 d/pickle$protocol-1.pt
        is "$(state_of pickle$protocol-1.pt)" damaged 'an archive likewise'
    done
}

# A program's own format: nobody can say that it is damaged, and nobody touches it.
test_unknown() {
    rm -rf d && mkdir d
    echo 'of its own' >d/model-30.ckpt
    head -c 1000 /dev/zero >d/step-40.pt
    python3 -c 'import zipfile; zipfile.ZipFile("d/step-50.pth", "w").writestr("policy", "x")'
    run "$MUSTER" ckpt verify d
    is "$status $(grep -c ' unknown .* not a format that muster knows' out)" '3 3' 'of a format that is not known' || show
    run "$MUSTER" ckpt verify d step-40.pt -o json
    is "$status $(json 0.state <out)" '3 unknown' 'one by its name'
    run "$MUSTER" ckpt verify d/model-30.ckpt
    is "$status" 3 'by its path'
    run "$MUSTER" ckpt ls d
    is "$status $(grep -c ' unknown ' out)" '0 3' 'in a list'
    run "$MUSTER" ckpt last-valid d
    is "$status $(grep -c 'passed over, unknown: ' err)" '1 3' 'none to start from' || show
    run "$MUSTER" ckpt show d/model-30.ckpt
    like "$(cat err)" 'd/model-30.ckpt: not a format that muster knows' 'nor to be looked into'
    cp whole.d/checkpoint-60/optimizer.pt d/ckpt-70.pt
    cp d/ckpt-70.pt d/ckpt-80.pt
    run "$MUSTER" ckpt verify d
    is "$status" 3 'beside those that are whole'
    run "$MUSTER" ckpt prune d --keep 1
    is "$status $(ls d | tr '\n' ' ')" '0 ckpt-80.pt model-30.ckpt step-40.pt step-50.pth ' 'prune leaves them' || show
    cp d/ckpt-80.pt d/model-20.ckpt
    run "$MUSTER" ckpt verify d
    is "$status $(grep -c ' unknown ' out)" '1 2' 'but where others of its name are whole' || show
    is "$(state_of model-30.ckpt)" damaged 'it is damaged'
    is "$(itself d/model-30.ckpt state)" damaged 'by its path, too'
}

# A path that is a checkpoint by itself, and not a place for them.
itself() { "$MUSTER" ckpt verify "$1" -o json | json "0.$2"; }
# Whatever Python writes as a pickle is taken for one.
test_pickles() {
    rm -rf d && mkdir d
    python3 "$MUSTER_SRCDIR/tests/py/make_pickles.py" d || bail_out 'no pickles'
    run "$MUSTER" ckpt verify d
    is "$status $(grep -vc ' whole' out)" '0 1' 'by each protocol' || show
    num "$(grep -c ' whole' out)" -ge 300 'so many'
}

# No bit of what names the files of a DCP directory makes one of other files whole.
test_dcp_flips() {
    fresh
    rm -rf flips && mkdir flips
    python3 -c '
import os
with open("d/step-40/.metadata", "rb") as f:
    whole = f.read()
n = 0
for word in b"relative_path", b"length", b"_StorageInfo", b"MetadataIndex", b"storage_data":
    for bit in range(8 * len(word)):
        n += 1
        os.mkdir(f"flips/step-{n}")
        made = bytearray(whole)
        made[whole.rindex(word) + bit // 8] ^= 1 << bit % 8
        with open(f"flips/step-{n}/.metadata", "wb") as f:
            f.write(made)
        with open(f"flips/step-{n}/__9_0.distcp", "wb") as f:
            f.write(b"not of it")'
    run "$MUSTER" ckpt verify flips
    is "$status $(grep -c ' whole' out)" '1 0' 'none is whole' || show
    num "$(grep -c ' dcp ' out)" -ge 400 'of so many'
}

test_itself() {
    fresh
    run "$MUSTER" ckpt verify d/checkpoint-60/
    is "$status $(awk 'NR > 1 { print $1, $2, $6 }' out)" '0 checkpoint-60 hf-trainer whole' 'a directory' || show
    run "$MUSTER" ckpt last-valid d/checkpoint-60/
    is "$status $(cat out)" '0 d/checkpoint-60/' 'is the last valid one'
    run "$MUSTER" ckpt verify d/model-20.pth
    is "$status $(awk 'NR > 1 { print $1, $2, $6 }' out)" '0 model-20.pth torch whole' 'a file' || show
    run "$MUSTER" ckpt verify d/checkpoint-60/optimizer.pt
    is "$status" 0 'and one that is only a part'
    flip d/checkpoint-60/pytorch_model.bin 1500
    run "$MUSTER" ckpt verify d/checkpoint-60
    is "$status $(itself d/checkpoint-60 state)" '1 damaged' 'a flipped bit in it'
    run "$MUSTER" ckpt last-valid d/checkpoint-60
    is "$status" 1 'it is not the last valid one'
    flip d/model-20.pth 1500
    run "$MUSTER" ckpt verify d/model-20.pth
    is "$status" 1 'likewise in a file'
    rm d/checkpoint-50/trainer_state.json
    is "$(itself d/checkpoint-50 state)" unfinished 'one that was not finished'
    (cd d/checkpoint-50 && "$MUSTER" ckpt verify . -o json >../../out)
    is "$(json 0.name <out)" checkpoint-50 'from inside'
    echo words >d/notes.txt
    run "$MUSTER" ckpt verify d/notes.txt
    is "$status" 3 'a file of something else'
    like "$(cat err)" 'd/notes.txt is no checkpoint that is known' 'is called so'
    [ ! -d d/step-40 ] || is "$(itself d/step-40 kind)" dcp 'a DCP directory'
    mkdir -p out-5 && mv d/model-10.pt out-5
    is "$(itself out-5 name)" model-10.pt 'a place whose name has a number'
    mkdir own
    step=$("$MUSTER_BUILDDIR/make_step" own 30 "$(printf '%08x%024x' 30 1)" 2 5000) || bail_out 'no checkpoint made'
    is "$(itself "own/$step" state)" whole "one of muster's"
    flip "own/$step/r00000.safetensors" $(($(stat -c %s "own/$step/r00000.safetensors") - 1))
    is "$(itself "own/$step" state)" damaged 'with a flipped bit'
    rm "own/$step/COMMIT"
    run "$MUSTER" ckpt verify "own/$step"
    is "$status $(itself "own/$step" state)" '1 unfinished' 'and without COMMIT'
}

# Files that a script has saved into a directory of each step.
test_torch_dir() {
    mkdir own.d
    "$TORCH_PYTHON" - <<'END' || bail_out 'no checkpoints'
import json, os, torch
from torch import nn
for name in ["step_100", "step_200", "ckpt-30", "epoch_3", "1000", "step_300", "step_150.tmp", "2024", "run_3"]:
    os.mkdir("own.d/" + name)
    model = nn.Linear(4, 4)
    if name == "2024":
        torch.save(torch.zeros(9), "own.d/2024/shard_0.pt")
        continue
    torch.save(model.state_dict(), f"own.d/{name}/model.pt")
    if name != "step_300":
        torch.save(torch.optim.Adam(model.parameters()).state_dict(), f"own.d/{name}/optim.pt")
        torch.save(torch.get_rng_state(), f"own.d/{name}/rng.pt")
        with open(f"own.d/{name}/meta.json", "w") as f:
            json.dump({"loss": float("nan")}, f)
END
    run "$MUSTER" ckpt ls own.d
    is "$(awk 'NR > 1 { print $1, $2, $3, $4 == "-" ? $5 : $6 }' out)" '1000 torch-dir 1000 whole
step_300 torch-dir 300 unfinished
step_200 torch-dir 200 whole
step_100 torch-dir 100 whole
ckpt-30 torch-dir 30 whole
epoch_3 torch-dir 3 whole' 'those that are one' || show
    like "$(cat out)" 'step_300: it was never finished: step_200 has meta.json, which it lacks' 'and what is missing'
    flip own.d/step_200/optim.pt 1500
    truncate -s -1 own.d/epoch_3/meta.json
    run "$MUSTER" ckpt verify own.d -o json
    is "$status $(json 1.state <out) $(json 2.state <out) $(json 5.state <out)" '1 unfinished damaged damaged' 'verify reads all' || show
    like "$(json 2.why <out)" 'step_200: optim.pt: ' 'and names the file'
    like "$(json 5.why <out)" 'epoch_3: meta.json is cut' 'of whichever kind'
    mv own.d/1000 thousand
    run "$MUSTER" ckpt last-valid own.d
    is "$status:$(cat out)" '0:own.d/step_100' 'the newest that is whole' || show
    is "$(grep -c 'passed over' err)" 2 'and what was passed over'
    mv thousand own.d/1000
    run "$MUSTER" ckpt last-valid own.d/1000
    is "$status:$(cat out)" '0:own.d/1000' 'one by its path' || show
    run "$MUSTER" ckpt show own.d/step_100
    is "$status" 0 'one is shown' || show
    like "$(cat out)" 'torch-dir' 'with its kind'
    matches "$(cat out)" 'model\.weight +F32 +\[' 'and its tensors, behind the names of their files' || show
    run "$MUSTER" ckpt convert own.d/step_100 x.safetensors
    is "$status" 0 'they are converted' || show
    like "$(cat err)" 'values are no tensor: left out' 'but for what is no tensor' || show
    run "$MUSTER" ckpt cp own.d/step_100 copies.d
    is "$status:$(cat out)" '0:copies.d/step_100' 'it is copied' || show
    ok 'all of it' diff -r own.d/step_100 copies.d/step_100
    run "$MUSTER" ckpt cp own.d/step_200 copies.d
    is "$status" 1 'what is damaged is not'
    rm -r own.d/step_200 own.d/step_300
    cp -r own.d/step_100 own.d/step_400
    run "$MUSTER" ckpt prune own.d --keep 1
    is "$status:$(cat out)" '0:own.d/ckpt-30
own.d/step_100' 'older ones go' || show
    is "$(ls own.d | paste -sd' ')" '1000 2024 epoch_3 run_3 step_150.tmp step_400' 'and nothing else'
}

# Where nothing is known it is said how much is there.
test_nothing_known() {
    mkdir -p odd.d/run_1
    echo words >odd.d/notes.txt
    run "$MUSTER" ckpt ls odd.d
    is "$status:$(cat err)" '0:muster: no checkpoints: of 2 entries none is one that muster knows (the kinds are in muster-ckpt(1))' \
        'by ls' || show
    run "$MUSTER" ckpt last-valid odd.d
    like "$(cat err)" 'no valid checkpoint in odd.d: of 2 entries none is one' 'and by last-valid'
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
    run "$MUSTER" ckpt ls /
    is "$status" 0 'the root is a directory, too' || show
    mkdir empty.d
    run "$MUSTER" ckpt last-valid empty.d
    is "$status" 1 'nothing there'
    like "$(cat err)" 'no valid checkpoint in empty.d' 'said'
    run "$MUSTER" ckpt verify empty.d
    is "$status:$(cat err)" '1:muster: no checkpoints' 'where nothing is nothing is whole' || show
    run "$MUSTER" ckpt verify empty.d -o json
    is "$status:$(cat out):$(cat err)" '1:[]:muster: no checkpoints' 'for programs, too' || show
    run "$MUSTER" ckpt ls empty.d
    is "$status" 0 'a list may be empty' || show
}

run_cases
