#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The bed of hosts is what it says: separate machines that mpirun can use, and
# that can be lost, cut off and brought back.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_command mpirun
rig_hosts_up

mpirun4() {
    on node1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        mpirun --host node1:1,node2:1,node3:1,node4:1 --map-by ppr:1:node "$@"
}

# reaches A B: a TCP connection from A to B can be made within a second.
reaches() { on "$1" timeout 1 bash -c "</dev/tcp/$2/22"; }

in_state() { grep -q ") $1 " "/proc/$2/stat"; }

test_mpirun() {
    run mpirun4 hostname
    is "$(sort out | tr '\n' ' ')" 'node1 node2 node3 node4 ' 'mpirun starts a process on each host' || show
    run mpirun4 sh -c 'echo $OMPI_COMM_WORLD_SIZE; hostname'
    is "$(grep -c '^4$' out)" 4 'and all are of one world' || show
}

test_separate() {
    run on node1 sh -c 'sleep 1000 & echo mine >/tmp/f; echo mine >/dev/shm/f
        while [ "$(cat /proc/$!/comm)" = sh ]; do sleep 0.05; done; ps -e -o comm='
    like "$(cat out)" sleep 'a host sees its processes'
    run on node2 sh -c 'ps -e -o comm=; cat /tmp/f /dev/shm/f'
    unlike "$(cat out)" sleep 'but not those of another'
    unlike "$(cat out)" mine 'nor its /tmp and /dev/shm'
    isnt "$(on node1 cat /proc/sys/kernel/random/boot_id)" \
        "$(on node2 cat /proc/sys/kernel/random/boot_id)" 'hosts have boot ids of their own'
    is "$(on node3 ls /sys/class/net | tr '\n' ' ')" 'eth0 lo ' 'and their own network'
    is "$(on node3 awk -F: '$2 == "" || $2 == "freezer" { print $3; exit }' /proc/self/cgroup)" / \
        'and their own cgroups'
    on node1 sh -c "echo common >$SHARED/f"
    is "$(on node4 cat "$SHARED/f")" common 'what is shared is shared'
}

test_pause() {
    spawn sleeper on node2 sleep 1000
    wait_inner 10 "$spawned" || { fail 'something runs in the host'; return; }
    hosts pause node2
    ok 'a paused host does nothing' wait_for 60 in_state T "$inner"
    hosts resume node2
    ok 'and goes on' wait_for 60 in_state S "$inner"
}

test_links() {
    ok 'hosts reach each other' reaches node2 node1
    hosts link_down node2
    not_ok 'a link that is down carries nothing' reaches node1 node2
    hosts link_up node2
    ok 'up again it does' wait_for 60 reaches node1 node2
    hosts partition node1,node2 node3,node4
    ok 'one side of a cut hears itself' wait_for 60 reaches node1 node2
    ok 'and so does the other' reaches node3 node4
    not_ok 'but not the first' reaches node4 node1
    hosts heal
    ok 'until healed' wait_for 60 reaches node4 node1
    on node3 timeout 60 bash -c 'exec 3<>/dev/tcp/node4/22; read -r line <&3; echo $line' >first
    like "$(cat first)" SSH 'before a one-way cut, traffic flows'
    hosts cut node3 node4
    not_ok 'after it, no connection is made' reaches node3 node4
    not_ok 'in either direction' reaches node4 node3
    ok 'while others see no change' reaches node3 node1
    hosts heal
    ok 'until healed' wait_for 60 reaches node3 node4
}

test_power() {
    local pid
    spawn sleeper on node3 setsid sleep 1000
    wait_inner 10 "$spawned" || { fail 'something runs in the host'; return; }
    pid=$inner
    before=$(on node3 cat /proc/sys/kernel/random/boot_id)
    hosts power_off node3
    ok 'a power-off ends all that ran there' wait_for 60 gone "$pid"
    not_ok 'nothing answers any more' reaches node1 node3
    hosts power_on node3
    ok 'switched on again it answers' wait_for 60 reaches node1 node3
    isnt "$(on node3 cat /proc/sys/kernel/random/boot_id)" "$before" 'with another boot id'
}

test_node_loss_under_mpirun() {
    spawn job mpirun4 sh -c 'hostname; sleep 1000'
    wait_for 60 eval '[ $(wc -l <job.out) = 4 ]'
    is "$(sort job.out | tr '\n' ' ')" 'node1 node2 node3 node4 ' 'a job runs' || diag "$(cat job.err)"
    pkill -KILL -x orted --ns "$(hosts pid node4)" --nslist pid
    ok 'and ends when a host loses its daemon' wait_exit 30 "$spawned"
    isnt "$status" 0 'with a failure'
}

test_second_bed() {
    local second=$TRASH/second
    ok 'a second bed beside it' "$MUSTER_SRCDIR/tests/rigs/hosts" up "$second" --hosts node1,node2 --no-shared --owner $$
    is "$("$MUSTER_SRCDIR/tests/rigs/hosts" run "$second" node1 -- "$second/ssh" node2 hostname)" node2 'works'
    "$MUSTER_SRCDIR/tests/rigs/hosts" run "$second" node1 -- sh -c "echo x >$second/shared/f"
    is "$("$MUSTER_SRCDIR/tests/rigs/hosts" run "$second" node2 -- ls "$second/shared")" '' 'shares nothing when told so'
    pid=$("$MUSTER_SRCDIR/tests/rigs/hosts" pid "$second" node1)
    ok 'is taken down' "$MUSTER_SRCDIR/tests/rigs/hosts" down "$second"
    ok 'and leaves no process' gone "$pid"
    ok 'while the first one stays' reaches node1 node2
    ok 'taken down twice' "$MUSTER_SRCDIR/tests/rigs/hosts" down "$second"
}

test_owner() {
    local second=$TRASH/owned pid
    spawn owner sleep 1000
    "$MUSTER_SRCDIR/tests/rigs/hosts" up "$second" --hosts a --owner "$spawned"
    pid=$("$MUSTER_SRCDIR/tests/rigs/hosts" pid "$second" a)
    { kill -KILL "$spawned"; wait "$spawned"; } 2>/dev/null
    ok 'a bed whose owner was killed goes by itself' wait_for 60 gone "$pid"
    ok 'with all that it made' wait_for 60 not test -e "$second/state"
}

run_cases
