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
    MUSTER_REQUIRE_RIGS=0 child 'skip_rig "no sun" 2; ok one true; done_testing'
    is "$status:$(grep -v '^#' out | tr '\n' ';')" '0:ok 1 # SKIP no sun;ok 2 # SKIP no sun;ok 3 - one;1..3;' 'of some cases, too'
    MUSTER_REQUIRE_RIGS=1 child 'skip_rig "no sun" 2; ok one true; done_testing'
    is "$status:$(grep -c '^not ok' out):$(grep -c '^ok' out)" 1:1:1 'after which it goes on'
}

# Cases that instruments are spared, unless they are asked for by name.
test_left_out() {
    local body='test_a() { pass a; }; test_b() { pass b; }; once_is_enough test_b test_c; test_c() { pass c; }; run_cases'
    MUSTER_INSTRUMENTED='' MUSTER_TEST_ONLY='' child "$body"
    is "$(grep -c '^ok' out)" 3 'all cases run'
    MUSTER_INSTRUMENTED=1 MUSTER_TEST_ONLY='' child "$body"
    is "$(grep -v '^#' out | tr '\n' ';')" 'ok 1 - a;1..1;' 'those for which once is enough do not where all is slow'
    MUSTER_INSTRUMENTED=1 MUSTER_TEST_ONLY=test_c child "$body"
    is "$(grep -v '^#' out | tr '\n' ';')" 'ok 1 - c;1..1;' 'unless one is named'
}

test_cleans_up() {
    child 'at_exit "echo one >>../log"; at_exit "echo two >>../log"
        spawn s sleep 1000; echo $spawned >../pid; kill -TERM $$; sleep 100; done_testing'
    is "$status" 143 'a terminated script says so'
    is "$(tr '\n' ' ' <log)" 'two one ' 'what was to be done at the end is done'
    ok 'and what it started is gone' wait_for 60 gone "$(cat pid)"
    child 'spawn s sleep 1000; echo $spawned >../pid; start_time() { echo later; }; ok a true; done_testing'
    not_ok 'but nobody who has its number by now' gone "$(cat pid)"
    kill -KILL "$(cat pid)"
    child 'setsid sleep 1000 & echo $! >../pid; disown; sleep 1000 & echo $! >../pid2; ok a false; done_testing'
    is "$status" 1 'a script that fails'
    ok 'takes along whom it has started, without a word to the harness' wait_for 60 gone "$(cat pid)"
    ok 'all of them' wait_for 60 gone "$(cat pid2)"
    rm -rf child.*/
}

# A number that was kept is another process's minutes later.
test_no_stale_numbers() {
    is "$(grep -nE 'at_exit .*\bkill (-[A-Z0-9]+ )?[$"]' "$MUSTER_SRCDIR"/tests/*.t)" '' \
        'scripts leave processes to kill_at_exit, which knows them'
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
    local until=5 now=6 pause=7
    ok 'and looks with the variables of who waits' wait_for 1 eval '[ "$until$now$pause" = 567 ]'
    local before
    before=$(now_ms)
    snooze 0.2
    num $(($(now_ms) - before)) -ge 200 'snooze waits'
    echo old >s.out
    echo old >s.err
    spawn s sh -c 'kill -STOP $$'
    is "$(cat s.out s.err)" '' 'what an earlier one said is not taken for what this one says'
}

test_finds_processes() {
    spawn s env MUSTER_RUN_ID=t0000-$$ setsid sleep 1000
    local pid=$spawned
    ok 'a process is found by its run' wait_for 60 not run_gone t0000-$$
    like "$(run_alive t0000-$$)" "$pid sleep 1000" 'with pid and command'
    not_ok 'so the run is not gone' run_gone t0000-$$
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    ok 'killed, it is' wait_for 60 run_gone t0000-$$
}

test_json() {
    echo '{"a": [{"b": "c", "d": 1.5}], "e": null}' >j
    is "$(json a.0.b j)" c 'a string'
    is "$(json a.0.d <j)" 1.5 'a number'
    is "$(json a j)" '[{"b": "c", "d": 1.5}]' 'a list'
    not_ok 'nothing there' json a.1.b j
}

TAP_COUNT=$MUSTER_SRCDIR/scripts/tap-count

