#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The virtual machine: another kernel, the files of this one, disks, RDMA.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
rig_vm_up

test_run() {
    echo 'of here' >"$TRASH/here"
    cat >look <<'END'
uname -r
cat here && echo 'of there' >here && cat here
pwd
[ -b /dev/vda ] && cat /sys/block/vda/size
grep -c 'xfs$' /proc/filesystems
ip link add d0 type veth peer name d1 && ip addr add 10.88.0.1/24 dev d0 &&
    ip link set d0 up && ip link set d1 up && rdma link add rxe0 type rxe netdev d0
ibv_devinfo | sed -n 's/^[[:space:]]*state:[[:space:]]*//p'
echo kept >"$1/kept"
echo wrong >&2
exit 7
END
    run in_vm --secs 120 --disk 8 --module xfs --module veth --module crc32_generic \
        --module rdma_rxe --module ib_uverbs -- bash look "$BED/out"
    is "$status" 7 'it passes the status on' || show
    isnt "$(sed -n 1p out)" "$(uname -r)" 'the kernel is its own'
    is "$(sed -n '2,3p' out | tr '\n' ,)" 'of here,of there,' 'it sees the files that are here, and may write'
    is "$(cat here)" 'of here' 'which goes with it'
    is "$(sed -n 4p out)" "$PWD" 'it runs in the same directory'
    is "$(sed -n 5p out)" 16384 'it has a disk of the size that was asked for'
    is "$(stat -c %s "$BED/disk0")" 8388608 'which stays'
    is "$(sed -n 6p out)" 1 'modules are loaded'
    like "$(sed -n 7p out)" PORT_ACTIVE 'RDMA over Ethernet has an active port'
    is "$(cat "$BED/out/kept")" kept 'what is written to its out directory is here'
    is "$(cat err)" wrong 'and nothing else is said'
}

# left: processes that have the bed on their command line.
left() { pgrep -f -- "path=$BED/out|rigs/vm run.* $BED( |\$)"; }

# Whether or not the machine has come up by then.
test_ends() {
    run in_vm --secs 2 -- sleep 100
    is "$status" 124 'a machine that takes too long is turned off'
    like "$(cat err)" 'ended after 2 s' 'and it says so'
    ok 'nothing of it is left' wait_for 10 not left
    lose_caller
    ok 'which goes when its caller is killed' wait_for 10 not left
    slow_setpriv
    PATH=$PWD/bin:$PATH lose_caller
    ok 'which goes when its caller was killed before it could be told' wait_for 10 not left
}

lose_caller() {
    bash -c '"$1" run "$2" -- sleep 100; :' caller "$MUSTER_SRCDIR/tests/rigs/vm" "$BED" >caller.out 2>&1 &
    ok 'another one starts' wait_for 30 left
    kill -KILL $!
    wait $! 2>/dev/null
}

# So that there is time before anything has asked for a signal.
slow_setpriv() {
    mkdir bin
    printf '#!/bin/sh\nsleep 1\nexec %s "$@"\n' "$(command -v setpriv)" >bin/setpriv
    chmod +x bin/setpriv
}

run_cases
