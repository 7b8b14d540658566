# SPDX-License-Identifier: Apache-2.0
#
# Four hosts in a chain: each agent is the parent of the next one. The first after the
# lead is lost, and those below it come back under the lead; nobody but it counts as
# lost. Sourced by a test for each MPI; needs what hosts-run.sh needs, and a bed that was
# made with MUSTER_TEST_TREE_ARITY=1.
. "$MUSTER_SRCDIR/tests/lib/hosts-run.sh"

# The hosts that the agent on HOST has a link to, as "1 3 ".
links_of() {
    on "$1" ss -H -t -n -p state established | grep '"muster"' | grep -o '10\.77\.0\.[0-9]*' |
        grep -v "0\.${1#node}\$" | sed 's/.*\.//' | sort -u | tr '\n' ' '
}
chain() {
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=6s -- sh -c "$wait_for_go"
    is $? 0 'four hosts'
    is "$(links_of node2):$(links_of node3):$(links_of node4)" '1 3 :2 4 :3 ' 'in a chain' || show_run
    below=$(agent_of node3; agent_of node4)
}
back_together() {
    ok "$1" wait_for 60 eval '[ "$(field generation)" = 2 ] && running 3' || show_run
    is "$(links_of node3):$(links_of node4)" '1 4 :3 ' 'the next one is below the lead' || show_run
    is "$(agent_of node3; agent_of node4)" "$below" 'as the agent that it was, and so is the one below it'
    is "$(field nodes.1.state),$(field nodes.2.state),$(field nodes.3.state),$(field node_failures),$(field restarts)" \
        Lost,Running,Running,1,0 'one is lost, and nobody below it' || show_run
}
end() {
    touch run/go
    ended_well 'all come to the end'
    is "$(said 2 | cut -d ' ' -f 3,7,11)" 'node1 node3 node4' 'in the second generation' || show_run
    is "$(field node_failures)" 1 'and nobody else was lost'
    nobody_left
}

test_killed() {
    chain
    kill -KILL $(agent_of node2)
    back_together 'go on as three when the second is killed'
    end
}

test_link_down() {
    chain
    local lost
    lost=$(agent_of node2)
    hosts link_down node2
    back_together 'go on as three when the link of the second is down'
    hosts link_up node2
    ok 'which comes back, and waits to be wanted' wait_for 60 eval '[ "$(field nodes.1.state)" = Spare ]' || show_run
    is "$(agent_of node2)" "$lost" 'with the agent that it had'
    end
}

test_paused() {
    chain
    hosts pause node2
    back_together 'go on as three when the second is paused for more than a lease'
    hosts resume node2
    end
}
