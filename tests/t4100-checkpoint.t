#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster checkpoint: all workers are asked to save, once for each request, and go on.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
need_command python3

root=--allow-run-as-root
export PYTHONPATH=$MUSTER_SRCDIR/python
field() { "$MUSTER" status run -o json 2>/dev/null | json "$1"; }
id() { json id run/run.json; }
start() {
    rm -rf run
    cat >work.py <<'END'
import os, time, muster
run = os.environ["MUSTER_RUN_DIR"]
n = 0
print("here", flush=True)
there = lambda name: os.path.exists(run + "/" + name)
while not there("go"):
    if there("busy"): # with a save that it has begun
        print("begins", flush=True)
        while there("busy"):
            time.sleep(0.02)
        if muster.rank() == 0:
            open(run + "/ckpt/old", "w").close()
            muster.checkpoint_saved(run + "/ckpt/old", 0)
            time.sleep(1) # before it asks
        muster.barrier()
    if not there("deaf") and muster.checkpoint_requested() and not there("mute"):
        n += 1
        muster.barrier()
        if muster.rank() == 0:
            open("%s/ckpt/%d" % (run, n), "w").close()
            muster.checkpoint_saved("%s/ckpt/%d" % (run, n), n)
        print("saved", n, flush=True)
    time.sleep(0.02)
END
    spawn run "$MUSTER" run $root --run-dir run --agent-is-node --nproc-per-node 2 "$@" -- python3 work.py
    ok 'a run' wait_for 60 eval '[ "$(grep -c here run.out)" -ge 2 ] && [ "$(field state)" = Running ]' || diag "$(cat run.out run.err)"
}
saved() { ok "$1" wait_for 60 eval '[ "$(grep -c "saved '"$2"'\$" run.out)" -ge '"$3"' ]' || diag "$(cat run.out run.err)"; }
go_home() {
    : >run/go
    wait_exit 60 "$spawned"
    is "$status" 0 'it went on, and ends well' || diag "$(cat run.out run.err)"
}

test_asked() {
    start --nnodes 2
    run "$MUSTER" checkpoint run
    is "$status" 0 'is asked to save' || show
    saved 'each of its workers does' 1 4
    run "$MUSTER" checkpoint "$(id)"
    saved 'and again' 2 4
    ok 'which status knows' wait_for 60 eval '[ "$(field resume_step)" = 2 ]' || diag "$(cat run/status.json run.err)"
    is "$(field generation)" 1 'nobody was started again'
    go_home
    is "$(grep -c 'asks for a checkpoint' run/events.jsonl)" 2 'the journal knows who asked'
}

test_by_file() {
    start --nnodes 1
    mkdir -p run/control
    echo '{"v":1,"op":"checkpoint","from":"somebody elsewhere"}' >run/control/x.tmp
    mv run/control/x.tmp run/control/x.json
    saved 'a file for the lead is as good' 1 2
    go_home
    like "$(cat run/events.jsonl)" 'somebody elsewhere asks for a checkpoint' 'and says from whom'
}

test_not_alive() {
    start --nnodes 1
    go_home
    run "$MUSTER" checkpoint run
    is "$status" 1 'a run that is over'
    like "$(cat err)" 'is over: Succeeded' 'is said to be'
    run "$MUSTER" checkpoint nobody
    is "$status" 1 'and one that never was'
    run "$MUSTER" checkpoint
    is "$status" 2 'needs a run'
}

# ask_waiting NAME [OPTION...]: in the background; its output is NAME.out.
ask_waiting() { local as=$1; shift; spawn "$as" "$MUSTER" checkpoint run --wait "$@"; }
# start_elsewhere ARG...: nobody of that run is on this host, by its sockets.
start_elsewhere() {
    mkdir -pm 700 "$TRASH/elsewhere"
    XDG_RUNTIME_DIR=$TRASH/elsewhere start "$@"
}
asked_is() { [ "$(field "asked.$1.state")" = "$2" ]; }

test_wait() {
    start --nnodes 2
    run "$MUSTER" checkpoint run --wait
    is "$status" 0 'waits for it' || show
    is "$(cat out)" "$PWD/run/ckpt/1" 'and prints where it is, and nothing else'
    is "$(cat err)" '' 'what takes no time is told nothing of'
    run "$MUSTER" checkpoint run --wait -o json
    is "$status" 0 'as JSON' || show
    is "$(json path <out) $(json step <out) $(json run <out)" "$PWD/run/ckpt/2 2 $(id)" 'that of the next one'
    run "$MUSTER" checkpoint run --wait --timeout 1m -o yaml
    is "$status" 0 'as YAML' || show
    like "$(cat out)" "path: $PWD/run/ckpt/3" 'that of one more'
    runner=$spawned
    ask_waiting one
    one=$spawned
    ask_waiting two
    two=$spawned
    wait_exit 60 "$one"
    is "$status" 0 'of two who ask at once' || diag "$(cat one.err)"
    wait_exit 60 "$two"
    is "$status" 0 'both have one' || diag "$(cat two.err)"
    isnt "$(cat one.out)" "$(cat two.out)" 'each of its own'
    spawned=$runner
    go_home
}

