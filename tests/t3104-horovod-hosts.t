#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Horovod's rendezvous for workers on several hosts, and after the loss of one.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
grep -q 'define HAVE_MICROHTTPD_H 1' "$MUSTER_BUILDDIR/config.h" || skip_all 'built without libmicrohttpd'
rig_hosts_up
client=$MUSTER_SRCDIR/tests/py/horovod_client.py
sums='rank 0 on eth0 by gloo: sums [10, 3, 4];rank 1 on eth0 by gloo: sums [10, 3, 6];'\
'rank 2 on eth0 by gloo: sums [10, 7, 4];rank 3 on eth0 by gloo: sums [10, 7, 6];'

# start N [NAME=VALUE]: four processes on two hosts, with N restarts.
start() {
    cd "$SHARED" && rm -rf run || return
    run on node1 env ${2:-A=1} timeout 200 "$MUSTER" run --allow-run-as-root --quiet --run-dir run --log-prefix none \
        --hosts node1,node2 --nnodes 2 --max-restarts "$1" --set restart.backoff=10ms..20ms -- \
        horovodrun -np 4 python3 "$client"
}

test_hosts() {
    start 0
    is "$status" 0 'four processes on two hosts' || show
    is "$(sort -u out | tr '\n' ';')" "$sums" 'meet over the interface that the hosts share'
}

test_restart() {
    start 1 CRASH=1
    is "$status" 0 'a failure, and a restart' || show
    is "$(sort -u out | tr '\n' ';')" "$sums" 'and they meet again'
}

run_cases
