#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What agents of a run over hosts record (MUSTER_STEPS_DIR) is what the protocol core does
# when it is stepped again, and together it keeps the rules.
# MUSTER_STEPS_KEEP=DIR keeps the logs there, as tests/corpus/sim_replay has them.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
replay=$MUSTER_BUILDDIR/rendezvous/sim_replay
[ -x "$replay" ] || skip_all 'sim_replay is not built here'
rig_hosts_up
cd "$SHARED" || bail_out "no $SHARED"
once='[ $MUSTER_GENERATION -ge 2 ] || exec sleep 1000'

field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
nobody_left() { run_gone "$(json id "$SHARED/run/run.json")"; }
running() { [ "$(field state)" = Running ] && [ "$(field "workers.$(($1 - 1)).state")" = Running ]; }
agent_of() { pids_on "$1" '^[^ ]*muster agent --dir'; }
show_run() { diag "$(cat run.err)"; diag "$(tail -n 20 "$SHARED/run/events.jsonl")"; diag "$(cat replay.out 2>/dev/null)"; }

# start_run N HOSTS OPTION...: until N workers run. The front end is on the last host.
start_run() {
    local n=$1 hosts=$2
    shift 2
    cd "$SHARED" && rm -rf run steps
    spawn run on node4 env MUSTER_STEPS_DIR="$SHARED/steps" timeout 250 "$MUSTER" run --allow-run-as-root \
        --run-dir run --hosts "$hosts" --nproc-per-node 1 --set heartbeat.timeout=2s "$@"
    runner=$spawned
    wait_for 60 running "$n"
    is $? 0 "$n nodes" || show_run
}

# replays NAME LOGS LEADS: as many logs, of so many leads, say the same again.
replays() {
    local name=$1 logs=$2 leads=$3
    ok 'nobody is left' wait_for 90 nobody_left
    is "$(find steps -name '*.steps' -perm 0600 | wc -l)" "$logs" "$name: each agent has recorded" || diag "$(ls -lR steps)"
    is "$(stat -c %a steps)" 700 'where nobody else reads'
    "$replay" steps/*.steps >replay.out 2>&1
    is $? 0 'what they recorded is said again, and keeps the rules' || show_run
    like "$(tail -n 2 replay.out)" " $leads leads)" "of $leads leads"
    if [ -n "${MUSTER_STEPS_KEEP-}" ]; then
        for f in steps/*.steps; do cp "$f" "$MUSTER_STEPS_KEEP/$name-${f##*-}"; done
    fi
}

test_lead_lost() {
    start_run 3 node1,node2,node3 --nnodes 2:3 -- sh -c "$once"
    kill -KILL $(agent_of node1)
    wait_exit 120 "$runner"
    is "$status" 0 'go on to their end when the one that leads is lost' || show_run
    replays lead-lost 3 2
    # The last byte of what one that lived to the end has said.
    local f size
    f=$(echo steps/*-1.steps)
    size=$(stat -c %s "$f")
    head -c $((size - 1)) "$f" >changed.steps
    tail -c 1 "$f" | tr '\000-\377' '\001-\377\000' >>changed.steps
    is "$(stat -c %s changed.steps)" "$size" 'one of them is changed'
    "$replay" changed.steps >replay.out 2>&1
    is $? 1 'which is found' || show_run
}

# It hears of the others when it goes on, and is deposed.
test_lead_stopped() {
    local agent
    start_run 3 node1,node2,node3 --nnodes 2:3 -- sh -c 'exec sleep 1000'
    agent=$(agent_of node1)
    kill -STOP $agent
    ok 'go on when the agent that leads is stopped' wait_for 60 eval '[ "$(field lead)" = 1 ] && running 2' || show_run
    kill -CONT $agent
    ok 'it leaves when it goes on' wait_for 60 eval '[ -z "$(agent_of node1)" ]' || show_run
    on node4 "$MUSTER" cancel run >/dev/null
    wait_exit 120 "$runner"
    is "$status" 130 'the others are cancelled' || show_run
    replays lead-stopped 3 2
}

test_cut() {
    start_run 4 node1,node2,node3,node4 --nnodes 2:4 -- sh -c 'exec sleep 1000'
    hosts partition node1,node2 node3,node4
    ok 'one side of an even cut goes on' wait_for 90 eval '[ "$(field generation)" -ge 2 ] && running 2' || show_run
    [ "$(field lead)" = 0 ] && winner=node1 || winner=node3
    hosts heal
    on "$winner" "$MUSTER" cancel run >/dev/null
    wait_exit 120 "$runner"
    matches "$status" '^(130|75)$' 'and is cancelled' || show_run
    replays cut 4 "$(($(field lead) == 0 ? 1 : 2))"
}

test_restart() {
    rm -f "$SHARED/fail"
    start_run 2 node1,node2 --nnodes 1:2 --max-restarts 1 -- \
        sh -c '[ $MUSTER_GENERATION -ge 2 ] || until [ $RANK = 1 -a -e fail ]; do sleep 0.1; done; exit $((MUSTER_GENERATION < 2 ? 3 : 0))'
    : >fail
    wait_exit 120 "$runner"
    is "$status" 0 'a worker fails, and they are started again' || show_run
    is "$(field restarts)" 1 'once'
    replays restart 2 1
}

run_cases
