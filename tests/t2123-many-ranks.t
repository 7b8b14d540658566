#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A thousand workers on one machine: none of their lines is lost or comes twice, and
# neither files nor the memory of agents grow out of hand.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
mkdir -m 700 rt

N_NODES=4 N_PER_NODE=250 N_LINES=100
N_RANKS=$((N_NODES * N_PER_NODE))

# What each worker prints, in its order, by rank.
wanted() {
    for ((r = 0; r < N_RANKS; r++)); do
        for ((i = 1; i <= N_LINES; i++)); do echo "[$r] line $i of $r"; done
    done
}
# The lines of each rank in their order, ranks by number.
by_rank() { sort -s -t ']' -k 1.2,1n "$1"; }
all_printed() { [ "$(cat job.out | wc -l)" -ge $((N_RANKS * N_LINES)) ]; }
agents() { json nodes run/status.json | python3 -c 'import json, sys; [print(n["agent_pid"]) for n in json.load(sys.stdin)]'; }

# All of them wait for a byte each, once they have printed. An agent that is late with its
# lease takes what it was to pass on along: a thousand processes may cost it seconds.
test_thousand() {
    local pid kb
    mkfifo gate
    exec 9<>gate
    spawn job timeout 600 "$MUSTER" run --allow-run-as-root --quiet --run-dir run --nnodes $N_NODES --agent-is-node \
        --nproc-per-node $N_PER_NODE --set logs.files=node --set gang.timeout=5m --set heartbeat.timeout=1m -- \
        sh -c 'i=0; while [ $i -lt '$N_LINES' ]; do i=$((i + 1)); echo "line $i of $RANK"; done; read x <'"$PWD/gate"
    job=$spawned
    ok 'a thousand workers print' wait_for 300 all_printed
    for pid in $(agents); do
        kb=$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$pid/status")
        diag "agent $pid: $kb kB"
        sanitized || num "${kb:-0}" -gt 0 "the memory of agent $pid is known"
        sanitized || num "${kb:-0}" -lt 65536 'it never had 64 MiB'
    done
    is "$(find run/logs -type f | wc -l)" $((2 * N_NODES)) 'there are two files a node' || diag "$(find run/logs)"
    head -c $N_RANKS /dev/zero | tr '\0' '\n' >&9
    ok 'they end' wait_exit 300 $job
    is "$status" 0 'well' || diag "$(tail -n 20 job.err)"
    wanted >want
    by_rank job.out >got
    ok 'each line was shown once, in the order of its rank' cmp got want
    "$MUSTER" logs run >shown 2>err
    by_rank shown >got
    ok 'so does muster logs' cmp got want
    is "$(cat err)" '' 'without complaint'
}

run_cases
