#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# store: tree, over three hosts: workers ask a store of their own node, and that
# of rank 0's node has one connection of each other one.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3 ss
need_torch
rig_hosts_up
PY=$MUSTER_SRCDIR/tests/py
DDP=$MUSTER_SRCDIR/examples/ddp.py
three=node1,node2,node3

field() { "$MUSTER" status "$SHARED/run" -o json | json "$1"; }
nobody_left() { run_gone "$(json id "$SHARED/run/run.json")"; }

test_env() {
    cd "$SHARED" && mkdir seen
    # shellcheck disable=SC2016
    run on node1 env OMP_NUM_THREADS=2 timeout 100 "$MUSTER" run --allow-run-as-root --run-dir run \
        --hosts $three --nnodes 3 --nproc-per-node 2 --set store=tree -- \
        sh -c 'echo "$MUSTER_MASTER_PORT" >>ports; ss -tlnH "sport = :$MASTER_PORT" >>listen; exec "$@"' sh \
        python3 "$PY/env_check.py" seen \
        WORLD_SIZE=6 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MUSTER_MASTER_ADDR=10.77.0.1 \
        TORCHELASTIC_USE_AGENT_STORE=True
    is "$status" 0 'workers are sent to their own node, and told of the first' || show
    is "$(ls seen | tr '\n' ' ')" '0 1 2 3 4 5 ' 'each its own rank'
    is "$(sort -u ports | wc -l)" 1 'and all of the same port there' || diag "$(cat ports)"
    num "$(grep -c '127\.0\.0\.1:' listen)" -eq 6 'their stores listen'
    num "$(grep -vc '127\.0\.0\.1:' listen)" -eq 0 'on loopback alone' || diag "$(cat listen)"
}

# Connections from other hosts to the agent of node1, which wrote its pid: each of
# them has one of the control tree, and its trunk. None is of a worker.
trunks() {
    local agent
    agent=$(cat "$SHARED/agent" 2>/dev/null) || return
    on node1 ss -tnpH state established | grep "pid=$agent," | grep -o '10\.77\.0\.[23]' | sort | uniq -c | xargs
}
has_trunks() { [ "$(trunks)" = "$1" ]; }
rank_pid() { on node3 pgrep -f "^$TORCH_PYTHON $DDP" | head -n 1; }

test_ddp() {
    cd "$SHARED" && rm -rf run
    # shellcheck disable=SC2016
    spawn ddp on node1 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run --hosts $three \
        --nnodes 3 --nproc-per-node 2 --max-restarts 2 --set store=tree \
        --set restart.backoff=10ms..20ms -- \
        sh -c '[ "$RANK" != 0 ] || echo "$PPID" >agent; exec "$@"' sh \
        "$TORCH_PYTHON" "$DDP" --steps 60 --step-time 0.05
    ok 'six workers of three hosts train together' wait_for 120 grep -q 'step 20 ' ddp.out || diag "$(cat ddp.err)"
    ok 'the store has one connection of each other host' wait_for 60 has_trunks '2 10.77.0.2 2 10.77.0.3' || diag "$(trunks)"
    on node3 kill -KILL "$(rank_pid)"
    wait_exit 200 "$spawned"
    is "$status" 0 'and go on after the loss of a worker' || diag "$(cat ddp.err)"
    matches "$(cat ddp.out)" 'world 6: from step (20|40|60) to 60' 'from the last checkpoint'
    like "$(cat ddp.out)" 'done: accuracy' 'to the end'
    is "$(field restarts)" 1 'with one restart'
    unlike "$(cat ddp.err)" "the store on" 'and not a word of stores'
    ok 'nobody is left' wait_for 60 nobody_left
}

# A node that others wait for in the store is lost: their waits end with the
# generation, and the next one has a store of its own.
test_loss() {
    cd "$SHARED" && rm -rf run agent*
    # shellcheck disable=SC2016
    spawn loss on node1 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run --hosts $three \
        --nnodes 2:3 --nproc-per-node 2 --set store=tree --set restart.backoff=10ms..20ms -- \
        sh -c 'echo "$PPID" >"agent.$GROUP_RANK.$WORLD_SIZE"
               [ "$WORLD_SIZE" = 4 ] || [ "$GROUP_RANK" != 2 ] || exec sleep 1000; exec "$@"' sh \
        "$TORCH_PYTHON" -c 'import torch.distributed as d
d.init_process_group("gloo"); d.barrier(); print("met", d.get_world_size(), flush=True)'
    ok 'two of three nodes wait for the third' wait_for 120 test -s agent.2.6 || diag "$(cat loss.err)"
    on node3 kill -KILL "$(cat agent.2.6)"
    wait_exit 200 "$spawned"
    is "$status" 0 'which is lost, and they go on' || diag "$(cat loss.err)"
    is "$(grep -c 'met 4' loss.out)" 4 'as four workers' || diag "$(cat loss.out)"
    unlike "$(cat loss.err)" "the store on" 'and not a word of stores'
    ok 'nobody is left' wait_for 60 nobody_left
}

run_cases
