# SPDX-License-Identifier: Apache-2.0
#
# charlm on four hosts, and random faults meanwhile: t2340 and t2341, which differ in
# the MPI of the bed. To be sourced, in a mount namespace of its own; then chaos_place,
# the bed, $there (the folder of a muster that is built for its MPI), chaos_begin, and
# run_cases. MUSTER_CHAOS_* are told of in t2340.
. "$MUSTER_SRCDIR/tests/lib/chaos.sh"
. "$MUSTER_SRCDIR/tests/lib/left-behind.sh"

seconds=${MUSTER_CHAOS_SECONDS:-60}
seed=${MUSTER_CHAOS_SEED:-1}
lease=5
step_ms=40
# That which compares, and is not disturbed, is built for here.
charlm=$MUSTER_BUILDDIR/examples/charlm/charlm
run=$TRASH/bed/shared/run
may_lose='node2 node3 node4'
[ -z "${MUSTER_CHAOS_LEAD:-}" ] || may_lose="node1 $may_lose"

# The run directory is a file system of its own, so that it can be full and stall; it
# goes with the mount namespace that it is in.
chaos_place() {
    mkdir -p bed/shared
    truncate -s 64M image && mkfs.ext4 -q image && mount -o loop image bed/shared 2>mount.err ||
        skip_rig "no loop device: $(cat mount.err)"
    at_exit "umount '$TRASH/bed/shared'"
}
chaos_begin() {
    at_exit "fsfreeze -u '$SHARED' 2>/dev/null"
    rmdir "$SHARED/lost+found"
}

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

# others_stand HOST...: a node is in the run that is on none of these. The last one takes
# with it all that is known of the run, and it ends, to be resumed: what has just been
# started on other hosts knows nothing yet. 3: no; anything else: it cannot be told.
others_stand() {
    "$MUSTER" status "$run" -o json 2>/dev/null | python3 -c '
import json, sys
nodes = json.load(sys.stdin)["nodes"]
if not any(n["host"] not in ["", *sys.argv[1:]] and n["state"] in ("Running", "Spare") for n in nodes):
    sys.exit(3)' "$@" 2>/dev/null
}

# One fault after the other, until time is up or the run has ended.
play() {
    local until=$((SECONDS + seconds)) n=0 begun before='' list=(${MUSTER_CHAOS_FAULTS:-})
    chaos_seed "$seed"
    while [ $SECONDS -lt $until ] && ! gone "$runner"; do
        chaos_draw "${list[@]:n % (${#list[@]} + !${#list[@]}):1}"
        n=$((n + 1))
        if takes_node "$fault"; then
            others_stand "$host" $before
            if [ $? = 3 ]; then
                diag "fault $n: no $fault on $host, the last one that knows of the run"
                fault=worker
            fi
        fi
        before=
        begun=$(now_ms)
        "fault_$fault" "$host" || [ "$fault" != front ] || { fail "fault $n, $fault"; tell_where; return 1; }
        if [ "$(((n + seed) % 4))" = 0 ]; then
            diag "fault $n: $fault on $host, and the next one at once"
            before=$host
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

test_chaos() {
    local reference final h
    run "$charlm" "${small[@]}" --checkpoint-dir reference --checkpoint-every "$steps"
    is "$status" 0 'a run without disturbance' || show
    reference=$(loss reference/*.ckpt)
    remember
    spawn run on node1 "$there/muster" run --allow-run-as-root --run-dir "$run" --hosts node1,node2,node3,node4 --nnodes 1:4 \
        --nproc-per-node 1 --max-restarts 10000 --set restart.backoff=0s --set limits.nodeFailures=10000 \
        --set heartbeat.timeout=${lease}s --set detach.timeout=10m --set limits.grace=2s -- \
        "$there/examples/charlm/charlm" "${small[@]}" --step-time "$step_ms" --checkpoint-every 20
    runner=$spawned
    ok 'charlm trains on four hosts' goes_on || { tell_where; return; }
    play || return
    wait_for $((seconds + 300)) runner_gone
    wait_exit 1 "$runner"
    is "$status" 0 'the run comes to its end' || { tell_where; return; }
    final=$(ls "$run"/ckpt/*.ckpt | tail -n 1)
    ok 'each step counts once in its model' once "$final" || diag "$(cat history)"
    diag "$(wc -l <history) stretches, the last: $(tail -n 1 history)"
    ok 'never begun anew by one that found no checkpoint' eval '! grep -q "checkpoint_gone.*it starts without one" "$run/events.jsonl"' ||
        diag "$(grep checkpoint_gone "$run/events.jsonl" | cut -c 1-200)"
    final=$(loss "$final")
    ok "its loss is $final, $reference without disturbance" \
        awk "BEGIN { d = $final - $reference; exit !(d <= 0.02 * $reference && -d <= 0.02 * $reference) }"
    for h in $swept; do sweep "$h"; done
    ok 'nothing is left on any host' wait_for 60 as_before || diag "$(diff "$TRASH/before" "$TRASH/after")"
}
