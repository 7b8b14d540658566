#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A worker that is a shell with several programs, one after the other: each goes on
# with collectives where the one before has finished, while others have gone on
# already or are still in the last call.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
export WORKER=$MUSTER_BUILDDIR/tests/lib/comm_worker
[ -x "$WORKER" ] || skip_all "no $WORKER"

touch stop # each program has one round
export STOP=$PWD/stop NEVER=$PWD/never
one_node=(--nproc-per-node 3)
two_agents=(--nnodes 2 --agent-is-node --nproc-per-node 2)

# mrun OPTION... -- SCRIPT: a run of shells, which end by themselves.
mrun() {
    rm -rf run
    run timeout 300 "$MUSTER" run --allow-run-as-root --run-dir run --max-restarts 0 --set logs.prefix=none \
        --set limits.grace=300s "${@:1:$#-1}" sh -c "trap '' TERM; ${*: -1}"
}

all_go_on() {
    mrun "$@" -- 'for i in 1 2 3 4 5 6; do "$WORKER" "$STOP" || exit; [ $((RANK % 2)) = 0 ] || sleep 0.1; done'
    is "$status" 0 'six programs, one after the other' || show
    is "$(sort out | uniq -c | sed 's/^ *//')" "$(seq 0 "$((world - 1))" | sed 's/.*/6 rank &: right/')" \
        'all with the right values'
}

# One that comes to no further program ends the wait of the others.
one_has_ended() {
    mrun "$@" -- '"$WORKER" "$STOP"; [ $RANK = 1 ] || "$WORKER" "$STOP"'
    is "$status" 1 'a program less' || show
    is "$(grep -c 'right$' out)" "$world" 'the first ones were all well'
    is "$(grep -c '^rank [02-9]: -103 ' out)" "$((world - 1))" 'nobody waits for a second one' || show
    like "$(cat out)" '-103 worker 1 has ended' 'which is said'
}

# A program that does not say that it has finished may have been in the middle.
one_does_not_finish() {
    mrun "$@" -- '"$WORKER" "$NEVER" leave@1; [ $RANK != 1 ] || "$WORKER" "$STOP"'
    is "$status" 1 'a program that leaves without a word' || show
    like "$(cat out)" 'rank 1: -103 collectives cannot go on: the program before this one in worker 1 ended without muster_finalize()' \
        'the next one is told what was wrong' || show
}

test_one_node() {
    world=3
    all_go_on "${one_node[@]}"
    one_has_ended "${one_node[@]}"
    one_does_not_finish "${one_node[@]}"
}

test_two_agents() {
    world=4
    all_go_on "${two_agents[@]}"
    one_has_ended "${two_agents[@]}"
    one_does_not_finish "${two_agents[@]}"
}

# A node whose workers have all ended is still needed where a new MPI world comes:
# the others join it together, and then hear who is missing.
test_node_has_ended() {
    local front
    rm -rf run go
    spawn front "$MUSTER" run --allow-run-as-root --run-dir run --max-restarts 0 --set logs.prefix=none \
        --nnodes 2 --agent-is-node --nproc-per-node 1 -- sh -c \
        '"$WORKER" "$STOP"; [ $RANK = 0 ] || exit 0; until [ -e go ]; do sleep 0.1; done; "$WORKER" "$STOP"'
    front=$spawned
    ok 'one of two nodes has no worker any more' \
        wait_for 60 eval '[ "$("$MUSTER" status run -o json | json workers.1.state)" = Exited ]' || diag "$(cat front.err)"
    kill -KILL "$(child_of "$front")"
    ok 'both join a new MPI world' wait_for 60 eval '[ "$(grep -c mpi_joined run/events.jsonl)" = 2 ]' || diag "$(cat run/events.jsonl)"
    touch go
    wait_exit 60 "$front"
    is "$status" 1 'and the program less is noticed there' || diag "$(cat front.out front.err)"
    like "$(cat front.out)" 'rank 0: -103 worker 1 has ended' 'at once, with the reason'
}

run_cases
