#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Random faults, one after the other, while charlm trains on four hosts: each step
# counts once in the model that comes out of it, and nothing is left on any host.
#
# MUSTER_CHAOS_SECONDS=1800   how long there are faults (60); see tests/README.md
# MUSTER_CHAOS_SEED=N         which (1)
# MUSTER_CHAOS_LEAD=1         also those that take the node of the lead away
# MUSTER_CHAOS_FAULTS="a b"   these alone, in that order, again and again

# The run directory is a file system of its own, so that it can be full and stall;
# it goes with the mount namespace that it is in.
if [ -z "${MUSTER_CHAOS_MOUNTS:-}" ] && [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
    MUSTER_CHAOS_MOUNTS=own exec unshare --mount --propagation private -- bash "$0" "$@"
fi
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
. "$MUSTER_SRCDIR/tests/lib/chaos.sh"
need_muster
need_command mpirun fsfreeze losetup mkfs.ext4
[ -n "${MUSTER_CHAOS_MOUNTS:-}" ] || skip_rig 'not root, or no mount namespaces'

seconds=${MUSTER_CHAOS_SECONDS:-60}
seed=${MUSTER_CHAOS_SEED:-1}
lease=5
step_ms=40
charlm=$MUSTER_BUILDDIR/examples/charlm/charlm
run=$TRASH/bed/shared/run
may_lose='node2 node3 node4'
[ -z "${MUSTER_CHAOS_LEAD:-}" ] || may_lose="node1 $may_lose"

mkdir -p bed/shared
truncate -s 64M image && mkfs.ext4 -q image && mount -o loop image bed/shared 2>mount.err ||
    skip_rig "no loop device: $(cat mount.err)"
at_exit "umount '$TRASH/bed/shared'"
rig_hosts_up
at_exit "fsfreeze -u '$SHARED' 2>/dev/null"
rmdir "$SHARED/lost+found"

# The steps last for about as long as there are faults; what the run loses by them
# comes on top. The model is small, the batch does not depend on the world.
steps=$((seconds * 1000 / step_ms))
small=(--steps "$steps" --data "$TRASH/text" --width 16 --heads 2 --layers 1 --batch 12 --context 16
    --rate 0.01 --sample 0)
for ((i = 0; i < 200; i++)); do echo "line $i: the quick brown fox jumps over the lazy dog $((i * i))"; done >text

field() { "$MUSTER" status "$run" -o json 2>/dev/null | json "$1"; }
standing() { "$MUSTER" status "$run" -o json 2>/dev/null | python3 -c '
import json, sys
s = json.load(sys.stdin)
print(s.get("generation"), s.get("step") or 0)'; }

# goes_on: a step is done that was not, in one generation; or all are.
goes_on() {
    local until=$(($(now_ms) + 120000)) now before='' g=0 s=0
    while [ "$(now_ms)" -lt $until ]; do
        now=$(standing)
        [ "${now% *}" = "$g" ] && [ "${now#* }" -gt "$s" ] && return 0
        read -r g s <<<"${now:-0 0}"
        gone "$runner" && return 1
        sleep 0.2
    done
    return 1
}

tell_where() {
    diag "seed $seed: $(standing)"
    diag "$(tail -n 5 run.err attach.err 2>/dev/null)"
    diag "$(tail -n 20 "$run/events.jsonl")"
}

# One fault after the other, until time is up or the run has ended.
play() {
    local until=$((SECONDS + seconds)) n=0 begun list=(${MUSTER_CHAOS_FAULTS:-})
    chaos_seed "$seed"
    while [ $SECONDS -lt $until ] && ! gone "$runner"; do
        chaos_draw "${list[@]:n % (${#list[@]} + !${#list[@]}):1}"
        n=$((n + 1))
        begun=$(now_ms)
        "fault_$fault" "$host" || [ "$fault" != front ] || { fail "fault $n, $fault"; tell_where; return 1; }
        if [ "$(((n + seed) % 4))" = 0 ]; then
            diag "fault $n: $fault on $host, and the next one at once"
            continue
        fi
        goes_on || gone "$runner" || { fail "it goes on after fault $n, $fault on $host"; tell_where; return 1; }
        diag "fault $n: $fault on $host: $(($(now_ms) - begun)) ms; generation, step: $(standing)"
        sleep "$((rest / 1000))"
    done
    pass "$n faults, seed $seed"
}

# once FILE: the stretches of a model's history follow each other, from step 1 to
# the last; generations grow, and each step had its whole batch.
once() {
    "$charlm" --history "$1" >history && awk -v steps="$steps" -F '[ :,]+' '
        { if ($2 != last + 1 || $4 < $2 || $6 <= generation || $9 != ($4 - $2 + 1) * 12) exit bad = 1
          last = $4; generation = $6 }
        END { exit bad || last != steps }' history
}

# loss FILE: of its model, over all of the text. That of one step differs by a tenth
# after many of them, also between undisturbed runs of one worker and of two.
loss() { "$charlm" "${small[@]}" --evaluate "$1" | sed -n 's/.*loss of the text //p'; }

# How it is on each host, by name.
look_around() { local h; for h in node1 node2 node3 node4; do echo "== $h"; what_is_there "$h"; done; }
as_before() { look_around >after; cmp -s before after; }

test_chaos() {
    local reference final h
    run "$charlm" "${small[@]}" --checkpoint-dir reference --checkpoint-every "$steps"
    is "$status" 0 'a run without disturbance' || show
    reference=$(loss reference/*.ckpt)
    look_around >before
    spawn run on node1 "$MUSTER" run --allow-run-as-root --run-dir "$run" --hosts node1,node2,node3,node4 --nnodes 1:4 \
        --nproc-per-node 1 --max-restarts 10000 --set restart.backoff=0s --set limits.nodeFailures=10000 \
        --set heartbeat.timeout=${lease}s --set detach.timeout=10m --set limits.grace=2s -- \
        "$charlm" "${small[@]}" --step-time "$step_ms" --checkpoint-every 20
    runner=$spawned
    ok 'charlm trains on four hosts' goes_on || { tell_where; return; }
    play || return
    wait_for $((seconds + 300)) runner_gone
    wait_exit 1 "$runner"
    is "$status" 0 'the run comes to its end' || { tell_where; return; }
    final=$(ls "$run"/ckpt/*.ckpt | tail -n 1)
    ok 'each step counts once in its model' once "$final" || diag "$(cat history)"
    diag "$(wc -l <history) stretches, the last: $(tail -n 1 history)"
    final=$(loss "$final")
    ok "its loss is $final, $reference without disturbance" \
        awk "BEGIN { d = $final - $reference; exit !(d <= 0.02 * $reference && -d <= 0.02 * $reference) }"
    for h in $swept; do on "$h" "$MUSTER" gc >gc.out 2>&1; done
    ok 'nothing is left on any host' wait_for 60 as_before || diag "$(diff before after)"
}

run_cases
