#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Copies in memory of a partner, on another host: a save that had not come to the disk
# when its node was lost is a checkpoint all the same, and what the next workers start
# from. And a lead that is stopped while it makes a checkpoint of one.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up --hosts node1,node2,node3,node4,node5
cd "$SHARED" || bail_out "no $SHARED"
worker=$MUSTER_BUILDDIR/tests/lib/snap_worker
hosts=node1,node2,node3,node4
once_is_enough test_copies test_as_it_comes test_lead_stopped

field() { "$MUSTER" status "$SHARED/run" -o json | json "$1"; }
shows() { "$MUSTER" status "$SHARED/run" | grep -q "$1"; }
event() { grep -q "$1" "$SHARED/run/events.jsonl"; }
show_run() { diag "$(tail -n 40 run.out run.err)"; diag "$(tail -n 20 "$SHARED/run/events.jsonl")"; }
shm_of() { on "$1" sh -c "cd /dev/shm/muster-$(id -u)-$(json id "$SHARED/run/run.json") && ls"; }
agent_of() { pids_on "$1" '^[^ ]*muster agent --dir'; }
times() { [ "$(grep -c "$1\$" run.out)" -ge "$2" ]; }

# start ELEMENTS OPTION...: four workers that save.
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
}
# The last step of which all have seen copies, which is not on the disk.
copied() { grep -o 'copied [0-9]*$' run.out | sort | uniq -c | awk '$1 >= 4 {print $3}' | sort -n | tail -n 1; }
# Two saves after the newest checkpoint: the one whose writing hangs, and one that waits.
newest() { find ck -path "*/step-*/COMMIT" | sed "s,.*/step-0*\([0-9]*\)-.*,\1," | sort -n | tail -n 1; }
stands_still() {
    local last
    last=$(copied)
    sleep 2
    [ -n "$last" ] && [ "$(copied)" = "$last" ] && [ "$(newest)" = $((last - 20)) ]
}

test_copies() {
    start 4800000 --nnodes 4
    ok 'and all of them see copies, or the disk' wait_for 60 eval '[ "$(grep -c "^.*copied [0-9]" run.out)" -ge 4 ]' || show_run
    like "$(shm_of node1)" 'copy-0-1-' 'node 1 keeps copies of the second node'
    like "$(shm_of node2)" 'copy-0-0-' 'and the other way'
    like "$(shm_of node4)" 'copy-0-2-' 'and the fourth of the third'
    is "$(grep -c 'has no copy' run/events.jsonl)" 0 'nobody complains'
    ok 'and the status says who has what' wait_for 30 shows 'rank 1: memory of node 1, copied to node 0' || show_run
    go_home
    for node in node1 node4; do
        is "$(on $node sh -c 'ls /dev/shm | grep muster-')" '' "no memory is left on $node"
    done
}

# Its disk does not come to an end with it, then the node is switched off.
test_node_lost() {
    can_trace || { skip 'no strace: see scripts/install-deps' 12; return; }
    start 480000 --nnodes 3:4 --set heartbeat.timeout=3s --set checkpoint.keep=100000
    spawn strace strace -f -qq -p "$(agent_of node2)" -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_enter=60000000 -o trace
    tracer=$spawned
    ok "the disk of a node hangs" wait_for 60 test -s trace || diag "$(cat strace.err)"
    ok 'all stand still at a save that only memory has' wait_for 60 stands_still || show_run
    step=$(copied)
    is "$(find ck -path "*/step-*$step-*/COMMIT" | wc -l)" 0 'no checkpoint' || diag "$(find ck)"
    : >run/start
    hosts link_down node2
    hosts power_off node2
    ok 'the rank that was lost has it from memory of its partner, over the wire, as it starts' wait_for 90 event 'node 2 has fetched what rank 1 starts from from memory of node 0' || show_run
    is "$(grep -c "from $step" run.out)" 0 'before it asks'
    rm run/start
    ok 'three go on from just that save' wait_for 90 times "from $step" 3 || show_run
    ok 'which becomes a checkpoint' wait_for 30 eval '[ -n "$(find ck -path "*/step-*$step-*/COMMIT")" ]' || show_run
    run "$MUSTER" ckpt verify ck
    is "$(grep step- out | grep -vc -e whole -e unfinished)" 0 'nothing that is there is damaged' || show
    go_home 'the run ends well'
    is "$(grep -c 'is wrong' run.err)" 0 'what they loaded was right, to the last bit'
    ok "nothing is left of what made the disk hang" wait_for 60 gone "$tracer"
    hosts power_on node2
}