# script NAME BODY: a program that is run as a test.
script() { printf '#!/bin/bash\n%s\n' "$2" >"$1"; chmod +x "$1"; }

# summed BODY: what tap-count makes of one test, in out and $status.
summed() {
    rm -rf tap && mkdir tap
    script one.t "$1"
    "$TAP_COUNT" run tap "$PWD/one.t" >run.out 2>&1 </dev/null
    run_status=$?
    run "$TAP_COUNT" sum tap
}

test_tap_count() {
    local line body want
    while IFS='|' read -r want body; do
        summed "$body"
        is "$(tail -n 1 out)" "$want" "'$body': $want"
        case $want in
        '0 passed'* | *' 0 failed'*) ;;
        *) num "$status" -ne 0 'and fails' ;;
        esac
    done <<'END'
2 passed, 0 failed|echo "ok 1 - a"; echo "ok 2 - b"; echo 1..2
2 passed, 0 failed|echo 1..2; echo "ok 1 - a"; echo "ok 2 - b"
1 passed, 1 failed|echo "ok 1 - a"; echo "not ok 2 - b"; echo 1..2; exit 1
1 passed, 1 failed|echo "ok 1 - a"; echo "not ok 2 - b"; echo 1..2
1 passed, 1 failed|echo "ok 1 - no plan"
1 passed, 1 failed|echo 1..2; echo "ok 1 - too few"
2 passed, 1 failed|echo 1..1; echo "ok 1 - a"; echo "ok 2 - too many"
1 passed, 1 failed|echo 1..1; echo "ok 1 - then it crashes"; kill -SEGV $$
1 passed, 1 failed|echo 1..1; echo "ok 1 - a"; exit 3
0 passed, 1 failed|exit 0
0 passed, 1 failed|exit 7
1 passed, 0 failed, 1 skipped|echo 1..2; echo "ok 1 # SKIP why"; echo "ok 2 - a"
1 passed, 0 failed|echo 1..2; echo "not ok 1 - b # TODO later"; echo "ok 2 - a"
0 passed, 0 failed, 1 skipped|echo "1..0 # SKIP no moon"
1 passed, 2 failed|echo "ok 1 - a"; echo "Bail out! x"; exit 255
END
    summed 'echo "ok 1 - a"; echo 1..1'
    is "$run_status $status" '0 0' 'what passes, passes'
    summed 'echo "1..0 # SKIP no moon"'
    is "$run_status $status" '0 1' 'that nothing ran is no success'
    for body in 'kill -SEGV $$' 'exit 3' 'echo "Bail out! x"; exit 0'; do
        summed "$body"
        num "$run_status" -ne 0 "'$body' fails as a test"
    done
    MUSTER_TEST_LIMIT=1 summed 'echo "ok 1 - a"; sleep 1000'
    is "$run_status $status" '1 1' 'one that takes too long fails'
    like "$(cat out)" 'limit 1 s' 'for that reason'
    MUSTER_REQUIRE_RIGS=1 summed 'echo "1..0 # SKIP no x: see scripts/install-deps"'
    is "$(tail -n 1 out)" '0 passed, 1 failed' 'what can be installed may not be missing in CI'
    summed 'echo "ok 1 - a"; echo "not ok 2 - b"; echo 1..2; exit 1'
    matches "$("$TAP_COUNT" failed tap)" "^[0-9]+ $PWD/one.t\$" 'failed tests are named'
    cp -r tap tap2
    run "$TAP_COUNT" sum tap tap2
    is "$(tail -n 1 out)" '2 passed, 2 failed' 'folders add up'
    is "$(grep -c '^FAILED tap' out)" 2 'with each failure'
}

# A tree of a few scripts in place of the real one, for scripts/check.
make_tree() {
    rm -rf tree && mkdir -p tree/scripts tree/tests/rigs tree/bin
    cp "$MUSTER_SRCDIR/scripts/check" "$TAP_COUNT" tree/scripts/
    script tree/scripts/size-report true
    script tree/bin/autoreconf true
    script tree/tests/rigs/root true
    script tree/configure 'cp "$(dirname "$0")/makefile" Makefile; touch config.status'
    printf 'all check:\n\t@:\nlist-tests:\n\t@cat %s\n' "$PWD/tree/list" >tree/makefile
    : >tree/list
    in_tree good 'echo "ok 1 - fine"; echo 1..1'
}

