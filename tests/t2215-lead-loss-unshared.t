#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The node that leads is lost where each host has a run directory of its own: most of
# the nodes go on; of two nodes the one that does not lead cannot.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up --no-shared
cd "$SHARED" || bail_out "no $SHARED"

agent_of() { pids_on "$1" '^[^ ]*muster agent --dir'; }
field() { on node4 "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
nobody_left() { [ -z "$(for h in 1 2 3 4; do agent_of node$h; pids_on node$h 'sleep 1000'; done)" ]; }
lines() { grep -c "$1" run.out; }

# start_run HOSTS OPTION...: until a worker of each has said where it is.
start_run() {
    local hosts=$1 n
    shift
    n=$(tr -cd , <<<"$hosts" | wc -c)
    for h in 1 2 3 4; do on node$h sh -c "rm -rf '$SHARED/run'; mkdir -p '$SHARED'"; done
    spawn run on node4 sh -c "cd '$SHARED' && exec timeout 250 \"\$@\"" sh "$MUSTER" run --allow-run-as-root --run-dir run \
        --insecure-bootstrap --hosts "$hosts" --nproc-per-node 1 "$@"
    runner=$spawned
    wait_for 60 eval "[ \$(lines 'in 1: ') = $((n + 1)) ]" || { diag "$(cat run.err)"; return 1; }
}
tell='echo "in $MUSTER_GENERATION: $(hostname)"'

test_majority() {
    start_run node1,node2,node3,node4 --nnodes 2:4 -- sh -c "$tell; [ \$MUSTER_GENERATION -ge 2 ] || exec sleep 1000"
    is $? 0 'four nodes, none of which sees the run directory of another'
    kill -KILL $(agent_of node1)
    wait_exit 120 "$runner"
    is "$status" 0 'go on to their end without the one that leads' || diag "$(cat run.err)"
    is "$(lines 'in 1: '),$(lines 'node1$')" 4,1 'the first in one generation only'
    like "$(cat run.err)" 'node 1 (node2) leads the run from here on' 'led by the next'
    ok 'nobody is left' wait_for 60 nobody_left
}

test_two() {
    start_run node1,node2 --nnodes 1:2 -- sh -c "$tell; exec sleep 1000"
    is $? 0 'two nodes'
    ok 'are told what that means' wait_for 60 grep -q 'does not outlive the loss of node1' run.err || diag "$(cat run.err)"
    kill -KILL $(agent_of node1)
    wait_exit 120 "$runner"
    is "$status" 75 'and stop with the first' || diag "$(cat run.err)"
    ok 'nobody is left' wait_for 60 nobody_left
}

run_cases
