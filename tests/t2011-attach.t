#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster attach: the front end of a run is gone, by SIGKILL or with its terminal,
# and another one takes its place: output, restarts, Ctrl-C, verdict and exit
# status, MPI worlds. One at a time, and never for a run that is over.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
export XDG_RUNTIME_DIR=$TRASH/rt
mkdir -m 700 rt

field() { "$MUSTER" status run -o json | json "$1"; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.0.state)" = Running ]; }
event() { grep -q "\"event\":\"$1\"" run/events.jsonl; }
count() { grep -c "\"event\":\"$1\"" run/events.jsonl; }
no_files() { [ -z "$(find rt/muster -mindepth 1 2>/dev/null)" ]; }
nobody_left() { [ -z "$(run_traces "$id")" ]; }
# start_run OPTION...: the run in ./run, its front end $front and run id $id.
start_run() {
    rm -rf run go ready
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run "$@"
    front=$spawned
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
    id=$(json id run/run.json)
}
lose_front() {
    kill -KILL "$front"
    wait "$front" 2>/dev/null
    wait_for 60 event front_lost
}
# attach [OPTION...]: in the background, as $front from then on.
attach() {
    rm -f attach.err # of the one before
    spawn attach "$MUSTER" attach run "$@"
    front=$spawned
    wait_for 60 grep -q '^muster: attached to run' attach.err || { diag "$(cat attach.err)"; return 1; }
}
until_go='until [ -e go ]; do sleep 0.1; done'

test_takes_over() {
    start_run --nproc-per-node 2 --max-restarts 2 -- \
        sh -c 'echo generation $MUSTER_GENERATION; [ $MUSTER_GENERATION = 2 ] && exit 0; exec sleep 1000'
    is $? 0 'a run'
    run timeout 60 "$MUSTER" attach run
    is "$status" 1 'whose front end lives is not taken over' || show
    like "$(cat err)" "run $id has a front end: pid $front on $(hostname)" 'and is told where it is'
    lose_front
    is $? 0 'its front end is killed'
    like "$("$MUSTER" status run)" "front end   none: muster attach $id" 'which its status shows'
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run -- true
    is "$status" 1 'the run is not started beside itself' || show
    like "$(cat err)" "muster attach $id takes it over" 'but the way to it is told'
    attach
    is $? 0 'muster attach takes its place'
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run -- true
    like "$(cat err)" "run $id is alive: pid $front on $(hostname)" 'which is who has the run now' || show
    kill -KILL "$(field workers.1.pid)"
    wait_exit 60 "$front"
    is "$status" 0 'it ends with the status of the run' || diag "$(cat attach.err)"
    like "$(cat attach.err)" 'was killed by signal 9 (SIGKILL)' 'a failure is shown'
    like "$(cat attach.err)" 'restart 1 of 2' 'and the restart'
    like "$(cat attach.err)" "$id succeeded after" 'and the end'
    is "$(sort attach.out)" $'[0] generation 2\n[1] generation 2' 'output has its labels, from then on'
    is "$(count front_back)" 1 'the records tell of it'
    ok 'nobody is left' wait_for 60 nobody_left || diag "$(run_traces "$id")"
    ok 'nor is a file' wait_for 60 no_files || diag "$(find rt/muster)"
}

test_failed_and_over() {
    start_run --max-restarts 0 -- sh -c "$until_go; exit 3"
    lose_front
    attach
    touch go
    wait_exit 60 "$front"
    is "$status" 3 'a failed run has its own status' || diag "$(cat attach.err)"
    run timeout 60 "$MUSTER" attach run
    is "$status" 3 'also afterwards' || show
    like "$(cat err)" "run $id is over: Failed" 'when it is said that it is over'
    run timeout 60 "$MUSTER" attach nothing-of-that-name
    is "$status" 1 'a run that there is not' || show
    ok 'nobody is left' wait_for 60 nobody_left
    mkdir -p empty && rm -rf run
    "$MUSTER" run --allow-run-as-root --run-dir run --max-restarts 0 -- true >/dev/null 2>&1
    run timeout 60 "$MUSTER" attach run
    is "$status" 0 'one that has succeeded' || show
}

