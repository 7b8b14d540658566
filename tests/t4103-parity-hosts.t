#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Parity in memory of a group of hosts, instead of copies: a save that had not come to
# the disk when a node was lost is made again from what the others have, and is what the
# next workers start from. Where more are lost than parity makes up for, that is the
# newest on the disk.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up --hosts node1,node2,node3,node4
cd "$SHARED" || bail_out "no $SHARED"
worker=$MUSTER_BUILDDIR/tests/lib/snap_worker
hosts=node1,node2,node3,node4

field() { "$MUSTER" status "$SHARED/run" -o json | json "$1"; }
event() { grep -q "$1" "$SHARED/run/events.jsonl"; }
show_run() { diag "$(tail -n 40 run.out run.err)"; diag "$(tail -n 20 "$SHARED/run/events.jsonl")"; }
agent_of() { pids_on "$1" 'muster agent --dir'; }
times() { [ "$(grep -c "$1\$" run.out)" -ge "$2" ]; }

# start ELEMENTS OPTION...: four workers that save, and wait for parity of each save.
start() {
    local n=$1
    shift
    cd "$SHARED" && rm -rf run ck
    spawn run on node1 timeout 250 "$MUSTER" run --allow-run-as-root --run-dir run --hosts $hosts --nproc-per-node 1 "$@" -- "$worker" "$SHARED/ck" "$n"
    runner=$spawned
    ok 'four workers save' wait_for 60 times 'held 20' 4 || show_run
    : >run/partner
}
go_home() {
    : >run/go
    wait_exit 120 "$runner"
    is "$status" 0 "${1:-it ends well}" || show_run
    is "$(grep -c 'is wrong' run.err)" 0 'what they loaded was right, to the last bit'
    run "$MUSTER" ckpt verify ck
    is "$(grep step- out | grep -vc -e whole -e unfinished)" 0 'nothing that is there is damaged' || show
}
# The last step of which all have parity, which is not on the disk.
copied() { grep -o 'copied [0-9]*$' run.out | sort | uniq -c | awk '$1 >= 4 {print $3}' | sort -n | tail -n 1; }
newest() { find ck -path "*/step-*/COMMIT" | sed "s,.*/step-0*\([0-9]*\)-.*,\1," | sort -n | tail -n 1; }
# Two saves after the newest checkpoint: the one whose writing hangs, and one that waits.
stands_still() {
    local last
    last=$(copied)
    sleep 2
    [ -n "$last" ] && [ "$(copied)" = "$last" ] && [ "$(newest)" = $((last - 20)) ]
}
# hang HOST...: what their agents sync does not come to an end.
hang() {
    local host
    for host; do
        spawn "trace-$host" strace -f -qq -p "$(agent_of "$host")" -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_enter=60000000 -o "trace-$host"
    done
    for host; do
        ok "the disk of $host hangs" wait_for 60 test -s "trace-$host" || diag "$(cat "trace-$host.err")"
    done
    ok 'all stand still at a save that only memory has' wait_for 60 stands_still || show_run
}
lose() {
    local host
    for host; do hosts link_down "$host"; done
    for host; do hosts power_off "$host"; done
}
# Kilobytes of private memory of an agent: parity is no file, as snapshots and copies are.
private_of() { awk '/^RssAnon/ {print $2}' "/proc/$(agent_of "$1" | tail -n 1)/status"; }

test_one_lost() {
    local step
    can_trace || { skip 'no strace: see scripts/install-deps' 11; return; }
    start 480000 --nnodes 3:4 --set heartbeat.timeout=3s --set checkpoint.keep=100000 --set checkpoint.partner=xor --set checkpoint.partnerGroup=4
    hang node2
    step=$(copied)
    is "$(find ck -path "*/step-*$step-*/COMMIT" | wc -l)" 0 'no checkpoint' || diag "$(find ck)"
    is "$(on node3 sh -c 'ls /dev/shm/muster-*/copy-*' 2>/dev/null)" '' 'nor any copy'
    lose node2
    ok 'three go on from just that save' wait_for 90 times "from $step" 3 || show_run
    ok 'which one of the others has made again' event 'has made what rank 1 had saved on node 1 again, from parity' || show_run
    ok 'which becomes a checkpoint' wait_for 30 eval '[ -n "$(find ck -path "*/step-*$step-*/COMMIT")" ]' || show_run
    go_home
    hosts power_on node2
}

test_two_lost() {
    local last
    can_trace || { skip 'no strace: see scripts/install-deps' 9; return; }
    start 480000 --nnodes 2:4 --set heartbeat.timeout=3s --set checkpoint.keep=100000 --set checkpoint.partner=xor --set checkpoint.partnerGroup=4
    hang node2 node3
    last=$(newest)
    lose node2 node3
    ok 'two go on from the disk' wait_for 120 times "from $last" 2 || show_run
    ok 'and it is said why' event '2 of the 4 nodes of a group are lost, and parity makes up for 1' || show_run
    go_home
    hosts power_on node2
    hosts power_on node3
}

test_two_made_up_for() {
    local step
    can_trace || { skip 'no strace: see scripts/install-deps' 9; return; }
    start 480000 --nnodes 2:4 --set heartbeat.timeout=3s --set checkpoint.keep=100000 --set checkpoint.partner=rs --set checkpoint.partnerGroup=4 --set checkpoint.partnerParities=2
    hang node2 node3
    step=$(copied)
    lose node2 node3
    ok 'two go on from just that save' wait_for 120 times "from $step" 2 || show_run
    is "$(grep -o 'has made what rank [12] had saved' run/events.jsonl | sort -u | wc -l)" 2 'both of which were made again' || show_run
    go_home
    hosts power_on node2
    hosts power_on node3
}

run_cases
