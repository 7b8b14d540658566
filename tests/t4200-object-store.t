#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster ckpt with an object store that checks signatures: copies there and back,
# of muster's own checkpoints and of others, what is told of them, and removing.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
. "$MUSTER_SRCDIR/tests/lib/object-store.sh"
need_object_store
store_up

state_of() { ckpt verify "$1" "$2" -o json | json 0.state; }
why_of() { ckpt verify "$1" "$2" -o json | json 0.why; }
in_all() { ckpt ls "$1" -o json | grep -c "$2"; }

# What the Hugging Face Trainer leaves, as small as it can be.
make_foreign() {
    mkdir -p "$1/checkpoint-$2/sub"
    "$debian" - "$1/checkpoint-$2" "$2" <<'END'
import json, struct, sys
d, step = sys.argv[1:]
def safetensors(path, n):
    h = json.dumps({"w": {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + bytes(i % 251 for i in range(n)))
safetensors(d + "/model.safetensors", 5000)
safetensors(d + "/sub/with odd +&%<>ü.safetensors", 10)
open(d + "/empty.txt", "w").close()
json.dump({"global_step": int(step)}, open(d + "/trainer_state.json", "w"))
END
}

# rot FILE: flips a bit of the object with these bytes, where the store keeps it.
rot() {
    "$debian" - "$1" store/disk <<'END'
import os, sys
want = open(sys.argv[1], "rb").read()
for at, _, names in os.walk(sys.argv[2]):
    for name in names:
        p = os.path.join(at, name)
        if name.endswith(".data") and os.path.getsize(p) == len(want) and open(p, "rb").read() == want:
            with open(p, "r+b") as f:
                f.seek(500)
                f.write(bytes([want[500] ^ 8]))
            sys.exit()
sys.exit("no such object")
END
}

test_own() {
    make_step d 10 1 5000000
    local whole=$step
    make_step d 20
    run ckpt push "d/$whole" s3://bucket/own --part-size 1Mi
    is "$status" 0 'a push in parts' || show
    is "$(cat out)" "s3://bucket/own/$whole" 'says where it is'
    like "$(cat err)" 'sent 3 files, ' 'and what was sent'
    is "$(s3_do uploads bucket)" '' 'no upload is left behind'
    s3_do get bucket "own/$whole/r00000.safetensors" >got
    ok 'another client reads the same bytes' cmp got "d/$whole/r00000.safetensors"
    run ckpt push "d/$whole" s3://bucket/own -o json
    is "$(json files_moved <out)" 0 'a second push sends nothing'
    ckpt push "d/$step" s3://bucket/own >/dev/null 2>&1
    run ckpt ls s3://bucket/own
    matches "$(sed -n 2p out)" "^$step +muster +20 .* whole" 'ls has the newest first' || show
    run ckpt verify s3://bucket/own
    is "$status" 0 'verify reads all' || show
    run ckpt verify "s3://bucket/own/$whole" -o json
    is "$status $(json 0.name <out) $(json 0.state <out)" "0 $whole whole" 'or one by itself' || show
    run ckpt last-valid "s3://bucket/own/$whole"
    is "$status $(cat out)" "0 s3://bucket/own/$whole" 'which is the last valid one, then'
    run ckpt last-valid s3://bucket/own
    is "$(cat out)" "s3://bucket/own/$step" 'last-valid names the newest'
    run ckpt pull "s3://bucket/own/$whole" back --part-size 1Mi
    is "$(cat out)" "back/$whole" 'a pull says where it is now' || show
    ok 'the same' diff -r "d/$whole" "back/$whole"
    run ckpt verify back
    is "$status" 0 'a checkpoint'
    is "$(stat -c %a "back/$whole/COMMIT")" 600 'for nobody else'
    run ckpt cp s3://bucket/own back
    is "$(cat out)" "back/$step" 'without a name it is the newest'
    run ckpt pull s3://bucket/own back -o json
    is "$(json files_moved <out)" 0 'what is here is not fetched again'
}

# Files that a script saves into a directory of each step.
test_torch_dir() {
    local step
    for step in 10 20 30; do
        mkdir -p own/step_$step
        for name in model optim; do printf '\200\002}.' >own/step_$step/$name.pt; done
    done
    rm own/step_30/optim.pt
    run ckpt push own/step_20 s3://bucket/plain
    matches "$status:$(cat out)" '^0:s3://bucket/plain/step_20-[0-9a-f]{8}$' 'one is pushed' || show
    run ckpt ls s3://bucket/plain -o json
    is "$(json 0.kind <out) $(json 0.step <out) $(json 0.state <out)" 'torch-dir 20 whole' 'and known there' || show
    run ckpt push own/step_10 s3://bucket/plain --newer
    matches "$status:$(cat out)" '^0:.*/step_20-' 'the newest that is whole is' || show
    run ckpt pull s3://bucket/plain plain2
    is "$(cat out)" plain2/step_20 'it comes back' || show
    ok 'as it was' diff -r own/step_20 plain2/step_20
    run ckpt pull s3://bucket/plain plain2 --newer
    is "$status:$(cat out)" 0: 'it is here' || show
    mkdir plain2/step_30 && cp own/step_30/model.pt plain2/step_30 && rm -r plain2/step_20
    cp -r own/step_10 plain2
    run ckpt pull s3://bucket/plain plain2 --newer
    is "$status:$(cat out)" 0:plain2/step_20 'one that was never finished here is not newer' || show
}

# People see on a terminal how far it is, and nothing in a log of what takes no time.
test_progress() {
    command -v script >/dev/null || { skip 'no script, of bsdutils' 6; return; }
    on_terminal() { TERM=xterm script -qec "$*" /dev/null </dev/null | tr '\r' '\n' >out; }
    make_foreign shown 30
    on_terminal "'$MUSTER' ckpt push shown/checkpoint-30 s3://bucket/shown"
    matches "$(cat out)" 'reading checkpoint-30: [0-9.]+ [KMi]*B of [0-9.]+ KiB, [0-9]+%, ' 'what it reads before a push' || show
    matches "$(cat out)" 'pushing: [0-9.]+ [KMi]*B of [0-9.]+ KiB, [0-9]+%, ' 'what it sends' || show
    on_terminal "'$MUSTER' ckpt pull s3://bucket/shown shown2"
    matches "$(cat out)" 'fetching: [0-9.]+ [KMi]*B of [0-9.]+ KiB, [0-9]+%, ' 'what it fetches' || show
    on_terminal "'$MUSTER' ckpt ls s3://bucket/shown"
    like "$(cat out)" 'looking at checkpoints: 1 of 1' 'how many it has looked at' || show
    on_terminal "'$MUSTER' ckpt push shown/checkpoint-30 s3://bucket/shown5"
    make_foreign shown 40
    ckpt push shown/checkpoint-40 s3://bucket/shown5 >/dev/null 2>&1
    on_terminal "'$MUSTER' ckpt prune s3://bucket/shown5 --keep 1"
    matches "$(cat out)" 'removing files: [1-5] of [45]' 'and what is removed' || show
    run ckpt pull s3://bucket/shown shown3
    is "$(grep -c fetching: err)" 0 'a file is not told'
}

test_foreign() {
    make_foreign f 30
    run ckpt push f/checkpoint-30 's3://bucket/others of me/ü+&'
    is "$status" 0 'a checkpoint of others, under an odd prefix' || show
    matches "$(cat out)" '/checkpoint-30-[0-9a-f]{8}$' 'its name has digits of its digest'
    run ckpt ls 's3://bucket/others of me/ü+&' -o json
    is "$(json 0.kind <out) $(json 0.step <out) $(json 0.state <out) $(json 0.files <out)" \
        'hf-trainer 30 whole 4' 'ls knows it' || show
    run ckpt pull 's3://bucket/others of me/ü+&' back2
    is "$(cat out)" back2/checkpoint-30 'it comes back under its own name' || show
    ok 'the same' diff -r f/checkpoint-30 back2/checkpoint-30
    is "$(find back2 -mindepth 1 -maxdepth 1)" back2/checkpoint-30 'and nothing else'
    run ckpt pull 's3://bucket/others of me/ü+&' back2
    is "$status" 0 'again: it is here'
    echo x >>back2/checkpoint-30/empty.txt
    run ckpt pull 's3://bucket/others of me/ü+&' back2
    is "$status" 1 'another one here is not written over'
    like "$(cat err)" 'move it away' 'and what to do'
    echo changed >f/checkpoint-30/empty.txt
    ckpt push f/checkpoint-30 s3://bucket/two >/dev/null 2>&1
    echo again >f/checkpoint-30/empty.txt
    ckpt push f/checkpoint-30 s3://bucket/two >/dev/null 2>&1
    is "$(in_all s3://bucket/two '"whole"')" 2 'other bytes make another copy'
    rm f/checkpoint-30/trainer_state.json
    run ckpt push f/checkpoint-30 s3://bucket/two
    is "$status" 1 'one that is not whole is not pushed'
    like "$(cat err)" 'not pushed: checkpoint-30: it was never finished' 'and why'
    cp back2/checkpoint-30/model.safetensors f/one.safetensors
    run ckpt push f/one.safetensors s3://bucket/file
    is "$status" 0 'a file' || show
    run ckpt pull s3://bucket/file back3
    ok 'comes back' cmp f/one.safetensors back3/one.safetensors
    ln -s /etc/passwd f/checkpoint-30/link
    cp back2/checkpoint-30/trainer_state.json f/checkpoint-30/
    run ckpt push f/checkpoint-30 s3://bucket/two
    like "$(cat err)" 'link is neither file nor directory' 'links do not go along'
}

test_damage() {
    make_step e 40 2 1000
    ckpt push "e/$step" s3://bucket/damaged >/dev/null 2>&1
    local old=$step
    make_step e 50 2 1000
    ckpt push "e/$step" s3://bucket/damaged >/dev/null 2>&1
    is "$(state_of s3://bucket/damaged "$step")" whole 'whole'
    s3_do rm bucket "damaged/$step/r00000.safetensors"
    is "$(ckpt ls s3://bucket/damaged -o json | json 0.why)" "$step/r00000.safetensors is missing" 'a file is missing under a COMMIT'
    run ckpt push "e/$step" s3://bucket/damaged
    like "$(cat err)" 'sent 1 file,' 'a push puts it back'
    s3_do put bucket "damaged/$step/r00000.safetensors" short
    like "$(why_of s3://bucket/damaged "$step")" 'r00000.safetensors is cut: expected 1000 bytes, found 5' 'a cut one'
    s3_do put bucket "damaged/$step/r00000.safetensors" "$(printf 'x%.0s' {1..1000})"
    run ckpt push "e/$step" s3://bucket/damaged
    like "$(cat err)" 'sent 1 file,' 'one as long, of other bytes, is not taken for the same' || show
    is "$(state_of s3://bucket/damaged "$step")" whole 'and is written over'
    s3_do put bucket "damaged/$old/COMMIT" '{"v":1}'
    like "$(why_of s3://bucket/damaged "$old")" 'COMMIT is cut or damaged' 'a damaged COMMIT'
    run ckpt push "e/$old" s3://bucket/damaged
    is "$status" 1 'is not written over'
    s3_do rm bucket "damaged/$old/COMMIT"
    is "$(state_of s3://bucket/damaged "$old")" unfinished 'without COMMIT it was never finished'
    : >"e/$old/r00000.safetensors"
    run ckpt push "e/$old" s3://bucket/damaged
    is "$status" 1 'a damaged one is not pushed'
}

# The server puts an object aside when it sees that: from the second reading on it is
# missing.
test_rot() {
    make_step e 60 2 1000
    ckpt push "e/$step" s3://bucket/rot >/dev/null 2>&1
    local old=$step
    make_step e 70 2 1000
    ckpt push "e/$step" s3://bucket/rot >/dev/null 2>&1
    ok 'a bit flips in the store' rot "e/$step/r00001.safetensors"
    run ckpt verify s3://bucket/rot -o json
    is "$status" 1 'verify sees it'
    like "$(json 0.why <out)" "$step/r00001.safetensors is damaged" 'the file is named'
    is "$(json 1.state <out)" whole 'the one before is whole'
    run ckpt pull "s3://bucket/rot/$step" back4
    is "$status" 1 'it is not pulled'
    run ckpt last-valid back4
    is "$status" 1 'and what came is no checkpoint'
    run ckpt pull s3://bucket/rot back4
    is "$(cat out)" "back4/$old" 'without a name the one before is'
    like "$(cat err)" 'passed over, damaged' 'and why'
}

# What does not fit is told before anything is fetched.
test_no_room() {
    unshare -m sh -c 'mount -t tmpfs none /mnt' 2>/dev/null || { skip 'no tmpfs can be mounted here' 5; return; }
    make_step room 80 1 3000000
    ckpt push "room/$step" s3://bucket/room >/dev/null 2>&1
    mkdir little
    run unshare -m sh -c 'mount -t tmpfs -o size=2m none little && "$@"; rc=$?; du -k little | tail -n 1 | cut -f 1 >used; ls -A little >left; exit $rc' \
        sh "$MUSTER" ckpt pull "s3://bucket/room/$step" little
    is "$status" 1 'a disk that is too small' || show
    matches "$(cat err)" 'needs 3[0-9]* bytes more, and the filesystem has [0-9]* left' 'is told, with both numbers' || show
    num "$(cat used)" -lt 100 'before anything is fetched'
    is "$(cat left)" '' 'and nothing is left of it' || show
    run ckpt pull "s3://bucket/room/$step" little
    is "$status" 0 'where it fits it comes' || show
}

test_prune() {
    local i
    for i in 1 2 3 4; do
        make_step p "$i" 1 100
        ckpt push "p/$step" s3://bucket/pruned >/dev/null 2>&1
    done
    s3_do rm bucket "pruned/$step/COMMIT"
    run ckpt prune s3://bucket/pruned --keep 2 --dry-run
    is "$(cat out)" 's3://bucket/pruned/step-000000000001-00000001' 'what would go: not one that is on its way'
    is "$(in_all s3://bucket/pruned '"name"')" 4 'nothing has gone'
    run ckpt prune s3://bucket/pruned --keep 2
    is "$(s3_do keys bucket pruned/step-000000000001)" '' 'now it has'
    ok 'another client reads what is kept' s3_do get bucket pruned/step-000000000002-00000002/COMMIT
    run ckpt prune s3://bucket/pruned
    is "$status" 2 'not without --keep'
    make_step p 5 1 100
    run ckpt push "p/$step" s3://bucket/pruned --keep 1 --dry-run
    is "$(grep -o 'step-.* would not be kept' err | tr '\n' ' ')" \
        "$(printf 'step-00000000000%s would not be kept ' 4-00000004 3-00000003 2-00000002)" \
        'what would go of a push that is not one' || show
    is "$(in_all s3://bucket/pruned '"name"')" 3 'nothing has gone'
    run ckpt push "p/$step" s3://bucket/pruned --keep 1
    is "$(cat out)" "s3://bucket/pruned/$step" 'a push that keeps one' || show
    like "$(cat err)" 'muster: step-000000000003-00000003 is not kept' 'tells which go'
    is "$(s3_do keys bucket pruned | cut -d/ -f2 | sort -u)" "$step" 'the others'
    make_step p/older 2 1 100
    ckpt push "p/older/$step" s3://bucket/pruned --keep 1 >/dev/null 2>&1
    is "$(in_all s3://bucket/pruned '"whole"')" 2 'what was just sent stays, older as it may be'
    run ckpt push "p/older/$step" s3://bucket/pruned --keep -1
    is "$status" 2 'at least one'
}

# The same options as in a directory (t4001).
test_prune_kept() {
    local i loss=(0 0.5 0.1 0.4 0.3 0.2)
    for i in 1 2 3 4 5; do
        make_step k "$i" 1 100 "{\"loss\": ${loss[i]}}"
        ckpt push "k/$step" s3://bucket/kept >/dev/null 2>&1
    done
    run ckpt prune s3://bucket/kept --keep 1 --every 4 --best loss --dry-run
    is "$(sed 's|.*/||' out | tr '\n' ' ')" 'step-000000000003-00000003 step-000000000001-00000001 ' \
        'the best and the multiples stay' || show
    run ckpt prune s3://bucket/kept --keep 1 --best loss:max
    is "$(s3_do keys bucket kept | cut -d/ -f2 | sort -u | tr '\n' ' ')" \
        'step-000000000001-00000001 step-000000000005-00000005 ' 'or the one with the highest' || show
    run ckpt push "k/step-000000000002-00000002" s3://bucket/kept --keep 1 --best loss --dry-run
    is "$status:$(grep -o 'step-.* would not be kept' err)" '0:step-000000000001-00000001 would not be kept' \
        'a push that is not one is the best as it lies here' || show
    run ckpt push "k/step-000000000002-00000002" s3://bucket/kept --keep 1 --best loss
    is "$status" 0 'a push has the rule, too' || show
    is "$(s3_do keys bucket kept | cut -d/ -f2 | sort -u | tr '\n' ' ')" \
        'step-000000000002-00000002 step-000000000005-00000005 ' 'and what it sent is the best'
    make_foreign kf 30
    make_foreign kf 40
    for i in 30 40; do
        echo "{\"global_step\": $i, \"log_history\": [{\"eval_loss\": $i}]}" >"kf/checkpoint-$i/trainer_state.json"
        ckpt push "kf/checkpoint-$i" s3://bucket/kept2 >/dev/null 2>&1
    done
    run ckpt prune s3://bucket/kept2 --keep 1 --best eval_loss
    is "$status:$(cat out)" 0: 'the metric of the Trainer' || show
    run ckpt prune s3://bucket/kept2 --keep 1 --best :max
    is "$status" 2 'a metric has a name'
}

# A number that no word calls a step counts as in a directory: apart, or not at all.
test_prune_series() {
    local name i
    mkdir series
    for name in data-2024 data-2025 step-1 step-2 net-1 net-2 other-3 other-4; do
        make_foreign series/made 1
        mv series/made/checkpoint-1/model.safetensors "series/$name.safetensors"
    done
    for name in data-2024 data-2025 step-1 step-2; do
        ckpt push "series/$name.safetensors" s3://bucket/series >/dev/null 2>&1
    done
    run ckpt prune s3://bucket/series --keep 1
    is "$(sed 's|.*/||; s/\.safetensors-.*//' out)" step-1 'of those with a step the older one goes, and nothing else' || show
    is "$(grep -c 'left alone, no step: data-202' err)" 2 'which is told' || show
    for name in net-1 net-2 other-3 other-4; do
        ckpt push "series/$name.safetensors" s3://bucket/series2 --keep 1 >/dev/null 2>&1
    done
    is "$(s3_do keys bucket series2 | sed 's|.*/series2/||; s|^series2/||; s/\.safetensors-.*//' | sort -u | tr '\n' ' ')" \
        'net-2 other-4 ' 'without steps those of like names count together'
}

# What belongs to a checkpoint is none to start from, in a store as in a directory.
test_parts() {
    make_foreign parts/made 1
    cp parts/made/checkpoint-1/model.safetensors parts/optimizer_step20.safetensors
    cp parts/made/checkpoint-1/model.safetensors parts/model_step10.safetensors
    mkdir parts/base
    cp parts/made/checkpoint-1/model.safetensors parts/base/
    echo '{}' >parts/base/config.json
    for name in optimizer_step20.safetensors base; do
        ckpt push "parts/$name" s3://bucket/parts >/dev/null 2>&1
    done
    run ckpt last-valid s3://bucket/parts
    is "$status:$(cat out)" 1: 'parts alone are none' || show
    run ckpt pull s3://bucket/parts back8
    is "$status:$(ls back8)" 1: 'nor are they fetched' || show
    ckpt push parts/model_step10.safetensors s3://bucket/parts >/dev/null 2>&1
    run ckpt last-valid s3://bucket/parts
    matches "$(cat out)" '/parts/model_step10.safetensors-[0-9a-f]{8}$' 'beside one it is that' || show
    run ckpt pull s3://bucket/parts back8 --newer
    is "$(cat out)" back8/model_step10.safetensors 'which is fetched' || show
    run ckpt last-valid "s3://bucket/parts/$(s3_do keys bucket parts/optimizer | head -1 | cut -d/ -f2)"
    is "$status" 0 'who asks for a part by its name hears of it' || show
}

# A checkpoint may be called by any path that leads to it, as for the other verbs.
test_push_paths() {
    local nobody="setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent"
    make_step paths 1
    ln -s "$step" paths/latest
    run sh -c 'cd "paths/$1" && "$2" ckpt push . s3://bucket/paths --dry-run' sh "$step" "$MUSTER"
    is "$status:$(cat out)" "0:s3://bucket/paths/$step" 'where one is' || show
    run ckpt push paths/latest s3://bucket/paths --dry-run
    is "$status:$(cat out)" "0:s3://bucket/paths/$step" 'by a link' || show
    run ckpt push "paths/$step/../$step/" s3://bucket/paths --newer --dry-run
    is "$status:$(cat out)" "0:s3://bucket/paths/$step" 'or a way around' || show
    run ckpt push paths/nowhere/x s3://bucket/paths
    is "$status" 1 'where nothing is' || show
    like "$(cat err)" 'open paths/nowhere: No such file' 'is named'
    run ckpt push paths/nowhere s3://bucket/paths
    like "$status:$(cat err)" '1:muster: not pushed: open paths/nowhere: No such file' 'what is not there, too'
    [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || { skip 'not root, or no setpriv' 2; return; }
    chmod 755 "$TRASH"
    mkdir -p bin
    cp "$MUSTER" "$MUSTER_BUILDDIR/muster-store" bin/
    chown -R 65534:65534 "paths/$step"
    chmod 711 paths
    run $nobody bin/muster ckpt push "paths/$step" s3://bucket/paths
    is "$status" 0 'below a directory that may not be read' || show
    run $nobody bin/muster ckpt push "paths/$step" s3://bucket/paths --newer
    matches "$status:$(cat err)" '^1:.*look for a newer one: .*Permission denied' 'but not the newest of it' || show
}

# Where it goes may be missing in a dry run, and is no checkpoint.
test_pull_place() {
    local own
    make_step place 7
    own=$step
    mkdir place/checkpoint-7
    printf '\002\0\0\0\0\0\0\0{}' >place/checkpoint-7/model.safetensors
    echo '{"global_step": 7}' >place/checkpoint-7/trainer_state.json
    ckpt push "place/$own" s3://bucket/place1 >/dev/null 2>&1
    ckpt push place/checkpoint-7 s3://bucket/place2 >/dev/null 2>&1
    for line in "place1 --dry-run" "place2 --dry-run" "place2 --newer --dry-run"; do
        run ckpt pull "s3://bucket/"${line/ / not/yet } # PLACE DIRECTORY OPTIONS
        is "$status" 0 "$line" || show
        like "$(cat err)" 'would have fetched' 'is told where the directory is not there'
        ok 'and is not made' test ! -e not
    done
    run ckpt pull s3://bucket/place1 /dev/null --dry-run
    is "$status" 1 'what can be none' || show
    ls -R place >names
    for line in "place1 place/checkpoint-7" "place2 place/$own" "place1 place/$own/"; do
        run ckpt pull "s3://bucket/"$line
        is "$status" 1 "a pull of $line" || show
        like "$(cat err)" 'is a checkpoint itself: expected the directory that the copy is to lie in' 'is refused'
        run ckpt cp "s3://bucket/"$line
        is "$status" 1 'and so by cp' || show
    done
    is "$(ls -R place | diff - names)" '' 'and brings nothing there'
    run ckpt pull s3://bucket/place3 not/yet/
    is "$status:$([ -e not ] || echo none)" 1:none 'where nothing comes no directory is made' || show
    mkdir not
    run ckpt cp s3://bucket/place3 not/yet
    is "$status:$(ls -A not)" 1: 'and what was there stays' || show
    run ckpt ls s3://bucket/place1
    like "$(cat out)" "$own" 'what lies below a prefix'
    ckpt push "place/$own" s3://bucket/above/run1 >/dev/null 2>&1
    ckpt push place/checkpoint-7 s3://bucket/above/run2 >/dev/null 2>&1
    s3_do put bucket above/run3/checkpoint-7/x y
    run ckpt ls s3://bucket/above
    is "$status:$(grep -o '^run.' out)" 0:run3 'is nothing unfinished of the one above' || show
}

# newer WHAT NAME MESSAGE: what a pull fetches now, "" for nothing.
newer() {
    run ckpt pull s3://bucket/newer new --newer
    is "$status:$(cat out)" "0:${2:+new/$2}" "$1" || show
    matches "$(cat err)" "$3" 'as is said'
}

test_newer() {
    local i names=()
    run ckpt pull s3://bucket/newer new --newer
    is "$status:$(cat out)" 0: 'nothing comes of a place where nothing is' || show
    like "$(cat err)" 'nothing in s3://bucket/newer is newer than what is in new' 'which is said'
    for i in 1 2 3; do
        make_step n "$i" 1 100
        names[i]=$step
        ckpt push "n/$step" s3://bucket/newer >/dev/null 2>&1
    done
    cp -r "n/${names[2]}" new
    newer 'the newest comes' "${names[3]}" 'fetched 3 files'
    newer 'once' '' 'nothing in .* is newer'
    run ckpt pull s3://bucket/newer new --newer -o json
    is "$(json name <out)" '' 'nor for programs'
    truncate -s -1 "new/${names[3]}/r00000.safetensors"
    newer 'what is left of it is made whole' "${names[3]}" 'fetched 1 file,'
    echo >new/"${names[3]}"/COMMIT
    newer 'so is one that has lost its COMMIT' "${names[3]}" 'fetched 0 files'
    cp "n/${names[2]}/COMMIT" "new/${names[3]}/COMMIT"
    newer 'another one is not written over' '' "passed over, in the way: .*${names[3]}"
    rm -r "new/${names[3]}" "new/${names[2]}"
    s3_do rm bucket "newer/${names[3]}/r00000.safetensors"
    newer 'what is damaged there is not newer' "${names[2]}" "passed over, damaged: .*r00000.safetensors is missing"
    rm -r new
    run ckpt pull s3://bucket/newer new --newer -o json
    is "$(json name <out),$(json step <out)" "new/${names[2]},2" 'with its step'
}

# Of two of one step the one with the higher token is newer, whatever their names.
test_one_step() {
    local names=() uuid
    mkdir -p o
    for uuid in 30000000 10000000 20000000; do
        names+=("$("$MUSTER_BUILDDIR/make_step" o 7 "$(printf '%s%024x' $uuid 1)" 1 1000 {} $((${#names[@]} + 1)))")
        ckpt push "o/${names[-1]}" s3://bucket/one >/dev/null 2>&1
    done
    is "$(ckpt ls s3://bucket/one | awk 'NR > 1 { print $1 }' | tr '\n' ' ')" "${names[2]} ${names[1]} ${names[0]} " 'a list'
    is "$(ckpt last-valid s3://bucket/one)" "s3://bucket/one/${names[2]}" 'the last valid one'
    ckpt pull "s3://bucket/one/${names[1]}" one >/dev/null 2>&1
    run ckpt pull s3://bucket/one one --newer
    is "$status:$(cat out)" "0:one/${names[2]}" 'what is newer comes' || show
    run ckpt pull s3://bucket/one one --newer
    is "$status:$(cat out)" 0: 'and nothing else does' || show
    run ckpt push "o/${names[0]}" s3://bucket/one --newer --dry-run -o json
    is "$(json from <out)" "${names[2]}" 'the newest beside one' || show
    ckpt prune s3://bucket/one --keep 2 >/dev/null 2>&1
    is "$(ckpt ls s3://bucket/one | grep -c "${names[0]}")" 0 'the oldest is not kept'
    ckpt prune s3://bucket/one --keep 1 >/dev/null 2>&1
    is "$(ckpt last-valid s3://bucket/one)" "s3://bucket/one/${names[2]}" 'the newest is'
}

# What is pushed in the place of another one.
test_push_newer() {
    local i names=()
    for i in 1 2 3; do
        make_step beside "$i" 1 100
        names[i]=$step
    done
    run ckpt push "beside/${names[1]}" s3://bucket/beside --newer --dry-run -o json
    is "$status:$(json name <out)" "0:s3://bucket/beside/${names[3]}" 'the newest beside it is pushed' || show
    run ckpt push "beside/${names[3]}" s3://bucket/beside --newer --dry-run -o json
    is "$status:$(json name <out)" "0:s3://bucket/beside/${names[3]}" 'or the one that is asked for' || show
    rm "beside/${names[3]}/COMMIT"
    run ckpt push "beside/${names[1]}" s3://bucket/beside --newer -o json
    is "$status:$(json name <out)" "0:s3://bucket/beside/${names[2]}" 'none that is unfinished' || show
    rm -r "beside/${names[2]}"
    run ckpt push "beside/${names[2]}" s3://bucket/beside --newer -o json
    is "$status:$(json name <out)" "0:s3://bucket/beside/${names[1]}" 'in the place of one that is gone, too' || show
    rm -r "beside/${names[1]}"
    run ckpt push "beside/${names[1]}" s3://bucket/beside --newer
    num "$status" -ne 0 'where there is none'
    like "$(cat err)" "open beside/${names[1]}: No such file" 'that is told' || show
}

test_many() {
    s3_do many bucket many/step-000000000009-00000009 105
    make_step m 9 3 0
    is "$(s3_do keys bucket many | wc -l)" 105 'more objects than a page has'
    run ckpt push "m/$step" s3://bucket/many
    is "$status" 0 'a push among them, of files without bytes' || show
    run ckpt ls s3://bucket/many
    like "$(cat out)" ' whole' 'all pages are read' || show
    run ckpt pull s3://bucket/many back5
    ok 'they come back' diff -r "m/$step" "back5/$step"
}

test_usage() {
    make_step u 1
    run ckpt ls s3://nowhere/x
    is "$status" 1 'a bucket that is not there'
    like "$(cat err)" "there is no bucket 'nowhere'" 'named'
    AWS_SECRET_ACCESS_KEY=wrong run ckpt push "u/$step" s3://bucket/u
    is "$status" 1 'a wrong secret'
    like "$(cat err)" 'SignatureDoesNotMatch' 'the server says so'
    unlike "$(cat err)" 'again in' 'and is not asked again'
    AWS_ACCESS_KEY_ID=nobody run ckpt push "u/$step" s3://bucket/u
    is "$status" 1 'a wrong key'
    AWS_ACCESS_KEY_ID='' AWS_SECRET_ACCESS_KEY='' run ckpt ls s3://bucket/u
    like "$(cat err)" 'no credentials: set AWS_ACCESS_KEY_ID' 'none'
    mkdir -p .aws
    printf '[mine]\naws_access_key_id = test:tester\naws_secret_access_key = testing\n' >.aws/credentials
    AWS_PROFILE=mine AWS_ACCESS_KEY_ID='' AWS_SECRET_ACCESS_KEY='' run ckpt push "u/$step" s3://bucket/u
    is "$status" 0 'those of a profile' || show
    run ckpt push "u/$step" s3://bucket/u/../v
    is "$status" 2 'a prefix that leads elsewhere'
    run ckpt push u/nothing s3://bucket/u
    is "$status" 1 'nothing to push'
    run ckpt pull "u/$step" s3://bucket/u
    is "$status" 2 'the wrong way round'
    run ckpt push "u/$step" s3://bucket/u --part-size 1Q
    is "$status" 2 'a size that is none'
    run ckpt push "u/$step" s3://bucket/dry --dry-run
    like "$(cat err)" 'would have sent 4 files' 'a dry run tells'
    is "$(s3_do keys bucket dry)" '' 'and sends nothing'
}

# A clock that is a day ahead, and one that is an hour behind.
test_tls() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=store -addext subjectAltName=IP:127.0.0.1 \
        -keyout tls.key -out tls.crt 2>/dev/null || { skip 'no openssl' 7; return; }
    cat tls.key tls.crt >tls.pem
    serve tls "$debian" "$MUSTER_SRCDIR/tests/py/s3_proxy.py" "$(cat store.port)" tls.port tls.rules tls.log "$PWD/tls.pem"
    local AWS_ENDPOINT_URL
    AWS_ENDPOINT_URL=https://127.0.0.1:$(cat tls.port)
    export AWS_ENDPOINT_URL
    make_step secure 1 2 300000
    run ckpt push "secure/$step" s3://bucket/tls
    is "$status" 1 'a certificate of nobody who is known'
    like "$(cat err)" 'certificate' 'is told'
    AWS_CA_BUNDLE=$PWD/tls.crt run ckpt push "secure/$step" s3://bucket/tls
    is "$status" 0 'AWS_CA_BUNDLE knows it' || show
    AWS_CA_BUNDLE=$PWD/tls.crt run ckpt pull "s3://bucket/tls/$step" back6
    ok 'and all comes back' diff -r "secure/$step" "back6/$step"
    AWS_CA_BUNDLE=$PWD/tls.missing run ckpt ls s3://bucket/tls
    is "$status" 1 'a file that is not there'
    like "$(cat err)" "ca_bundle, $PWD/tls.missing: No such file" 'is named'
    AWS_ENDPOINT_URL=https://localhost:$(cat tls.port) AWS_CA_BUNDLE=$PWD/tls.crt run ckpt ls s3://bucket/tls
    is "$status" 1 'nor is a host that it is not for'
}

# What gives a machine the keys of its role: a container's, and an instance's.
roles_up() {
    cat >roles.py <<'END'
import http.server, json, os, sys
keys = {"AccessKeyId": "test:tester", "SecretAccessKey": "testing", "Code": "Success"}
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, text):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())
    def do_PUT(self):
        good = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self.answer(200 if good else 403, "a-token")
    def do_GET(self):
        roles, given = "/latest/meta-data/iam/security-credentials/", self.headers["X-aws-ec2-metadata-token"]
        if self.path == "/container":
            good = self.headers["Authorization"] == "Bearer of this"
            self.answer(200 if good else 403, json.dumps(keys))
        elif given != "a-token":
            self.answer(401, "")
        else:
            self.answer(200, json.dumps(keys) if self.path == roles + "worker" else "worker")
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
import threading
threading.Thread(target=server.serve_forever, daemon=True).start()
with open("roles.new", "w") as f:
    f.write(str(server.server_port))
os.rename("roles.new", "roles.port")
sys.stdin.read()
END
    serve roles "$debian" roles.py
}

