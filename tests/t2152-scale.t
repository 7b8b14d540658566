#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Other nodes for a run that is well: muster scale; a node that came back, after the
# next checkpoint or with the next restart; a node that is excluded. Agents stand for
# nodes here, t2209-grow-hosts.t has hosts.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
need_command python3

root=--allow-run-as-root
export PYTHONPATH=$MUSTER_SRCDIR/python
field() { "$MUSTER" status "${dir:-run}" -o json 2>/dev/null | json "$1"; }
events() { grep -c "\"event\":\"$1\"" run/events.jsonl; }
is_at() { [ "$(field state):$(field generation)" = "Running:$1" ]; }
ended() { ok 'nobody is left' wait_for 60 run_gone "$(json id run/run.json)"; }
go_home() {
    : >run/go
    wait_exit 60 "$spawned"
    is "$status" 0 "${1:-the run ends well}" || diag "$(cat run.out run.err)"
    ended
}
# start OPTION...: its workers tell where they are, save when they are asked to stop,
# and end when there is a file "go".
start() {
    rm -rf run
    cat >work.py <<'END'
import os, time, muster
run = os.environ["MUSTER_RUN_DIR"]
print("rank", muster.rank(), "of", os.environ["WORLD_SIZE"], "in", os.environ["MUSTER_GENERATION"],
      "from", os.environ.get("MUSTER_RESUME_PATH", "nothing"), flush=True)
saved = asked = 0
def save():
    global saved
    saved += 1
    if muster.rank() == 0:
        path = "%s/ckpt/%s-%d" % (run, os.environ["MUSTER_GENERATION"], saved)
        open(path, "w").close()
        muster.checkpoint_saved(path, int(os.environ["MUSTER_GENERATION"]) * 1000 + saved)
if "SAVES" in os.environ:
    save()
while not os.path.exists(run + "/go") and not muster.should_stop():
    if "SAVES" in os.environ and muster.checkpoint_requested():
        asked += 1
        save()
        print("asked", muster.rank(), flush=True)
    if os.path.exists(run + "/fail") and muster.node() == 1 and muster.generation() < 3:
        raise SystemExit(3)
    time.sleep(0.02)
if muster.should_stop():
    save()
    print("stopped", muster.rank(), flush=True)
END
    spawn run "$MUSTER" run $root --run-dir run --agent-is-node --nproc-per-node 1 "$@" -- python3 work.py
}
told() { ok "$1" wait_for 60 eval '[ "$(grep -c "'"$2"'" run.out)" -ge '"$3"' ]' || diag "$(cat run.out run.err)"; }

test_scale() {
    start --nnodes 1:4
    told 'four nodes' 'of 4 in 1 from nothing' 4
    ok 'which are shown' wait_for 60 is_at 1
    is "$(field min_nodes):$(field want_nodes):$(field max_nodes)" 1:4:4 'with their range'
    run "$MUSTER" scale run 2
    is "$status" 0 'two of them are enough' || show
    like "$(cat out)" '2 nodes are wanted' 'says muster scale'
    told 'the others go' 'of 2 in 2 from .*/ckpt/1-1$' 2
    is "$(grep -c '^.* stopped' run.out)" 4 'after all have saved' || diag "$(cat run.out)"
    ok 'as is shown' wait_for 60 is_at 2
    is "$(field nodes.0.state):$(field nodes.1.state):$(field nodes.2.state):$(field nodes.3.state)" \
        Running:Running:Spare:Spare 'the last ones wait'
    like "$("$MUSTER" status run)" '2 nodes of 2 wanted (1 to 4), 2 spares, restarts 0 of 3' 'it is no restart'
    run "$MUSTER" scale run 3
    told 'three' 'of 3 in 3' 3
    kill -KILL "$(field nodes.1.agent_pid)"
    told 'a loss: another one takes the place' 'of 3 in 4' 3
    is "$(field restarts):$(field node_failures)" 0:1 'which is counted as ever'
    go_home
    is "$(events nodes_wanted):$(events nodes_changing)" 2:2 'the journal has it'
}

