# SPDX-License-Identifier: Apache-2.0
#
# The node that leads is lost while a run over four hosts goes on: another one takes
# the lead, whatever it was lost by; of two sides of a cut one goes on. Sourced by a
# test for each MPI; needs what hosts-run.sh needs.
. "$MUSTER_SRCDIR/tests/lib/hosts-run.sh"
# The front end is on the last host, so that it outlives the first.
front_on=node4
once_is_enough test_watch test_newcomer test_stopped_to_the_end_alone test_twice test_suspended test_charlm
tell='echo "$MUSTER_GENERATION: $RANK/$WORLD_SIZE $(hostname)"'
wait_once="$tell; [ \$MUSTER_GENERATION -ge 2 ] || exec sleep 1000"

test_agent() {
    start_run 4 --nnodes 2:4 -- sh -c "$wait_once"
    is $? 0 'a run of two to four nodes takes all four'
    kill -KILL $(agent_of node1)
    ended_well 'and goes on to its end without the one that leads'
    is "$(said "$(field generation)")" '0/3 node2;1/3 node3;2/3 node4;' 'ranks are dense again'
    is "$(field lead),$(field nodes.0.state),$(field node_failures),$(field restarts)" 1,Lost,1,0 \
        'status tells of the loss, and who leads'
    like "$(cat run.err)" 'node 1 (node2) leads the run from here on' 'as does the screen'
    nobody_left
}

test_watch() {
    start_run 4 --nnodes 2:4 -- sh -c "$wait_once"
    is $? 0 'four nodes'
    # The agent takes its log along: under another name it stays.
    on node1 sh -c 'ln /tmp/muster-*/*/agent-*.log /tmp/kept.log'
    kill -KILL $(watch_of node1)
    ended_well 'go on when the watch of the lead is killed'
    is "$(field lead)" 1 'led by the next'
    ok 'it ends' wait_for 60 eval '[ -z "$(agent_of node1)" ]' || show_run
    like "$(on node1 cat /tmp/kept.log)" 'leaving' 'the old one leaves'
    unlike "$(on node1 cat /tmp/kept.log)" 'did not get through' 'and waits for nobody below it to go'
    on node1 rm /tmp/kept.log
    nobody_left
}

# A node that has come back waits for the next generation, and is all that is left when
# the one that runs is lost.
newest_members() { json members "$(ls -v "$SHARED"/run/views/* | tail -n 1)" | tr -d ' '; }
test_newcomer() {
    local began
    start_run 2 --nnodes 1:2 -- sh -c "$tell; [ \$MUSTER_GENERATION -ge 3 ] || exec sleep 1000"
    is $? 0 'a run of one to two nodes takes two'
    kill -KILL $(agent_of node2)
    ok 'goes on with one' wait_for 60 eval '[ "$(field generation)" = 2 ] && running 1' || show_run
    ok 'and takes another into its view, that waits' \
        wait_for 100 eval '[[ "$(newest_members)" = "[0,"*"]" ]] && [ "$(field generation)" = 2 ]' || show_run
    began=$(field started)
    kill -KILL $(agent_of node1)
    ended_well 'which goes on to the end when it is alone'
    ok 'and knows how long the run has been under way' \
        awk "BEGIN { d = $(field started) - $began; exit !(d > -1 && d < 1) }" || show_run
    is "$(field generation),$(said 3 | cut -c 1-2)" '3,0/' 'by itself, or with the other one that has come back' || show_run
    nobody_left
}

# second_of EVENT: when the journal has had it last.
second_of() { grep "\"event\":\"$1\"" "$SHARED/run/events.jsonl" | tail -n 1 | json t | cut -d . -f 1; }
# All know that a node that was lost before has ended: nobody waits for its lease.
test_after_another() {
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=20s -- sh -c "$tell; [ \$MUSTER_GENERATION -ge 3 ] || exec sleep 1000"
    is $? 0 'four nodes'
    kill -KILL $(agent_of node3)
    ok 'go on without one' wait_for 60 eval '[ "$(field generation)" = 2 ] && running 3' || show_run
    ok 'and without it in their view' wait_for 60 eval '[[ "$(newest_members)" = "[0,1,3"* ]]' || show_run
    kill -KILL $(agent_of node1)
    ended_well 'and without their lead'
    is "$(field lead)" 1 'led by the next'
    num "$(($(second_of generation_started) - $(second_of lead_taken)))" -lt 10 'at once, and not after a lease' || show_run
    nobody_left
}

# What is asked of a lead that has stopped, or of none, is asked of the next one.
front_of() { pids_on "$1" '^[^ ]*muster run '; }
ask_meanwhile() {
    local agent what=$1
    shift
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=4s -- sh -c "$tell; exec sleep 1000"
    is $? 0 'four nodes'
    agent=$(agent_of node1)
    kill -STOP $agent
    ok "$what" "$@"
    wait_exit 100 "$runner"
    is "$status" 130 'it ends, by the next lead' || show_run
    kill -CONT $agent
    nobody_left
}
test_asked_meanwhile() {
    ask_meanwhile 'Ctrl-C while the lead has stopped' eval 'kill -INT $(front_of node4)'
    ask_meanwhile 'muster cancel on another node' eval 'on node2 "$there/muster" cancel "$SHARED/run" >/dev/null'
}

test_power_off() {
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=3s -- sh -c "$wait_once"
    is $? 0 'four nodes'
    lose_power node1
    ended_well 'go on when the host of the lead is switched off'
    is "$(field lead),$(field nodes.0.state)" 1,Lost 'led by the next'
    hosts power_on node1
    nobody_left
}

