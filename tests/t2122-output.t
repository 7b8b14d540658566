#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What workers print: what of it is shown, in which form, and where it is kept.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
mkdir -m 700 rt

# mrun OPTION...: a run in a directory of its own, ./run.
mrun() {
    rm -rf run
    run timeout 120 "$MUSTER" run --allow-run-as-root --quiet --run-dir run "$@"
}
lines() { sort out | tr '\n' ';'; }

test_shown_ranks() {
    local show want
    while read -r show want; do
        mrun --nproc-per-node 4 --logs "$show" -- sh -c 'echo it; echo err >&2'
        is "$status:$(lines)" "0:$want" "--logs $show"
        is "$(grep -c '^\[[0-9]\] err$' err)" "$(grep -c it out)" 'standard error likewise'
        is "$(cat run/logs/1/*/stdout | grep -c it)" 4 'files have all' || show
    done <<'END'
all [0] it;[1] it;[2] it;[3] it;
lead [0] it;
none
1,2-3 [1] it;[2] it;[3] it;
9
END
    mrun --nproc-per-node 2 --set logs.show=1 -- echo it
    is "$(lines)" '[1] it;' 'as a key of the spec'
    mrun --nproc-per-node 2 --logs 3-1 -- true
    is "$status" 2 'no ranks'
    like "$(cat err)" 'expected all, lead, none, or ranks such as 0,3-5' 'what would be some is told' || show
    mrun --nproc-per-node 2 --logs none --max-restarts 0 -- sh -c 'echo the end >&2; exit 3'
    is "$status" 3 'a failure'
    like "$(cat err)" 'the end' 'is shown whoever is not' || show
}

run_cases