test_refused() {
    local word
    start --nnodes 1:2
    told 'one or two nodes' 'of 2 in 1' 2
    ok 'are there' wait_for 60 is_at 1
    run "$MUSTER" scale run 3
    is "$status" 2 'three are too many' || show
    like "$(cat err)" 'may have 1 to 2 nodes, not 3' 'which is said'
    run "$MUSTER" scale run 0
    is "$status" 2 'none is too few' || show
    like "$(cat err)" 'muster: 0 is no number of nodes to go on with, from 1 to 65536: muster suspend stops' 'and what else is meant is said'
    for word in many -1 99999999999 99999999999999999999 1.5 ''; do
        run "$MUSTER" scale run "$word"
        is "$status" 2 "'$word' is no number of them" || show
        like "$(cat err)" "muster: '$word' is not a number of nodes: one from 1 to 65536 is wanted" 'and what is wanted is said'
    done
    mkdir -p run/control
    echo '{"v":1,"op":"scale","nodes":7,"from":"elsewhere"}' >run/control/1.json
    ok 'by file the journal says so' wait_for 60 grep -q 'elsewhere wants 7 nodes: refused: the job may have 1 to 2' run/events.jsonl
    is "$(field generation)" 1 'the run goes on'
    go_home
    run "$MUSTER" scale run 1
    is "$status" 1 'one that is over is not scaled' || show
    like "$(cat err)" 'is over: Succeeded' 'which is said'
    start --nnodes 2
    told 'a fixed job' 'of 2 in 1' 2
    ok 'is there' wait_for 60 is_at 1
    run "$MUSTER" scale run 1
    is "$status" 2 'is not scaled' || show
    like "$(cat err)" 'has 2 nodes, no more and no fewer; a range' 'which is said'
    go_home
}

# What was wanted holds when the run is gone on with.
test_resumed() {
    start --nnodes 1:3
    told 'three nodes' 'of 3 in 1' 3
    ok 'are there' wait_for 60 is_at 1
    "$MUSTER" scale run 2 >/dev/null
    told 'then two' 'of 2 in 2' 2
    ok 'are there' wait_for 60 is_at 2
    "$MUSTER" suspend run >/dev/null
    wait_exit 60 "$spawned"
    is "$status" 75 'suspended' || diag "$(cat run.err)"
    spawn run "$MUSTER" resume $root run
    told 'resumed with two' 'of 2 in 3' 2
    go_home
}

# A node comes back: the front end makes a new MPI world, and there it is.
test_growth() {
    SAVES=1 start --nnodes 1:2 --set elastic.growInterval=1s
    told 'two nodes' 'of 2 in 1' 2
    ok 'are there' wait_for 60 is_at 1
    kill -KILL "$(field nodes.1.agent_pid)"
    told 'one is lost' 'of 1 in 2 from .*/ckpt/1-[0-9]*$' 1
    told 'and comes back after a checkpoint, which was asked for' 'of 2 in 3 from .*/ckpt/2-[0-9]*$' 2
    num "$(grep -c 'asked 0' run.out)" -ge 1 'of the worker'
    is "$(field restarts):$(field node_failures)" 0:1 'it counts as no restart'
    ok 'the journal tells of it' grep -q '"nodes_change_due".*after the next checkpoint, or restart, .* comes in' run/events.jsonl
    go_home
    unset SAVES
}

test_no_checkpoint() {
    start --nnodes 1:2 --set elastic.growInterval=1s
    told 'two nodes that never save' 'of 2 in 1' 2
    ok 'are there' wait_for 60 is_at 1
    kill -KILL "$(field nodes.1.agent_pid)"
    told 'one is lost' 'of 1 in 2' 1
    ok 'and comes back' wait_for 60 grep -q '"nodes_change_due"' run/events.jsonl
    ok 'to wait' wait_for 60 eval '[ "$(field nodes.2.state):$(field generation)" = Spare:2 ]'
    local pid
    pid=$(field workers.0.pid)
    kill -KILL "$pid"
    told 'for a restart' 'of 2 in 3' 2
    is "$(field restarts)" 1 'of a failure'
    go_home
}

test_excluded() {
    start --nnodes 2 --set elastic.spares=1 --set restart.maxPerNode=1 --set restart.backoff=1ms..1ms
    told 'two nodes and a spare' 'of 2 in 1' 2
    ok 'are there' wait_for 60 is_at 1
    : >run/fail
    ok 'one that fails again and again is excluded' wait_for 60 is_at 3
    ok 'and the spare takes its place' wait_for 60 \
        eval '[ "$(field nodes.0.state):$(field nodes.1.state):$(field nodes.2.state)" = Running:Excluded:Running ]'
    like "$("$MUSTER" status run)" '): it was the cause 2 times, and restart.maxPerNode is 1' 'which is shown'
    is "$(events node_excluded):$(field restarts)" 1:2 'and written down'
    go_home
}