# It cannot fence itself while it is stopped; it must when it goes on, and write
# nothing.
test_stopped() {
    local agent events
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=3s -- sh -c "$tell; exec sleep 1000"
    is $? 0 'four nodes'
    agent=$(agent_of node1)
    kill -STOP $agent
    ok 'go on when the agent that leads is stopped' wait_for 60 eval '[ "$(field lead)" = 1 ] && running 3' || show_run
    kill -CONT $agent
    ok 'it leaves when it goes on' wait_for 60 eval '[ -z "$(agent_of node1)" ]' || show_run
    is "$(pids_on node1 'sleep 1000')" '' 'with its workers'
    is "$(field state),$(field lead)" Running,1 'and has told nobody that it leads'
    is "$(grep -l '"lead":0' "$SHARED"/run/views/*)" '' 'nor has it led a view since'
    is "$(grep -c '"event":"node_lost"' "$SHARED/run/events.jsonl")" 1 'nor written that it had lost the others' || show_run
    cancel 'the others are cancelled'
    nobody_left
}

# stopped_to_the_end NODES: all others come to the end of the run while the one that led
# is stopped. It finds nobody when it goes on, and must not decide what is decided.
stopped_to_the_end() {
    local agent generation
    start_run 4 --nnodes "$1" --set heartbeat.timeout=3s -- sh -c "$tell; exec sleep 1000"
    is $? 0 "four nodes ($1)"
    agent=$(agent_of node1)
    kill -STOP $agent
    ok 'go on when the agent that leads is stopped' wait_for 60 eval '[ "$(field lead)" = 1 ] && running 3' || show_run
    cancel 'to their end'
    for h in node2 node3 node4; do
        ok "where they leave ($h)" wait_for 60 eval '[ -z "$(agent_of '$h')" ]' || show_run
    done
    generation=$(field generation)
    kill -CONT $agent
    ok 'it leaves when it goes on' wait_for 90 eval '[ -z "$(agent_of node1)" ]' || show_run
    is "$(field verdict.exit_status),$(field lead),$(field generation)" "130,1,$generation" \
        'status tells of their end' || show_run
    is "$(grep -c '"event":"ended"' "$SHARED/run/events.jsonl")" 1 'which the journal has once' || show_run
    is "$(tail -n 1 "$SHARED/run/events.jsonl" | json event)" ended 'and nothing after it' || show_run
    nobody_left
}
test_stopped_to_the_end() { stopped_to_the_end 2:4; }
# One that could go on by itself must not, either.
test_stopped_to_the_end_alone() { stopped_to_the_end 1:4; }

test_even_cut() {
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=3s -- sh -c "$tell; exec sleep 1000"
    is $? 0 'four nodes'
    hosts partition node1,node2 node3,node4
    ok 'one side of an even cut goes on' wait_for 90 eval '[ "$(field generation)" -ge 2 ] && running 2' || show_run
    is "$(ls "$SHARED/run/views")" 1.2 'by the one view that was made'
    if [ "$(field lead)" = 0 ]; then
        winners='node1 node2' losers='node3 node4'
    else
        winners='node3 node4' losers='node1 node2'
    fi
    for h in $losers; do
        ok "the other ends its workers ($h)" wait_for 60 eval '[ -z "$(pids_on '$h' "sleep 1000")" ]'
        ok "and leaves ($h)" wait_for 90 eval '[ -z "$(agent_of '$h')" ]' || show_run
    done
    is "$(field state)" Running 'while the first goes on'
    hosts heal
    on "${winners% *}" "$there/muster" cancel run >/dev/null
    wait_exit 120 "$runner"
    matches "$status" '^(130|75)$' 'it is cancelled' || show_run
    nobody_left
}

test_twice() {
    start_run 4 --nnodes 2:4 -- sh -c "$tell; [ \$MUSTER_GENERATION -ge 3 ] || exec sleep 1000"
    is $? 0 'four nodes'
    kill -KILL $(agent_of node1)
    ok 'go on without the lead' wait_for 60 eval '[ "$(field lead)" = 1 ] && running 3' || show_run
    kill -KILL $(agent_of node2)
    ended_well 'and without the next'
    is "$(field lead),$(field node_failures)" 2,2 'which status tells'
    nobody_left
}

# The workers are slow to stop, so that the lead is lost meanwhile.
test_suspended() {
    start_run 4 --nnodes 2:4 --set limits.grace=2m -- sh -c 'trap "" TERM; while :; do sleep 1; done'
    is $? 0 'four nodes'
    spawn suspend on node4 "$there/muster" suspend run
    ok 'are being suspended' wait_for 60 eval '[ "$(field state)" = Stopping ]'
    kill -KILL $(agent_of node1)
    wait_exit 120 "$runner"
    is "$status" 75 'when their lead is lost' || show_run
    is "$(field state),$(field lead)" Suspended,1 'and are suspended by the next' || show_run
    nobody_left
}

test_charlm() {
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=3s -- "$charlm" "${small[@]}" \
        --steps 200 --step-time 50 --batch 8 --checkpoint-every 5
    is $? 0 'charlm over four hosts'
    ok 'trains' wait_for 60 eval '[ "$(field step)" -ge 6 ]'
    lose_power node1
    ended_well 'and to its end when the host of the lead is switched off'
    is "$(field lead)" 1 'led by the next'
    hosts power_on node1
    nobody_left
}
