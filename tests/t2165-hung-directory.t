#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A run directory whose server answers nobody, as NFS or FUSE may: reading hangs as
# well as writing, and so does whoever closes a file there. Training goes on, what
# fails is started again, and a new lead waits for it only where it has to decide.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
hangfs=$MUSTER_BUILDDIR/tests/lib/hangfs
[ -x "$hangfs" ] || skip_rig 'no libfuse: see scripts/install-deps'

mkdir -p bed/shared/slow store
chmod 777 bed/shared/slow store
spawn hangfs timeout -s KILL 600 "$hangfs" "$TRASH/store" "$TRASH/bed/shared/slow" -o allow_other,default_permissions
at_exit "umount -l '$TRASH/bed/shared/slow' 2>/dev/null"
wait_for 30 mountpoint -q bed/shared/slow || skip_rig "no FUSE here: $(tail -n 1 hangfs.err)"
server=$(child_of "$spawned")
# A server that is killed fails all that waits for it: nothing stays behind.
kill_at_exit "$server"
rig_hosts_up

field() { "$MUSTER" status "$SHARED/slow/run" -o json 2>/dev/null | json "$1"; }
running() { [ "$(field state)" = Running ] && [ "$(field "workers.$(($1 - 1)).state")" = Running ]; }
nobody_left() { ok 'nobody is left' wait_for 90 run_gone "$id" || diag "$(run_alive "$id")"; }
log_of() { cat "/proc/$(hosts pid "$1")/root"/tmp/muster-*/*/agent-0.log 2>/dev/null; }
show_run() {
    answer
    diag "$(tail -n 30 run.err)"
    diag "$(grep -v checkpoint_saved "$SHARED/slow/run/events.jsonl" | tail -n 20)"
    for i in 1 2 3 4; do diag "node$i: $(log_of node$i | tail -n 20)"; done
}
hang() { kill -STOP "$server"; }
answer() { kill -CONT "$server"; }
# The front end is on the last host.
start_run() {
    cd "$SHARED" && rm -rf slow/run
    spawn run on node4 timeout 250 "$MUSTER" run --allow-run-as-root --run-dir slow/run --hosts node1,node2,node3,node4 \
        --nproc-per-node 1 --nnodes 2:4 --set heartbeat.timeout=3s --set restart.backoff=1ms..1ms "$@"
    runner=$spawned
    wait_for 60 running 4 && id=$(json id slow/run/run.json)
}
passed_ms() { [ "$(now_ms)" -gt "$1" ]; }

test_trains_on() {
    start_run -- "$MUSTER_BUILDDIR/examples/charlm/charlm" --width 16 --heads 2 --layers 1 --context 16 --batch 12 \
        --steps 100000000 --checkpoint-every 100000000 --checkpoint-dir "$SHARED/saved"
    is $? 0 'charlm over four hosts' || show_run
    hang
    # Three times as long as a host may be silent.
    wait_for 60 passed_ms $(($(now_ms) + 10000))
    ok 'trains on when its run directory hangs' shows_progress || show_run
    unlike "$(cat run.err)" 'lost node' 'and no node counts as lost' || show_run
    kill -KILL $(pids_on node2 '^[^ ]*charlm --width')
    ok 'a worker that fails is noticed' wait_for 60 grep -q 'was killed by signal 9' run.err || show_run
    ok 'and the job started again' wait_for 60 grep -q 'generation 2: 4 processes' run.err || show_run
    ok 'and trains' shows_progress || show_run
    answer
    ok 'when that is over, all that happened comes on record' wait_for 60 event worker_failed || show_run
    ok 'no node was lost' wait_for 60 eval '[ "$(field generation):$(field node_failures)" = 2:0 ]' || show_run
    on node1 "$MUSTER" cancel slow/run >/dev/null
    wait_exit 120 "$runner"
    is "$status" 130 'until it is cancelled' || show_run
    nobody_left
}
event() { grep -q "$1" "$SHARED/slow/run/events.jsonl"; }
shown_step() { sed -n 's/.*charlm: step \([0-9]*\).*/\1/p' run.out | tail -n 1; }
shows_progress() {
    local step
    step=$(shown_step)
    wait_for 60 eval '[ "$(shown_step)" -gt '"$step"' ]'
}

test_lead_killed() {
    start_run -- sh -c 'echo "$MUSTER_GENERATION: $RANK/$WORLD_SIZE $(hostname)"; [ $MUSTER_GENERATION -ge 2 ] || exec sleep 1000'
    is $? 0 'a run over four nodes' || show_run
    local agent
    agent=$(pids_on node1 '^[^ ]*muster agent --dir')
    hang
    kill -KILL $agent
    ok 'whose lead is killed while its directory hangs asks that in vain' wait_for 60 unanswered node2 || show_run
    ok 'has no workers any more' no_workers
    ok 'and says what it waits for' wait_for 15 grep -q 'no lead since that on node1 is lost.*the directory of the run has to answer' run.err || show_run
    answer
    wait_exit 120 "$runner"
    is "$status" 0 'when it answers the run goes on to its end' || show_run
    is "$(sed 's/^\[[^]]*\] *//' run.out | grep '^2: ' | sort | tr '\n' ';')" '2: 0/3 node2;2: 1/3 node3;2: 2/3 node4;' 'over the three others'
    nobody_left
}
unanswered() { log_of "$1" | grep -q 'a claim of a view: the run directory does not answer'; }

# What commands say, and do where somebody of the run is on their host.
test_commands() {
    start_run -- sleep 1000
    is $? 0 'four nodes' || show_run
    hang
    # A command that hung would be killed: status 137.
    run on node1 timeout -s KILL 30 "$MUSTER" status slow/run
    is "$status" 1 'muster status of a run whose directory hangs fails' || show
    like "$(cat err)" 'the directory of slow/run has not answered' 'and says so'
    run on node1 timeout -s KILL 30 "$MUSTER" list
    is "$status" 0 'muster list goes on without it' || show
    like "$(cat err)" "$SHARED/slow/run has not answered" 'and names it'
    run on node1 timeout -s KILL 30 "$MUSTER" gc
    is "$status" 0 'muster gc' || show
    unlike "$(cat out)" 'run that is gone' 'takes no run for gone that does not answer'
    run on node1 timeout -s KILL 30 "$MUSTER" checkpoint slow/run
    is "$status" 0 'muster checkpoint reaches it by its directory' || show
    run on node1 timeout -s KILL 30 "$MUSTER" cancel "$id"
    is "$status" 0 'muster cancel by its id' || show
    ok 'so its workers end' wait_for 60 no_workers || show_run
    answer
    wait_exit 120 "$runner"
    # Each end is claimed there first: another lead may have ended it otherwise.
    is "$status" 75 'and the run, which can be resumed' || show_run
    like "$(cat run.err)" ': the run directory does not answer' 'for want of an answer' || show_run
    nobody_left
}
no_workers() { [ -z "$(for h in node1 node2 node3 node4; do pids_on $h '^sleep 1000'; done)" ]; }

run_cases