test_two_at_once() {
    local a b said
    start_run --nproc-per-node 1 -- sh -c "$until_go; echo done"
    lose_front
    spawn a "$MUSTER" attach run
    a=$spawned
    spawn b "$MUSTER" attach run
    b=$spawned
    wait_for 60 eval 'gone $a || gone $b'
    is $? 0 'of two who come at once one has to go'
    wait_for 60 grep -q '^muster: attached to run' a.err b.err
    touch go
    wait_exit 60 "$a"
    said=$status
    wait_exit 60 "$b"
    is "$(printf '%s\n' "$said" "$status" | sort | tr '\n' ' ')" '0 1 ' 'the other one has the run' ||
        diag "$(cat a.err b.err)"
    is "$(cat a.err b.err | grep -c "run $id has a front end")" 1 'which the first is told' || diag "$(cat a.err b.err)"
    is "$(cat a.out b.out)" '[0] done' 'and its output comes once'
    ok 'nobody is left' wait_for 60 nobody_left
}

test_signals() {
    start_run --nproc-per-node 1 --set limits.grace=300s -- sh -c 'trap "echo saved; exit 0" TERM; echo >ready; while :; do sleep 0.1; done'
    wait_for 60 test -e ready
    lose_front
    attach
    kill -INT "$front"
    wait_exit 60 "$front"
    is "$status" 130 'Ctrl-C cancels the run' || diag "$(cat attach.err)"
    is "$(cat attach.out)" '[0] saved' 'whose workers may save'
    start_run --set limits.grace=300s -- sh -c 'trap "" TERM; echo >ready; while :; do sleep 0.1; done'
    wait_for 60 test -e ready
    lose_front
    attach
    kill -INT "$front"
    wait_for 60 eval '[ "$(field state)" = Stopping ]'
    kill -INT "$front"
    wait_exit 60 "$front"
    is "$status" 130 'a second one kills them' || diag "$(cat attach.err)"
    start_run -- sleep 1000
    lose_front
    attach
    kill -TERM "$front"
    wait_exit 60 "$front"
    is "$status" 75 'SIGTERM stops it, to be resumed' || diag "$(cat attach.err)"
    ok 'nobody is left' wait_for 60 nobody_left
}

# A front end that is lost just after it began mpirun: nobody else tells the agents what
# to do.
test_lost_at_once() {
    rm -rf run
    printf '#!/bin/sh\n[ "$1" = --version ] || exec sleep 1000\nexec %s "$@"\n' "$(command -v mpirun)" >late-mpirun
    chmod +x late-mpirun
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run --mpirun "$PWD/late-mpirun" -- sleep 1000
    front=$spawned
    ok 'an mpirun has begun, and gets no further' wait_for 60 eval '[ "$(json mpirun_pid run/front.json 2>/dev/null || echo 0)" -gt 0 ]'
    kill -KILL "$front"
    id=$(json id run/run.json)
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- echo well
    is "$status:$(cat out)" '0:[0] well' 'its run can be started again at once' || show
    like "$(cat err)" "run $id had not begun" 'and is told why an mpirun is ended'
    ok 'nobody is left' wait_for 60 nobody_left
}

# Who closes the terminal leaves the run, and can come back.
test_hangup() {
    start_run --nproc-per-node 1 -- sh -c "$until_go; echo done"
    kill -HUP "$front"
    wait_exit 60 "$front"
    is "$status" 129 'a front end whose terminal goes leaves the run' || diag "$(cat run.err)"
    like "$(cat run.err)" "muster attach $id takes it over" 'and says how to come back'
    running
    is $? 0 'which goes on'
    attach
    is $? 0 'another one takes it over'
    kill -HUP "$front"
    wait_exit 60 "$front"
    is "$status" 129 'and leaves as well' || diag "$(cat attach.err)"
    attach
    touch go
    wait_exit 60 "$front"
    is "$status:$(cat attach.out)" '0:[0] done' 'and the third one sees the end' || diag "$(cat attach.err)"
    rm -rf run go
    spawn run nohup "$MUSTER" run --allow-run-as-root --run-dir run -- sh -c "$until_go; echo done"
    wait_for 60 running
    kill -HUP "$spawned"
    touch go
    wait_exit 60 "$spawned"
    is "$status" 0 'nohup is what it says' || diag "$(cat run.err)"
}

