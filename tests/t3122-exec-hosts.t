#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An MPI program over several hosts: by ssh, its ranks in the order of the workers,
# and what happens to them when a host or a daemon of theirs is lost.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun mpicc
rig_hosts_up
cd "$SHARED" || bail_out "no $SHARED"
prog=$SHARED/mpi_prog
mpicc -I"$MUSTER_BUILDDIR" -o "$prog" "$MUSTER_SRCDIR/tests/lib/mpi_prog.c" 2>err || bail_out "$(cat err)"

field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
nobody_left() {
    ok 'nobody is left' wait_for 60 run_gone "$(json id run/run.json)" || diag "$(run_alive "$(json id run/run.json)")"
}

# pids_on HOST PATTERN: of processes there, as seen from here.
pids_on() {
    local ns p
    ns=$(readlink "/proc/$("$MUSTER_SRCDIR/tests/rigs/hosts" pid "$BED" "$1")/ns/pid")
    for p in $(pgrep -f -- "$2"); do
        [ "$(readlink "/proc/$p/ns/pid" 2>/dev/null)" != "$ns" ] || echo "$p"
    done
}
start_run() {
    cd "$SHARED" && rm -rf run
    spawn run on node1 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node2,node3 --nnodes 2 "$@"
    runner=$spawned
    wait_for 60 grep -q 'rank 3 waits' run.out
    is $? 0 'a run over two hosts' || diag "$(cat run.out run.err run/logs/1/mpirun)"
}

test_hosts() {
    cd "$SHARED" && rm -rf run
    run on node1 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node3,node1,node2 --nnodes 3 -- \
        mpirun -np 6 "$prog"
    is "$status" 0 'an MPI program over three hosts' || { show; diag "$(cat run/logs/1/mpirun)"; }
    is "$(grep -oE 'MPI [0-9] of 6, sum 21; [0-9] of 6, local [0-9] of 2, node [0-9] of 3 on node[123]' out | cut -c 5- | sort |
        sed -E 's/(.) of 6, sum 21; (.) of 6, local (.) of 2, node (.) of 3 on/\1 \2 \3 \4/' | tr '\n' ';')" \
        '0 0 0 0 node3;1 1 1 0 node3;2 2 0 1 node1;3 3 1 1 node1;4 4 0 2 node2;5 5 1 2 node2;' \
        'whose ranks are those of the workers, by the list of hosts' || show
    nobody_left
}

test_shared_hosts() {
    cd "$SHARED" && rm -rf run
    run on node1 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node1,node2 --nnodes 4 \
        --agent-is-node --nproc-per-node 1 -- mpirun "$prog"
    is "$status" 0 'with several agents on a host' || { show; diag "$(cat run/logs/1/mpirun)"; }
    is "$(grep -oE 'MPI [0-9] of 4.* on node[12]' out | sed 's/ of.*on//' | sort | tr '\n' ';')" \
        'MPI 0 node1;MPI 1 node1;MPI 2 node2;MPI 3 node2;' 'the ranks are where their agents are'
    nobody_left
}

test_daemon_dies() {
    start_run --max-restarts 1 --set restart.backoff=1s..1s -- mpirun -np 4 \
        sh -c "setsid sleep 1000 & [ \$MUSTER_GENERATION = 1 ] || set -- ok; exec $prog \${1-wait}"
    kill -KILL $(pids_on node3 'orted .*' | tail -n 1)
    wait_exit 120 "$runner"
    is "$status" 0 'the loss of a daemon of its MPI world ends the generation, and not the run' ||
        diag "$(cat run.out run.err run/logs/1/mpirun)"
    is "$(field generation)" 2 'a new world is made'
    nobody_left
}

test_agent_dies() {
    start_run -- mpirun -np 4 sh -c "setsid sleep 1000 & exec $prog wait"
    kill -KILL $(pids_on node3 'muster agent --dir')
    wait_exit 120 "$runner"
    is "$status" 75 'the loss of an agent ends the run, to be resumed' || diag "$(cat run.err)"
    nobody_left
}

test_cancel() {
    start_run -- mpirun -np 4 "$prog" wait
    kill -INT "$(inner_pid "$runner")"
    wait_exit 60 "$runner"
    is "$status" 130 'Ctrl-C' || diag "$(cat run.err)"
    is "$(grep -o 'rank [0-3] was told' run.out | sort -u | wc -l)" 4 'is told to all ranks, which have the time to leave MPI'
    nobody_left
}

run_cases
