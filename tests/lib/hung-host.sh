# SPDX-License-Identifier: Apache-2.0
#
# A host at which every mpirun hangs, or fails, though its agent is well: after three MPI
# worlds that were late or failed for it the run goes on without it, and with it again
# when that is over.
# For a bed of three hosts that is up; $there is muster in it. An MPI world is late after
# six leases, or what nodes have to come together in: with 3 s and 25 s three of them are
# late within 70 s.
cd "$SHARED" || bail_out "no $SHARED"
. "$MUSTER_SRCDIR/tests/lib/held-mpirun.sh"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

# An ssh by which nothing comes to node3, while there is no file "pass": it hangs, or is
# refused while there is a file "refuse", after a moment: what fails again within a lease
# does not count, and after five in a row there is a pause of a minute.
cat >held-ssh <<END
#!/bin/bash
for word; do
    [ "\$word" != node3 ] || [ -e "$PWD/pass" ] || [ ! -e "$PWD/refuse" ] || { sleep 2; exit 255; }
    [ "\$word" != node3 ] || [ -e "$PWD/pass" ] || exec sleep 1000
done
exec "$BED/ssh" "\$@"
END
chmod +x held-ssh

over=node1,node2,node3
last=2
field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
event() { grep -q "$1" "$SHARED/run/events.jsonl"; }
show_run() { diag "$(cat run.err; tail -n 30 run/events.jsonl; tail -n 20 run/mpirun.log)"; }
trains() { ok "$1" wait_for 120 eval '[ "$(field step)" -ge '"$2"' ]' || show_run; }

start() {
    local nodes=$1
    shift
    cd "$SHARED" && rm -rf run && : >pass
    spawn run on node1 timeout 580 "$there/muster" run $root --run-dir run --hosts "$over" --nnodes "$nodes" \
        --nproc-per-node 1 --set heartbeat.timeout=3s --set gang.timeout=25s --set elastic.growInterval=1s \
        --set limits.grace=5s "$@" -- \
        "$there/examples/charlm/charlm" --width 16 --heads 2 --layers 1 --context 16 --steps 1000000 --step-time 10 \
        --batch 6 --checkpoint-every 20
    runner=$spawned
    trains 'workers with collectives between all hosts' 25
    agent=$(field nodes.$last.agent_pid)
    rm pass
    kill -KILL $(pids_on node1 '^[^ ]*(mpirun|prterun) .*muster-mpi')
}
# go_on_as_two hangs|fails
go_on_as_two() {
    ok 'the others go on, as two' wait_for 90 eval '[ "$(field generation)" = 2 ] && [ "$(field workers.1.state)" = Running ]' ||
        show_run
    trains 'from the last checkpoint, in an MPI world of their own' $(($(field resume_step) + 25))
    is "$(field nodes.2.state):$(field nodes.2.agent_pid):$(field restarts):$(field node_failures)" \
        "Excluded:$agent:0:0" 'which is no loss, and no restart' || show_run
    like "$("$MUSTER" status run)" 'excluded    node 2 (node3): mpirun '"$1"' there' 'muster status tells why'
}
goes_without() {
    ok "$1" wait_for 300 event '"node_excluded".*(node3): mpirun hangs there: 3 MPI worlds in a row did not come' ||
        show_run
    is "$(grep -c '"mpi_late"' run/events.jsonl)" 3 'not sooner than after three' || show_run
    go_on_as_two hangs
    is "$(grep -c '"mpi_late"' run/events.jsonl)" 3 'no world is late any more' || show_run
}
end() {
    "$MUSTER" cancel run >cancel.out 2>&1
    wait_exit 120 "$runner"
    is "$status" 130 'until they are cancelled' || diag "$(cat run.err)"
    ok 'and nobody is left' wait_for 60 run_gone "$(json id run/run.json)"
}

