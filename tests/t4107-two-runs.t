#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two runs whose workers save into the same directory: one of them has it, and the other
# one is told so, and takes nothing away.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

root=--allow-run-as-root
worker=$MUSTER_BUILDDIR/tests/lib/snap_worker
leases() { ls -A ck | grep '^\.muster-run-'; }
# The runs that have it: who only wants it has a file there while it looks.
holders() { sed -n 's/^muster-run 1 has \([^ ]*\) .*/\1/p' ck/.muster-run-* 2>/dev/null; }
made() { find ck -name COMMIT | sort; }
show_run() { diag "$(tail -n 20 "$1.out" "$1.err"; ls -A ck)"; }
# start RUN OPTION...: two workers, which go as far as RUN/pace says.
start() {
    local name=$1
    shift
    rm -rf "$name"
    spawn "$name" ${elsewhere[@]+"${elsewhere[@]}"} "$MUSTER" run $root --run-dir "$name" --nproc-per-node 2 --set checkpoint.keep=1 "$@" -- "$worker" "$PWD/ck" 48000
}
n_saved() { grep -cs checkpoint_saved "$1/events.jsonl"; }
# saves RUN TEXT [N]: more than N times.
saves() {
    local whose=$1 most=${3:-0}
    ok "$2" wait_for 60 eval '[ "$(n_saved "$whose")" -gt "$most" ]' || show_run "$whose"
}
# stand RUN: until nothing more is written.
stand() {
    local whose=$1 before=
    echo 0 >"$whose/pace.new"
    mv "$whose/pace.new" "$whose/pace"
    ok 'it waits' wait_for 60 eval '
        before=$(n_saved "$whose"; made)
        sleep 1
        [ "$(n_saved "$whose"; made)" = "$before" ]' || show_run "$whose"
}
# kill_all RUN PID: nobody of it can do anything more.
kill_all() {
    local id front=$2 pid
    id=$(json id "$1/run.json")
    at_exit "rm -rf '/dev/shm/muster-$(id -u)-$id'" # another run may take its directory
    ok 'all of it is killed' wait_for 60 eval '
        for pid in $(grep -slzxF "MUSTER_RUN_ID=$id" /proc/[0-9]*/environ | cut -d/ -f3) $(pgrep -f "$id") "$front"; do
            [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ] || kill -KILL "$pid" 2>/dev/null
        done
        ! pgrep -f "$id" >/dev/null'
    wait_exit 60 "$front"
}

test_two() {
    local first id before
    rm -rf ck
    start first
    first=$spawned
    saves first 'a run saves'
    id=$(json id first/run.json)
    is "$(leases)" ".muster-run-$id" 'and has the directory'
    is "$(holders)" "$id" 'by what is in its file'
    is "$(stat -c %a "ck/.muster-run-$id")" 600 'by a file of its own'
    stand first
    before=$(made)
    start second --max-restarts 0
    ok 'another one is told whose it is' wait_for 60 grep -q "step [0-9]* is none: $PWD/ck: run $id on $(hostname) saves there, since 20[0-9T:.-]*Z: give this one a directory of its own, or stop that one (muster cancel $id)" second/events.jsonl || show_run second
    ok 'again and again' wait_for 60 eval '[ "$(grep -c "is none: " second/events.jsonl)" -gt 2 ]' || show_run second
    # What status says may be a second old.
    ok 'and goes on' wait_for 60 eval '[ "$("$MUSTER" status second -o json | json state)" = Running ]' || show_run second
    is "$(n_saved second)" 0 'it makes no checkpoint'
    is "$(made)" "$before" 'and takes none away'
    is "$(holders)" "$id" 'nor the directory'
    : >second/go
    wait_exit 60 "$spawned"
    like "$(cat second.out second.err)" "wait: $PWD/ck: run $id on" 'its workers hear of it' || show_run second
    is "$(leases)" ".muster-run-$id" 'it leaves nothing'
    rm first/pace
    saves first 'the first one goes on' "$(n_saved first)"
    : >first/go
    wait_exit 60 "$first"
    is "$status" 0 'to its end' || show_run first
    is "$(ls -A ck | grep -c '^\.')" 0 'of which nothing is left but checkpoints' || diag "$(ls -A ck)"
    run "$MUSTER" ckpt verify ck
    is "$status" 0 'which are whole' || show
}

test_killed() {
    local id
    rm -rf ck
    start first
    saves first 'a run saves'
    id=$(json id first/run.json)
    kill_all first "$spawned"
    is "$(leases)" ".muster-run-$id" 'it had no time to clean up'
    start second
    saves second 'the next one has the directory'
    is "$(grep -c 'saves there' second/events.jsonl)" 0 'at once' || show_run second
    is "$(leases)" ".muster-run-$(json id second/run.json)" 'and nothing is left of the first'
    : >second/go
    wait_exit 60 "$spawned"
    is "$status" 0 'it ends well' || show_run second
    is "$(ls -A ck | grep -c '^\.')" 0 'and leaves nothing' || diag "$(ls -A ck)"
}

# The same run goes on where it was.
test_resumed() {
    local id resumed
    rm -rf ck
    start first --nnodes 2 --agent-is-node
    saves first 'a run on two nodes saves'
    id=$(json id first/run.json)
    stand first
    kill_all first "$spawned"
    rm first/pace
    spawn again "$MUSTER" resume $root first
    resumed=$spawned
    saves first 'saves when it is resumed' "$(n_saved first)"
    is "$(grep -c 'saves there' first/events.jsonl)" 0 'at once' || show_run again
    is "$(leases)" ".muster-run-$id" 'as it was'
    "$MUSTER" cancel first >/dev/null 2>&1
    wait_exit 60 "$resumed"
    is "$(ls -A ck | grep -c '^\.')" 0 'and leaves nothing when it is stopped' || diag "$(ls -A ck)"
}

# Of what is on another host the processes cannot be seen: its file has to be renewed.
test_other_host() {
    local id first elsewhere=(unshare -u sh -c 'hostname far && exec "$@"' sh)
    unshare -u hostname far 2>/dev/null || { skip 'no host can be given another name here' 8; return; }
    rm -rf ck
    start first
    saves first 'a run on another host saves'
    id=$(json id first/run.json)
    first=$spawned
    elsewhere=()
    start second
    ok 'one here is told once that renews its file' wait_for 60 grep -q "is none: .*run $id on far saves there, since " second/events.jsonl || show_run second
    kill_all first "$first"
    # What it could not write stays in memory: it may be gone on with.
    at_exit "rm -rf '/dev/shm/muster-$(id -u)-$(json id second/run.json)'"
    "$MUSTER" cancel second >/dev/null 2>&1
    wait_exit 60 "$spawned"
    touch -d '-2 minutes' "ck/.muster-run-$id"
    start second
    saves second 'that it was killed cannot be seen here, but that nobody renews its file'
    is "$(grep -c 'saves there' second/events.jsonl)" 0 'for which its first save waits' || show_run second
    is "$(leases)" ".muster-run-$(json id second/run.json)" 'which is gone then'
    : >second/go
    wait_exit 60 "$spawned"
    is "$status" 0 'and the run ends well' || show_run second
    is "$(ls -A ck | grep -c '^\.')" 0 'with nothing left' || diag "$(ls -A ck)"
}

run_cases