# One that leaves has its last words to say, and is not to be found by the lead.
test_hangup_unread() {
    mkfifo unread
    sleep 600 <unread &
    kill_at_exit $!
    rm -rf run go
    "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- \
        sh -c 'until [ -e go ]; do echo again and again and again; done' >unread 2>run.err </dev/null &
    front=$!
    kill_at_exit "$front"
    wait_for 60 running
    id=$(json id run/run.json)
    ok 'a run whose output nobody reads' wait_for 60 eval '[ "$(stat -c %s run/logs/1/0/stdout)" -gt 300000 ]'
    kill -HUP "$front"
    wait_exit 60 "$front"
    is "$status" 129 'can be left' || diag "$(cat run.err)"
    running
    is $? 0 'and goes on' || diag "$("$MUSTER" status run; tail -n 5 run/events.jsonl)"
    attach
    touch go
    wait_exit 60 "$front"
    is "$status" 0 'to its end' || diag "$(tail -n 5 attach.err)"
    ok 'nobody is left' wait_for 60 nobody_left
}

test_countdown() {
    local until
    start_run --set detach.timeout=12s -- sh -c "$until_go; echo done"
    lose_front
    attach
    is $? 0 'within detach.timeout'
    until=$(($(now_ms) + 13000))
    wait_for 60 eval '[ "$(now_ms)" -ge $until ]'
    running
    is $? 0 'the run is not stopped by it' || diag "$(cat attach.err)"
    touch go
    wait_exit 60 "$front"
    is "$status" 0 'but comes to its end' || diag "$(cat attach.err)"
    start_run --set detach.timeout=1s -- sleep 1000
    kill -HUP "$front"
    wait_for 60 eval '[ "$(field state)" = Stopped ]'
    is $? 0 'nobody comes, and it is stopped' || diag "$("$MUSTER" status run)"
    run timeout 60 "$MUSTER" attach run
    is "$status" 75 'to be resumed' || show
    ok 'nobody is left' wait_for 60 nobody_left
}

# The run ends while the new front end is on its way.
test_meanwhile() {
    local i bad=0
    for i in 0 1 2 3 4; do
        start_run -- sh -c 'while [ ! -e go ]; do :; done'
        lose_front
        spawn attach "$MUSTER" attach run
        sleep "0.0$((2 * i))"
        touch go
        wait_exit 60 "$spawned"
        [ "$status" = 0 ] || { bad=1; diag "$i: status $status: $(cat attach.err)"; }
        wait_for 60 nobody_left || { bad=1; diag "$i: $(run_traces "$id")"; }
    done
    is $bad 0 'a run that ends in the moment of the attach has its own status'
}

test_dead() {
    local agent
    start_run -- sleep 1000
    agent=$(field nodes.0.agent_pid)
    kill -KILL "$front" "$agent"
    wait_for 60 nobody_left
    run timeout 100 "$MUSTER" attach run
    is "$status" 1 'a run without anybody' || show
    like "$(cat err)" "run $id is not alive" 'is told so'
    like "$(cat err)" 'muster resume' 'with what can be done'
    run timeout 100 "$MUSTER" run --allow-run-as-root --run-dir run -- true
    is "$status" 0 'which works' || show
    cp -r run foreign && chmod 0666 foreign/front.json
    sed -i 's/"Succeeded"/"Running"/; s/"verdict"/"no_verdict"/; s/"host":"[^"]*"/"host":"elsewhere"/' foreign/status.json
    sed -i "s/\"updated\":[0-9.]*/\"updated\":$(date +%s)/" foreign/status.json
    run timeout 60 "$MUSTER" attach foreign
    is "$status" 1 'commands that somebody else may have written' || show
    like "$(cat err)" "front.json is not this user's own file" 'are not run'
}

