# SPDX-License-Identifier: Apache-2.0
#
# An mpirun that makes no MPI world, after one that was lost: it is ended, and the next
# one brings the world that workers wait for. For a bed of three hosts that is up; $there
# is muster in it.
cd "$SHARED" || bail_out "no $SHARED"
. "$MUSTER_SRCDIR/tests/lib/held-mpirun.sh"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
event() { grep -q "$1" "$SHARED/run/events.jsonl"; }
trains() { ok "$1" wait_for 90 eval '[ "$(field step)" -ge '"$2"' ]' || diag "$(cat run.err; tail -n 20 run/events.jsonl run/mpirun.log)"; }
joined_after() { [ "$(field mpi_epoch)" -gt "$1" ]; }
held() { pids_on node3 '^sleep 1000'; }

: >pass
spawn run on node1 timeout 500 "$there/muster" run $root --run-dir run --hosts node1,node2,node3 --nnodes 3 \
    --nproc-per-node 1 --mpirun "$SHARED/held-mpirun" --set heartbeat.timeout=3s -- \
    "$there/examples/charlm/charlm" --width 16 --heads 2 --layers 1 --context 16 --steps 1000000 --step-time 10 \
    --batch 6 --checkpoint-every 1000000
runner=$spawned
trains 'workers with collectives between three hosts' 5
rm pass
kill -KILL $(pids_on node1 '^[^ ]*(mpirun|prterun) .*muster-mpi')
ok 'their MPI world is lost, and the next mpirun hangs' wait_for 60 eval '[ -n "$(held)" ]' || diag "$(cat run.err)"
ok 'which is told, by a name, when its time is over' \
    wait_for 120 event '"mpi_late".*no MPI world in [0-9]* s, and is ended: nothing was heard of muster-mpi on node3"' ||
    diag "$(cat run.err; tail -n 20 run/events.jsonl)"
like "$(cat run.err)" 'no MPI world in 18 s' 'after six leases'
ok 'the state has it' wait_for 30 eval '[ "$(field mpi_late)" -ge 2 ]'
late=$(field mpi_late)
like "$("$MUSTER" status run)" 'MPI world   mpirun has not made one in time' 'as muster status says'
: >pass
ok 'another one is made' wait_for 180 joined_after "$late" || diag "$(cat run.err; tail -n 20 run/mpirun.log)"
trains 'and the workers go on' $(($(field step) + 20))
is "$(field generation):$(field restarts):$(field node_failures)" 1:0:0 'the same ones'
is "$(held)" '' 'nothing is left of what hung'
unlike "$("$MUSTER" status run)" 'MPI world' 'nor to be told'
"$MUSTER" cancel run >cancel.out 2>&1
wait_exit 120 "$runner"
is "$status" 130 'until they are cancelled' || diag "$(cat run.err)"
ok 'and nobody is left' wait_for 60 run_gone "$(json id run/run.json)"
