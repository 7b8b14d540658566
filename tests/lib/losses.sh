# SPDX-License-Identifier: Apache-2.0
#
# Nodes that are lost while a run over four hosts goes on: what dies on them, with
# spares, with fewer nodes, with too few; and what is left of it. Sourced by a test for
# each MPI; needs what hosts-run.sh needs.
. "$MUSTER_SRCDIR/tests/lib/hosts-run.sh"
once_is_enough test_everything test_charlm

test_agent() {
    start_run 4 --nnodes 2:4 -- sh -c "setsid sleep 1000 & $wait_once"
    is $? 0 'a run of two to four nodes takes all four'
    kill -KILL $(agent_of node2)
    ended_well 'and goes on to its end without one'
    is "$(said 2)" '0/3 0/3 node1 10.77.0.1 0;1/3 1/3 node3 10.77.0.1 0;2/3 2/3 node4 10.77.0.1 0;' \
        'ranks and nodes are dense again, and it is no restart'
    is "$(field nodes.1.state),$(field node_failures),$(field restarts),$(field generation)" Lost,1,0,2 \
        'status tells of the loss'
    like "$(cat run.err)" 'lost node 1 (node2)' 'and the screen why'
    is "$(pids_on node2 'sleep 1000')" '' 'nothing of its workers is left there'
    nobody_left
}

test_watch() {
    start_run 4 --nnodes 2:4 -- sh -c "$wait_once"
    is $? 0 'four nodes'
    kill -KILL $(watch_of node3)
    ended_well 'go on without the one that loses its watch'
    is "$(said 2 | tr ';' '\n' | wc -l)" 3 'three workers'
    nobody_left
}

# Whoever could tidy up may be killed with its MPI world, before a next one comes.
test_agent_and_watch() {
    start_run 4 --nnodes 2:4 -- sh -c "setsid sleep 1000 & $wait_once"
    is $? 0 'four nodes'
    kill -KILL $(watch_of node3) $(agent_of node3)
    ended_well 'go on without the one that loses both'
    is "$(pids_on node3 'sleep 1000')" '' 'nothing of its workers is left there'
    sweep node3
    nobody_left
}

# What stands in the MPI world for a node, and nothing else: the next world has it.
test_mpi() {
    local before
    start_run 4 --nnodes 4 -- sh -c "$wait_for_go"
    is $? 0 'four nodes'
    before=$(agents; workers)
    kill -KILL $(pids_on node3 '^[^ ]*muster-mpi --run-id')
    ok 'make a new MPI world where a rank of it is killed' \
        wait_for 100 eval '[ "$(grep -c "\"mpi_joined\".*\"epoch\":2" run/events.jsonl)" = 4 ]' || show_run
    is "$(agents; workers),$(field generation),$(field node_failures)" "$before,1,0" 'and lose neither agents nor workers'
    touch run/go
    ended_well 'which come to the end'
    nobody_left
}

# All that muster and mpirun have on a host, at once.
test_everything() {
    start_run 4 --nnodes 2:4 -- sh -c "$wait_once"
    is $? 0 'four nodes'
    kill -KILL $(pids_on node3 'orted|prted|muster|sleep 1000')
    ended_well 'go on without the one where all is killed'
    is "$(said 2 | tr ';' '\n' | wc -l)" 3 'three workers'
    sweep node3
    nobody_left
}

test_power_off() {
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=3s -- sh -c "$wait_once"
    is $? 0 'four nodes'
    lose_power node4
    ended_well 'go on without the one that is switched off'
    like "$(said 2)" '0/3 0/3 node1 10.77.0.1 0;1/3 1/3 node2' 'as three'
    hosts power_on node4
    nobody_left
}

test_spare() {
    start_run 3 --nnodes 3 --set elastic.spares=1 -- sh -c "$wait_once"
    is $? 0 'three nodes, and a spare'
    is "$(field nodes.3.state)" Spare 'which status tells'
    like "$("$MUSTER" status run)" '3 of 3 workers alive, 3 nodes, 1 spare, restarts' 'in words, too'
    kill -KILL $(agent_of node2)
    ended_well 'go on as three'
    is "$(said 1 | cut -d ' ' -f 3 | tr '\n' ' ')$(said 2)" \
        'node1 0/3 0/3 node1 10.77.0.1 0;1/3 1/3 node3 10.77.0.1 0;2/3 2/3 node4 10.77.0.1 0;' \
        'the spare takes the place of the one that is lost'
    nobody_left
}

# charlm's collectives between nodes need an MPI world without the one that is
# lost, or with a new agent there.
test_charlm() {
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=3s -- "$charlm" "${small[@]}" \
        --steps 200 --step-time 50 --batch 8 --checkpoint-every 5
    is $? 0 'charlm over four hosts'
    ok 'trains' wait_for 60 eval '[ "$(field step)" -ge 6 ]'
    lose_power node4
    ended_well 'and to its end over three, when one is switched off'
    like "$(cat run.err)" 'the new MPI world is made without node4' 'in a new MPI world'
    is "$(field generation),$(field workers.3.state 2>/dev/null)" 2, 'of three workers'
    hosts power_on node4
    nobody_left
}

test_comes_again() {
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=3s -- \
        "$charlm" "${small[@]}" --steps 100000 --step-time 20 --batch 8
    is $? 0 'charlm over four hosts'
    kill -KILL $(agent_of node2)
    ok 'goes on over three when an agent is killed' wait_for 60 eval '[ "$(field generation)" = 2 ] && running 3'
    ok 'a new one is started on its host' wait_for 90 eval '[ "$(field nodes.4.host 2>/dev/null)" = node2 ]' || show_run
    ok 'which comes in after a checkpoint' wait_for 60 eval '[ "$(field generation)" -ge 3 ] && running 4' || show_run
    is "$(field nodes.1.state),$(field restarts)" Lost,0 'with a rank of its own, and by no restart'
    kill -KILL "$(pids_on node3 '^[^ ]*charlm --width')"
    ok 'the next restart has four, too' wait_for 60 eval '[ "$(field generation)" -ge 4 ] && running 4' || show_run
    local step
    step=$(field step)
    ok 'which train' wait_for 90 eval '[ "$(field step)" -gt '"$((step + 5))"' ]' || show_run
    cancel 'until they are cancelled'
    nobody_left
}

test_too_few() {
    start_run 4 --nnodes 4 -- sh -c "$wait_once"
    is $? 0 'four nodes that are needed'
    kill -KILL $(agent_of node3)
    wait_exit 120 "$runner"
    is "$status" 75 'end with the first that is lost' || show_run
    like "$(field verdict.reason)" '3 nodes are left, and the job needs 4' 'which is said'
    nobody_left
    start_run 4 --nnodes 2:4 --set limits.nodeFailures=1 -- sh -c "$tell; exec sleep 1000"
    is $? 0 'four nodes, of which one may be lost'
    kill -KILL $(agent_of node2)
    ok 'go on without it' wait_for 60 eval '[ "$(field generation)" = 2 ] && running 3'
    matches "$("$MUSTER" status run)" '3 of 3 workers alive, 3 nodes of 4 wanted \(2 to 4\), (1 spare, )?1 lost, restarts 0 of' 'which status says'
    kill -KILL $(agent_of node4)
    wait_exit 120 "$runner"
    is "$status" 75 'and end with the second' || show_run
    like "$(field verdict.reason)" 'limits.nodeFailures' 'by the limit'
    nobody_left
}