# It stays out when the run is gone on with, unless the hosts are named.
test_excluded_before() {
    start --nnodes 2 --set elastic.spares=1 --set restart.maxPerNode=1 --set restart.backoff=1ms..1ms
    told 'two nodes and a spare' 'of 2 in 1' 2
    ok 'are there' wait_for 60 is_at 1
    : >run/fail
    ok 'one that fails again and again is excluded' wait_for 60 is_at 3
    rm run/fail
    run "$MUSTER" suspend run
    wait_exit 60 "$spawned"
    is "$status" 75 'the run is suspended' || diag "$(cat run.err)"
    ended
    spawn run "$MUSTER" resume $root run
    ok 'and gone on with' wait_for 60 is_at 4 || diag "$(cat run.err)"
    is "$(field nodes.0.state):$(field nodes.1.state):$(field nodes.2.state)" Running:Excluded:Running 'without that node'
    like "$(cat run.err)" 'excluded node 1 (' 'which is said'
    like "$(cat run.err)" 'restart.maxPerNode is 1 (in a start before this one)' 'with the reason'
    run "$MUSTER" suspend run
    wait_exit 60 "$spawned"
    ended
    spawn run "$MUSTER" resume $root --set elastic.spares=0 --set nodes=3 run
    ok 'where it is needed' wait_for 60 is_at 5 || diag "$(cat run.err)"
    like "$(cat run.err)" 'is used again: without it there would be too few' 'it is used, and that is said'
    run "$MUSTER" suspend run
    wait_exit 60 "$spawned"
    ended
}

test_excluded_named() {
    start --nnodes 2 --set elastic.spares=1 --set restart.maxPerNode=1 --set restart.backoff=1ms..1ms
    told 'two nodes and a spare' 'of 2 in 1' 2
    : >run/fail
    ok 'one that fails again and again is excluded' wait_for 60 is_at 3
    rm run/fail
    run "$MUSTER" suspend run
    wait_exit 60 "$spawned"
    ended
    spawn run "$MUSTER" resume $root --hosts localhost run
    ok 'who names the hosts' wait_for 60 is_at 4 || diag "$(cat run.err)"
    is "$(field nodes.0.state):$(field nodes.1.state):$(field nodes.2.state)" Running:Running:Spare 'gets all of them'
    like "$(cat run.err)" 'also nodes that this run had excluded' 'as is said'
    go_home
}

# One rank is slow, and says so; its node is excluded after the next checkpoint.
test_slow() {
    rm -rf run
    cat >slow.py <<'END'
import os, time, muster
run = os.environ["MUSTER_RUN_DIR"]
print("rank", muster.rank(), "of", os.environ["WORLD_SIZE"], "in", os.environ["MUSTER_GENERATION"], flush=True)
step = 0
while not os.path.exists(run + "/go") and not muster.should_stop():
    step += 1
    slow = muster.rank() == 1 and muster.generation() == 1
    muster.report(step, step_time=3 if slow else 1)
    if muster.checkpoint_requested() and muster.rank() == 0:
        open("%s/ckpt/%d" % (run, step), "w").close()
        muster.checkpoint_saved("%s/ckpt/%d" % (run, step), step)
    time.sleep(0.05)
END
    spawn run "$MUSTER" run $root --run-dir run --agent-is-node --nproc-per-node 1 --nnodes 3 --set elastic.spares=1 \
        --set elastic.excludeSlow=2 -- python3 slow.py
    told 'three nodes and a spare' 'of 3 in 1' 3
    told 'a slow one is excluded' 'of 3 in 2' 3
    ok 'after a checkpoint' wait_for 60 is_at 2
    wait_for 60 eval '[ "$(field nodes.3.state)" = Running ]'
    is "$(field nodes.1.state):$(field nodes.3.state):$(field restarts)" Excluded:Running:0 'and the spare takes its place'
    like "$(field nodes.1.why)" 'the steps of rank 1 take 3.00 times the median (elastic.excludeSlow)' 'which says why'
    go_home
}

run_cases
