#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What counts the cases of all tests must not lose a failure.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"

COUNT=$MUSTER_SRCDIR/scripts/tap-count

# counted BODY: a test of that body under tap-count; its status and the sum's.
counted() {
    rm -rf d && mkdir d
    printf '#!/bin/bash\n%s\n' "$1" >child.t
    chmod +x child.t
    run env MUSTER_TEST_LIMIT="${limit:-60}" MUSTER_REQUIRE_RIGS="${rigs:-0}" "$COUNT" run d "$PWD/child.t"
    ran=$status ran_out=$(cat out) ran_err=$(cat err)
    run env MUSTER_REQUIRE_RIGS="${rigs:-0}" "$COUNT" sum d
    sum=$status
    last=$(tail -n 1 out)
}

test_sums() {
    counted 'echo "ok 1 - a"; echo "ok 2 - b"; echo 1..2'
    is "$ran,$sum,$last" '0,0,2 passed, 0 failed' 'what passed is counted'
    counted 'echo 1..3; echo "ok 1"; echo "ok 2 - b # SKIP no moon"; echo "not ok 3 - c # TODO later"'
    is "$ran,$sum,$last" '0,0,1 passed, 0 failed, 1 skipped' 'what was skipped is not'
    counted 'echo "1..0 # SKIP no moon"'
    is "$sum,$last" '1,0 passed, 0 failed, 1 skipped' 'nothing passed is no success'
    like "$(cat out)" 'skipped: no moon' 'and the reason is told'
    counted_twice=$("$COUNT" sum d d | tail -n 1)
    is "$counted_twice" '0 passed, 0 failed, 2 skipped' 'directories add up'
}

test_failures() {
    local body
    for body in 'echo 1..1; echo "not ok 1 - a"; exit 1' \
        'echo 1..1; echo "not ok 1 - a"' \
        'echo "ok 1"' \
        'echo 1..2; echo "ok 1"' \
        'echo 1..1; echo "ok 1"; echo "ok 2"' \
        'echo 1..1; echo "ok 1"; exit 3' \
        'echo 1..1; echo "ok 1"; kill -SEGV $$' \
        'echo 1..1; echo "ok 1"; echo "Bail out! no disk"'; do
        counted "$body"
        is "$sum" 1 "a failure: $body"
        matches "$last" '[1-9] failed' 'and counted'
        matches "$("$COUNT" failed d)" "^[0-9]+ $PWD/child.t\$" 'and the script named, with how long it took'
    done
    counted 'echo 1..1; echo "ok 1"'
    is "$("$COUNT" failed d)" '' 'one that passed is not'
}

test_no_bed() {
    rigs=1 counted 'echo "1..0 # SKIP no slurmd: run scripts/install-deps"'
    is "$sum,$last" '1,0 passed, 1 failed' 'in CI a bed that was not installed is a failure'
    rigs=1 counted 'echo "ok 1"; echo "ok 2 # SKIP no torch: run scripts/install-deps"; echo 1..2'
    is "$sum,$last" '1,1 passed, 1 failed' 'in the middle of a script as well'
}

test_limit() {
    limit=1 counted 'trap "exit 0" TERM; echo 1..1; echo "ok 1"; sleep 1000 & wait'
    is "$ran,$sum" '1,1' 'a script that hangs fails, whatever it says then'
    is "$(cat d/*.status)" 'limit 1 s' 'and the limit is named'
    matches "$("$COUNT" failed d)" '^[1-9][0-9]* ' 'it took at least that'
}

test_stderr() {
    counted 'echo 1..1; echo noise >&2; echo "ok 1"'
    is "$ran_err" '' 'what a script that passes says to stderr is not shown'
    like "$(cat d/*.err)" noise 'but kept'
    counted 'echo 1..1; echo reason >&2; exit 4'
    like "$ran_err" reason 'if it fails it is shown'
    unlike "$ran_out" reason 'and is no TAP'
    counted 'echo "ok 1 - fine"; echo "# well"; echo "not ok 2 - broken"; echo "# got 3"; seq -f "# line %g" 50
        echo "ok 3 - whole"; echo 1..3; exit 1'
    is "$(printf '%s\n' "$ran_err" | head -n 2 | tr -s ' \n' ' ')" ' not ok 2 - broken # got 3 ' 'a case that failed is, with what is told of it'
    is "$(printf '%s\n' "$ran_err" | grep -c .)" 16 'up to a length' || diag "$ran_err"
}

test_under() {
    printf '#!/bin/sh\necho "# under"; exec "$@"\n' >other && chmod +x other
    MUSTER_TEST_UNDER=$PWD/other counted 'echo "ok 1"; echo 1..1'
    is "$ran,$sum,$last" '0,0,1 passed, 0 failed' 'a program that runs the test'
    like "$ran_out" '# under' 'is asked to'
}

test_until() {
    MUSTER_TEST_UNTIL=1 counted 'touch began; echo "not ok 1"; echo 1..1'
    is "$ran,$last" '0,0 passed, 0 failed, 1 skipped' 'what is too late is left out'
    like "$(cat d/*.tap)" 'SKIP no time is left' 'with the reason'
    ok 'and never began' test ! -e began
    MUSTER_TEST_UNTIL=$((EPOCHSECONDS + 1000)) counted 'echo "ok 1"; echo 1..1'
    is "$ran,$last" '0,1 passed, 0 failed' 'what is not runs'
    MUSTER_TEST_UNTIL='' counted 'echo "ok 1"; echo 1..1'
    is "$ran,$last" '0,1 passed, 0 failed' 'as all do where nobody waits'
}

# What valgrind has to say of a test, or of a fork of it, fails it.
test_valgrind() {
    local fault
    command -v valgrind >/dev/null || { skip 'no valgrind: see scripts/install-deps'; return; }
    cat >faulty.c <<'EOF'
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
int main(int argc, char **argv)
{
    char *volatile p = malloc(1);
    char fault = argc > 1 ? *argv[1] : 0;
    if (fault == 'f' && fork() > 0) {
        wait(NULL);
        fault = 0;
    }
    if (fault == 'u' || fault == 'f') {
        putchar(*p ? 'x' : 'y');
    }
    if (fault == 'l') {
        p = NULL;
    }
    free(p);
    puts(fault == 'a' ? p : "ok 1");
    return 0;
}
EOF
    ok 'a program' cc -g -o faulty faulty.c
    run "$MUSTER_SRCDIR/tests/lib/under-valgrind" ./faulty
    is "$status,$(cat out err)" '0,ok 1' 'nothing is said of one that has no fault' || show
    for fault in unset lost after; do
        run "$MUSTER_SRCDIR/tests/lib/under-valgrind" ./faulty $fault
        is "$status" 99 "a fault: $fault" || show
        like "$(cat err)" 'faulty.c:' 'its place is told'
    done
    run "$MUSTER_SRCDIR/tests/lib/under-valgrind" ./faulty fork
    is "$status" 99 'a fault in a fork that nobody looks at' || show
    run "$MUSTER_SRCDIR/tests/lib/under-valgrind" sh -c 'exit 3'
    is "$status" 3 'its own status' || show
}

run_cases
