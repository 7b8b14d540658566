#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An mpirun by hand over hosts, and the loss of its MPI world, with the MPI here.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up --hosts node1,node2,node3
there=$(dirname "$MUSTER")
. "$MUSTER_SRCDIR/tests/lib/by-hand.sh"

# The first node has the lead, and mpirun. The others neither need the one nor hear
# of the other's end.
test_by_hand_lead_power_off() {
    by_hand --nnodes 2:3 -- sh -c "$wait_for_go; echo \$MUSTER_GENERATION: \$RANK/\$WORLD_SIZE \$(hostname)"
    is $? 0 'a run by hand over three hosts' || { show_run; return; }
    "$MUSTER_SRCDIR/tests/rigs/hosts" link_down "$BED" node1
    "$MUSTER_SRCDIR/tests/rigs/hosts" power_off "$BED" node1
    ok 'goes on without the first, which is switched off' wait_for 60 running 2 2 || show_run
    is "$(field lead)" 1 'led by the next'
    touch "$SHARED/run/go"
    ok 'to its end' wait_for 90 eval '[ "$(field state)" = Succeeded ]' || show_run
    is "$(field verdict.exit_status):$(field node_failures):$(field restarts)" 0:1:0 'by one loss, and no restart' || show_run
    nobody_left
    "$MUSTER_SRCDIR/tests/rigs/hosts" power_on "$BED" node1
    "$MUSTER_SRCDIR/tests/rigs/hosts" link_up "$BED" node1
}

# lead_killed SECONDS: mpirun ends all others for the rank whose agent is gone, so long
# after. As with any node that is lost then, that is not the user's wish.
lead_killed() {
    local since rank
    by_hand --nnodes 2:3 -- sh -c "$wait_for_go"
    is $? 0 'a run by hand over three hosts' || { show_run; return; }
    rank=$(pids_on node1 muster-mpi)
    kill -STOP $rank
    kill -KILL $(pids_on node1 '^[^ ]*muster agent --dir')
    ok 'goes on under another lead when the agent of the first is killed' wait_for 60 running 2 2 || show_run
    is "$(field lead)" 1 'which is the next'
    since=$(now_ms)
    wait_for 60 eval '[ $(($(now_ms) - since)) -ge '"$1"'000 ]'
    kill -CONT $rank
    wait_exit 60 "$runner"
    is "$status" 75 'mpirun ends' || show_run
    since=$(now_ms)
    wait_for 60 eval '[ $(($(now_ms) - since)) -gt 4000 ]' # a heartbeat later
    ok 'and the run does not' running 2 2 || show_run
    touch "$SHARED/run/go"
    ok 'but when its workers do' wait_for 90 eval '[ -n "$(field verdict.exit_status 2>/dev/null)" ]' || show_run
    is "$(field state):$(field verdict.exit_status)" Succeeded:0 'well' || show_run
    nobody_left
}
test_by_hand_lead_killed() { lead_killed 0; }
# More than two heartbeats, which that rank needs to leave MPI on a machine that is busy.
test_by_hand_lead_killed_slowly() { lead_killed 5; }

run_cases