# A save that was begun before somebody asks is no answer, also where it ends after that.
test_wait_for_later() {
    start --nnodes 1
    runner=$spawned
    rm -f run/ckpt/old && : >run/busy
    ok 'a save of its own begins' wait_for 60 grep -q 'begins' run.out
    ask_waiting later
    ok 'somebody asks' wait_for 60 asked_is 0 Told
    rm run/busy
    wait_exit 60 "$spawned"
    is "$status" 0 'waits' || diag "$(cat later.err)"
    is "$(cat later.out)" "$PWD/run/ckpt/1" 'for the next one'
    ok 'although that one was told of' grep -q '"checkpoint_saved".*ckpt/old' run/events.jsonl
    spawned=$runner
    go_home
}

test_wait_in_vain() {
    start --nnodes 1
    runner=$spawned
    : >run/deaf
    run "$MUSTER" checkpoint run --wait --timeout 1s
    is "$status" 124 'a program that does not ask' || show
    is "$(cat out)" '' 'has no checkpoint'
    like "$(cat err)" 'no checkpoint after 1s: the program has not asked' 'and is said not to ask'
    : >run/mute
    rm run/deaf
    ask_waiting mute --timeout 5s
    ok 'one that saves nothing' wait_for 60 asked_is 1 Heard
    wait_exit 60 "$spawned"
    is "$status" 124 'has none either' || diag "$(cat mute.err)"
    like "$(cat mute.err)" 'the program has heard of it, and has told of no save' 'which is known'
    ask_waiting over
    ok 'one more' wait_for 60 asked_is 2 Heard
    : >run/go
    wait_exit 60 "$spawned"
    is "$status" 1 'the run ends before' || diag "$(cat over.err)"
    like "$(cat over.err)" 'is over: Succeeded' 'and that is said'
    is "$(cat over.out)" '' 'and nothing else'
    wait_exit 60 "$runner"
    run "$MUSTER" checkpoint run --wait
    is "$status" 1 'of a run that is over nobody waits for anything'
    for option in '--timeout 5s' '-o json' '--wait --timeout 0' '--wait --timeout soon'; do
        run "$MUSTER" checkpoint run $option
        is "$status" 2 "$option"
    done
}

# Those who come after are asked anew.
test_wait_over_restart() {
    start --nnodes 1 --max-restarts 1 --set restart.backoff=10ms..20ms
    runner=$spawned
    : >run/mute
    ask_waiting again --timeout 1m
    ok 'workers hear of it' wait_for 60 asked_is 0 Heard
    rm run/mute
    kill -KILL "$(field workers.0.pid)"
    wait_exit 90 "$spawned"
    is "$status" 0 'and the next ones, as these have died' || diag "$(cat again.err run.err)"
    is "$(cat again.out)" "$PWD/run/ckpt/1" 'save'
    is "$(field generation)" 2 'after a restart'
    spawned=$runner
    go_home
}

test_wait_from_elsewhere() {
    start_elsewhere --nnodes 1
    run "$MUSTER" checkpoint run
    like "$(cat out)" 'left a request' 'a run is asked by a file' || show
    saved 'and saves' 1 2
    run "$MUSTER" checkpoint run --wait --timeout 1m
    is "$status:$(cat out)" "0:$PWD/run/ckpt/2" 'who waits hears of it, too' || show
    go_home
}

# While no workers run nobody can be asked: the next ones are.
test_wait_for_workers() {
    start_elsewhere --nnodes 1 --max-restarts 1 --set restart.backoff=8s..8s
    runner=$spawned
    kill -KILL "$(field workers.0.pid)"
    ok 'workers have died' wait_for 60 eval '[ "$(field state)" = Restarting ]' || diag "$(cat run/status.json)"
    ask_waiting early --timeout 1m
    ok 'who asks then is refused' wait_for 60 asked_is 0 Refused || diag "$(cat run/status.json)"
    wait_exit 90 "$spawned"
    is "$status" 0 'and asks the next ones' || diag "$(cat early.err run.err)"
    is "$(cat early.out)" "$PWD/run/ckpt/1" 'which save'
    spawned=$runner
    go_home
}

