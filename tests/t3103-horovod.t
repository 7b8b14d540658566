#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The rendezvous that Horovod's gloo wants, served by the agent of rank 0. Horovod
# itself does not build against the PyTorch of today: the client here is written
# from its protocol.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
grep -q 'define HAVE_MICROHTTPD_H 1' "$MUSTER_BUILDDIR/config.h" || skip_all 'built without libmicrohttpd'
client=$MUSTER_SRCDIR/tests/py/horovod_client.py
run_options=(--allow-run-as-root --quiet --run-dir run --log-prefix none)

# start [NAME=VALUE...] OPTION... -- COMMAND...
start() {
    rm -rf run
    run timeout 300 env "$@"
}
lines() { sort -u out | tr '\n' ';'; }

test_horovodrun() {
    start "$MUSTER" run "${run_options[@]}" -- horovodrun -np 4 --gloo-timeout-seconds 120 python3 "$client"
    is "$status" 0 'horovodrun of four processes' || show
    is "$(lines)" 'rank 0 on lo by gloo: sums [10, 10, 1];rank 1 on lo by gloo: sums [10, 10, 2];'\
'rank 2 on lo by gloo: sums [10, 10, 3];rank 3 on lo by gloo: sums [10, 10, 4];' 'meet in each of their scopes'
}

test_two_nodes() {
    start "$MUSTER" run "${run_options[@]}" --agent-is-node --nnodes 2 --nproc-per-node 2 --set horovod=gloo -- \
        python3 "$client"
    is "$status" 0 'two nodes, asked for in the spec' || show
    is "$(lines)" 'rank 0 on lo by gloo: sums [10, 3, 4];rank 1 on lo by gloo: sums [10, 3, 6];'\
'rank 2 on lo by gloo: sums [10, 7, 4];rank 3 on lo by gloo: sums [10, 7, 6];' 'local and cross sums differ'
}

# What the first generation left is not there for the second one.
test_restart() {
    local n
    for n in 0 1 2; do
        start CRASH=$n "$MUSTER" run "${run_options[@]}" --max-restarts 1 --set restart.backoff=10ms..20ms -- \
            horovodrun -np 3 python3 "$client"
        is "$status" 0 "a failure after $n scopes, and a restart" || show
        is "$(lines)" 'rank 0 on lo by gloo: sums [6, 6, 1];rank 1 on lo by gloo: sums [6, 6, 2];'\
'rank 2 on lo by gloo: sums [6, 6, 3];' 'a new generation has a rendezvous of its own'
    done
}

test_not_asked_for() {
    start "$MUSTER" run "${run_options[@]}" --nproc-per-node 1 -- \
        sh -c 'echo "[$HOROVOD_GLOO_RENDEZVOUS_PORT$HOROVOD_CONTROLLER]"'
    is "$(cat out)" '[]' 'without the key there is none'
}

test_no_library() {
    mkdir fake && echo no >fake/libmicrohttpd.so.12
    start LD_LIBRARY_PATH="$TRASH/fake" "$MUSTER" run "${run_options[@]}" --set horovod=gloo -- true
    is "$status" 1 'without libmicrohttpd the job ends'
    like "$(cat err)" "Horovod's rendezvous needs libmicrohttpd.so.12 on the node of rank 0" 'and says what it needs'
}

run_cases
