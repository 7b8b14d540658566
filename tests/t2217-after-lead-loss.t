#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a run does for its user after another node has taken the lead: commands from
# each host, another front end, more and fewer nodes, restarts, hangs, the store.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
rig_hosts_up
cd "$SHARED" || bail_out "no $SHARED"
export PYTHONPATH=$MUSTER_SRCDIR/python

field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
event() { grep -q "$1" "$SHARED/run/events.jsonl"; }
running() {
    [ "$(field state)" = Running ] && [ "$(field "workers.$(($1 - 1)).state")" = Running ] &&
        ! field "workers.$1.state"
}
nobody_left() { ok 'nobody is left' wait_for 90 run_gone "$id" || diag "$(run_alive "$id")"; }
agent_of() { pids_on "$1" '^[^ ]*muster agent --dir'; }
log_of() { cat "/proc/$(hosts pid "$1")/root"/tmp/muster-*/*/agent-0.log 2>/dev/null; }
show_run() {
    diag "$(cat ./*.err)"
    diag "$(tail -n 20 "$SHARED/run/events.jsonl")"
    for i in 1 2 3 4; do diag "node$i: $(log_of node$i | tail -n 30)"; done
}
# start_run HOST N OPTION...: the front end on that host, until N workers run.
start_run() {
    local from=$1 n=$2
    shift 2
    cd "$SHARED" && rm -rf run
    spawn run on "$from" timeout 250 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node1,node2,node3,node4 \
        --nproc-per-node 1 "$@"
    runner=$spawned
    wait_for 60 running "$n" && id=$(json id run/run.json)
}
attached() { grep -q '^muster: attached to run' "$1.err"; }

# The host that the first lead and the front end were on is switched off.
test_attach() {
    start_run node1 4 --nnodes 2:4 --set heartbeat.timeout=3s --set detach.timeout=10m -- sh -c '
        echo "$MUSTER_GENERATION: $RANK/$WORLD_SIZE $(hostname)"
        until [ -e $MUSTER_RUN_DIR/go ]; do sleep 0.1; done; echo "done $RANK"'
    is $? 0 'four nodes, the front end on the first' || { show_run; return; }
    hosts link_down node1
    hosts power_off node1
    ok 'go on as three without that host' wait_for 60 eval '[ "$(field lead)" = 1 ] && running 3' || show_run
    spawn attach on node3 "$MUSTER" attach run
    ok 'another host takes the run over' wait_for 90 attached attach || show_run
    unlike "$(cat attach.err)" 'nobody of the run is on this host' 'through its agent'
    run on node4 "$MUSTER" status run
    like "$(cat out)" '3 of 3 workers alive, 3 nodes of 4 wanted (2 to 4), 1 lost' 'status from a third tells of all' || show
    run on node4 "$MUSTER" logs run
    is "$(sed 's/^\[[^]]*\] *//' out | sort | tr '\n' ' ')" '2: 0/3 node2 2: 1/3 node3 2: 2/3 node4 ' 'as do its logs' || show
    kill -KILL "$(inner_pid "$spawned")"
    ok 'the second front end is killed' wait_for 60 event 'front_lost'
    hosts power_on node1
    hosts link_up node1
    spawn attach on node1 "$MUSTER" attach run
    ok 'the host that was away takes it over' wait_for 90 attached attach || show_run
    like "$(cat attach.err)" 'nobody of the run is on this host' 'by a file'
    touch run/go
    wait_exit 120 "$spawned"
    is "$status" 0 'and has its status' || show_run
    is "$(grep -o 'done [0-9]' attach.out | sort | tr '\n' ' ')" 'done 0 done 1 done 2 ' 'and its output' || show_run
    nobody_left
}

told() { ok "$1" wait_for 60 eval '[ "$(grep -c "'"$2"'" run.out)" -ge '"$3"' ]' || { diag "$(cat run.out)"; show_run; }; }
restarted() { ok "$1" wait_for 60 eval '[ "$(field restarts)" = '"$2"' ] && running '"$3" || show_run; }

# Workers tell of each step and say what they saved; a file named as a rank and a
# generation hangs that one.
test_commands() {
    cat >"$SHARED/work.py" <<'END_OF_WORK'
import os, socket, time, muster
run, g = os.environ["MUSTER_RUN_DIR"], os.environ["MUSTER_GENERATION"]
print(g, "has", muster.rank(), "of", os.environ["WORLD_SIZE"], "on", socket.gethostname(), "after",
      os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
step = 1000 * int(g)
while not muster.should_stop():
    step += 1
    muster.report(step)
    if muster.rank() == 0 and step % 20 == 0:
        open("%s/ckpt/%d" % (run, step), "w").close()
        muster.checkpoint_saved("%s/ckpt/%d" % (run, step), step)
    while os.path.exists("%s/hang-%d-%s" % (run, muster.rank(), g)):
        time.sleep(3600)
    time.sleep(0.05)
END_OF_WORK
    start_run node4 4 --nnodes 1:4 --max-restarts 3 --hang-timeout 3s --set heartbeat.timeout=3s --set elastic.growInterval=1s \
        --set restart.backoff=1ms..1ms -- python3 work.py
    is $? 0 'four nodes' || { show_run; return; }
    kill -KILL $(pids_on node3 'python3 work.py$')
    restarted 'a worker fails: one restart' 1 4
    kill -KILL $(agent_of node1)
    told 'the lead is lost: three go on, by no restart' ' has . of 3 on node[234] after 1$' 3
    told 'the host comes back with another agent' '[3-9] has . of 4 on node1 after 1$' 1
    ok 'and all run' wait_for 60 eval '[ "$(field lead)" = 1 ] && running 4' || show_run
    run on node3 "$MUSTER" scale run 2
    is "$status" 0 'fewer are wanted, from a host of the run' || show
    told 'two run' ' has . of 2 on' 2
    run "$MUSTER" scale run 3
    is "$status" 0 'more, from a host without an agent' || show
    told 'three run' ' has . of 3 on node. after 1$' 6
    ok 'as status tells' wait_for 60 running 3 || show_run
    touch "run/hang-2-$(field generation)"
    restarted 'one hangs: a second restart' 2 3
    like "$(cat run.err)" 'hangs: no report' 'for that reason' || show_run
    run on node2 "$MUSTER" describe run
    is "$status" 0 'the lead describes the run' || show
    kill -KILL $(pids_on node2 'python3 work.py$')
    restarted 'a worker of its own fails: a third' 3 3
    run on node3 "$MUSTER" suspend run
    is "$status" 0 'it is suspended from another host' || show
    wait_exit 60 "$runner"
    is "$status:$(field state)" 75:Suspended 'and ends so' || show_run
    nobody_left
}

run_cases
