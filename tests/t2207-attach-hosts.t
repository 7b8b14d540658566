#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster attach from other hosts, which share the run directory: one without an
# agent, where the request goes by a file, and one with, after the host of the
# front end has lost its power.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up

field() { "$MUSTER" status "$SHARED/run" -o json | json "$1"; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.2.state)" = Running ]; }
event() { grep -q "$1" "$SHARED/run/events.jsonl"; }
world_of_all() { [ "$(grep -c "\"mpi_joined\".*\"epoch\":$1" "$SHARED/run/events.jsonl")" = 3 ]; }
attached() { grep -q '^muster: attached to run' "$1.err"; }
alive() { run_alive "$id"; pgrep -f -a -- "--run-id=$id|/$id " | grep -v pgrep; }
nobody_left() { [ -z "$(alive)" ]; }
# start_run HOST OPTION...: the front end on that host, its pid here in $front.
start_run() {
    local from=$1
    shift
    cd "$SHARED" && rm -rf run go say
    spawn run on "$from" "$MUSTER" run --allow-run-as-root --run-dir run --hosts node1,node2,node3 --nnodes 3 \
        --nproc-per-node 1 --set detach.timeout=10m "$@"
    runner=$spawned
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
    id=$(json id run/run.json)
    front=$(inner_pid "$runner")
}
job='until [ -e go ]; do sleep 0.1; done; echo done'

test_no_agent_there() {
    start_run node1 -- sh -c "$job"
    is $? 0 'a run over three hosts, from the first'
    run on node4 "$MUSTER" attach run
    like "$(cat err)" "on node1, for" 'another host is told who has it' || show
    kill -KILL "$front"
    wait_for 60 event front_lost
    spawn attach on node4 "$MUSTER" attach run
    ok 'the fourth takes it over' wait_for 100 attached attach || diag "$(cat attach.err)"
    like "$(cat attach.err)" 'nobody of the run is on this host' 'by a file'
    is "$(ls run/control)" '' 'which was taken away'
    is "$(field mpi_epoch):$(field mpi_lost)" 1:0 'the MPI world is left alone'
    kill -KILL $(pids_on node2 '^[^ ]*muster-mpi --run-id')
    ok 'a new one is made from there' wait_for 100 world_of_all 2 || diag "$(cat attach.err run/mpirun.log)"
    is "$(json host run/front.json)" node4 'by the mpirun of the fourth'
    is "$(field generation)" 1 'and the workers do not notice'
    touch go
    wait_exit 100 "$spawned"
    is "$status" 0 'its status is that of the run' || diag "$(cat attach.err)"
    is "$(sort attach.out | tr '\n' ' ')" '[0] done [1] done [2] done ' 'which it shows'
    ok 'nobody is left, on any host' wait_for 100 nobody_left || diag "$(alive)"
}

# Who asks on a host that has stopped meanwhile may find one there that led before, and
# does not know that it leads no more; and who leads does not know of who has asked.
test_stopped_lead() {
    local agent
    start_run node4 --nnodes 2:3 --set heartbeat.timeout=3s -- sh -c "$job"
    is $? 0 'a run over three hosts, from a fourth'
    agent=$(pids_on node1 '^[^ ]*muster agent --dir')
    kill -STOP "$agent"
    ok 'another takes the lead from one that has stopped' wait_for 60 event lead_taken || diag "$(cat run.err)"
    kill -KILL "$front"
    ok 'which misses the front end' wait_for 60 event front_lost
    spawn attach on node1 "$MUSTER" attach run
    sleep 1
    kill -CONT "$agent"
    ok 'one that asks the first host is attached' wait_for 100 attached attach || diag "$(cat attach.err)"
    ok 'to who leads' wait_for 60 event 'front_back.*node1' || diag "$(cat attach.err)"
    touch go
    wait_exit 100 "$spawned"
    is "$status" 0 'and its status is that of the run' || diag "$(cat attach.err)"
    is "$(ls run/control)" '' 'no request is left'
    ok 'nobody is left' wait_for 100 nobody_left || diag "$(alive)"
}

# An mpirun that hangs, on the host of the first front end: who makes the next world
# from another host ends it there, and who sees the end of the run does as well.
test_old_mpirun() {
    local old
    start_run node1 -- sh -c "$job"
    is $? 0 'a run over three hosts'
    old=$(pids_on node1 '^[^ ]*mpirun .*muster-mpi --run-id')
    kill -STOP "$old"
    kill -KILL "$front"
    wait_for 60 event front_lost
    spawn attach on node4 "$MUSTER" attach run
    ok 'is taken over from the fourth' wait_for 100 attached attach || diag "$(cat attach.err)"
    kill -KILL $(pids_on node2 '^[^ ]*muster-mpi --run-id')
    ok 'which makes a new MPI world' wait_for 100 world_of_all 2 || diag "$(cat attach.err run/mpirun.log)"
    ok 'the old mpirun, which hangs on the first, is ended' wait_for 60 gone "$old"
    unlike "$(cat attach.err)" 'may be left' 'which is nothing to tell'
    touch go
    wait_exit 100 "$spawned"
    is "$status" 0 'the run comes to its end' || diag "$(cat attach.err)"
    ok 'nobody is left' wait_for 100 nobody_left || diag "$(alive)"
    start_run node1 -- sh -c "$job"
    old=$(pids_on node1 '^[^ ]*mpirun .*muster-mpi --run-id')
    kill -STOP "$old"
    kill -KILL "$front"
    wait_for 60 event front_lost
    spawn attach on node4 "$MUSTER" attach run
    wait_for 100 attached attach
    touch go
    wait_exit 100 "$spawned"
    is "$status" 0 'one whose MPI world was never lost' || diag "$(cat attach.err)"
    ok 'leaves no such mpirun either' wait_for 60 gone "$old"
    ok 'nor anybody else' wait_for 100 nobody_left || diag "$(alive)"
}

# The record names one mpirun: an old one that hangs has gone before it names the
# next, so that nobody forgets it who takes over then.
test_one_mpirun() {
    local old
    start_run node1 -- sh -c "$job"
    is $? 0 'a run over three hosts'
    old=$(json mpirun_pid run/front.json)
    kill -KILL "$front"
    wait_for 60 event front_lost
    spawn attach on node1 "$MUSTER" attach run
    ok 'is taken over on its host' wait_for 100 attached attach || diag "$(cat attach.err)"
    kill -STOP $(pids_on node1 '^[^ ]*mpirun .*muster-mpi --run-id')
    kill -KILL $(pids_on node2 '^[^ ]*muster-mpi --run-id')
    cat >names_next.sh <<'END'
until grep -q '"mpirun_pid":[0-9]' run/front.json && ! grep -q "\"mpirun_pid\":$1," run/front.json; do sleep 0.02; done
! grep -q '^State:.[^ZX]' "/proc/$1/status" 2>/dev/null
END
    ok 'when the next one is named the old one is gone' on node1 timeout 60 bash names_next.sh "$old"
    touch go
    wait_exit 100 "$spawned"
    is "$status" 0 'the run comes to its end' || diag "$(cat attach.err)"
    ok 'nobody is left' wait_for 100 nobody_left || diag "$(alive)"
}

# Where a worker is on another host one goes there.
test_shell() {
    start_run node1 -- sleep 1000
    is $? 0 'a run over three hosts'
    export MUSTER_SSH=$BED/ssh
    run on node1 "$MUSTER" shell run 2 -- sh -c 'echo "$RANK on $(hostname), $1"; exit 7' sh "a 'b' \$c;  *"
    is "$status:$(cat out)" "7:2 on node3, a 'b' \$c;  *" 'worker 2 is on the third, and so is the command' || show
    unset MUSTER_SSH
    run on node1 "$MUSTER" shell run -- hostname
    is "$status:$(cat out)" 0:node1 'worker 0 is here' || show
    run on node4 "$MUSTER" shell run 1 -- sh -c 'echo "$RANK on $(hostname)"'
    is "$status:$(cat out)" '0:1 on node2' 'from a host without an agent' || show
    run on node1 sh -c 'echo "echo to \$RANK; exit 3" | "$0" shell run 1' "$MUSTER"
    is "$status:$(cat out)" '3:to 1' 'a shell there reads from here' || show
    on node2 "$MUSTER" cancel run >cancel.out 2>&1
    ok 'nobody is left' wait_for 100 nobody_left || diag "$(alive)"
}

# missed_front HOW: another front end takes the run over while the next lead is cut off, and
# so is not told of it. The lead is lost afterwards: before that node is back (early), where
# the others have to tell, or when it is (late), where the lead has.
missed_front() {
    start_run node4 --nnodes 2:3 --set heartbeat.timeout=20s -- sh -c "until [ -e say ]; do sleep 0.1; done; echo said; $job"
    is $? 0 "a run over three hosts, from the fourth ($1)"
    kill -KILL "$front"
    wait_for 60 event front_lost
    hosts link_down node2
    spawn attach on node4 "$MUSTER" attach run
    ok 'is taken over while the second is cut off' wait_for 15 attached attach || diag "$(cat attach.err)"
    ok 'until that has lost its way to the lead' wait_for 30 on node2 sh -c 'grep -q "the link up is gone" /tmp/muster-*/*/agent-*.log'
    hosts link_up node2
    if [ "$1" = late ]; then
        touch say
        ok 'which is not lost' wait_for 60 grep -q '^\[1\] said' attach.out || diag "$(cat attach.err)"
    fi
    kill -KILL $(pids_on node1 '^[^ ]*muster agent --dir')
    ok 'and takes the lead' wait_for 60 grep -q 'node 1 (node2) leads the run from here on' attach.err ||
        diag "$(cat attach.err; tail -n 20 run/events.jsonl; on node2 sh -c 'tail -n 30 /tmp/muster-*/*/agent-*.log')"
    touch say go
    wait_exit 100 "$spawned"
    is "$status" 0 'it leads for the front end that there is now' || diag "$(cat attach.err)"
    ok 'nobody is left' wait_for 100 nobody_left || diag "$(alive)"
}
test_missed_front_early() { missed_front early; }
test_missed_front_late() { missed_front late; }

# Another front end on the host of the lead: the next lead, on another host, reaches it.
test_beside_the_lead() {
    local agent
    start_run node1 --nnodes 2:3 --set heartbeat.timeout=5s -- sh -c "$job"
    is $? 0 'a run over three hosts, from the first'
    kill -KILL "$front"
    wait_for 60 event front_lost
    spawn attach on node1 "$MUSTER" attach run
    ok 'is taken over beside the lead' wait_for 60 attached attach || diag "$(cat attach.err)"
    agent=$(pids_on node1 '^[^ ]*muster agent --dir')
    kill -STOP $agent
    ok 'whose next lead finds it' wait_for 60 grep -q 'node 1 (node2) leads the run from here on' attach.err ||
        diag "$(cat attach.err; tail -n 20 run/events.jsonl)"
    kill -CONT $agent
    touch go
    wait_exit 100 "$spawned"
    is "$status" 0 'and goes on to its end' || diag "$(cat attach.err)"
    ok 'nobody is left' wait_for 100 nobody_left || diag "$(alive)"
}

test_host_lost() {
    start_run node4 -- sh -c "$job"
    is $? 0 'a run whose front end is on a host of its own'
    hosts power_off node4
    wait_for 100 event front_lost
    is $? 0 'that loses its power'
    spawn attach on node2 "$MUSTER" attach run
    ok 'another host takes it over' wait_for 100 attached attach || diag "$(cat attach.err)"
    unlike "$(cat attach.err)" 'nobody of the run is on this host' 'through its agent'
    kill -KILL $(pids_on node3 '^[^ ]*muster-mpi --run-id')
    ok 'and makes the next MPI world, without the mpirun that is gone' wait_for 100 world_of_all 2 || diag "$(cat attach.err run/mpirun.log)"
    ok 'of which it says that it may be left' wait_for 60 grep -q 'may be left, as process [0-9]* on node4' attach.err || diag "$(cat attach.err)"
    kill -INT "$(inner_pid "$spawned")"
    wait_exit 100 "$spawned"
    is "$status" 130 'Ctrl-C cancels the run from there' || diag "$(cat attach.err)"
    ok 'nobody is left' wait_for 100 nobody_left || diag "$(alive)"
    hosts power_on node4
}

run_cases
