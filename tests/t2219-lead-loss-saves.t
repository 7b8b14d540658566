#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a run starts from after the node of its lead is lost, where the program keeps
# nothing but its newest checkpoint.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
rig_hosts_up
cd "$SHARED" || bail_out "no $SHARED"
export PYTHONPATH=$MUSTER_SRCDIR/python

field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
event() { grep -q "$1" "$SHARED/run/events.jsonl"; }
agent_of() { pids_on "$1" '^[^ ]*muster agent --dir'; }
show_run() { diag "$(tail -n 60 run.out run.err)"; diag "$(tail -n 30 run/events.jsonl)"; diag "$(ls saves)"; }
told() { grep -o 'saves/at-[0-9]*"' run/events.jsonl | tail -n 1 | tr -d '"'; }

# Rank 0 saves as long as `save` is there, tells of it while `tell` is, and removes what
# it saved before.
cat >work.py <<'END_OF_WORK'
import os, muster, time
g, at = os.environ["MUSTER_GENERATION"], os.environ.get("MUSTER_RESUME_PATH")
print("generation", g, "from", at, flush=True)
step = int(open(at).read()) if at else 0
print("generation", g, "goes on at", step, flush=True)
while not muster.should_stop():
    step += 1
    path = os.path.abspath("saves/at-%d" % step)
    if muster.rank() == 0 and os.path.exists("save"):
        with open(path + ".new", "w") as f:
            f.write(str(step))
        os.rename(path + ".new", path)
        if os.path.exists("tell"):
            muster.checkpoint_saved(path, step)
        if at:
            os.remove(at)
        at = path
    time.sleep(0.1)
END_OF_WORK

start_run() {
    cd "$SHARED" && rm -rf run saves && mkdir saves && touch save tell
    spawn run on node4 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node1,node2,node3,node4 \
        --nproc-per-node 1 --nnodes 1:4 --max-restarts 1000 --set heartbeat.timeout=3s --set restart.backoff=0s -- python3 work.py
    runner=$spawned
    wait_for 60 event 'saves/at-[2-9]' && id=$(json id run/run.json)
    is $? 0 'four nodes, and saves of rank 0 on that of the lead' || show_run
}
end_run() {
    run "$MUSTER" suspend run
    wait_exit 60 "$runner"
    is "$status" 75 'it ends where it can be gone on with' || show_run
    ok 'nobody is left' wait_for 90 run_gone "$id" || diag "$(run_alive "$id")"
}
began() { [ "$(grep -c "generation $1 from" run.out)" = "$2" ]; }
from() { grep -o "generation $1 from .*" run.out | sort -u | sed 's/.* from //'; }

test_told() {
    local last
    start_run || return
    rm save
    sleep 1
    last=$(told)
    kill -KILL $(agent_of node1)
    ok 'the lead is lost: three go on' wait_for 60 began 2 3 || show_run
    is "$(from 2)" "$SHARED/$last" 'from the newest save, which the others only heard of' || show_run
    is "$(field restarts):$(field resume_path)" "0:$SHARED/$last" 'by no restart, as status says'
    ok 'nobody looks for another' eval '! event checkpoint_gone'
    touch save
    ok 'and they save again' wait_for 30 eval '[ "$(told)" != "'"$last"'" ]' || show_run
    end_run
}

# The one that was told of is removed when the next, of which nobody was told, is there.
test_untold() {
    local last
    start_run || return
    rm tell
    sleep 1
    rm save
    sleep 0.5
    last=$(told)
    ok 'what was told of is gone' [ ! -e "$last" ]
    kill -KILL $(agent_of node1)
    ok 'the lead is lost: three go on' wait_for 60 began 2 3 || show_run
    is "$(from 2)" "$(echo "$SHARED"/saves/at-*)" 'from what lies beside it' || show_run
    is "$(field restarts)" 0 'by no restart'
    ok 'which is told' event "checkpoint_gone.*no node sees $SHARED/$last, which generation 2" || show_run
    end_run
}

test_none() {
    start_run || return
    rm save
    sleep 0.5
    rm saves/at-*
    kill -KILL $(agent_of node1)
    ok 'the lead is lost, and all saves are: three go on' wait_for 60 began 2 3 || show_run
    is "$(from 2)" None 'from nothing' || show_run
    ok 'which is told, with what to do' event 'checkpoint_gone.*it starts without one.*put the checkpoint back' || show_run
    is "$(field resume_path)" '' 'and is so for who resumes it'
    end_run
}

# went_on STEP: three of the generation that runs, or all four, if the lost node is back.
went_on() { [ "$(grep -c "generation $(field generation) goes on at $1\$" run.out)" -ge 3 ]; }

# No node has the directory: workers fail, again and again, with pauses between.
test_no_directory() {
    local last n
    start_run || return
    rm save
    sleep 0.5
    last=$(told)
    mv saves away
    kill -KILL $(agent_of node1)
    ok 'the lead is lost, and nobody has the directory' \
        wait_for 60 event 'checkpoint_gone.*its directory is not there on node2, node3 and node4: mount' || show_run
    sleep 6
    n=$(field restarts)
    ok "$n restarts in a while" [ "$n" -ge 1 -a "$n" -le 5 ] || show_run
    mv away saves
    # Also the generation that was about to start then, and has found it.
    ok 'the directory is back: they go on from where they were' wait_for 60 went_on "${last##*-}" || show_run
    is "$(from "$(field generation)")" "$SHARED/$last" 'from that save'
    end_run
}

run_cases
