#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Which network nodes meet in: the job may choose one, by the name of an interface
# or by its addresses; workers are told, and a host that has none is named.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
need_command ip
rig_hosts_up --hosts node1,node2
cd "$SHARED" || bail_out "no $SHARED"

# A second network between the hosts; one that only node1 has; and on both what a
# container engine makes, with one address everywhere.
pid1=$(hosts pid node1)
pid2=$(hosts pid node2)
ip link add eth1 netns "$pid1" type veth peer name eth1 netns "$pid2" || bail_out 'no second network'
on node1 ip link add eth2 type veth peer name eth2-end || bail_out 'no third network'
on node1 ip address add 10.99.0.1/24 dev eth2
on node1 ip link set eth2 up
on node1 ip link set eth2-end up
for i in 1 2; do
    on node$i ip address add 10.88.0.$i/24 dev eth1
    on node$i ip link set eth1 up
    on node$i ip link add docker0 type veth peer name docker0-end
    on node$i ip address add 172.17.0.1/16 dev docker0
    on node$i ip link set docker0 up
    on node$i ip link set docker0-end up
done

mrun() {
    cd "$SHARED" && rm -rf run
    run on node1 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node1,node2 --nnodes 2 \
        --nproc-per-node 1 "$@" -- sh -c 'echo $RANK $MASTER_ADDR nccl:$NCCL_SOCKET_IFNAME gloo:$GLOO_SOCKET_IFNAME'
}
said() { sed 's/^\[.*\] //' out | sort | tr '\n' ';'; }

test_choice() {
    mrun
    is "$status:$(said)" '0:0 10.77.0.1 nccl: gloo:;1 10.77.0.1 nccl: gloo:;' 'by itself the first network' || show
    mrun --interface 10.88.0.0/16
    is "$status:$(said)" '0:0 10.88.0.1 nccl:=eth1 gloo:eth1;1 10.88.0.1 nccl:=eth1 gloo:eth1;' \
        'a network that the job chose, of which workers hear' || show
    mrun --set network.interface=ib7,eth0
    is "$status:$(said)" '0:0 10.77.0.1 nccl:=eth0 gloo:eth0;1 10.77.0.1 nccl:=eth0 gloo:eth0;' \
        'an interface by its name, as the second choice' || show
    mrun --interface 10.88.0.77
    is "$status:$(said)" '0:0 10.88.0.1 nccl:=eth1 gloo:eth1;1 10.88.0.1 nccl:=eth1 gloo:eth1;' \
        'the network that an address is in' || show
    NCCL_SOCKET_IFNAME=mine mrun --interface eth0
    is "$status:$(said)" '0:0 10.77.0.1 nccl:mine gloo:eth0;1 10.77.0.1 nccl:mine gloo:eth0;' \
        'what the user has set stays' || show
}

test_none() {
    mrun --interface 10.99.0.0/24
    isnt "$status" 0 'a network that one host does not have'
    like "$(cat err)" 'node2 has no address for network.interface 10.99.0.0/24; it has eth0 10.77.0.2' \
        'names that host, and what it has' || { show; diag "$(cat run/mpirun.log)"; }
    ok 'nobody is left' wait_for 60 run_gone "$(json id run/run.json)"
    mrun --interface 10.77.0.1/33
    is "$status" 2 'what is no network' || show
    like "$(cat err)" "'10.77.0.1/33' is neither the name of an interface nor an address or network such as 10.1.0.0/16" 'is told so'
}

test_collectives() {
    cd "$SHARED" && rm -rf run
    run on node1 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node1,node2 --nnodes 2 \
        --nproc-per-node 1 --interface 10.88.0.0/24 -- "$MUSTER_BUILDDIR/examples/charlm/charlm" --steps 3 --batch 4
    is "$status" 0 'collectives between nodes go over it' || show
}

run_cases
