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
show_run() {
    local h
    diag "$(tail -n 40 run.out run.err)"
    diag "$(tail -n 20 "$SHARED/run/events.jsonl")"
    for h in node1 node4; do
        diag "$h: $(on "$h" sh -c 'tail -n 40 /tmp/muster-*/*/agent-*.log' 2>&1)"
    done
}
agent_of() { pids_on "$1" '^[^ ]*muster agent --dir'; }
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
# The last step of which all have parity, or which is on the disk.
copied() { grep -o 'copied [0-9]*' run.out | sort | uniq -c | awk '$1 >= 4 {print $3}' | sort -n | tail -n 1; }
newest() { find ck -path "*/step-*/COMMIT" | sed "s,.*/step-0*\([0-9]*\)-.*,\1," | sort -n | tail -n 1; }
# Two saves after the newest checkpoint: the one whose writing hangs, and one that waits.
stands_still() {
    local last
    last=$(copied)
    sleep 2
    [ -n "$last" ] && [ "$(copied)" = "$last" ] && [ "$(newest)" = $((last - 20)) ]
}
# hang HOST...: what their agents sync does not come to an end, from the same save on: to
# attach to one takes time, in which another one would write. So nobody saves meanwhile.
set_pace() { echo "$1" >run/.pace && mv run/.pace run/pace; }
stands_at() { [ "$(copied)" = "$1" ] && [ "$(newest)" = "$1" ]; }
traced() { grep -q '^TracerPid:[[:space:]]*[1-9]' "/proc/$(agent_of "$1" | tail -n 1)/status"; }
hang() {
    local host step=$(($(held) + 300))
    set_pace "$step"
    ok 'all wait, and what they have saved is on the disk' wait_for 90 stands_at "$step" || show_run
    for host; do
        spawn "trace-$host" strace -f -qq -p "$(agent_of "$host")" -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_enter=60000000 -o "trace-$host"
    done
    for host; do
        ok "the agent of $host is traced" wait_for 60 traced "$host" || diag "$(cat "trace-$host.err")"
    done
    rm run/pace
    for host; do
        ok "the disk of $host hangs" wait_for 60 test -s "trace-$host" || diag "$(cat "trace-$host.err")"
    done
    ok 'all stand still at a save that only memory has' wait_for 60 stands_still || show_run
}
held() { grep -o 'held [0-9]*' run.out | sort | uniq -c | awk '$1 >= 4 {print $3}' | sort -n | tail -n 1; }
stands_on_disk() {
    local last
    last=$(held)
    sleep 1
    [ -n "$last" ] && [ "$(held)" = "$last" ] && [ "$(newest)" = "$last" ]
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
    can_trace || { skip 'no strace: see scripts/install-deps' 13; return; }
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

# What is on the disk is read from memory all the same, as it is with copies.
test_on_disk() {
    local last image
    start 24000000 --nnodes 3:4 --set heartbeat.timeout=3s --set checkpoint.keep=100000 --set checkpoint.partner=xor --set checkpoint.partnerGroup=4
    : >run/once
    ok 'a save is on the disk, and no other is on its way' wait_for 90 stands_on_disk || show_run
    last=$(newest)
    image=$(on node3 sh -c 'du -bc /dev/shm/muster-*/snap-*' | awk '/total/ {print $1 / 2}')
    diag "the agent has $(private_of node3) kB of its own, with two saves of $image bytes"
    if sanitized; then
        skip 'a sanitizer has memory of its own' 1
    else
        num "$(private_of node3)" -lt $((image * 2 / 1024)) 'parity takes less memory than copies of both'
    fi
    is "$(grep -c 'there is no parity' run/events.jsonl)" 0 'nobody complains'
    lose node2
    ok 'a node is lost: three go on from it' wait_for 90 times "from $last" 3 || show_run
    ok 'what was of that node in memory is made again' wait_for 30 event 'has made what rank 1 had saved on node 1 again, from parity' || show_run
    rm run/once
    ok 'and goes when they have saved' wait_for 60 eval '[ -z "$(on node3 sh -c "ls /dev/shm/muster-*/copy-* 2>/dev/null")" ]' || show_run
    go_home
    hosts power_on node2
}

test_two_lost() {
    local last
    can_trace || { skip 'no strace: see scripts/install-deps' 12; return; }
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

both_made() { [ "$(grep -o 'has made what rank [12] had saved' run/events.jsonl | sort -u | wc -l)" = 2 ]; }
test_two_made_up_for() {
    local step
    can_trace || { skip 'no strace: see scripts/install-deps' 12; return; }
    start 480000 --nnodes 2:4 --set heartbeat.timeout=3s --set checkpoint.keep=100000 --set checkpoint.partner=rs --set checkpoint.partnerGroup=4 --set checkpoint.partnerParities=2
    hang node2 node3
    step=$(copied)
    lose node2 node3
    ok 'two go on from just that save' wait_for 120 times "from $step" 2 || show_run
    # What workers print and what agents note come by ways of their own.
    ok 'both of which were made again' wait_for 30 both_made || show_run
    go_home
    hosts power_on node2
    hosts power_on node3
}

# Saves that need not go to the disk: what is only in memory, with parity, is what there is.
steps() { find ck -name COMMIT 2>/dev/null | sed 's,.*/step-0*\([0-9][0-9]*\)-.*,\1,' | sort -n | tr '\n' ' '; }
told() { ok "$1" wait_for 90 times "$2" "$3" || show_run; }
shows() { "$MUSTER" status "$SHARED/run" | grep -q "$1"; }
show_levels() { show_run; diag "$("$MUSTER" status "$SHARED/run")"; }
# start_levels PACE OPTION...: four workers that save up to that step.
start_levels() {
    local pace=$1
    shift
    cd "$SHARED" && rm -rf run ck
    spawn run on node1 timeout 250 "$MUSTER" run --allow-run-as-root --run-dir run --hosts $hosts --nproc-per-node 1 \
        --set heartbeat.timeout=3s --set checkpoint.keep=100 --set checkpoint.diskEvery=1h --set checkpoint.partnerGroup=4 --set checkpoint.partner=xor "$@" -- sh -c '
        cd "$MUSTER_RUN_DIR" && { [ -e pace ] || { echo "$1" >.pace.$MUSTER_RANK && mv .pace.$MUSTER_RANK pace; }; }
        cd "$OLDPWD"; shift; exec "$@"' sh "$pace" "$worker" "$SHARED/ck" 48000
    runner=$spawned
}
saves() {
    told 'four workers save' 'held 20' 4
    ok 'once to the disk' wait_for 60 eval '[ "$(steps)" = "0 " ]' || show_run
    ok 'and each time to memory, with parity' wait_for 30 shows 'in memory *step 20: 4 of 4 ranks, 4 of them with parity' || show_levels
}

test_levels() {
    start_levels 25 --nnodes 3:4 --set checkpoint.partnerEvery=0s
    saves
    lose node2
    told 'without a node three go on from what the others have made again' 'from 20' 3
    is "$(steps)" '0 20 ' 'which is on the disk by then' || show_run
    set_pace 45
    told 'and save' 'held 40' 3
    ok 'with parity of three' wait_for 30 shows 'in memory *step 40: 3 of 3 ranks, 3 of them with parity' || show_levels
    go_home
    hosts power_on node2
}

# What has parity stays, on all nodes, while later ones come that have none.
test_levels_once() {
    start_levels 5 --nnodes 3:4 --set checkpoint.partnerEvery=20s
    told 'four workers save' 'held 0' 4
    sleep 21
    set_pace 15
    told 'after a while it is the turn of parity' 'held 10' 4
    ok 'which the others keep' wait_for 30 shows 'in memory *step 10: 4 of 4 ranks, 4 of them with parity' || show_levels
    set_pace 35
    told 'others stay' 'held 30' 4
    is "$(steps)" '0 ' 'none of them goes to the disk'
    lose node3
    told 'without a node three go on from what has parity' 'from 10' 3
    go_home
    hosts power_on node3
}

test_levels_two_lost() {
    start_levels 25 --nnodes 2:4 --set checkpoint.partnerEvery=0s
    saves
    lose node2 node3
    told 'without two nodes two go on from the disk' 'from 0' 2
    is "$(steps)" '0 ' 'which is all that there is' || show_run
    go_home
    hosts power_on node2
    hosts power_on node3
}

once_is_enough test_two_lost test_levels_once test_levels_two_lost
run_cases
