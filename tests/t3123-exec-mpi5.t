#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# MPI programs with Open MPI 5: under `mpirun ... muster exec`, and as the command of
# muster run over several hosts.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
rig_mpi5_up --hosts node1,node2
cd "$SHARED" || bail_out "no $SHARED"
prog=$SHARED/mpi_prog
on node1 mpicc -I"$there" -o "$prog" "$MUSTER_SRCDIR/tests/lib/mpi_prog.c" 2>err || bail_out "$(cat err)"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
nobody_left() {
    ok 'nobody is left' wait_for 60 run_gone "$(json id run/run.json)" || diag "$(run_alive "$(json id run/run.json)")"
}
mrun() {
    cd "$SHARED" && rm -rf run
    run on node1 timeout 120 "$there/muster" run $root --hosts node1,node2 --nnodes 2 --run-dir run "$@"
}
who() { grep -oE 'MPI [0-9] of .* on node[12]' out | sort | tr '\n' ';'; }
two='MPI 0 of 4, sum 10; 0 of 4, local 0 of 2, node 0 of 2 on node1;'
two+='MPI 1 of 4, sum 10; 1 of 4, local 1 of 2, node 0 of 2 on node1;'
two+='MPI 2 of 4, sum 10; 2 of 4, local 0 of 2, node 1 of 2 on node2;'
two+='MPI 3 of 4, sum 10; 3 of 4, local 1 of 2, node 1 of 2 on node2;'

test_direct() {
    cd "$SHARED" || return
    run on node1 timeout 120 mpirun $root --oversubscribe -n 3 "$there/muster" exec -- "$prog"
    is "$status" 0 'mpirun ... muster exec' || show
    is "$(who)" "$(for r in 0 1 2; do printf 'MPI %d of 3, sum 6; %d of 3, local %d of 3, node 0 of 1 on node1;' $r $r $r; done)" \
        'keeps the ranks'
    run on node1 timeout 120 mpirun $root --host node1:2,node2:2 -n 4 "$there/muster" exec -- "$prog"
    is "$status" 0 'over two hosts, too' || show
    is "$(who)" "$two" 'where the ranks know their nodes'
    # In the home directory others meet as well, for a moment.
    ok 'nothing is left where they met' wait_for 60 eval '! ls -A "$SHARED" ~ | grep muster-mpi' || diag "$(cat err)"
    run on node1 timeout 120 mpirun $root --oversubscribe -n 1 "$there/muster" exec -- "$prog" fail 0 7
    is "$status" 7 'the exit status is that of mpirun' || show # beside others they may abort first
}

test_run() {
    mrun -- mpirun -np 4 --mca btl self,sm,tcp "$prog"
    is "$status" 0 'muster run -- mpirun over two hosts' || { show; diag "$(cat run/logs/1/mpirun)"; }
    is "$(who)" "$two" 'keeps the ranks'
    nobody_left
}

test_restart() {
    mrun --max-restarts 1 --set restart.backoff=1s..1s -- mpirun -np 4 "$prog" fail 3 5
    is "$status" 0 'a rank that fails ends its world, and a new one is made' || show
    like "$(cat err)" 'rank 3 (node 1, node2) exited with code 5' 'the rank is named'
    is "$(field generation)" 2 'in the next generation'
    nobody_left
}

test_stop() {
    cd "$SHARED" && rm -rf run
    spawn run on node1 "$there/muster" run $root --hosts node1,node2 --nnodes 2 --run-dir run -- mpirun -np 4 "$prog" wait
    ok 'a run' wait_for 60 grep -q 'rank 3 waits' run.out || diag "$(cat run.err run/logs/1/mpirun)"
    kill -INT "$(inner_pid "$spawned")"
    wait_exit 60 "$spawned"
    is "$status" 130 'Ctrl-C' || diag "$(cat run.err)"
    is "$(grep -o 'rank [0-3] was told' run.out | sort -u | wc -l)" 4 'is told to all ranks, which have the time to leave MPI'
    nobody_left
}

run_cases
