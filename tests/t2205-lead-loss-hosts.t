#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The node that leads is lost while a run over four hosts goes on: another one takes
# the lead, whatever it was lost by; of two sides of a cut one goes on.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up
cd "$SHARED" || bail_out "no $SHARED"
charlm=$MUSTER_BUILDDIR/examples/charlm/charlm
four=node1,node2,node3,node4
tell='echo "$MUSTER_GENERATION: $RANK/$WORLD_SIZE $(hostname)"'
wait_once="$tell; [ \$MUSTER_GENERATION -ge 2 ] || exec sleep 1000"

field() { "$MUSTER" status "$SHARED/run" -o json | json "$1"; }
nobody_left() { run_gone "$(json id "$SHARED/run/run.json")"; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field "workers.$(($1 - 1)).state")" = Running ]; }

# start_run N OPTION...: until N workers run. The front end is on the last host, so
# that it outlives the first.
start_run() {
    local n=$1
    shift
    cd "$SHARED" && rm -rf run
    spawn run on node4 timeout 250 "$MUSTER" run --allow-run-as-root --run-dir run --hosts $four --nproc-per-node 1 "$@"
    runner=$spawned
    wait_for 60 running "$n" || { show_run; return 1; }
}
said() { sed 's/^\[[^]]*\] *//' run.out | grep "^$1: " | sort -t ' ' -k 2n | cut -d ' ' -f 2- | tr '\n' ';'; }
agent_of() { pids_on "$1" 'muster agent --dir'; }
watch_of() { pids_on "$1" 'muster-watch'; }
show_run() {
    diag "$(cat run.err)"
    diag "$(tail -n 20 "$SHARED/run/events.jsonl")"
    diag "$("$MUSTER" status "$SHARED/run" 2>&1)"
    for i in 1 2 3 4; do
        diag "node$i: $(timeout 10 "$MUSTER_SRCDIR/tests/rigs/hosts" run "$BED" node$i -- sh -c 'tail -n 30 /tmp/muster-*/*/agent-*.log' 2>&1)"
    done
}

test_agent() {
    start_run 4 --nnodes 2:4 -- sh -c "$wait_once"
    is $? 0 'a run of two to four nodes takes all four'
    kill -KILL $(agent_of node1)
    wait_exit 120 "$runner"
    is "$status" 0 'and goes on to its end without the one that leads' || show_run
    is "$(said "$(field generation)")" '0/3 node2;1/3 node3;2/3 node4;' 'ranks are dense again'
    is "$(field lead),$(field nodes.0.state),$(field node_failures),$(field restarts)" 1,Lost,1,0 \
        'status tells of the loss, and who leads'
    like "$(cat run.err)" 'node 1 (node2) leads the run from here on' 'as does the screen'
    ok 'nobody is left' wait_for 60 nobody_left
}

ended_well() {
    wait_exit 120 "$runner"
    is "$status" 0 "$1" || show_run
    ok 'nobody is left' wait_for 60 nobody_left
}

test_watch() {
    start_run 4 --nnodes 2:4 -- sh -c "$wait_once"
    is $? 0 'four nodes'
    kill -KILL $(watch_of node1)
    ended_well 'go on when the watch of the lead is killed'
    is "$(field lead)" 1 'led by the next'
}

test_power_off() {
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=3s -- sh -c "$wait_once"
    is $? 0 'four nodes'
    hosts link_down node1
    hosts power_off node1
    ended_well 'go on when the host of the lead is switched off'
    is "$(field lead),$(field nodes.0.state)" 1,Lost 'led by the next'
    hosts power_on node1
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
    on node4 "$MUSTER" cancel run >/dev/null
    wait_exit 120 "$runner"
    is "$status" 130 'the others are cancelled' || show_run
    ok 'nobody is left' wait_for 60 nobody_left
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
    on node4 "$MUSTER" cancel run >/dev/null
    wait_exit 120 "$runner"
    is "$status" 130 'to their end' || show_run
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
    ok 'nobody is left' wait_for 60 nobody_left
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
    on "${winners% *}" "$MUSTER" cancel run >/dev/null
    wait_exit 120 "$runner"
    matches "$status" '^(130|75)$' 'it is cancelled' || show_run
    ok 'nobody is left' wait_for 60 nobody_left
}

test_twice() {
    start_run 4 --nnodes 2:4 -- sh -c "$tell; [ \$MUSTER_GENERATION -ge 3 ] || exec sleep 1000"
    is $? 0 'four nodes'
    kill -KILL $(agent_of node1)
    ok 'go on without the lead' wait_for 60 eval '[ "$(field lead)" = 1 ] && running 3' || show_run
    kill -KILL $(agent_of node2)
    ended_well 'and without the next'
    is "$(field lead),$(field node_failures)" 2,2 'which status tells'
}

# The workers are slow to stop, so that the lead is lost meanwhile.
test_suspended() {
    start_run 4 --nnodes 2:4 --set limits.grace=2m -- sh -c 'trap "" TERM; while :; do sleep 1; done'
    is $? 0 'four nodes'
    spawn suspend on node4 "$MUSTER" suspend run
    ok 'are being suspended' wait_for 60 eval '[ "$(field state)" = Stopping ]'
    kill -KILL $(agent_of node1)
    wait_exit 120 "$runner"
    is "$status" 75 'when their lead is lost' || show_run
    is "$(field state),$(field lead)" Suspended,1 'and are suspended by the next' || show_run
    ok 'nobody is left' wait_for 60 nobody_left
}

test_charlm() {
    start_run 4 --nnodes 2:4 --set heartbeat.timeout=3s -- "$charlm" --width 16 --heads 2 --layers 1 --context 16 \
        --steps 200 --step-time 50 --batch 8 --checkpoint-every 5
    is $? 0 'charlm over four hosts'
    ok 'trains' wait_for 60 eval '[ "$(field step)" -ge 6 ]'
    hosts link_down node1
    hosts power_off node1
    wait_exit 200 "$runner"
    is "$status" 0 'and to its end when the host of the lead is switched off' || show_run
    is "$(field lead)" 1 'led by the next'
    ok 'nobody is left' wait_for 60 nobody_left
    hosts power_on node1
}

run_cases
