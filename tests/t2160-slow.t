#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Slow is not dead: hosts that are paused, starved or stopped in bursts for less than
# heartbeat.timeout, and a run directory that hangs, cost no node. Longer than that
# the fence holds: of the old generation nobody works beside the new one.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun mkfs.ext4 fsfreeze

# What all hosts share can be made to hang at $SHARED/slow.
mkdir -p bed/shared/slow
truncate -s 64M image
mkfs.ext4 -q image && mount -o loop image bed/shared/slow || skip_rig 'no loop devices here'
at_exit "fsfreeze -u '$TRASH/bed/shared/slow' 2>/dev/null; umount -l '$TRASH/bed/shared/slow'"
chmod 777 bed/shared/slow
rig_hosts_up
cd "$SHARED" || bail_out "no $SHARED"
charlm="$MUSTER_BUILDDIR/examples/charlm/charlm --width 16 --heads 2 --layers 1 --context 16 --batch 12"
four=node1,node2,node3,node4

. "$MUSTER_SRCDIR/tests/lib/run-status.sh"
start_run() {
    local n=$1
    shift
    cd "$SHARED" && rm -rf run
    spawn run on node1 timeout 250 "$MUSTER" run --allow-run-as-root --run-dir run --hosts $four --nproc-per-node 1 "$@"
    runner=$spawned
    wait_for 60 running "$n"
}
trains() {
    local step
    step=$(field step)
    wait_for 60 eval '[ "$(field step)" -gt '"$((step + 20))"' ]'
}
# The whole job stands still with one of its hosts.
stalled() {
    local step
    step=$(field step)
    sleep 1
    [ "$(field step)" = "$step" ]
}
# undisturbed: no node was lost, nobody was started again.
undisturbed() { is "$(field generation):$(field node_failures):$(field restarts)" 1:0:0 "$1" || show_run; }
cancel() {
    on node1 "$MUSTER" cancel run >/dev/null
    wait_exit 120 "$runner"
    is "$status" 130 'until it is cancelled' || show_run
}

# As a virtual machine that is moved, and a host that swaps.
test_paused() {
    local i
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=60s -- $charlm --steps 100000000
    is $? 0 'charlm over four hosts' || show_run
    hosts pause node3
    ok 'of which one stands still' wait_for 60 eval stalled || show_run
    hosts resume node3
    ok 'trains on when that has ended' trains || show_run
    for i in 1 2 3 4 5 6 7 8 9 10; do
        hosts pause node2
        sleep 0.5
        hosts resume node2
        sleep 0.1
    done
    ok 'and after bursts of it' trains || show_run
    undisturbed 'with all its nodes'
    cancel
    nobody_left
}

# A stall of the file system that the run directory is on.
test_run_directory_hangs() {
    cd "$SHARED" && rm -rf run
    spawn run on node1 timeout 250 "$MUSTER" run --allow-run-as-root --run-dir slow/run --hosts $four --nproc-per-node 1 --nnodes 2:4 \
        --set heartbeat.timeout=3s --set restart.backoff=1ms..1ms -- $charlm --steps 100000000 --checkpoint-every 100000000
    runner=$spawned
    ln -sfn slow/run run
    ok 'charlm over four hosts' wait_for 60 eval '[ "$(shown_step)" -gt 50 ]' || show_run
    fsfreeze -f slow
    # Three times as long as a host may be silent.
    local enough=$(($(now_ms) + 10000))
    wait_for 60 eval '[ "$(now_ms)" -gt $enough ]'
    ok 'trains on when its run directory hangs' shows_progress || show_run
    unlike "$(cat run.err)" 'lost node' 'and no node counts as lost' || show_run
    kill -KILL $(pids_on node2 '^[^ ]*charlm --width')
    ok 'a worker that fails is noticed' wait_for 60 grep -q 'was killed by signal 9' run.err || show_run
    ok 'and the job started again' wait_for 60 grep -q 'generation 2: 4 processes' run.err || show_run
    fsfreeze -u slow
    ok 'when that is over, it does' wait_for 60 running 4 2 || show_run
    ok 'with all that happened on record' wait_for 60 event worker_failed || show_run
    is "$(field node_failures)" 0 'no node was lost'
    cancel
    nobody_left
    rm -f run
}
shown_step() { sed -n 's/.*charlm: step \([0-9]*\).*/\1/p' "$SHARED/run.out" | tail -n 1; }
shows_progress() {
    local step
    step=$(shown_step)
    wait_for 60 eval '[ "$(shown_step)" -gt '"$step"' ]'
}

