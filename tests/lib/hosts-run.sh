# SPDX-License-Identifier: Apache-2.0
#
# A run over the hosts of a bed that is up, for tests that are the same with each MPI;
# to be sourced. In $there is the folder of a muster that is built for that MPI.

. "$MUSTER_SRCDIR/tests/lib/run-status.sh"
. "$MUSTER_SRCDIR/tests/lib/left-behind.sh"
cd "$SHARED" || bail_out "no $SHARED"
charlm=$there/examples/charlm/charlm
# Of which a step takes no time, also in a build without an optimizer.
small=(--width 16 --heads 2 --layers 1 --context 16)
four=node1,node2,node3,node4
# Where muster run is started.
front_on=node1
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
# Says where it stands; the first generation then waits to be disturbed.
tell='echo "$MUSTER_GENERATION: $RANK/$WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $(hostname) $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT"'
wait_once="$tell; [ \$MUSTER_GENERATION -ge 2 ] || exec sleep 1000"
wait_for_go="$tell; until [ -e \$MUSTER_RUN_DIR/go ]; do sleep 0.1; done"

# start_run N OPTION...: in the background, until N workers run.
start_run() {
    local n=$1
    shift
    cd "$SHARED" && rm -rf run
    spawn run on $front_on timeout 250 "$there/muster" run $root --run-dir run --hosts $four --nproc-per-node 1 "$@"
    runner=$spawned
    wait_for 60 running "$n" || { show_run; return 1; }
}
# running N: its rank N - 1 does, in whatever generation.
running() { [ "$(field state)" = Running ] && [ "$(field "workers.$(($1 - 1)).state")" = Running ]; }

# said GENERATION: what its workers said, by rank.
said() { sed 's/^\[[^]]*\] *//' run.out | grep "^$1: " | sort -t ' ' -k 2n | cut -d ' ' -f 2- | tr '\n' ';'; }

agent_of() { pids_on "$1" '^[^ ]*muster agent --dir'; }
watch_of() { pids_on "$1" 'muster-watch'; }
agents() { field nodes | grep -o '"agent_pid": [0-9]*'; }
workers() { field workers | grep -o '"pid": [0-9]*'; }
show_run() {
    local h
    diag "$(cat run.out run.err)"
    diag "$(grep -v checkpoint_saved "$SHARED/run/events.jsonl" | tail -n 20)"
    diag "$("$MUSTER" status "$SHARED/run" 2>&1)"
    for h in $(cat "$BED/state/hosts"); do
        diag "$h: $(timeout 10 "$MUSTER_SRCDIR/tests/rigs/hosts" run "$BED" "$h" -- sh -c 'tail -n 30 /tmp/muster-*/*/agent-*.log' 2>&1)"
    done
}
# All hosts are on, and the run is over.
nobody_left() {
    ok 'nobody is left' wait_for 90 run_gone "$(json id "$SHARED/run/run.json")" ||
        diag "$(run_alive "$(json id "$SHARED/run/run.json")")"
    nothing_left
}
# ended_well NAME
ended_well() {
    wait_exit 200 "$runner"
    is "$status" 0 "$1" || show_run
}
cancel() {
    on node4 "$there/muster" cancel "$SHARED/run" >/dev/null
    wait_exit 120 "$runner"
    is "$status" 130 "$1" || show_run
}
lose_power() {
    hosts link_down "$1"
    hosts power_off "$1"
}
remember
