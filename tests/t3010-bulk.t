#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Collectives between nodes: several "nodes" on this machine, each with workers in
# a segment of its own, and an MPI world of one mover a node.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"

need_command mpirun
RIG=$MUSTER_BUILDDIR/comm/mpi/bulk_rig
[ -x "$RIG" ] || skip_all "no $RIG"
mpi=(mpirun --oversubscribe)
[ "$(id -u)" != 0 ] || mpi+=(--allow-run-as-root)
export OMPI_MCA_btl_base_warn_component_unused=0
export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers forbid CMA
# What an MPI library leaks at its end is not ours to report.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0

# nodes_up LAYOUT BODY: starts the nodes, in a directory of their own.
nodes_up() {
    dir=$(mktemp -d "$TRASH/XXXX")
    node_pids=()
    IFS=, read -ra layout <<<"$1"
    local i
    for i in "${!layout[@]}"; do
        spawn "node$i" "$RIG" node "$dir" "$i" "$1" "$2"
        node_pids+=("$spawned")
    done
    for i in "${!layout[@]}"; do
        wait_for 20 test -S "$dir/$i.sock" || bail_out "node $i does not start"
    done
}

# move TAG: one MPI world of movers, to its end.
move() {
    run timeout 100 "${mpi[@]}" -n ${#layout[@]} "$RIG" mover "$dir" "$1"
}

# results: one line for each different result of the workers, with its count.
results() {
    local pid
    for pid in "${node_pids[@]}"; do wait_exit 60 "$pid"; done
    cat "$dir"/result.* | sort | uniq -c | sed 's/^ *//; s/ *$//'
}

# Every type and operation, sizes from none to many chunks, in place or not.
test_values() {
    nodes_up 2,1,2 values
    move 1
    is "$status" 0 'the movers end well' || show
    is "$(results)" '5 0' 'all workers of 2+1+2 have the expected values'
    nodes_up 1,1 values
    move 2
    is "$(results)" '2 0' 'so have 1+1'
}

test_bits() {
    nodes_up 1,2,1 bits
    move 1
    local first
    first=$(results)
    matches "$first" '^4 0 [0-9a-f]+$' 'all workers have the same bits'
    nodes_up 1,2,1 bits
    move 1
    is "$(results)" "$first" 'in another run as well'
}

test_mismatch() {
    local calls='called allreduce of 500000 float32 (max)'
    nodes_up 2,2,1 mismatch
    move 1
    is "$(results)" \
        "5 -22 calls differ: worker 0 $calls, worker 4 allreduce of 500001 float32 (max)" \
        'different counts on two nodes are named everywhere'
    nodes_up 2,1 kinds
    move 1
    calls='called allreduce of 3000000 float32 (max)'
    is "$(results)" "3 -22 calls differ: worker 0 $calls, worker 2 barrier" \
        'so are different collectives'
    nodes_up 1,2 mismatch
    move 1
    matches "$(results)" '^3 -22 calls differ: worker [12] .* worker [12] ' \
        'workers that differ on one node are named on the other'
}

# A worker dies in the middle; its agent says so to the others.
test_death() {
    nodes_up 2,1,2 dies
    local before=$(now_ms)
    move 1
    results >all
    is "$(grep -c -- '-103 ' all)" 2 'two kinds of survivors' || diag "$(cat all)"
    like "$(cat all)" '-103 a worker died' 'those of its node are told'
    like "$(cat all)" '3 -103 another node said so' 'and those of the others'
    num $(($(now_ms) - before)) -lt 20000 'nobody hangs'
}

# A worker ends well while others still count on it.
test_leaving() {
    local text='has ended, and others wait for it in a collective' nodes
    for nodes in 2,1 1,2 1,1,1; do
        nodes_up $nodes leaves
        move 1
        is "$(results)" "2 -103 worker 2 $text
1 0" "$nodes: an early end is told to the others"
    done
}

test_scribble() {
    nodes_up 1,2 scribble
    move 1
    is "$status" 0 'the movers survive what a worker scribbles' || show
    is "$(results)" '3 -103 a worker wrote over memory of the collectives' \
        'and everybody is told'
}

# mover_pid: one mover process of this case.
mover_pid() { pgrep -n -f "$RIG mover $dir"; }
no_mover() { ! mover_pid; }

# The MPI world is lost again and again; the workers notice only the time.
test_takeover() {
    local tag killed=0
    nodes_up 2,1,1 long
    for tag in 1 2 3; do
        spawn world "${mpi[@]}" -n 3 "$RIG" mover "$dir" $tag
        local world=$spawned
        wait_for 20 mover_pid
        [ $tag = 1 ] && wait_for 60 test -e "$dir/going.0"
        sleep 0.$((tag * 3)) # anywhere in the middle
        gone "$world" || { kill -KILL "$(mover_pid)" && killed=$((killed + 1)); }
        wait_exit 20 "$world"
        wait_for 10 no_mover || bail_out 'a mover is left'
    done
    is "$killed" 3 'three MPI worlds were killed in the middle'
    is "$(ls "$dir"/result.* 2>/dev/null)" '' 'the workers wait meanwhile'
    move 4
    is "$status" 0 'the fourth ends well' || show
    is "$(results)" '4 0' 'and no value was lost or counted twice'
}

run_cases