# A hundredth of a processor.
throttle() {
    local d
    d=$(grep -E '/cpu(,[a-z]*)?/[^/]*$' "$BED/state/$1.cgroups" | head -n 1)
    if [ -n "$d" ]; then
        echo "$2" >"$d/cpu.cfs_quota_us"
    else
        d=$(head -n 1 "$BED/state/$1.cgroups")
        [ -e "$d/cpu.max" ] && echo "${2/-1/max} 100000" >"$d/cpu.max"
    fi
}
test_throttled() {
    start_run 4 --nnodes 2:4 -- $charlm --steps 100000000
    is $? 0 'charlm over four hosts' || show_run
    throttle node2 1000 || { skip_rig 'no control group for processors here' 3; cancel; return; }
    local enough=$(($(now_ms) + 20000))
    wait_for 60 eval '[ "$(now_ms)" -gt $enough ]'
    undisturbed 'loses none that has a hundredth of a processor'
    throttle node2 -1
    ok 'and trains on when it has more' trains || show_run
    undisturbed 'with all its nodes'
    cancel
    nobody_left
}

# Longer than heartbeat.timeout: when it wakes up, others have taken over.
test_paused_for_long() {
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=3s -- sh -c '
        echo "$MUSTER_GENERATION: $RANK/$WORLD_SIZE $(hostname)"
        [ $(hostname) != node3 ] || setsid sleep 1000 &
        until [ -e $MUSTER_RUN_DIR/go ]; do sleep 0.1; done'
    is $? 0 'four nodes' || show_run
    local old
    old=$(pids_on node3 '^(sh -c|sleep 1000)')
    hosts pause node3
    ok 'go on without one that stands still for longer' wait_for 60 running 3 2 || show_run
    hosts resume node3
    ok 'whose workers are gone when it wakes up' wait_for 60 all_gone $old || diag "$(ps -o pid,args -p $old)"
    is "$(field generation):$(field node_failures)" 2:1 'and do not disturb the others' || show_run
    touch run/go
    wait_exit 120 "$runner"
    is "$status" 0 'which come to the end' || show_run
    is "$(sed 's/^\[[^]]*\] *//' run.out | grep '^2: ' | sort | tr '\n' ';')" '2: 0/3 node1;2: 1/3 node2;2: 2/3 node4;' 'by themselves'
    nobody_left
}
all_gone() { local p; for p; do gone "$p" || return 1; done; }

# disk HOST: a file system of its own at /tmp/disk there, which can be made to hang
# (what writes to it is in state D then).
disk() {
    on "$1" sh -c 'truncate -s 16M /tmp/image && mkfs.ext4 -q /tmp/image && mkdir -p /tmp/disk && mount -o loop /tmp/image /tmp/disk' || return
    at_exit "on $1 sh -c 'fsfreeze -u /tmp/disk; umount -l /tmp/disk' >/dev/null 2>&1"
}
in_d_state() { local p; for p in $(pids_on "$1" "$2"); do grep -q '^State:.D' "/proc/$p/status" && return; done; return 1; }

# A worker that SIGKILL does not end takes its node out of the run.
test_unkillable() {
    disk node3 || { skip_rig 'no loop devices here' 10; return; }
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=3s --set restart.backoff=1ms..1ms -- sh -c '
        echo "$MUSTER_GENERATION: $RANK/$WORLD_SIZE $(hostname)"
        [ $MUSTER_GENERATION = 1 ] || until [ -e $MUSTER_RUN_DIR/go ]; do sleep 0.1; done
        [ $MUSTER_GENERATION = 1 ] || exit 0
        [ $(hostname) = node3 ] || exec sleep 1000
        while :; do echo "$MUSTER_RUN_ID" >/tmp/disk/file; sleep 0.01; done'
    is $? 0 'four nodes' || show_run
    on node3 fsfreeze -f /tmp/disk
    ok 'of which one has a worker in state D' wait_for 60 in_d_state node3 '^sh -c'
    kill -KILL "$(pids_on node1 '^sleep 1000')"
    ok 'go on as three when another one fails' wait_for 60 running 3 2 || show_run
    ok 'in a new MPI world' wait_for 60 event 'node4 is in a new MPI world' || show_run
    touch run/go
    wait_exit 120 "$runner"
    is "$status" 0 'to the end' || show_run
    like "$(cat run.err)" 'on node3 does not die of SIGKILL (state D' 'which is said'
    matches "$(cat run.err)" 'SIGKILL \(state D, waits in [a-z_]+' 'with where it waits in the kernel'
    is "$(sed 's/^\[[^]]*\] *//' run.out | grep '^2: ' | sort | tr '\n' ';')" '2: 0/3 node1;2: 1/3 node2;2: 2/3 node4;' 'without that node'
    is "$(field nodes.2.state):$(field restarts):$(field failure.host)" Lost:0:node1 'and the failure is what it was'
    ok 'it still waits there' in_d_state node3 '^sh -c'
    on node3 fsfreeze -u /tmp/disk
    nobody_left
}

run_cases
