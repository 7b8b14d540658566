#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster describe: a run on one page.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
mkdir -m 700 rt

test_failed_run() {
    run "$MUSTER" run --allow-run-as-root --quiet --name page --nproc-per-node 2 --max-restarts 1 \
        --set restart.backoff=1ms..1ms --set env.MY_TOKEN=correcthorse -- \
        sh -c '[ "$RANK" = 0 ] && exec sleep 1000; echo alas; exit 7'
    is "$status" 7 'a run that failed'
    run "$MUSTER" describe page
    is "$status" 0 'is described'
    like "$(cat out)" 'Failed' 'with its state'
    like "$(cat out)" 'rank 1 (node 0' 'its failure'
    like "$(cat out)" '| alas' 'and what that printed'
    like "$(cat out)" '  restart: {policy: OnFailure, max: 1' 'its job'
    unlike "$(cat out)" correcthorse 'without secrets'
    matches "$(cat out)" 'RANK +NODE +HOST' 'its workers'
    matches "$(cat out)" '[0-9]\.[0-9]{3}s +1 +worker_failed +rank 1 \(node 0' 'and what happened'
    matches "$(cat out)" 's +1 +restarting +restart 1 of 1' 'in each generation'
}

test_events() {
    run "$MUSTER" describe -n 1 page
    is "$(grep -cE '^[0-9.]+s +[0-9]' out)" 1 'as many events as asked for'
    like "$(tail -n 1 out)" ' ended ' 'the newest ones'
    run "$MUSTER" describe -n 0 page
    unlike "$(cat out)" AFTER 'or none'
    run "$MUSTER" describe -n -1 page
    is "$status" 2 'but not fewer'
}

test_json() {
    run "$MUSTER" describe page -o json
    is "$(json status.state out)" Failed 'JSON has the status'
    like "$(json spec out)" 'name: page' 'the job'
    is "$(json events.0.event out)" nodes_gathered 'and the events'
    unlike "$(cat out)" correcthorse 'and no secrets'
}

test_damage() {
    local dir=muster-runs/page/latest
    printf '{"v":1,"t":"no"}\n[1,2]\n\0\0\0\n{"event":"x"}\n{"v":1,"t":1e300,"event":"odd\\u001b[31m","text":7}\n{"cut' >>$dir/events.jsonl
    run "$MUSTER" describe -n 2 page
    is "$status" 0 'damaged lines are passed over'
    like "$(tail -n 1 out)" 'odd?[31m' 'what is left drives no terminal'
    head -c 3000000 /dev/zero | tr '\0' 'x' >>$dir/events.jsonl
    run "$MUSTER" describe page
    is "$status" 0 'a giant line is bounded'
    rm "$dir/events.jsonl" "$dir/spec.yaml"
    run "$MUSTER" describe page
    is "$status" 0 'and both files may be gone'
    run "$MUSTER" describe page -o json
    is "$(json spec out),$(json events out)" 'null,[]' 'in JSON too'
    run "$MUSTER" describe nothing
    is "$status" 1 'no run, nothing to describe'
}

run_cases
