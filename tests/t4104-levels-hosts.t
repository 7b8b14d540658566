#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Saves that stay in memory of their nodes, and of partners on other hosts: where a node
# is lost the newest of which the partner has its half counts, and where there is none
# the newest on the disk.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up --hosts node1,node2,node3
cd "$SHARED" || bail_out "no $SHARED"
worker=$MUSTER_BUILDDIR/tests/lib/snap_worker

field() { "$MUSTER" status "$SHARED/run" -o json | json "$1"; }
shows() { "$MUSTER" status "$SHARED/run" | grep -q "$1"; }
show_run() { diag "$(tail -n 40 run.out run.err)"; diag "$(tail -n 20 "$SHARED/run/events.jsonl")"; diag "$("$MUSTER" status "$SHARED/run")"; }
times() { [ "$(grep -c "$1\$" run.out)" -ge "$2" ]; }
steps() { find ck -name COMMIT 2>/dev/null | sed 's,.*/step-0*\([0-9][0-9]*\)-.*,\1,' | sort -n | tr '\n' ' '; }
pace() { echo "$1" >run/.pace && mv run/.pace run/pace; }
told() { ok "$1" wait_for 90 times "$2" "$3" || show_run; }

# start PACE OPTION...: three workers that save up to that step.
start() {
    local pace=$1
    shift
    cd "$SHARED" && rm -rf run ck
    spawn run on node1 timeout 250 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node1,node2,node3 --nproc-per-node 1 \
        --nnodes 2:3 --set heartbeat.timeout=3s --set checkpoint.keep=100 --set checkpoint.diskEvery=1h "$@" -- sh -c '
        cd "$MUSTER_RUN_DIR" && { [ -e pace ] || { echo "$1" >.pace.$MUSTER_RANK && mv .pace.$MUSTER_RANK pace; }; }
        cd "$OLDPWD"; shift; exec "$@"' sh "$pace" "$worker" "$SHARED/ck" 48000
    runner=$spawned
}
lose() {
    hosts link_down "$1"
    hosts power_off "$1"
}
go_home() {
    : >run/go
    wait_exit 120 "$runner"
    is "$status" 0 "${1:-it ends well}" || show_run
    is "$(grep -c 'is wrong' run.err)" 0 'what they loaded was right, to the last bit'
}

# Each save is copied, and the first one alone is on the disk.
test_copied() {
    start 25 --set checkpoint.partnerEvery=0s
    told 'three workers save' 'held 20' 3
    ok 'once to the disk' wait_for 60 eval '[ "$(steps)" = "0 " ]' || show_run
    ok 'and each time to their partners' wait_for 30 shows 'in memory *step 20: 3 of 3 ranks, 3 of them copied' || show_run
    lose node2
    told 'without a node two go on from what its partner has' 'from 20' 2
    is "$(steps)" '0 20 ' 'which is on the disk by then'
    go_home 'the run ends well'
    hosts power_on node2
}

# The first one is copied, too, and no other: it is what there is.
test_not_copied() {
    start 25 --set checkpoint.partnerEvery=1h
    told 'three workers save' 'held 20' 3
    ok 'once to the disk' wait_for 60 eval '[ "$(steps)" = "0 " ]' || show_run
    ok 'and to their partners no more' wait_for 30 shows 'in memory *step 20: 3 of 3 ranks, 0 of them copied' || show_run
    lose node2
    told 'without a node two go on from the disk' 'from 0' 2
    go_home 'the run ends well'
    hosts power_on node2
}

# A copied one stays, with all that belongs to it, while later ones come that are not.
test_copied_once() {
    start 5 --set checkpoint.partnerEvery=20s
    told 'three workers save' 'held 0' 3
    sleep 21
    pace 15
    told 'after a while it is the turn of their partners' 'held 10' 3
    ok 'to have copies' wait_for 15 shows 'in memory *step 10: 3 of 3 ranks, 3 of them copied' || show_run
    pace 35
    told 'others stay' 'held 30' 3
    is "$(steps)" '0 ' 'none of them goes to the disk'
    lose node3
    told 'without a node two go on from what was copied' 'from 10' 2
    go_home 'the run ends well'
    hosts power_on node3
}

run_cases