in_tree() {
    script "tree/tests/$1.t" "$2"
    echo "tests/$1.t" >>tree/list
}

# check_tree: scripts/check over it, plain or those stages of $only, within $minutes; what it says in out and $status.
check_tree() {
    run env -u MUSTER_REQUIRE_RIGS "$@" PATH="$PWD/tree/bin:$PATH" tree/scripts/check --no-deps --only "${only:-plain}" \
        ${minutes:+--minutes "$minutes"}
}

test_check() {
    local what body want
    command -v prove >/dev/null || { skip 'no prove: see scripts/install-deps'; return; }
    make_tree
    check_tree CI=true
    is "$status" 0 'a tree whose tests pass is passed' || show
    # Steps are cases of their own: the build, making it, and root's test beds.
    want=3
    [ "$(id -u)" != 0 ] || want=4
    is "$(tail -n 1 out)" "$want passed, 0 failed" 'and counted'
    while IFS='|' read -r what body; do
        make_tree
        in_tree bad "$body"
        check_tree CI=true
        num "$status" -ne 0 "$what is no success" || show
        matches "$(tail -n 1 out)" '[1-9][0-9]* failed' 'but counted as a failure'
        matches "$(cat out)" 'FAILED .*(bad|sanitizer)' 'and named'
    done <<'END'
a case that fails|echo "ok 1 - a"; echo "not ok 2 - b"; echo 1..2; exit 1
a case that fails with status 0|echo "not ok 1 - b"; echo 1..1
a test without a plan|echo "ok 1 - a"
a test that ends early|echo 1..2; echo "ok 1 - a"; exit 0
a test that crashes|echo 1..1; echo "ok 1 - a"; kill -SEGV $$
a test that says nothing|exit 0
a sanitizer report|echo 1..1; echo "ok 1 - a"; echo found >"$MUSTER_BUILDDIR/sanitizer/report.1"
an empty sanitizer report|echo 1..1; echo "ok 1 - a"; : >"$MUSTER_BUILDDIR/sanitizer/report.1"
a leak behind a remark|echo 1..1; echo "ok 1 - a"; printf '==7==Unable to get registers from thread 8.\nleak\n' >"$MUSTER_BUILDDIR/sanitizer/report.1"
END
    make_tree
    in_tree remark 'echo 1..1; echo "ok 1 - a"; echo "==7==Unable to get registers from thread 8." >"$MUSTER_BUILDDIR/sanitizer/report.1"'
    check_tree CI=true
    is "$status" 0 'a thread that ends while leaks are searched for is none' || show
    make_tree
    in_tree bed ". '$MUSTER_SRCDIR/tests/lib/harness.sh'; skip_rig 'no moon'"
    check_tree CI=true
    num "$status" -ne 0 'a bed that is missing is a failure in CI' || show
    check_tree -u CI
    is "$status" 0 'and is skipped elsewhere' || show
    like "$(cat out)" 'skipped: no moon' 'which is said'
    make_tree
    in_tree bad 'echo 1..1; echo "ok 1 - a"; echo "==7==ERROR: AddressSanitizer: stray" >"$MUSTER_BUILDDIR/sanitizer/report.1"'
    check_tree CI=true
    like "$(tail -n 4 out)" 'AddressSanitizer: stray' 'what a sanitizer says is told at the end' || show
    make_tree
    in_tree flaky '[ -e ../../../seen ] && { echo "ok 1 - a"; echo 1..1; exit; }; touch ../../../seen; echo "not ok 1 - a"; echo 1..1; exit 1'
    check_tree CI=true
    like "$(cat out)" 'FLAKY' 'a test that passes in a second run is named' || show
    make_tree
    in_tree more 'echo "ok 1 - more"; echo 1..1'
    only=plain,asan minutes=0 check_tree CI=true
    is "$status:$(grep -c 'no time is left' out)" 0:1 'where time is short instrumented builds run less' || show
    like "$(tail -n 1 out)" ', 2 skipped' 'which is counted; the plain one runs all of it'
    make_tree
    : >tree/list
    check_tree CI=true
    num "$status" -ne 0 'a tree without tests is no success'
    make_tree
    script tree/configure 'exit 1'
    check_tree CI=true
    num "$status" -ne 0 'nor is one that cannot be built'
}

run_cases
