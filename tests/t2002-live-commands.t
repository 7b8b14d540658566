#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commands against runs that are alive: what they show, and that cancel ends
# a run, over a socket, by a file, and by force.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

# Steps until told to stop; says so; with STUBBORN set, does not listen.
cat >worker <<'END'
#!/bin/bash
[ -n "${STUBBORN:-}" ] && trap '' TERM || trap 'echo "rank $RANK saves"; exit 0' TERM
echo "rank $RANK begins"
echo "rank $RANK complains" >&2
while :; do read -r -t 0.1 <>"$FIFO"; done
END
chmod +x worker
mkfifo fifo
export FIFO=$TRASH/fifo

root_option=
[ "$(id -u)" != 0 ] || root_option=--allow-run-as-root

# start NAME [OPTION...]: a run of two workers, in $pid, alive in $id.
start() {
    local name=$1
    shift
    spawn "$name" "$MUSTER" run $root_option --name "$name" --nproc-per-node 2 "$@" -- ./worker
    pid=$spawned
    if ! wait_for 60 is_running "$name"; then
        diag "$(cat "$name.err")"
        bail_out "run $name does not start"
    fi
    id=$("$MUSTER" status "$name" -o json | json id)
}

state() { "$MUSTER" status "$1" -o json 2>/dev/null | json state; }
is_running() {
    [ "$(state "$1")" = Running ] &&
        [ "$("$MUSTER" status "$1" -o json | json workers.1.state)" = Running ]
}
is_stopping() { [ "$(state "$1")" = Stopping ]; }

test_alive() {
    start alive
    dir=$(readlink -f muster-runs/alive/latest)
    like "$("$MUSTER" status alive)" '2 of 2 workers alive' 'status of a run that is alive'
    is "$("$MUSTER" status -o json | json locked)" true 'it is locked'
    is "$("$MUSTER" status -o json | json stale)" false 'and not stale'
    matches "$("$MUSTER" list alive)" "alive +$id +Running" 'listed'
    ok 'its logs' wait_for 60 bash -c "'$MUSTER' logs alive | grep -qx '\[1\] rank 1 begins'"
    ok 'of standard error' wait_for 60 bash -c "'$MUSTER' logs alive --stderr | grep -qx '\[0\] rank 0 complains'"
    spawn follow "$MUSTER" logs alive -f
    followed=$spawned
    for d in "$dir" "$dir"/*; do
        case $(stat -c %a "$d") in
        700 | 600) ;;
        *) fail "$d is private" ;;
        esac
    done
    run "$MUSTER" run $root_option --run-dir "$dir" --nproc-per-node 1 -- true
    isnt "$status" 0 'a second front end is refused'
    like "$(cat err)" "run $id is alive: pid" 'told who has the run'
    is "$(state alive)" Running 'which goes on'
}

test_cancel() {
    run "$MUSTER" cancel alive
    is "$status:$(wc -c <err)" 0:0 'cancel'
    wait_exit 30 "$pid"
    is "$status" 130 'the exit status of a cancelled run'
    like "$(cat alive.out)" 'rank 1 saves' 'workers were told'
    is "$(state alive)" Stopped 'its state'
    is "$("$MUSTER" status alive -o json | json verdict.exit_status)" 130 'its verdict'
    is "$("$MUSTER" status alive -o json | json locked)" false 'it is free'
    run "$MUSTER" cancel alive
    like "$status:$(cat out)" '0:run' 'cancelling it again is no failure'
    like "$(cat out)" 'over already: Stopped' 'and says so'
    wait_exit 30 "$followed"
    is "$status" 0 'logs -f ends with the run'
    like "$(cat follow.out)" '[0] rank 0 saves' 'having shown all'
    ok 'nothing is left' wait_for 60 run_gone "$id"
}

test_force() {
    export STUBBORN=1
    start stubborn --set limits.grace=60s
    unset STUBBORN
    run "$MUSTER" cancel stubborn
    is "$status" 0 'cancel of a run that does not listen'
    ok 'it is stopping' wait_for 60 is_stopping stubborn
    run "$MUSTER" cancel stubborn --force
    is "$status" 0 'cancel by force'
    wait_exit 30 "$pid"
    is "$status" 130 'ends it, before the grace time is over'
    ok 'nothing is left' wait_for 60 run_gone "$id"
}

test_by_file() {
    # Another host has another runtime directory.
    mkdir -m 700 elsewhere
    XDG_RUNTIME_DIR=$TRASH/elsewhere start far
    run "$MUSTER" cancel far
    like "$status:$(cat out)" '0:run' 'cancel from elsewhere'
    like "$(cat out)" 'left a request' 'is by a file'
    wait_exit 30 "$pid"
    is "$status" 130 'which the lead finds'
    is "$(ls muster-runs/far/latest/control)" '' 'and removes'
}

test_metrics() {
    cat >reporter <<'END'
#!/usr/bin/env python3
import os, muster
for step in range(1, 4):
    muster.report(step, loss=0.5 / step, grad=float("nan"), **{"rank%d" % muster.rank(): 1.0})
END
    chmod +x reporter
    run env PYTHONPATH="$MUSTER_SRCDIR/python" "$MUSTER" run $root_option --name metrics --nproc-per-node 2 -- ./reporter
    is "$status" 0 'a run that reports' || show
    run "$MUSTER" status metrics -o json
    is "$(json step out)" 3 'its step'
    is "$(python3 -c '
import json
m = {m["name"]: m["value"] for m in json.load(open("out"))["metrics"]}
print(round(m["loss"], 3), m["grad"], m["rank1"])')" '0.167 NaN 1' 'its metrics, also what is no number' || show
    like "$("$MUSTER" status metrics)" 'step 3, ' 'shown'
    is "$(wc -l <muster-runs/metrics/latest/metrics.jsonl)" 18 'all of them are recorded'
    like "$(cat muster-runs/metrics/latest/metrics.jsonl)" '"rank":0,"step":1,"name":"grad","value":"NaN"}' 'as they were'
}

# A run that was stopped is gone on with in its directory.
test_take_up() {
    cat >saver <<'END'
#!/usr/bin/env python3
import os, muster
with open("lives", "a") as f:
    print(muster.generation(), os.environ.get("MUSTER_RESUME_PATH"), file=f)
if not muster.resume_path():
    os.mkdir("saved")
    muster.checkpoint_saved(os.path.abspath("saved"), 7)
    muster.report(7, loss=1.0)
    open(os.environ["FIFO"]).read()
END
    chmod +x saver
    export PYTHONPATH="$MUSTER_SRCDIR/python"
    spawn first "$MUSTER" run $root_option --run-dir again --name again --nproc-per-node 1 -- ./saver
    ok 'a checkpoint is told' wait_for 60 eval '[ "$("$MUSTER" status ./again -o json | json resume_step)" = 7 ]'
    "$MUSTER" cancel ./again --force >/dev/null
    wait_exit 30 $spawned
    is "$status" 130 'the run is stopped'
    first=$("$MUSTER" status ./again -o json | json id)
    run "$MUSTER" run $root_option --run-dir again --name again --nproc-per-node 1 -- ./saver
    is "$status" 0 'it is gone on with' || show
    is "$(cat lives)" "1 None
2 $PWD/saved" 'in the next generation, from its checkpoint'
    is "$("$MUSTER" status ./again -o json | json id)" "$first" 'as the same run'
    unset PYTHONPATH
}

run_cases