test_roles() {
    local at
    roles_up
    at=http://127.0.0.1:$(cat roles.port)
    make_step role 1
    echo 'Bearer of this' >token
    role=(env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY)
    run "${role[@]}" AWS_CONTAINER_CREDENTIALS_FULL_URI="$at/container" AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=token \
        "$MUSTER" ckpt push "role/$step" s3://bucket/role
    is "$status" 0 "with a container's role" || show
    run "${role[@]}" AWS_CONTAINER_CREDENTIALS_FULL_URI="$at/container" AWS_CONTAINER_AUTHORIZATION_TOKEN=other \
        "$MUSTER" ckpt ls s3://bucket/role
    is "$status" 1 'but not with a wrong token'
    like "$(cat err)" "ask $at/container for keys: status 403" 'which is told'
    run "${role[@]}" AWS_CONTAINER_CREDENTIALS_FULL_URI=http://10.0.0.1/x "$MUSTER" ckpt ls s3://bucket/role
    like "$(cat err)" "expected https://, or http:// of this machine" 'nor in the clear over a network'
    role+=(-u AWS_EC2_METADATA_DISABLED)
    run "${role[@]}" AWS_EC2_METADATA_SERVICE_ENDPOINT="$at" "$MUSTER" ckpt ls s3://bucket/role
    is "$status" 0 "with an instance's role" || show
    like "$(cat out)" "$step" 'all is there'
    run "${role[@]}" AWS_EC2_METADATA_SERVICE_ENDPOINT="$at/off" "$MUSTER" ckpt ls s3://bucket/role
    like "$(cat err)" 'this machine has no role that has any' 'nor with one that is turned off'
    run "${role[@]}" AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:1 "$MUSTER" ckpt ls s3://bucket/role
    is "$status" 1 'without any'
    like "$(cat err)" 'this machine has no role that has any' 'it is said'
}

