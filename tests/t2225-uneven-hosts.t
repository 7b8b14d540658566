#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Hosts with other numbers of workers each, by the slots of the list of hosts: their
# places, sums over all of them, and what is left of them after a loss.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up
cd "$SHARED" || bail_out "no $SHARED"
charlm=$MUSTER_BUILDDIR/examples/charlm/charlm
PY=$MUSTER_SRCDIR/tests/py
place='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $ROLE_RANK/$ROLE_WORLD_SIZE $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE $(hostname)'

mrun() {
    cd "$SHARED" && rm -rf run
    run on node1 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run "$@"
}
field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
nobody_left() { run_gone "$(json id "$SHARED/run/run.json")"; }
places() { sed 's/^\[.*\] //' "${1:-out}" | sort -n | tr '\n' ';'; }
six='0/6 0/1 0/3 0/6 0/3 node1;1/6 0/2 1/3 1/6 1/3 node2;2/6 1/2 1/3 2/6 0/2 node2;'
six+='3/6 0/3 2/3 3/6 2/3 node3;4/6 1/3 2/3 4/6 1/2 node3;5/6 2/3 2/3 5/6 0/1 node3;'

test_places() {
    mrun --hosts node1:1,node2:2,node3:3 --nnodes 3 -- sh -c "$place"
    is "$status:$(places)" "0:$six" 'one, two and three workers have their places' || show
    like "$(cat err)" 'procsPerNode is 1 on node1, 2 on node2, 3 on node3: the slots that the list of hosts gives' 'and it is said' || show
    printf 'node1 slots=1\n10.77.0.2 slots=2\nnode3 slots=3\nnode4 slots=9\n' >hosts.txt
    mrun --hostfile hosts.txt --nnodes 3 --nproc-per-node auto -- sh -c "$place"
    is "$status:$(places)" "0:$six" 'also by a file, with an address in it' || show
    mrun --hosts node1:1,node2:2,node3:3 --nnodes 3 --nproc-per-node 1 -- sh -c "$place"
    is "$status:$(wc -l <out)" 0:3 'what is asked for counts' || show
    run on node1 "$MUSTER" run --allow-run-as-root --dry-run --show-env=5 --hosts node1:1,node2:2,node3:3 --nnodes 3 -- true
    matches "$(cat out)" 'LOCAL_WORLD_SIZE +muster +3' 'and --show-env knows them' || show
    unlike "$(cat err)" 'counted on this machine' 'without a guess'
}

test_sums() {
    mrun --hosts node1:1,node2:2,node3:3 --nnodes 3 --max-restarts 0 -- "$charlm" --steps 0 --batch 6 --dump-gradients "$SHARED/six.grad"
    is "$status" 0 'muster'"'"'s collectives over such hosts' || show
    mrun --hosts node1 --nnodes 1 --nproc-per-node 1 --max-restarts 0 -- "$charlm" --steps 0 --batch 6 --dump-gradients "$SHARED/one.grad"
    ok 'have the sums of one process, to rounding' python3 "$MUSTER_SRCDIR/tests/py/same_gradients.py" one.grad six.grad
}

test_torch() {
    local python
    for python in /usr/bin/python3 "$MUSTER_CACHE/venv/bin/python3" ''; do
        [ -n "$python" ] && has_torch "$python" && break
    done
    [ -n "$python" ] || { skip 'no PyTorch: see scripts/install-deps' 1; return; }
    mrun --hosts node1:1,node2:2,node3:3 --nnodes 3 --max-restarts 0 --set env.GROUP=all -- "$python" "$PY/gloo_allreduce.py"
    is "$status,$(grep -c 'of 6 in all: ok' out)" 0,6 'PyTorch sums over them' || show
}

running() { [ "$(field state)" = Running ] && [ "$(field workers.5.state)" = Running ]; }
start() {
    cd "$SHARED" && rm -rf run
    spawn run on node1 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node1:1,node2:2,node3:3 "$@"
    runner=$spawned
    wait_for 60 running
}

# Ranks are dense again; each host keeps its own number.
test_loss() {
    start --nnodes 2:3 --set heartbeat.timeout=2s -- sh -c "[ \$MUSTER_GENERATION = 1 ] && exec sleep 1000; $place"
    is $? 0 'an elastic run over them' || diag "$(cat run.err)"
    hosts power_off node2
    wait_exit 120 "$runner"
    is "$status" 0 'goes on without the one in the middle' || diag "$(cat run.err)"
    is "$(places run.out)" '0/4 0/1 0/2 0/4 0/2 node1;1/4 0/3 1/2 1/4 1/2 node3;2/4 1/3 1/2 2/4 0/1 node3;3/4 2/3 1/2 3/4 0/1 node3;' \
        'with the workers that are left' || diag "$(cat run.err)"
    hosts power_on node2
}

# One that comes back has its own number, behind all others: by its name, not its place.
came_back() { [ "$(field nodes.3.host)" = node2 ] && [ "$(field nodes.3.state)" = Spare ]; }
without_it() { [ "$(field generation)" = 2 ] && [ "$(field workers.3.state)" = Running ]; }
test_return() {
    start --nnodes 2:3 --set heartbeat.timeout=2s -- sh -c "[ \$MUSTER_GENERATION -lt 3 ] && exec sleep 1000; $place"
    is $? 0 'an elastic run again' || diag "$(cat run.err)"
    hosts power_off node2
    ok 'goes on without one' wait_for 60 without_it || diag "$(cat run.err)"
    hosts power_on node2
    ok 'which comes back' wait_for 90 came_back || diag "$("$MUSTER" status run)"
    run on node1 "$MUSTER" scale run 3
    wait_exit 120 "$runner"
    is "$status" 0 'and takes part again' || diag "$(cat run.err)"
    is "$(sed 's/^\[.*\] //' run.out | sort -n | awk '{ print $1, $2, $NF }' | tr '\n' ';')" \
        '0/6 0/1 node1;1/6 0/3 node3;2/6 1/3 node3;3/6 2/3 node3;4/6 0/2 node2;5/6 1/2 node2;' 'with as many workers as before' ||
        diag "$(cat run.err)"
}

test_restart() {
    start --nnodes 3 --max-restarts 1 -- sh -c "[ \$MUSTER_GENERATION = 1 ] && exec sleep 1000; $place"
    kill -KILL "$(pids_on node3 '^sleep 1000' | head -n 1)"
    wait_exit 120 "$runner"
    is "$status:$(places run.out)" "0:$six" 'all start again after the loss of a worker' || diag "$(cat run.err)"
}

test_resume() {
    start --nnodes 3 -- sh -c "[ \$MUSTER_GENERATION = 1 ] && exec sleep 1000; $place"
    run on node1 "$MUSTER" suspend run
    wait_exit 60 "$runner"
    is "$status" 75 'one that is suspended' || diag "$(cat run.err)"
    run on node1 timeout 120 "$MUSTER" resume --allow-run-as-root run
    is "$status:$(places)" "0:$six" 'goes on with the same numbers' || show
    ok 'nobody is left' wait_for 60 nobody_left
}

run_cases
