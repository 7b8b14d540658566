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
    wait_for 60 eval '[ "$(grep -c "rank [0-3] waits" run.out)" = 4 ]'
    is $? 0 'a run over two hosts' || diag "$(cat run.out run.err run/logs/1/mpirun)"
}

# --- mpirun ... muster exec, on several hosts ---

mpi() { run on node1 timeout 120 mpirun --allow-run-as-root --host node3:2,node4:1,node2:1 -n 4 "$@"; }
who() { grep -oE 'MPI [0-9] of .* on node[2-4]' out | sort | tr '\n' ';'; }
four='MPI 0 of 4, sum 10; 0 of 4, local 0 of 2, node 0 of 3 on node3;'
four+='MPI 1 of 4, sum 10; 1 of 4, local 1 of 2, node 0 of 3 on node3;'
four+='MPI 2 of 4, sum 10; 2 of 4, local 0 of 1, node 1 of 3 on node4;'
four+='MPI 3 of 4, sum 10; 3 of 4, local 0 of 1, node 2 of 3 on node2;'
# In the home directory other launches of these tests meet as well, for a moment.
left_over() { ls -d "$SHARED"/.muster-mpi-* ~/.muster-mpi-* 2>/dev/null; }
nothing_left() { [ -z "$(left_over)" ]; }

test_direct() {
    cd "$SHARED" || return
    mpi "$MUSTER" exec -- "$prog"
    is "$status" 0 'mpirun ... muster exec over three hosts' || show
    is "$(who)" "$four" 'keeps the ranks, which know their nodes'
    mpi "$MUSTER" exec -- sh -c 'echo $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID'
    is "$(sort -u out | wc -l)" 1 'all are told the same place to meet' || show
    matches "$(head -n 1 out)" '^10\.77\.0\.3:[23][0-9]{4} ' 'on the host of rank 0'
    mpi "$MUSTER" exec --interface ib0,10.77.0.0/24 -- sh -c 'echo $MASTER_ADDR $NCCL_SOCKET_IFNAME'
    is "$(sort -u out)" '10.77.0.3 =eth0' 'at an address of the network that was chosen' || show
    mpi "$MUSTER" exec --interface eth7 -- true
    isnt "$status" 0 'one that is not there is refused' || show
    like "$(cat err)" 'eth7' 'by its name'
    ok 'nothing is left where they met' wait_for 60 nothing_left || diag "$(left_over)"
}

test_direct_python() {
    /usr/bin/python3 -c 'import mpi4py' 2>/dev/null || { skip 'no mpi4py: see scripts/install-deps' 2; return; }
    cd "$SHARED" || return
    mpi "$MUSTER" exec -- /usr/bin/python3 "$MUSTER_SRCDIR/tests/py/mpi_who.py" JAX_PROCESS_ID OMPI_COMM_WORLD_RANK
    is "$status" 0 'mpi4py over three hosts' || show
    is "$(who)" "$four" 'has its ranks'
}

test_direct_torch() {
    has_torch /usr/bin/python3 || { skip 'no PyTorch in /usr: see scripts/install-deps' 2; return; }
    cd "$SHARED" || return
    GROUP=direct mpi -x GROUP=direct "$MUSTER" exec -- /usr/bin/python3 "$MUSTER_SRCDIR/tests/py/gloo_allreduce.py"
    is "$status" 0 'PyTorch over three hosts' || show
    is "$(grep -c 'of 4 in direct: ok' out)" 4 'meets at rank 0'
}

test_direct_two() {
    cd "$SHARED" || return
    spawn one on node1 timeout 120 mpirun --allow-run-as-root --host node1:1,node2:1 -n 2 "$MUSTER" exec -- "$prog"
    local first=$spawned
    spawn two on node2 timeout 120 mpirun --allow-run-as-root --host node2:1,node3:1 -n 2 "$MUSTER" exec -- "$prog"
    wait_exit 120 "$first"
    is "$status" 0 'one launch' || diag "$(cat one.out one.err)"
    wait_exit 120 "$spawned"
    is "$status" 0 'and another one, in one directory' || diag "$(cat two.out two.err)"
    is "$(grep -o 'node [01] of 2 on node[123]' one.out two.out | sort | tr '\n' ';')" \
        "one.out:node 0 of 2 on node1;one.out:node 1 of 2 on node2;two.out:node 0 of 2 on node2;two.out:node 1 of 2 on node3;" \
        'each meets its own'
}

test_direct_killed() {
    cd "$SHARED" || return
    spawn killed on node1 timeout 120 mpirun --allow-run-as-root --host node1:1,node2:1 -n 2 "$MUSTER" exec -- \
        sh -c 'echo here; exec sleep 1000'
    ok 'a launch over two hosts' wait_for 60 eval '[ "$(grep -c here killed.out)" = 2 ]'
    ok 'has a place to meet' eval '[ -n "$(left_over)" ]'
    kill -KILL $(pids_on node1 'mpirun --allow-run-as-root --host')
    ok 'which does not outlive a kill' wait_for 60 nothing_left
}

# Nothing is shared: /tmp is each host's own.
test_direct_alone() {
    run on node1 sh -c "cd /tmp && exec timeout 120 mpirun --allow-run-as-root --host node1:1,node2:1 -x HOME=/tmp -n 2 \
        '$MUSTER' exec --gang-timeout 2s -- true"
    isnt "$status" 0 'hosts that share no directory' || show
    like "$(cat err)" 'start mpirun in a directory that all nodes share' 'are told what to do'
    like "$(cat err)" 'muster run --hosts ... -- mpirun -n 2 PROGRAM' 'and what else'
    is "$(on node1 ls -A /tmp | grep muster-mpi; on node2 ls -A /tmp | grep muster-mpi)" '' 'nothing is left of it'
    run on node1 sh -c "cd /tmp && exec timeout 120 mpirun --allow-run-as-root --host node1:1,node2:1 -n 2 '$MUSTER' exec -- '$prog'"
    is "$status" 0 'but where the home directory is shared they meet there' || show
    ok 'nothing is left there' wait_for 60 nothing_left || diag "$(left_over)"
}

# --- muster run -- mpirun ... ---

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

# One that no host has, and one that all have.
test_interface() {
    cd "$SHARED" && rm -rf run
    run on node1 env -u OMPI_MCA_btl_tcp_if_include timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run \
        --hosts node1,node2 --nnodes 2 --interface ib0,eth0 -- mpirun -np 4 --mca btl self,tcp \
        sh -c "echo \$OMPI_MCA_btl_tcp_if_include; exec $prog"
    is "$status" 0 'in a network that was chosen' || { show; diag "$(cat run/logs/1/mpirun)"; }
    is "$(grep -c 'MPI [0-3] of 4, sum 10' out)" 4 'ranks reach each other'
    is "$(grep -c '] eth0$' out)" 4 'by the interface of each host' || show
    rm -rf run
    run on node1 env -u OMPI_MCA_btl_tcp_if_include timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run \
        --hosts node1,node2 --nnodes 2 --interface eth0 -- mpirun -np 2 --mca btl_tcp_if_include 10.0.0.0/8 \
        sh -c "echo \$OMPI_MCA_btl_tcp_if_include; exec $prog"
    is "$status $(grep -c '] 10.0.0.0/8$' out)" '0 2' 'unless mpirun was told another one' || show
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
    kill -KILL $(pids_on node3 '^[^ ]*muster agent --dir')
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
