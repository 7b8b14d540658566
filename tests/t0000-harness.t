#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The shell harness tests itself: a child script's TAP and exit status.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"

# child BODY: a script of its own under the harness; its output in out.
child() {
    printf '. "%s/tests/lib/harness.sh"\n%s\n' "$MUSTER_SRCDIR" "$1" >child.t
    run env TMPDIR="$TRASH" bash child.t
}

test_passes() {
    child 'ok a true; is x x b; like abc b c; matches a1 "^a[0-9]" d; num 1 -lt 2 e; done_testing'
    is "$status" 0 'a script whose checks pass succeeds'
    is "$(grep -c '^ok ' out)" 5 'with one line a check'
    like "$(cat out)" '1..5' 'and the plan'
    is "$(find . -maxdepth 1 -name 'child.*' -type d)" '' 'and leaves no directory behind'
}

test_fails() {
    local body
    for body in 'ok a false' 'not_ok a true' 'not_ok a bash -c "kill -9 \$\$"' \
        'is a b c' 'isnt a a c' 'like abc d e' 'unlike abc b e' \
        'matches a "^b" c' 'num 2 -lt 1 e' 'fail e'; do
        child "$body; done_testing"
        is "$status" 1 "fails: $body"
        like "$(cat out)" 'not ok 1' 'and says so'
        like "$(cat out)" 'child.t:2' 'and where'
    done
    child 'ok a true; exit 0'
    is "$status" 1 'a script that ends without a plan fails'
    rm -rf child.*/
}

test_skips() {
    child 'skip_all "no moon"'
    is "$status" 0 'a skipped script succeeds'
    is "$(grep -v '^#' out)" '1..0 # SKIP no moon' 'with its reason'
    MUSTER_REQUIRE_RIGS=0 child 'skip_rig "no moon"'
    is "$status" 0 'so does one without its test bed'
    MUSTER_REQUIRE_RIGS=1 child 'skip_rig "no moon"'
    is "$status" 1 'unless the beds must work'
}

test_cleans_up() {
    child 'at_exit "echo one >>../log"; at_exit "echo two >>../log"
        spawn s sleep 1000; echo $spawned >../pid; kill -TERM $$; sleep 100; done_testing'
    is "$status" 143 'a terminated script says so'
    is "$(tr '\n' ' ' <log)" 'two one ' 'what was to be done at the end is done'
    ok 'and what it started is gone' wait_for 5 gone "$(cat pid)"
    rm -rf child.*/
}

test_waits() {
    local pid
    spawn s bash -c 'exit 7'
    pid=$spawned
    ok 'wait_exit sees the end' wait_exit 10 "$pid"
    spawn s bash -c 'exit 7'
    wait_exit 10 "$spawned"
    is "$status" 7 'and the status'
    spawn s sleep 1000
    not_ok 'and gives up' wait_exit 0 "$spawned"
    not_ok 'wait_for gives up' wait_for 0 false
}

test_finds_processes() {
    spawn s env MUSTER_RUN_ID=t0000-$$ setsid sleep 1000
    local pid=$spawned
    ok 'a process is found by its run' wait_for 5 not run_gone t0000-$$
    like "$(run_alive t0000-$$)" "$pid sleep 1000" 'with pid and command'
    not_ok 'so the run is not gone' run_gone t0000-$$
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    ok 'killed, it is' wait_for 5 run_gone t0000-$$
}

test_json() {
    echo '{"a": [{"b": "c", "d": 1.5}], "e": null}' >j
    is "$(json a.0.b j)" c 'a string'
    is "$(json a.0.d <j)" 1.5 'a number'
    is "$(json a j)" '[{"b": "c", "d": 1.5}]' 'a list'
    not_ok 'nothing there' json a.1.b j
}

run_cases
