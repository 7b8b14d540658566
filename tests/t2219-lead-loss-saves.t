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
agent_of() { pids_on "$1" 'muster agent --dir'; }
show_run() { diag "$(cat run.out run.err)"; diag "$(tail -n 30 run/events.jsonl)"; diag "$(ls run/ckpt)"; }
saved() { grep -o 'ckpt/at-[0-9]*' run/events.jsonl | tail -n 1; }

# Rank 0 saves as long as `save` is there, and removes what it saved before.
cat >work.py <<'END_OF_WORK'
import os, sys, time, muster
run, g, at = os.environ["MUSTER_RUN_DIR"], os.environ["MUSTER_GENERATION"], os.environ.get("MUSTER_RESUME_PATH")
print("generation", g, "from", at, flush=True)
step = int(open(at).read()) if at else 0
while not muster.should_stop():
    step += 1
    path = "%s/ckpt/at-%d" % (run, step)
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
    cd "$SHARED" && rm -rf run && touch save tell
    spawn run on node4 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node1,node2,node3,node4 \
        --nproc-per-node 1 --nnodes 1:4 --max-restarts 2 --set heartbeat.timeout=3s --set restart.backoff=1ms..1ms "$@" \
        -- python3 work.py
    runner=$spawned
    wait_for 60 event 'ckpt/at-[2-9]' && id=$(json id run/run.json)
}
end_run() {
    run "$MUSTER" suspend run
    wait_exit 60 "$runner"
    is "$status" 75 'it ends where it can be gone on with' || show_run
    ok 'nobody is left' wait_for 90 run_gone "$id" || diag "$(run_alive "$id")"
}
began() { [ "$(grep -c "generation $1 from" run.out)" = "$2" ]; }

test_newest() {
    local last
    start_run
    is $? 0 'four nodes, and saves of rank 0 on that of the lead' || { show_run; return; }
    rm save
    sleep 1
    last=$(saved)
    kill -KILL $(agent_of node1)
    ok 'the lead is lost: three go on' wait_for 60 began 2 3 || show_run
    is "$(grep -o 'generation 2 from .*' run.out | sort -u)" "generation 2 from $SHARED/run/$last" \
        'from the newest save, which the others only heard of' || show_run
    is "$(field restarts)" 0 'by no restart'
    is "$(field resume_path)" "$SHARED/run/$last" 'as status says'
    touch save
    ok 'and save again' wait_for 30 eval '[ "$(saved)" != "'"$last"'" ]' || show_run
    end_run
}

run_cases