test_clock() {
    local shift
    if sanitized; then skip 'a sanitizer and faketime do not go together' 4; return; fi
    command -v faketime >/dev/null || { skip 'no faketime: see scripts/install-deps' 4; return; }
    make_step c 1
    for shift in +1d -1h; do
        run faketime -f "$shift" "$MUSTER" ckpt push "c/$step" "s3://bucket/clock$shift"
        is "$status" 0 "a clock that is $shift off" || show
        like "$(cat err)" "signing with the latter's" 'is told'
    done
}

# Two at the same time, and then all of it is there once.
test_two() {
    make_step t 1 1 4300000
    local one two
    spawn one "$MUSTER" ckpt push "t/$step" s3://bucket/two-at-once --part-size 1Mi
    one=$spawned
    spawn two "$MUSTER" ckpt push "t/$step" s3://bucket/two-at-once --part-size 1Mi
    two=$spawned
    wait_exit 60 "$one"
    is "$status" 0 'one' || diag "$(cat one.err)"
    wait_exit 60 "$two"
    is "$status" 0 'and the other' || diag "$(cat two.err)"
    # A store that is busy says so for a while.
    ok 'whole' wait_for 60 eval '[ "$(state_of s3://bucket/two-at-once "$step")" = whole ]'
}

run_cases