# A request that its lead has lost is made again.
test_wait_for_lost() {
    local agent
    start_elsewhere --nnodes 1
    runner=$spawned
    agent=$(field nodes.0.agent_pid)
    kill -STOP "$agent"
    ask_waiting lost --timeout 1m
    ok 'a request lies there' wait_for 15 eval 'ls run/control/*.json >/dev/null 2>&1' || diag "$(ls -R run)"
    rm run/control/*.json
    kill -CONT "$agent"
    wait_exit 90 "$spawned"
    is "$status" 0 'and gets lost' || diag "$(cat lost.err run.err)"
    is "$(cat lost.out)" "$PWD/run/ckpt/1" 'the next one does not'
    spawned=$runner
    go_home
}

# The library's own saves are known from their begin to their end; and what may stay in
# memory goes to the disk.
test_wait_for_agents() {
    rm -rf run ck
    spawn run "$MUSTER" run $root --run-dir run --agent-is-node --nproc-per-node 2 --nnodes 2 \
        --set checkpoint.diskEvery=1h -- "$MUSTER_BUILDDIR/tests/lib/snap_worker" "$PWD/ck" 48000
    runner=$spawned
    ok 'four workers' wait_for 60 eval '[ "$(field state)" = Running ]' || diag "$(cat run.err)"
    : >run/due
    run "$MUSTER" checkpoint run --wait --timeout 1m
    is "$status" 0 'a save through agents' || { show; diag "$(cat run.out run.err)"; }
    matches "$(cat out)" "^$PWD/ck/step-[0-9]{12}-[0-9a-f]{8}\$" 'is a checkpoint of the library'
    ok 'is on the disk' test -e "$(cat out)/COMMIT"
    run "$MUSTER" ckpt verify "$(cat out)"
    is "$status" 0 'and whole' || show
    spawned=$runner
    go_home
}

# Of a save that comes to nothing whoever waits hears at once, and why.
test_wait_for_failure() {
    rm -rf run ck
    spawn run "$MUSTER" run $root --run-dir run --agent-is-node --nproc-per-node 2 --nnodes 1 \
        --max-restarts 0 -- "$MUSTER_BUILDDIR/tests/lib/snap_worker" "$PWD/ck" 48000
    runner=$spawned
    ok 'two workers' wait_for 60 eval '[ "$(field state)" = Running ]' || diag "$(cat run.err)"
    : >run/due
    run "$MUSTER" checkpoint run --wait --timeout 1m
    is "$status" 0 'a save' || show
    rm -r ck && : >ck
    run "$MUSTER" checkpoint run --wait --timeout 1m
    is "$status" 1 'one of which the directory has gone' || show
    matches "$(cat err)" "run $(id): the save of step [0-9]+ has failed: " 'is said to have failed'
    is "$(cat out)" '' 'and is none'
    spawned=$runner
    kill -INT $spawned
    wait_exit 60 $spawned
}

# The example that users are given goes on from a checkpoint of muster's. Its model is
# made small here.
test_example() {
    local charlm=$MUSTER_BUILDDIR/examples/charlm step
    for ((i = 0; i < 200; i++)); do echo "line $i: the quick brown fox $((i * i))"; done >text
    sed "s/\"300\", --checkpoint-every, \"50\"/\"60\", --checkpoint-every, \"20\", --step-time, \"20\", --data, text, \
        --width, \"16\", --heads, \"2\", --layers, \"1\", --batch, \"8\", --context, \"16\"/" \
        "$MUSTER_SRCDIR/examples/charlm.yaml" >example.yaml
    is "$(grep -c 'width' example.yaml)" 1 'the example, with a small model'
    rm -rf run
    PATH=$charlm:$PATH spawn run "$MUSTER" run $root --run-dir run example.yaml
    ok 'saves' wait_for 60 eval '[ "$(field resume_step)" -ge 20 ]' || diag "$(cat run.out run.err)"
    kill -KILL "$(field workers.2.pid)"
    wait_exit 60 "$spawned"
    is "$status" 0 'and ends well with one of its workers killed' || diag "$(cat run.out run.err)"
    is "$(field restarts)" 1 'after a restart'
    step=$(sed -n "s|.*resumed from step \([0-9]*\) (.*/run/ckpt)\$|\1|p" run.out)
    ok "which went on from step $step" test "${step:-0}" -ge 20 || diag "$(cat run.out)"
    matches "$(field resume_path)" '/run/ckpt/step-000000000060-[0-9a-f]+$' 'the last one is in the format of muster'
    is "$(find run -name '*.ckpt')" '' 'there are no others'
    run "$MUSTER" ckpt verify run/ckpt
    is "$status" 0 'they are whole' || show
}

run_cases
