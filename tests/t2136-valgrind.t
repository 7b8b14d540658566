#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Front end, agents and muster-watch under valgrind, over a restart, the loss of the
# MPI world, and a cancel: no byte is used that nobody set, none after it was freed,
# and none is lost.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun valgrind
! sanitized || skip_all 'a build with a sanitizer does not run under valgrind'

field() { "$MUSTER" status run -o json | json "$1"; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field generation)" = "$1" ]; }

# MPI and its daemons are followed, to get to what is below them, and not judged; the
# C library of muster-exec is linked into it, where valgrind does not know its ways.
start_run() {
    rm -rf run vg && mkdir vg
    spawn run valgrind --trace-children=yes --trace-children-skip='*/sh,*/bash,*/sleep,*/muster-exec' \
        --log-file=vg/%p --leak-check=full --errors-for-leak-kinds=definite --child-silent-after-fork=yes \
        "$MUSTER" run --allow-run-as-root --run-dir run --nnodes 2 --agent-is-node --nproc-per-node 1 \
        --set heartbeat.timeout=60s --set gang.timeout=300s "$@"
    runner=$spawned
}

# judge N: of N processes of muster's own, which ones valgrind has something to say of.
judge() {
    local f n=0 bad=0 want
    id=$(json id run/run.json)
    wait_for 120 eval '[ -z "$(pgrep -f -- "--run-id=$id")" ]'
    for f in vg/*; do
        want=$(sed -n 's/^==[0-9]*== Command: //p' "$f" | head -n 1)
        case $want in
        *muster-mpi*) continue ;;
        */muster\ * | */muster-watch\ *) ;;
        *) continue ;;
        esac
        n=$((n + 1))
        grep -q 'ERROR SUMMARY: 0 errors' "$f" || { bad=$((bad + 1)); diag "$want"; diag "$(head -n 60 "$f")"; }
    done
    is $n "$1" 'processes of muster under valgrind'
    is $bad 0 'none of which did anything wrong'
}

test_restart() {
    start_run --max-restarts 1 --set restart.backoff=1s..1s -- sh -c '
        echo g$MUSTER_GENERATION $RANK
        [ $MUSTER_GENERATION != 1 ] || { [ $RANK = 1 ] && exit 3; sleep 1000; }'
    wait_exit 300 "$runner"
    is "$status" 0 'a run with a restart' || diag "$(cat run.err)"
    is "$(sort run.out | tr '\n' ';')" '[0] g1 0;[0] g2 0;[1] g1 1;[1] g2 1;' 'of all workers'
    judge 5
}

test_world() {
    start_run -- sleep 1000
    ok 'a run' wait_for 300 running 1 || diag "$(cat run.err)"
    kill -KILL "$(child_of "$runner")"
    ok 'joins another MPI world' wait_for 300 eval '[ "$(grep -c mpi_joined run/events.jsonl)" = 2 ]' || diag "$(cat run.err)"
    kill -INT "$runner"
    wait_exit 300 "$runner"
    is "$status" 130 'and is cancelled' || diag "$(cat run.err)"
    judge 5
}

run_cases
