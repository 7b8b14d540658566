#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# restart.policy and restart.exitCodes: after which end there is a next
# generation, and with what status the run ends.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
mkdir -m 700 rt

# job HOW-IT-ENDS KEYS...: two workers of which rank 1 ends so in every generation;
# how often it ran, and the status.
job() {
    local end=$1
    shift
    local keys=() k
    for k; do keys+=(--set "$k"); done
    rm -f ran
    run "$MUSTER" run --allow-run-as-root --quiet --name policy --nproc-per-node 2 --max-restarts 2 \
        --set restart.backoff=1ms..1ms "${keys[@]}" -- \
        sh -c "[ \$RANK = 1 ] || exit 0; echo x >>$TRASH/ran; $end"
    result="$(wc -l <ran) runs, status $status"
}

while IFS='|' read -r end keys want; do
    job "$end" $keys
    is "$result" "$want" "$end with $keys" || diag "$(cat err)"
done <<'E2'
exit 7|restart.policy=OnFailure|3 runs, status 7
exit 0|restart.policy=OnFailure|1 runs, status 0
exit 7|restart.policy=Never|1 runs, status 7
exit 0|restart.policy=Always|3 runs, status 0
exit 7|restart.policy=Always|3 runs, status 7
exit 0|restart.policy=Always restart.max=0|1 runs, status 0
exit 127|restart.policy=ExitCode|1 runs, status 1
exit 130|restart.policy=ExitCode|3 runs, status 1
exit 200|restart.policy=ExitCode|3 runs, status 200
kill -KILL $$|restart.policy=ExitCode|3 runs, status 137
exit 1|restart.policy=ExitCode|1 runs, status 1
exit 200|restart.policy=ExitCode restart.exitCodes=t9k|1 runs, status 200
exit 138|restart.policy=ExitCode restart.exitCodes=t9k|3 runs, status 138
kill -TERM $$|restart.policy=ExitCode restart.exitCodes=t9k|3 runs, status 143
exit 7|restart.policy=ExitCode restart.exitCodes=[7,9]|3 runs, status 7
exit 8|restart.policy=ExitCode restart.exitCodes=[7,9]|1 runs, status 8
E2

# One budget for the job, whoever fails.
rm -f ran
run "$MUSTER" run --allow-run-as-root --quiet --name policy --nproc-per-node 2 --max-restarts 3 \
    --set restart.backoff=1ms..1ms -- \
    sh -c "echo x >>$TRASH/ran; [ \$((MUSTER_GENERATION % 2)) = \$RANK ] && exit 5; sleep 1000"
is "$status" 5 'ranks that fail in turn'
is "$("$MUSTER" status policy -o json | json restarts)" 3 'share one budget'

# One node may have less of it than the job.
rm -f ran
run "$MUSTER" run --allow-run-as-root --quiet --name weary --nnodes 2 --agent-is-node --nproc-per-node 1 --max-restarts 9 \
    --set restart.backoff=1ms..1ms --set restart.maxPerNode=2 -- \
    sh -c "echo x >>$TRASH/ran; [ \$RANK = 1 ] && exit 5; sleep 1000"
is "$status:$("$MUSTER" status weary -o json | json restarts)" 5:2 'a node that fails again and again ends the job' || show
run "$MUSTER" status weary
like "$(cat out)" 'was the cause 3 times, and restart.maxPerNode is 2: there are too few nodes to do without it' 'and is named' || show

# What the last end was is told to the next generation.
run "$MUSTER" status policy
like "$(cat out)" 'all 3 restarts are used up' 'and its end is told'
done_testing
