#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unmodified PyTorch scripts over four hosts: each PyTorch trains, and a training
# goes on after the loss of a worker on another host than the store's, and after
# that of a host.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
need_torch
rig_hosts_up
PY=$MUSTER_SRCDIR/tests/py
DDP=$MUSTER_SRCDIR/examples/ddp.py
four=node1,node2,node3,node4

pythons=("$TORCH_PYTHON")
debian=/usr/bin/python3
quick=$TORCH_PYTHON
if [ "$TORCH_PYTHON" != $debian ] && has_torch $debian; then
    pythons+=($debian)
    quick=$debian
fi

field() { "$MUSTER" status "$SHARED/run" -o json | json "$1"; }
nobody_left() { run_gone "$(json id "$SHARED/run/run.json")"; }
no_clash() { ! grep -riE 'EADDRINUSE|address already in use' run/logs; }

test_env() {
    cd "$SHARED" && mkdir seen
    run on node1 env OMP_NUM_THREADS=2 timeout 100 "$MUSTER" run --allow-run-as-root --run-dir run --hosts $four --nnodes 4 \
        --nproc-per-node 1 -- python3 "$PY/env_check.py" seen WORLD_SIZE=4 LOCAL_WORLD_SIZE=1 \
        LOCAL_RANK=0 GROUP_WORLD_SIZE=4 MASTER_ADDR=10.77.0.1 MUSTER_MASTER_ADDR=10.77.0.1 \
        TORCHELASTIC_USE_AGENT_STORE=True
    is "$status" 0 'workers of four hosts have the environment of torchrun, with an address for all' || show
    is "$(ls seen | tr '\n' ' ')" '0 1 2 3 ' 'each its own rank'
}

# Each PyTorch on two hosts of its own, at the same time.
test_pythons() {
    local i pids=() hosts=(node1,node2 node3,node4)
    cd "$SHARED" || return
    for i in "${!pythons[@]}"; do
        spawn "ddp$i" on "${hosts[i]%,*}" timeout 100 "$MUSTER" run --allow-run-as-root \
            --run-dir "run$i" --hosts "${hosts[i]}" --nnodes 2 --nproc-per-node 1 \
            --max-restarts 0 -- "${pythons[i]}" "$DDP" --steps 60
        pids+=("$spawned")
    done
    for i in "${!pythons[@]}"; do
        wait_exit 120 "${pids[i]}"
        is "$status" 0 "${pythons[i]} trains over two hosts" || diag "$(cat "ddp$i.err")"
        like "$(cat "ddp$i.out")" 'done: accuracy' 'to the end'
    done
    [ ${#pythons[@]} -lt 2 ] ||
        is "$(grep loss ddp1.out)" "$(grep loss ddp0.out)" 'both with the same result'
}

# worker_pid HOST: as seen from here.
worker_pid() {
    local init ns p
    init=$("$MUSTER_SRCDIR/tests/rigs/hosts" pid "$BED" "$1")
    ns=$(readlink "/proc/$init/ns/pid")
    for p in $(pgrep -f -- "$DDP --steps 60"); do
        [ "$(readlink "/proc/$p/ns/pid" 2>/dev/null)" != "$ns" ] ||
            case $(tr '\0' ' ' <"/proc/$p/cmdline") in "$quick "*) echo "$p" ;; esac
    done
}

test_kill() {
    cd "$SHARED" && rm -rf run
    spawn kill on node1 timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --hosts $four \
        --nnodes 4 --nproc-per-node 1 --max-restarts 2 --set restart.backoff=10ms..20ms -- \
        "$quick" "$DDP" --steps 60 --step-time 0.2
    ok 'four hosts train together' wait_for 90 grep -q 'step 20 ' kill.out || diag "$(cat kill.err)"
    kill -KILL "$(worker_pid node3)"
    wait_exit 120 "$spawned"
    is "$status" 0 'and go on after the loss of a worker on the third' || diag "$(cat kill.err)"
    matches "$(cat kill.out)" 'world 4: from step (20|40) to 60' 'from the last checkpoint'
    like "$(cat kill.out)" 'done: accuracy' 'to the end'
    like "$(cat kill.err)" 'rank 2 (node 2, node3) was killed by signal 9 (SIGKILL)' 'the cause is named'
    unlike "$(grep 'last lines' -A 3 kill.err)" 'Connection' 'and not what it did to the others' || diag "$(cat kill.err)"
    is "$(field restarts)" 1 'there was one restart'
    ok 'no port is in use twice' no_clash
    ok 'nobody is left' wait_for 60 nobody_left
}

# PyTorch brings its own collectives, and waits for no MPI world.
test_node_loss() {
    cd "$SHARED" && rm -rf run
    spawn loss on node1 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run --hosts $four \
        --nnodes 2:4 --nproc-per-node 1 -- "$quick" "$DDP" --steps 60 --step-time 0.2
    ok 'two to four hosts train together' wait_for 90 grep -q 'step 20 ' loss.out || diag "$(cat loss.err)"
    kill -KILL $(pids_on node2 '^[^ ]*muster agent --dir')
    wait_exit 200 "$spawned"
    is "$status" 0 'and go on without the second, whose agent is killed' || diag "$(cat loss.err)"
    matches "$(cat loss.out)" 'world 3: from step (20|40) to 60' 'from the last checkpoint'
    like "$(cat loss.out)" 'done: accuracy' 'to the end'
    is "$(field restarts),$(field node_failures)" 0,1 'by a loss, which is no restart'
    ok 'nobody is left' wait_for 60 nobody_left
}

# The one that leads, and has the store.
test_lead_loss() {
    cd "$SHARED" && rm -rf run
    spawn lead on node4 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run --hosts $four \
        --nnodes 2:4 --nproc-per-node 1 -- "$quick" "$DDP" --steps 60 --step-time 0.2
    ok 'four hosts train together' wait_for 90 grep -q 'step 20 ' lead.out || diag "$(cat lead.err)"
    kill -KILL $(pids_on node1 '^[^ ]*muster agent --dir')
    wait_exit 200 "$spawned"
    is "$status" 0 'and go on without the first, which led them' || diag "$(cat lead.err)"
    matches "$(cat lead.out)" 'world 3: from step (20|40) to 60' 'from the last checkpoint'
    like "$(cat lead.out)" 'done: accuracy' 'to the end'
    is "$(field lead),$(field restarts),$(field node_failures)" 1,0,1 'led by the next'
    ok 'nobody is left' wait_for 60 nobody_left
}

run_cases
