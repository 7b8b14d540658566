#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Collectives between nodes: several "nodes" on this machine, each with workers in
# a segment of its own, and an MPI world of one mover a node.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"

need_command mpirun
RIG=$MUSTER_BUILDDIR/tests/bulk_rig/bulk_rig
[ -x "$RIG" ] || skip_all "no $RIG"
mpi=(mpirun --oversubscribe)
[ "$(id -u)" != 0 ] || mpi+=(--allow-run-as-root)
export OMPI_MCA_btl_base_warn_component_unused=0
export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers forbid CMA
# What an MPI library leaks at its end is not ours to report.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0

node_pids=()

# nodes_up LAYOUT BODY: starts the nodes, in a directory of their own.
nodes_up() {
    dir=$(mktemp -d "$TRASH/XXXX")
    IFS=, read -ra layout <<<"$1"
    local i
    for i in "${!layout[@]}"; do
        spawn "node$i" "$RIG" node "$dir" "$i" "$1" "$2"
        node_pids+=("$spawned")
    done
    for i in "${!layout[@]}"; do
        wait_for 60 test -S "$dir/$i.sock" || bail_out "node $i does not start"
    done
}

# move TAG [DIR...]: one MPI world of movers, to its end.
move() {
    local tag=$1
    shift
    [ $# -gt 0 ] || set -- "$dir"
    run timeout 100 "${mpi[@]}" -n ${#layout[@]} "$RIG" mover "$tag" "$@"
}

# results [DIR]: one line for each different result of the workers, with its
# count, when all nodes have ended.
results() {
    local pid
    for pid in "${node_pids[@]}"; do wait_exit 120 "$pid"; done
    node_pids=()
    cat "${1:-$dir}"/result.* | sort | uniq -c | sed 's/^ *//; s/ *$//'
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

# difference BODY THEIRS [CALL]: how the last worker of 2,2,1 is told apart.
difference() {
    nodes_up 2,2,1 "$1"
    move 1
    is "$(results)" "5 -22 calls differ: worker 0 called ${3:-allreduce of 3000000 float32 (max)}, worker 4 $2" \
        "$1: a difference between nodes is named everywhere" || show
}

test_differences() {
    local from='broadcast of 3000000 bytes from'
    difference count 'allreduce of 3000001 float32 (max)'
    difference type 'allreduce of 3000000 int32 (max)'
    difference operation 'allreduce of 3000000 float32 (min)'
    difference kind barrier
    difference root "$from 4" "$from 0"
    difference length 'broadcast of 2000000 bytes from 0' "$from 0"
    nodes_up 1,2 count
    move 1
    matches "$(results)" '^3 -22 calls differ: worker [12] .* worker [12] ' \
        'workers that differ on one node are named on the other' || show
}

# A worker dies in each phase of a call, and its agent says so to the others; the
# next generation starts in the same MPI world, over what was left in flight.
test_death() {
    local phase first all
    for phase in unborn dies dies-copying dies-reducing dies-taking; do
        nodes_up 2,2 $phase
        first=$dir
        nodes_up 2,2 crowd
        move 1 "$first" "$dir"
        is "$status" 0 "$phase: the movers outlive it" || show
        is "$(results)" '4 0' 'the next generation has the expected values'
        all=$(results "$first")
        is "$(grep -c '^2 -103 another node said so$' <<<"$all"):$(wc -l <<<"$all")" 1:2 \
            'everybody on the other node gets an error' || diag "$all"
        matches "$all" '(^|'$'\n'')1 -103 (a worker died|another node said so)' 'and on its own'
    done
}

# An MPI call fails on one node alone: nobody waits for it.
test_mpi_fails() {
    local fault
    for fault in iallreduce:1:1 iallreduce:9:1 ibcast:2:0 test:20:1; do
        nodes_up 2,1 long
        RIG_FAULT=$fault move 1
        matches "$(results)" '^3 -103 a collective between nodes: ' "$fault: everybody gets an error" || show
    done
    nodes_up 2,1 count
    RIG_FAULT=iallgather:1:1 move 1
    is "$(results)" '3 -22 calls differ between nodes' 'even where the error is hard to name' || show
}

# More workers than any two cores can run.
test_crowd() {
    nodes_up 12,1,8 crowd
    move 1
    is "$(results)" '21 0' '12+1+8 workers have the expected values' || show
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
    nodes_up 1,2 leave-twice
    move 1
    is "$(results)" "1 -103 worker 2 $text
2 0" 'a still earlier one is told again' || show
    nodes_up 1,1,1 quits
    move 1
    is "$(results)" "2 -103 worker 2 $text
1 0" 'one in the middle of a call, whose node leaves, leaves nobody waiting' || show
}

test_scribble() {
    nodes_up 1,2 scribble
    move 1
    is "$status" 0 'the movers survive what a worker scribbles' || show
    is "$(results)" '3 -103 a worker wrote over memory of the collectives' \
        'and everybody is told'
}

# mover_pid: one mover process of this case.
mover_pid() { pgrep -n -f "$RIG mover [0-9]* $dir"; }
no_mover() { ! mover_pid; }

# The MPI world is lost again and again; the workers notice only the time.
test_takeover() {
    local tag killed=0
    nodes_up 2,1,1 long
    for tag in 1 2 3; do
        spawn world "${mpi[@]}" -n 3 "$RIG" mover $tag "$dir"
        local world=$spawned
        wait_for 60 mover_pid
        [ $tag = 1 ] && wait_for 60 test -e "$dir/going.0"
        sleep 0.$((tag * 3)) # anywhere in the middle
        gone "$world" || { kill -KILL "$(mover_pid)" && killed=$((killed + 1)); }
        wait_exit 120 "$world"
        wait_for 60 no_mover || bail_out 'a mover is left'
    done
    is "$killed" 3 'three MPI worlds were killed in the middle'
    is "$(ls "$dir"/result.* 2>/dev/null)" '' 'the workers wait meanwhile'
    move 4
    is "$status" 0 'the fourth ends well' || show
    is "$(results)" '4 0' 'and no value was lost or counted twice'
}

run_cases
