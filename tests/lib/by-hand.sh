# SPDX-License-Identifier: Apache-2.0
#
# What holds of a run whose mpirun was started by hand, when its MPI world is lost:
# nobody makes another one. Sourced by a test for each MPI, which has a bed of three
# hosts, and in $there the folder of a muster that is built for that MPI; what its
# mpirun needs on this bed is in $launch_options.

. "$MUSTER_SRCDIR/tests/lib/run-status.sh"
# by_hand OPTION... -- CMD...: until three workers run. Seen under load: Open MPI 4 does
# not get through MPI_Init on one of the hosts ("orte_ess_init failed: Not found", or
# "PMIX ERROR: OUT-OF-RESOURCE"), and mpirun ends before there is a run, or it has begun.
# That is not what these tests are about; one more try is.
by_hand() {
    local try
    local launch=(mpirun ${launch_options[@]+"${launch_options[@]}"} -np 3 --map-by ppr:1:node --host node1:1,node2:1,node3:1)
    [ "$(id -u)" != 0 ] || launch+=(--allow-run-as-root)
    cd "$SHARED" && rm -rf run
    for try in 1 2; do
        spawn run on node1 timeout 250 "${launch[@]}" "$there/muster" run --run-dir run --nproc-per-node 1 --set heartbeat.timeout=3s "$@"
        runner=$spawned
        wait_for 90 eval 'running 3 || gone "$runner"'
        [ ! -e run ] || grep -q 'PMIX ERROR: OUT-OF-RESOURCE' run.err || break
    done
    running 3
}
wait_for_go='until [ -e $MUSTER_RUN_DIR/go ]; do sleep 0.1; done'

# Workers with collectives of their own do not need it.
test_by_hand_power_off() {
    by_hand --nnodes 2:3 -- sh -c "$wait_for_go; echo \$MUSTER_GENERATION: \$RANK/\$WORLD_SIZE \$(hostname)"
    is $? 0 'a run by hand over three hosts' || { show_run; return; }
    "$MUSTER_SRCDIR/tests/rigs/hosts" link_down "$BED" node3
    "$MUSTER_SRCDIR/tests/rigs/hosts" power_off "$BED" node3
    ok 'goes on without one that is switched off' wait_for 60 running 2 2 || show_run
    touch "$SHARED/run/go"
    ok 'to its end' wait_for 90 eval '[ "$(field state)" = Succeeded ]' || show_run
    is "$(field verdict.exit_status):$(field node_failures):$(field restarts)" 0:1:0 'by one loss, and no restart' || show_run
    unlike "$(cat "$SHARED/run/events.jsonl")" mpi_joined 'without another MPI world'
    nobody_left
    "$MUSTER_SRCDIR/tests/rigs/hosts" power_on "$BED" node3
}

# Those that need it cannot go on for ever, whatever the ranks of mpirun were told:
# after a loss a SIGTERM says nothing.
test_by_hand_collectives() {
    by_hand --nnodes 2:3 -- "$MUSTER_BUILDDIR/tests/lib/comm_worker" "$SHARED/never"
    is $? 0 "a run by hand with muster's collectives" || { show_run; return; }
    "$MUSTER_SRCDIR/tests/rigs/hosts" link_down "$BED" node3
    "$MUSTER_SRCDIR/tests/rigs/hosts" power_off "$BED" node3
    ok 'goes on in another generation' wait_for 60 eval '[ "$(field generation)" = 2 ]' || show_run
    kill -KILL $(pids_on node1 '(mpirun|prterun) .*-np 3')
    ok 'ends when mpirun is killed then' wait_for 90 eval '[ -n "$(field verdict.exit_status 2>/dev/null)" ]' || show_run
    is "$(field state):$(field verdict.exit_status)" Stopped:75 'to be resumed' || show_run
    nobody_left
    "$MUSTER_SRCDIR/tests/rigs/hosts" power_on "$BED" node3
}

# What ends with mpirun was told to end, as far as its ranks can tell.
test_by_hand_mpirun_killed() {
    by_hand --nnodes 3 -- sh -c "$wait_for_go"
    is $? 0 'a run by hand' || { show_run; return; }
    kill -KILL $(pids_on node1 '(mpirun|prterun) .*-np 3')
    ok 'loses its MPI world with mpirun' wait_for 60 event mpi_lost || show_run
    touch "$SHARED/run/go"
    ok 'and ends' wait_for 90 eval '[ -n "$(field verdict.exit_status 2>/dev/null)" ]' || show_run
    matches "$(field state):$(field verdict.exit_status)" '^(Stopped:75|Succeeded:0)$' 'to be resumed, if its workers were not done by then' || show_run
    nobody_left
}
