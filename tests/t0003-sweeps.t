#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# scripts/sweeps adds up what the programs of crash sweeps say, and tells of each wrong.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
mkdir -p fake/ckpt fake/launcher

# says PROGRAM LINES [STATUS]: what that program prints.
says() {
    printf '%s\n' "$2" >"fake/$1.txt"
    printf '#!/bin/sh\ncat "%s.txt"\nexit %s\n' "$PWD/fake/$1" "${3:-0}" >"fake/$1"
    chmod +x "fake/$1"
}
sweeps() { MUSTER_BUILDDIR=$PWD/fake "$MUSTER_SRCDIR/scripts/sweeps" "$@"; }
well() {
    says ckpt/step_crash_test 'ok 1 - killed at each of 104 calls
ok 2 - 15750 losses of power, all kept
ok 3 - directories that are not synced: 1483 of 2100 losses show it
ok 4 - 1664 failing calls'
    says ckpt/ckpt_crash_test 'ok 1 - killed at 266 of 266 calls'
    says ckpt/sweep_test '# under ptrace: 56 kills, 397 failing calls'
    says launcher/snap_sweep_test '1..0 # SKIP no ptrace here'
    says launcher/prune_sweep_test '# under ptrace: 5 kills, 20 failing calls'
}

test_sum() {
    well
    run sweeps --only model,ptrace -o json
    is "$status" 0 'nothing wrong' || show
    is "$(json points <out),$(json real <out),$(json wrong <out),$(json met <out)" 18262,478,0,false 'all are counted, but for what is planted'
    is "$(json sweeps.0.kills <out),$(json sweeps.0.power <out),$(json sweeps.0.errno <out)" 104,15750,1664 'by kind'
    is "$(json sweeps.3.why <out)" 'no ptrace here' 'and what cannot run'
    run sweeps --only model --full
    is "$status" 1 'fewer than there are to be'
    like "$(cat out)" 'MISSED: at least 100000 and 1000' 'which is said'
}

test_wrong() {
    well
    says ckpt/sweep_test "not ok 1 - copy: killed at 19 of 457 calls
#   at ../ckpt/sweep_bed.c:229
#   got 9, expected 0
# under ptrace: 56 kills, 397 failing calls" 1
    run sweeps --only ptrace -o json
    is "$status:$(json wrong <out),$(json points <out)" 1:9,478 'what is wrong is counted' || show
    says ckpt/sweep_test '' 139
    run sweeps --only ptrace -o json
    is "$status:$(json wrong <out)" 1:1 'a program that dies is wrong'
    rm fake/ckpt/sweep_test
    run sweeps --only ptrace
    like "$(cat out)" 'sweep_test: No such file' 'one that is not there is told'
    run sweeps --only nothing
    is "$status" 2 'no such method'
}

run_cases
