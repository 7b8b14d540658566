#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The lead is lost, or cut off from others, while the run directory, which decides who
# is next, answers nobody: nobody works until it does, then one side goes on.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun mkfs.ext4 fsfreeze

mkdir -p bed/shared/slow
truncate -s 64M image
mkfs.ext4 -q image && mount -o loop image bed/shared/slow || skip_rig 'no loop devices here'
at_exit "fsfreeze -u '$TRASH/bed/shared/slow' 2>/dev/null; umount -l '$TRASH/bed/shared/slow'"
chmod 777 bed/shared/slow
rig_hosts_up
tell='echo "$MUSTER_GENERATION: $RANK/$WORLD_SIZE $(hostname)"'

field() { "$MUSTER" status "$SHARED/slow/run" -o json 2>/dev/null | json "$1"; }
running() { [ "$(field state)" = Running ] && [ "$(field "workers.$(($1 - 1)).state")" = Running ]; }
nobody_left() { ok 'nobody is left' wait_for 90 run_gone "$id" || diag "$(run_alive "$id")"; }
log_of() { cat "/proc/$(hosts pid "$1")/root"/tmp/muster-*/*/agent-0.log 2>/dev/null; }
agent_of() { pids_on "$1" '^[^ ]*muster agent --dir'; }
# workers HOST...: pids of those that run there.
workers() { local h; for h; do pids_on $h '^sleep 1000'; done; }
show_run() {
    diag "$(cat run.err)"
    diag "$(tail -n 20 "$SHARED/slow/run/events.jsonl")"
    for i in 1 2 3 4; do diag "node$i: $(log_of node$i | tail -n 30)"; done
}
# The front end is on the last host.
start_run() {
    cd "$SHARED" && rm -rf slow/run
    spawn run on node4 timeout 250 "$MUSTER" run --allow-run-as-root --run-dir slow/run --hosts node1,node2,node3,node4 \
        --nproc-per-node 1 --nnodes 2:4 --set heartbeat.timeout=3s "$@"
    runner=$spawned
    wait_for 60 running 4 && id=$(json id slow/run/run.json)
}
said() { sed 's/^\[[^]]*\] *//' run.out | grep "^$1: " | sort -t ' ' -k 2n | cut -d ' ' -f 2- | tr '\n' ';'; }

test_killed() {
    start_run -- sh -c "$tell; [ \$MUSTER_GENERATION -ge 2 ] || exec sleep 1000"
    is $? 0 'a run over four nodes' || show_run
    local agent
    agent=$(agent_of node1) # while nothing hangs
    fsfreeze -f slow
    kill -KILL $agent
    ok 'whose lead is killed while its directory hangs asks that in vain' wait_for 60 unanswered node2 || show_run
    is "$(workers node1 node2 node3 node4)" '' 'has no workers any more'
    ok 'and says what it waits for' wait_for 15 grep -q 'no lead since that on node1 is lost.*the directory of the run has to answer' run.err || show_run
    is "$(said 2)" '' 'nobody has started anything'
    fsfreeze -u slow
    wait_exit 120 "$runner"
    is "$status" 0 'when it answers the run goes on to its end' || show_run
    is "$(said 2)" '0/3 node2;1/3 node3;2/3 node4;' 'over the three others'
    # Who was held up for a lease at its end claims that once more.
    matches "$(ls slow/run/views | tr '\n' ' '):$(field lead)" '^1\.2 1\.3 (1\.4 )?:1$' 'by a view with them, and the one of the end'
    nobody_left
}

test_cut() {
    start_run -- sh -c "$tell; exec sleep 1000"
    is $? 0 'four nodes' || show_run
    fsfreeze -f slow
    hosts partition node1,node2 node3,node4
    ok 'which are cut in halves ask in vain, each of them' wait_for 60 both_unanswered || show_run
    # Time enough for more, were it wrong.
    local enough=$(($(now_ms) + 1000))
    wait_for 60 eval '[ "$(now_ms)" -gt $enough ]'
    is "$(workers node1 node2 node3 node4)" '' 'nobody works any more'
    is "$(grep -E 'leads the run|generation 2' run.err)" '' 'nobody has started anything'
    fsfreeze -u slow
    ok 'one goes on' wait_for 90 eval '[ "$(field generation)" -ge 2 ] && running 2' || show_run
    is "$(ls slow/run/views)" 1.2 'by the one view that was made'
    if [ "$(field lead)" = 0 ]; then
        winners='node1 node2' losers='node3 node4'
    else
        winners='node3 node4' losers='node1 node2'
    fi
    ok 'and works' wait_for 60 eval '[ "$(workers $winners | wc -l)" = 2 ]'
    is "$(workers $losers)" '' 'while the other does not'
    hosts heal
    # The front end may be on the other side, and takes its time.
    kill -KILL "$(inner_pid "$runner")"
    on "${winners% *}" "$MUSTER" cancel slow/run >/dev/null
    nobody_left
}
# Who waits for an answer does so for half a minute, and leaves then: nothing here may
# keep the directory from answering for longer than it takes to ask.
unanswered() { log_of "$1" | grep -q 'a claim of a view: the run directory does not answer'; }
both_unanswered() { { unanswered node1 || unanswered node2; } && { unanswered node3 || unanswered node4; }; }

run_cases
