# SPDX-License-Identifier: Apache-2.0
#
# Agents outlive their front end, their mpirun and its daemons. One act, running
# mpirun over the hosts that are wanted, joins those that live and starts the one
# that is missing. For a bed of four hosts that is up; $there is muster in it.
cd "$SHARED" || bail_out "no $SHARED"

field() { "$MUSTER" status "$SHARED/run" -o json | json "$1"; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.2.state)" = Running ]; }
agents() { field nodes | grep -o '"agent_pid": [0-9]*' | tr -d '\n'; }
event() { grep -q "$1" "$SHARED/run/events.jsonl"; }
no_mpi() { ! pgrep -f -- "muster-mpi --run-id=$id" >/dev/null; }
spare_is_known() { [ "$(field nodes.3.state)" = Spare ]; }
nobody_left() { [ -z "$(run_alive "$id"; pgrep -f -a -- "--run-id=$id|/$id ")" ]; }

spawn run on node1 "$there" run --allow-run-as-root --run-dir run --hosts node1,node2,node3 --nnodes 3 \
    --nproc-per-node 1 --set detach.timeout=10m -- sleep 1000
runner=$spawned
wait_for 60 running
is $? 0 'a run over three hosts' || diag "$(cat run.err)"
id=$(json id run/run.json)
before=$(agents)
front=$(inner_pid "$runner")
mpirun=$(pgrep -f "^[^ ]*(mpirun|prterun) .*muster-mpi --run-id=$id" | head -n 1)
# The very command, for later: one epoch on, and over one host more.
mapfile -d '' -t command <"/proc/$mpirun/cmdline"
command[0]=mpirun # which has become prterun, another program, with Open MPI 5
{ cat run/hostfile && echo node4; } >"$SHARED/hostfile"
for i in "${!command[@]}"; do
    case ${command[i]} in
    */hostfile) command[i]=$SHARED/hostfile ;;
    --epoch=*) command[i]=--epoch=2 ;;
    3) command[i]=4 ;;
    esac
done

kill -KILL "$front" "$mpirun"
ok 'without front end and mpirun the MPI world goes' wait_for 60 no_mpi
is "$(run_alive "$id" | grep -c 'sleep 1000')" 3 'but not the workers'
spawn second on node1 "${command[@]}"
ok 'a second mpirun joins the agents that live' wait_for 60 event '"mpi_joined".*node3' ||
    diag "$(cat second.err)"
ok 'and starts the one that is missing' wait_for 60 spare_is_known || diag "$(cat second.err; tail -n 3 run/events.jsonl; on node4 sh -c 'cat /tmp/muster-*/*/agent-0.log')"
is "$(agents | cut -c 1-${#before})" "$before" 'the agents are those of before'
is "$(run_alive "$id" | grep -c 'sleep 1000')" 3 'and so are the workers'
is "$(field nodes.3.host)" node4 'the fourth is the new host'
on node2 "$there" cancel run >cancel.out 2>&1
is $? 0 'a command on any host ends the run' || diag "$(cat cancel.out)"
ok 'and nothing is left of it' wait_for 60 nobody_left || diag "$(run_alive "$id"; pgrep -f -a -- "$id")"
is "$(field verdict.exit_status)" 130 'the verdict is there'
