#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster ckpt bench: it measures all that it says it does, refuses what there is no room
# for, and leaves nothing, however it ends. How fast is not asked here.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
export XDG_STATE_HOME=$TRASH/state XDG_RUNTIME_DIR=$TRASH/rt
mkdir -m 700 rt
mkdir d
bench() { timeout 300 "$MUSTER" ckpt bench "$@"; }

# What is there of it: in the directory, of processes, in memory, for sockets.
left() {
    find d -mindepth 1 -maxdepth 1
    pgrep -f -a -- "$TRASH/d/.muster-bench" | grep -v pgrep
    [ ! -f id ] || run_alive "$(cat id)"
    [ ! -f id ] || find /dev/shm -maxdepth 1 -name "muster-*-$(cat id)"
    find rt -name 'agent-*'
}
nothing_left() { [ -z "$(left)" ]; }

test_figures() {
    run bench d --size 1Mi --ranks 2 --rounds 2 --tensors 3 -o json
    is "$status" 0 'two ranks' || show
    is "$(json ranks <out) $(json bytes_per_rank <out) $(json tensors_per_rank <out) $(json rounds <out)" \
        '2 1048576 3 2' 'what was measured'
    is "$(for i in 0 1 2 3 4 5; do json figures.$i.name <out; done | tr '\n' ' ')" \
        'first eager lazy durable restore cold ' 'all figures'
    python3 - <<'END' >said 2>&1
import json
for f in json.load(open("out"))["figures"]:
    assert 0 < f["seconds"] < 300 and 0 < f["limit_seconds"] < 300 and f["ratio"] > 0, f
    assert abs(f["limit_bytes_per_second"] * f["limit_seconds"] / (2 << 20) - 1) < 1e-6, f
END
    is "$(cat said)" '' 'with times that can be'
    is "$(cat err)" '' 'and no word beside it'
    ok 'nothing is left' nothing_left || diag "$(left)"
    is "$(find state -type f 2>/dev/null)" '' 'nor in the list of runs'
    run bench d --size 1Mi --rounds 1
    is "$status" 0 'as a table' || show
    matches "$(cat out)" 'a save is durable +[0-9.]+ m?s +[0-9.]+ m?s +[0-9.]+ +[0-9.]+ GB/s +write and sync' 'with time, limit and ratio'
    like "$(cat out)" '1 rank, 1.0 MiB in 64 tensors each, 1 round' 'of what'
}

test_refused() {
    run bench d --size 1Ti --ranks 1000
    is "$status" 1 'more than the disk has'
    matches "$(cat err)" 'd has [0-9.]+ [GMT]iB free, and 1000 ranks of 1.0 TiB need .* smaller --size' 'in numbers'
    run bench d --size 1000
    is "$status" 2 'too little'
    run bench d --ranks 1000000
    is "$status" 2 'too many'
    run bench d --rounds -1
    is "$status" 2 'none'
    local option
    for option in ranks rounds tensors; do
        run timeout 60 "$MUSTER" ckpt bench d --$option 0
        is "$status" 2 "--$option 0 is not the default"
        like "$(cat err)" "option --$option: expected a number, at least 1" 'which is said'
    done
    run bench nowhere
    is "$status" 1 'no directory'
    like "$(cat err)" 'open nowhere: No such file' 'named'
    run bench
    is "$status" 2 'of nothing'
    run bench s3://b/p
    is "$status" 2 'a store'
    like "$(cat err)" 'stores are not measured' 'which is said'
    ok 'nothing is left' nothing_left || diag "$(left)"
}

# begin: one that goes on for long; its run's id is in the file id.
begin() {
    rm -f id
    spawn bench "$MUSTER" ckpt bench d --size 4Mi --ranks 2 --rounds 100
    ok 'one that goes on' wait_for 60 eval 'grep -q "^# [1-9]" d/.muster-bench-*/figures' ||
        diag "$(cat bench.err)"
    json id d/.muster-bench-*/run/run.json >id
    isnt "$(cat id)" '' 'is a run'
    isnt "$(run_alive "$(cat id)")" '' 'with workers'
}

test_signals() {
    local sig
    for sig in INT TERM HUP; do
        begin
        kill -$sig "$spawned"
        wait_exit 60 "$spawned"
        is "$status" 130 "SIG$sig ends it" || diag "$(cat bench.err)"
        like "$(cat bench.err)" 'd is as it was' 'which is said'
        ok 'nothing is left' nothing_left || diag "$(left)"
    done
}

test_killed() {
    begin
    kill -KILL "$spawned"
    wait "$spawned" 2>/dev/null
    ok 'killed, it leaves nothing' wait_for 60 nothing_left || diag "$(left)"
    begin
    kill -KILL "$(pgrep -P "$spawned" -f 'muster run')"
    wait_exit 120 "$spawned"
    is "$status" 1 'its run is killed'
    like "$(cat bench.err)" 'was ended by signal 9' 'which is told'
    ok 'nothing is left' wait_for 60 nothing_left || diag "$(left)"
    begin
    kill -KILL "$(run_alive "$(cat id)" | awk '/muster-ckpt-bench/ { print $1; exit }')"
    wait_exit 120 "$spawned"
    is "$status" 1 'a worker is killed'
    like "$(cat bench.err)" 'SIGKILL' 'which is told' || diag "$(cat bench.err)"
    ok 'nothing is left' nothing_left || diag "$(left)"
}

# All at once, as when the node goes down: nobody is there to clean up.
test_leftovers() {
    begin
    mkdir d/.muster-bench-young d/other
    kill -KILL $(pgrep -P "$spawned") "$spawned"
    wait "$spawned" 2>/dev/null
    ok 'its run ends' wait_for 60 run_gone "$(cat id)"
    isnt "$(find d -name '.muster-bench-??????')" '' 'what it has written is there'
    run bench d --size 1Mi --rounds 1
    is "$status" 0 'another one' || show
    like "$(cat err)" 'removed' 'takes it away'
    is "$(cd d && echo .m* *)" '.muster-bench-young other' 'but nothing that another one may be making'
    rm -r d/.muster-bench-young d/other
    ok 'nothing is left' wait_for 30 nothing_left || diag "$(left)"
}

# A filesystem that somebody else fills in the middle of it.
test_full() {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || { skip 'not root, or no namespaces' 3; return; }
    run timeout 300 unshare -m bash -c '
        mount -t tmpfs -o size=256m none d || exit 99
        "$MUSTER" ckpt bench d --size 32Mi --rounds 100 &
        until grep -q "^# [1-9]" d/.muster-bench-*/figures || ! kill -0 $!; do sleep 0.1; done 2>/dev/null
        head -c 300M /dev/zero >d/other 2>/dev/null
        wait $!
        status=$?
        ls -A d
        exit $status'
    is "$status" 1 'no room in the middle of it' || show
    # By who asks first, or by a write, if others were quicker.
    matches "$(cat err)" 'its filesystem has [0-9]+ bytes left|No space left' 'is told' || show
    is "$(cat out)" other 'and what it has written is gone'
}

run_cases