# Nothing comes of muster-mpi there, and the others say that they wait.
test_process() {
    start 2:3 --mpirun "$SHARED/held-mpirun"
    goes_without 'a host where muster-mpi never starts is excluded'
    run "$MUSTER" scale run 3
    is "$status" 0 'all three are wanted' || show
    ok 'muster-mpi still hangs there, which an mpirun of its own finds' \
        wait_for 90 grep -q '1 host is wanted and not there' run.err || show_run
    is "$(grep -c '"mpi_late"' run/events.jsonl)" 3 'not another world'
    : >pass
    run "$MUSTER" scale run 3
    is "$status" 0 'it is asked once more' || show
    ok 'when it does not hang any more it is of use again' wait_for 120 event '"node_readmitted"' || show_run
    ok 'and takes part' wait_for 120 eval '[ "$(field workers.2.state)" = Running ] && [ "$(field generation)" = 3 ]' || show_run
    trains 'in an MPI world of all' $(($(field resume_step) + 25))
    is "$(field nodes.2.state):$(field nodes.2.agent_pid)" "Running:$agent" 'with the agent that it had' || show_run
    end
}

# MPI's own daemon does not start there: no process is heard of on any host.
test_daemon() {
    start 2:3 --ssh "$SHARED/held-ssh"
    goes_without 'a host where the daemon of MPI never starts is excluded'
    run "$MUSTER" scale run 3
    is "$status" 0 'all three are wanted' || show
    ok 'it is asked by an mpirun of its own, which hangs' wait_for 90 grep -q '1 host is wanted and not there' run.err ||
        show_run
    trains 'and the others are left in peace' $(($(field step) + 25))
    is "$(field generation):$(grep -c '"mpi_late"' run/events.jsonl)" 2:3 'without it'
    end
}

# mpirun ends at once. Another lead knows why the node is excluded, and takes it back.
test_refused() {
    : >"$SHARED/refuse"
    start 1:3 --ssh "$SHARED/held-ssh"
    ok 'a host at which mpirun fails is excluded' \
        wait_for 240 event '"node_excluded".*(node3): mpirun fails there: 3 MPI worlds in a row failed' || show_run
    is "$(grep -c '"mpi_late"' run/events.jsonl)" 0 'no world was late' || show_run
    go_on_as_two fails
    on node1 kill -KILL "$(field nodes.0.agent_pid)"
    ok 'its lead is lost, and another one leads' wait_for 90 event '"lead_taken"' || show_run
    ok 'which knows why as well' wait_for 60 eval '[[ "$(field nodes.2.why)" == "mpirun fails there"* ]]' || show_run
    : >pass
    run "$MUSTER" scale run 3
    is "$status" 0 'all three are wanted' || show
    ok 'when mpirun does not fail there any more it is of use again' wait_for 180 event '"node_readmitted"' || show_run
    ok 'and takes part' wait_for 120 eval '[ "$(field nodes.2.state):$(field nodes.2.agent_pid)" = "Running:$agent" ]' || show_run
    rm "$SHARED/refuse"
    end
}

# Of two hosts, where the other one is the front end's own.
test_refused_of_two() {
    local over=node1,node3 last=1
    : >"$SHARED/refuse"
    start 1:2 --ssh "$SHARED/held-ssh"
    ok 'a host at which mpirun fails is excluded, beside one alone' \
        wait_for 240 event '"node_excluded".*(node3): mpirun fails there: 3 MPI worlds in a row failed' || show_run
    ok 'which goes on' wait_for 90 eval '[ "$(field generation)" = 2 ] && [ "$(field workers.0.state)" = Running ]' || show_run
    is "$(field nodes.1.state):$(field nodes.1.excluded)" Excluded:fails 'without it' || show_run
    : >pass
    run "$MUSTER" scale run 2
    is "$status" 0 'both are wanted' || show
    ok 'when mpirun does not fail there any more it is of use again' wait_for 180 event '"node_readmitted"' || show_run
    rm "$SHARED/refuse"
    end
}

# A run that cannot do without it goes on trying.
test_needed() {
    start 3 --mpirun "$SHARED/held-mpirun"
    ok 'a host is kept without which there would be too few' \
        wait_for 300 event '"note".*mpirun hangs on node3 (3 MPI worlds in a row), which is used all the same' || show_run
    : >pass
    trains 'and the workers go on once there is a world' $(($(field step) + 25))
    is "$(field generation):$(field nodes.2.state):$(grep -c node_excluded run/events.jsonl)" 1:Running:0 'the same ones'
    end
}