# What a rank asks for while it comes it loads as it comes: it comes slowly, and the disk has
# nothing that is right.
test_as_it_comes() {
    local file at
    can_trace || { skip 'no strace: see scripts/install-deps' 9; return; }
    start 48000000 --nnodes 3:4 --set checkpoint.keep=100000
    ok 'all have copies of a save' wait_for 60 eval '[ -n "$(copied)" ]' || show_run
    : >run/start
    spawn strace strace -f -qq -p "$(agent_of node3)" -e trace=read -e inject=read:delay_enter=30000 -o trace
    tracer=$spawned
    ok 'a node takes its time to read' wait_for 60 test -s trace || diag "$(cat strace.err)"
    hosts link_down node2
    hosts power_off node2
    ok 'its neighbour is lost' wait_for 90 eval '[ "$(field generation)" = 2 ] && [ -n "$(pids_on node3 snap_worker)" ]' || show_run
    step=$(newest)
    file=$(ls ck/step-*"$(printf %012d "$step")"-*/r00001.safetensors)
    for ((at = 100000; at < $(stat -c %s "$file"); at += 4 << 20)); do
        printf x | dd of="$file" bs=1 seek=$at conv=notrunc status=none
    done
    is "$(grep -c 'has fetched' run/events.jsonl)" 0 'what that had is on its way from its partner'
    rm run/start
    ok 'the next ones load' wait_for 120 times "from $step" 3 || show_run
    ok 'and had it' wait_for 60 event 'node 2 has fetched what rank 1 starts from from memory of node 0' || show_run
    kill "$tracer"
    is "$(cat run.out run.err | grep -c 'is wrong\|is damaged')" 0 'what they loaded was right' || show_run
    go_home
    hosts power_on node2
}

# It goes on when others have saved under another lead: nothing that they were told of is
# gone, and nothing of its own is in their way.
test_lead_stopped() {
    local old before told
    can_trace || { skip 'no strace: see scripts/install-deps' 10; return; }
    start 48000 --nnodes 3:4 --set heartbeat.timeout=3s --set checkpoint.keep=100000
    old=$(agent_of node1 | tail -n 1) # below its watch
    # Part files go before a COMMIT comes.
    spawn strace strace -f -qq -p "$old" -e trace=unlinkat -e inject=unlinkat:delay_enter=50000 -o trace
    tracer=$spawned
    ok 'its lead makes checkpoints, slowly' wait_for 60 grep -qs 'part"' trace || diag "$(cat strace.err)"
    kill -STOP "$old"
    ok 'and is stopped: three go on' wait_for 90 eval '[ "$(field lead)" = 1 ] && [ "$(grep -c "from [0-9]" run.out)" -ge 3 ]' || show_run
    before=$(grep -c checkpoint_saved run/events.jsonl)
    ok 'and save, under another lead' wait_for 90 eval '[ "$(grep -c checkpoint_saved run/events.jsonl)" -gt $((before + 2)) ]' || show_run
    kill -CONT "$old"
    ok 'the old one goes on, and leaves' wait_for 60 gone "$old"
    ok 'with whoever looked on' wait_for 60 gone "$tracer"
    go_home
    told=$(grep checkpoint_saved run/events.jsonl | grep -o '/[^" ]*/step-[0-9]*-[0-9a-f]*' | sort -u)
    num "$(echo "$told" | wc -l)" -ge 4 'checkpoints were told of'
    is "$(for s in $told; do [ -e "$s/COMMIT" ] || echo "$s"; done)" '' 'and all of them are there' || show_run
    run "$MUSTER" ckpt verify ck
    is "$(grep step- out | grep -vc -e whole -e unfinished)" 0 'nothing that is there is damaged' || show
}