mpi() {
    pgrep -f -- "muster-mpi --run-id=$id" | while read -r p; do
        [ "$(readlink "/proc/$p/exe" | sed 's/.*\///')" = muster-mpi ] && echo "$p"
    done
}
mpirun_pid() { json mpirun_pid run/front.json; }
epoch_joined() { [ "$(grep -c "\"mpi_joined\".*\"epoch\":$1" run/events.jsonl)" = 2 ]; }

# The MPI world of the first front end lives on; the next ones are made by those
# who took over, one epoch on each.
test_mpi_worlds() {
    local old
    start_run --nnodes 2 --agent-is-node --nproc-per-node 1 -- sh -c "$until_go; echo done"
    is $? 0 'a run of two agents'
    old=$(mpirun_pid)
    lose_front
    ok 'without its front end mpirun lives on' kill -0 "$old"
    attach
    is "$(field mpi_epoch):$(json epoch run/front.json):$(mpirun_pid)" "1:1:$old" 'the new one leaves the MPI world alone'
    kill -KILL $(mpi | head -n 1)
    ok 'when that is lost it makes the next one' wait_for 60 epoch_joined 2 || diag "$(cat attach.err run/mpirun.log)"
    ok 'and sees to it that the old mpirun goes' wait_for 60 gone "$old"
    isnt "$(mpirun_pid)" "$old" 'the new one is known'
    old=$(mpirun_pid)
    lose_front
    kill -KILL "$old"
    wait_for 60 eval '[ "$(field mpi_lost)" = 2 ]'
    is $? 0 'a world that is lost while nobody is there'
    attach
    ok 'is made by who comes' wait_for 60 epoch_joined 3 || diag "$(cat attach.err run/mpirun.log)"
    is "$(field generation)" 1 'and the workers do not notice'
    kill -KILL "$(mpirun_pid)"
    ok 'from then on as in any run' wait_for 60 epoch_joined 4 || diag "$(cat attach.err run/mpirun.log)"
    touch go
    wait_exit 60 "$front"
    is "$status" 0 'to its end' || diag "$(cat attach.err)"
    ok 'nobody is left' wait_for 60 nobody_left || diag "$(run_traces "$id")"
    ok 'nor is a file' wait_for 60 no_files || diag "$(find rt/muster)"
}

# An epoch that was used up is not used again, also if no agent has heard of it.
test_epoch() {
    start_run --nnodes 2 --agent-is-node --nproc-per-node 1 -- sh -c "$until_go"
    lose_front
    sed -i 's/"epoch":1/"epoch":7/' run/front.json
    kill -KILL "$(mpirun_pid)"
    attach
    ok 'the next world is newer than any before' wait_for 60 epoch_joined 8 || diag "$(cat attach.err)"
    touch go
    wait_exit 60 "$front"
    is "$status" 0 'and the run goes on' || diag "$(cat attach.err)"
}

test_by_hand() {
    rm -rf run go
    spawn run mpirun --allow-run-as-root --oversubscribe -np 1 "$MUSTER" run --allow-run-as-root --run-dir run -- \
        sh -c "$until_go; echo done"
    wait_for 60 running
    is $? 0 'a run inside mpirun' || diag "$(cat run.err)"
    id=$(json id run/run.json)
    front=$(json pid run/lock)
    kill -KILL "$front"
    wait_for 60 gone "$front"
    attach
    is $? 0 'that has lost who shows it'
    touch go
    wait_exit 60 "$front"
    is "$status:$(cat attach.out)" '0:[0] done' 'is shown by another one' || diag "$(cat attach.err)"
    ok 'and nobody is left' wait_for 60 nobody_left || diag "$(run_traces "$id")"
}

run_cases
