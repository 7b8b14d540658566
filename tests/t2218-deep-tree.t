#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# More agents than one can be the parent of: those of the second row lose the lead and
# their parent at once, and find the next lead.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

N=35 # ranks 33 and 34 are below 1, and 1 below 0
field() { "$MUSTER" status run -o json 2>/dev/null | json "$1"; }
running() {
    [ "$(field state)" = Running ] && [ "$(field "workers.$(($1 - 1)).state")" = Running ] &&
        ! field "workers.$1.state" && [ "$(field generation)" = "$2" ]
}
agent_of() { field "nodes.$1.agent_pid"; }
show_run() { diag "$(cat run.err)"; diag "$(tail -n 20 run/events.jsonl)"; }

test_lead_and_parent() {
    spawn run timeout 250 "$MUSTER" run --allow-run-as-root --run-dir run --agent-is-node --nnodes 2:$N --nproc-per-node 1 \
        --set limits.nodeFailures=8 -- sh -c 'echo "$MUSTER_GENERATION: $RANK"; until [ -e $MUSTER_RUN_DIR/go ]; do sleep 1; done'
    runner=$spawned
    # A run does without its front end, and this one is on the machine itself.
    at_exit "timeout 60 '$MUSTER' cancel '$PWD/run' >/dev/null 2>&1"
    ok "$N agents run a worker each" wait_for 120 running $N 1 || { show_run; return; }
    id=$(json id run/run.json)
    kill -KILL $(agent_of 0) $(agent_of 1)
    ok 'the others go on without the lead and the parent of some' wait_for 120 running $((N - 2)) 2 || show_run
    is "$(field lead):$(field nodes.0.state):$(field nodes.1.state):$(field node_failures):$(field restarts)" 2:Lost:Lost:2:0 \
        'two are lost, and nobody below them' || show_run
    touch run/go
    wait_exit 120 "$runner"
    is "$status" 0 'all come to the end' || show_run
    is "$(sed 's/^\[[^]]*\] *//' run.out | grep -c '^2: ')" $((N - 2)) 'all workers of the second generation have spoken'
    ok 'nobody is left' wait_for 90 run_gone "$id" || diag "$(run_alive "$id")"
}

run_cases