# hang HOST NAME: what its agent syncs does not come to an end.
hang() { spawn "$2" strace -f -qq -p "$(agent_of "$1")" -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_enter=60000000 -o "$2.trace"; }
traced() { grep -q '^TracerPid:.[1-9]' "/proc/$(agent_of "$1")/status"; }
hangs() { ok "the disk of $1 hangs" wait_for 60 test -s "$2.trace" || diag "$(cat "$2.err")"; }

# Memory of an older job's rank 2: the agent was killed, so nobody has removed it.
keep_stale() {
    local pid
    spawn old on node5 "$MUSTER" run --allow-run-as-root --run-dir old --nproc-per-node 3 -- "$worker" "$SHARED/ck.old" 480000
    ok 'an older job has saved' wait_for 60 eval '[ "$(grep -c "held [1-9]" old.out)" -ge 9 ]' || diag "$(cat old.out old.err)"
    for pid in $(agent_of node5); do kill -STOP "$pid"; done
    old=muster-$(id -u)-$(json id old/run.json)
    on node5 sh -c "cp /dev/shm/$old/snap-0-2-0 '$SHARED/stale'"
    for pid in $(agent_of node5); do kill -KILL "$pid"; done
    wait_exit 60 "$spawned"
    ok 'and left memory' test -s "$SHARED/stale"
}

# Both of a pair are lost with what only they had: the others, and a spare where an older
# job has left memory of the same rank, go on from what is on the disk.
test_pair_lost() {
    local last dir old
    can_trace || { skip 'no strace: see scripts/install-deps' 14; return; }
    keep_stale
    hosts=node1,node2,node3,node4,node5 start 480000 --nnodes 3:4 --set elastic.spares=1 --set heartbeat.timeout=3s --set checkpoint.keep=100000
    dir=/dev/shm/muster-$(id -u)-$(json id run/run.json)
    on node5 sh -c "mkdir -m 700 -p $dir && cp stale $dir/snap-0-2-0 && chmod 600 $dir/snap-0-2-0"
    # Of both before one of them holds up the saves of all, which wait meanwhile.
    echo 0 >run/pace
    hang node3 third
    hang node4 fourth
    ok 'both are watched' wait_for 60 eval 'traced node3 && traced node4' || diag "$(cat third.err fourth.err)"
    rm run/pace
    hangs node3 third
    hangs node4 fourth
    ok 'all stand still at a save that only memory has' wait_for 60 stands_still || show_run
    last=$(newest)
    hosts link_down node3
    hosts link_down node4
    hosts power_off node3
    hosts power_off node4
    ok 'both of a pair are lost: three go on from the disk' wait_for 120 times "from $last" 3 || show_run
    is "$(field nodes.4.host)" node5 'one of them where the stale memory is'
    ok 'which is memory for its own saves' wait_for 60 eval "on node5 sh -c '! cmp -s stale $dir/snap-0-2-0'" || diag "$(shm_of node5)"
    : >run/go
    wait_exit 120 "$runner"
    is "$status" 0 'the run ends well' || show_run
    is "$(grep -c 'is wrong' run.err)" 0 'what they loaded was right, and none of it stale'
    run "$MUSTER" ckpt verify ck
    is "$(grep step- out | grep -vc -e whole -e unfinished)" 0 'nothing that is there is damaged' || show
    is "$(on node5 sh -c 'ls /dev/shm | grep muster-')" "$old" 'no memory of the run is left there'
}

run_cases
