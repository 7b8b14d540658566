#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Saves that do not go to the disk each time (checkpoint.diskEvery): they stay in memory
# until a later one is there, or somebody wants them on the disk; and what the next
# workers start from is the newest that there is, wherever it is. With an hour between
# two that go to the disk the first one does, and no other by itself.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

root=--allow-run-as-root
worker=$MUSTER_BUILDDIR/tests/lib/snap_worker
field() { "$MUSTER" status run -o json 2>/dev/null | json "$1"; }
shm() { echo "/dev/shm/muster-$(id -u)-$(json id run/run.json)"; }
steps() { find ck -name COMMIT 2>/dev/null | sed 's,.*/step-0*\([0-9][0-9]*\)-.*,\1,' | sort -n | tr '\n' ' '; }
pace() { echo "$1" >run/.pace && mv run/.pace run/pace; }
# start PACE "FILE..." OPTION...: two workers on each node, up to that step; with these
# files in the run directory.
start() {
    local pace=$1 files=$2
    shift 2
    rm -rf run ck
    spawn run "$MUSTER" run $root --run-dir run --agent-is-node --nproc-per-node 2 --set checkpoint.diskEvery=1h "$@" -- sh -c '
        cd "$MUSTER_RUN_DIR" && { [ -e pace ] || { echo "$1" >.pace.$MUSTER_RANK && mv .pace.$MUSTER_RANK pace; }; }
        [ "$MUSTER_GENERATION" -gt "${START:-0}" ] || exit 1
        for f in $2; do : >"$f"; done; cd "$OLDPWD"; shift 2; exec "$@"' sh "$pace" "$files" "$worker" "$PWD/ck" 48000
}
show_run() { diag "$(tail -n 30 run.out run.err run/events.jsonl)"; diag "$("$MUSTER" status run)"; }
told() { ok "$1" wait_for 60 eval '[ "$(grep -c "'"$2"'" run.out)" -ge '"$3"' ]' || show_run; }
on_disk() {
    local what=$1 want="$2 "
    ok "$what" wait_for 60 eval '[ "$(steps)" = "$want" ]' || { diag "there: $(steps)"; show_run; }
}
go_home() {
    : >run/go
    wait_exit 60 "$spawned"
    is "$status" 0 "${1:-it ends well}" || show_run
}

test_stays() {
    start 45 leave --nnodes 2
    told 'four workers save' 'held 40$' 4
    on_disk 'the first save is a checkpoint' 0
    ok 'the last one is in memory' wait_for 60 eval '[ "$(field in_memory.step)" = 40 ]' || show_run
    is "$(field saving.step 2>/dev/null)" '' 'and not on its way anywhere'
    go_home 'they end'
    is "$(steps)" '0 40 ' 'and the last save is a checkpoint by then, without those between'
    is "$(field resume_step)" 40 'which the run knows of'
    is "$(grep -c -e 'is none' -e 'may be lost' run/events.jsonl)" 0 'nobody complains'
    run "$MUSTER" ckpt verify ck
    is "$status" 0 'what is there is whole' || show
    ok 'no memory is left' test ! -e "$(shm)"
}

# Where muster chooses when to save it chooses what goes to the disk, too: once in an hour
# where nobody has lost more than a worker. So soon after failures it saves each second.
test_auto() {
    START=2 start 100000 due --nnodes 1 --set checkpoint.diskEvery=auto --set restart.backoff=1ms..1ms --max-restarts 2
    told 'two workers that have failed before save' 'held' 8
    on_disk 'once to the disk' 0
    matches "$("$MUSTER" status run)" 'disk *one save in [0-9]*, .* a save, ' 'as the status says' || show_run
    is "$(field save_levels.1.level)" disk 'and shows, without a partner'
    go_home
    last=$(sed -n 's/.*held //p' run.out | tail -n 1)
    is "$(steps)" "0 $last " 'the last one is there' || show_run
}

# What the disk costs is by how much steps that are reported take longer meanwhile.
test_slower() {
    local run tracer
    can_trace || { skip 'no strace: see scripts/install-deps' 5; return; }
    START=2 start 100000 'due report' --nnodes 1 --set checkpoint.diskEvery=0s --set restart.backoff=1ms..1ms --max-restarts 2
    run=$spawned
    told 'two workers save, and report' 'held' 4
    spawn strace strace -f -qq -p "$(field nodes.0.agent_pid)" -e trace=fsync -e inject=fsync:delay_enter=500000 -o trace
    tracer=$spawned
    ok 'their disk becomes slow' wait_for 60 test -s trace || diag "$(cat strace.err)"
    ok 'and steps with it, as the status says' wait_for 60 eval '"$MUSTER" status run | grep -Eq "disk .*s a save, of steps that are [0-9.e+]* % slower for [0-9.]* s"' || show_run
    kill "$tracer"
    wait_for 60 gone "$tracer"
    num "$(field save_levels.1.slower | awk '{print int($1 * 100)}')" -ge 10 'by so much'
    spawned=$run
    go_home
}

# Who waits for the disk, or for the partner, gets there.
test_wait() {
    start 25 disk --nnodes 2
    told 'workers wait for each save to be on the disk' 'on disk 20$' 4
    is "$(steps)" '0 10 20 ' 'where they are'
    go_home
    start 25 'partner leave' --nnodes 1
    told 'or for a partner that they do not have' 'copied 20' 2
    is "$(steps)" '0 10 20 ' 'which is the same then'
    go_home
}

test_asked() {
    start 15 leave --nnodes 2 --set checkpoint.keep=100
    told 'four workers save' 'held 10$' 4
    on_disk 'once to the disk' 0
    run "$MUSTER" checkpoint run
    is "$status" 0 'somebody asks for a checkpoint' || show
    told 'which they hear' '^.*asked' 4
    pace 25
    on_disk 'the next one goes to the disk' '0 20'
    pace 45
    told 'others do not' 'held 40$' 4
    go_home
    is "$(steps)" '0 20 30 40 ' 'but the one behind it, and the last' || show_run
}

test_worker_dies() {
    start 15 '' --nnodes 2 --max-restarts 1
    told 'four workers save' 'held 10$' 4
    on_disk 'once to the disk' 0
    : >run/die
    pace 25
    told 'one dies as it has saved again' 'dies at 20' 1
    told 'all start from there, out of memory' 'from 20$' 4
    rm run/die
    is "$(steps)" '0 20 ' 'which is on the disk by then'
    pace 35
    told 'and save' 'held 30$' 4
    go_home
    is "$(grep -c 'is wrong' run.err)" 0 'what they loaded was right'
}

# Without the memory of a node there is what is on the disk.
test_node_lost() {
    start 25 leave --nnodes 2:3
    told 'six workers save' 'held 20$' 6
    on_disk 'once to the disk' 0
    kill -KILL "$(field nodes.1.agent_pid)"
    told 'without a node, and its memory, four start from there' 'from 0$' 4
    pace 35
    told 'and save' 'held 30$' 4
    go_home
    is "$(grep -c 'is wrong' run.err)" 0 'what they loaded was right'
}

# The disk takes longer for the last save than what workers leave behind is let be.
test_slow_end() {
    local run tracer
    can_trace || { skip 'no strace: see scripts/install-deps' 6; return; }
    start 5 leave --nnodes 1 --set checkpoint.diskEvery=0s
    run=$spawned
    told 'two workers save' 'held 0$' 2
    on_disk 'to the disk' 0
    spawn strace strace -f -qq -p "$(field nodes.0.agent_pid)" -e trace=fsync -e inject=fsync:delay_enter=3000000 -o trace
    tracer=$spawned
    wait_for 60 eval 'grep -q "^TracerPid:.$tracer\$" /proc/"$(field nodes.0.agent_pid)"/status'
    spawned=$run
    pace 12
    told 'whose disk becomes slow, and they save again' 'held 10$' 2
    go_home 'they end well meanwhile'
    on_disk 'and the run when the last save is a checkpoint' '0 10'
    # Asked to end it may wait for a thread that it has delayed itself.
    kill -KILL "$tracer" 2>/dev/null
    wait_exit 60 "$tracer"
}

# A run that has failed waits for what was in memory, says so, and can be told not to.
test_slow_failure() {
    local run tracer
    can_trace || { skip 'no strace: see scripts/install-deps' 6; return; }
    start 15 leave --nnodes 1 --max-restarts 0
    run=$spawned
    told 'two workers save' 'held 10$' 2
    on_disk 'once to the disk' 0
    spawn strace strace -f -qq -p "$(field nodes.0.agent_pid)" -e trace=fsync -e inject=fsync:delay_enter=60000000 -o trace
    tracer=$spawned
    wait_for 60 eval 'grep -q "^TracerPid:.$tracer\$" /proc/"$(field nodes.0.agent_pid)"/status'
    : >run/die
    pace 25
    ok 'a run that fails waits for a disk that hangs' wait_for 60 grep -q 'waits for the save of step 20 to be on the disk, for .*: 0 of 2 ranks' run.err || show_run
    kill -INT "$run"
    ok 'unless it is told not to' wait_for 60 grep -q 'SIGINT: not waiting for the disk' run.err || show_run
    kill -KILL "$tracer" 2>/dev/null
    wait_exit 60 "$run"
    ok 'it has failed' test "$status" -gt 0
    is "$(steps)" '0 ' 'with what it had on the disk' || show_run
    wait_exit 60 "$tracer"
}

# All of a run is killed, and what it saved last is in memory alone.
kill_all() {
    local id pid
    id=$(json id run/run.json)
    at_exit "rm -rf '$(shm)'" # it may be gone on with, and is not always
    ok 'all of the run is killed' wait_for 60 eval '
        for pid in $(grep -slzxF "MUSTER_RUN_ID='"$id"'" /proc/[0-9]*/environ | cut -d/ -f3) $(pgrep -f "$id") "$spawned"; do
            [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ] || kill -KILL "$pid" 2>/dev/null
        done
        ! pgrep -f "$id" >/dev/null'
    wait_exit 60 "$spawned"
}
test_all_killed() {
    start 55 leave --nnodes 2
    told 'four workers save' 'held 50$' 4
    on_disk 'once to the disk' 0
    kill_all
    ok 'their memory stays' test -e "$(shm)"
    spawn run "$MUSTER" resume $root run
    told 'when it goes on all start from there' 'from 50$' 4
    on_disk 'which is on the disk by then, and none before it' '0 50'
    go_home
    is "$(grep -c 'is wrong' run.err)" 0 'what they loaded was right'
    ok 'no memory is left' test ! -e "$(shm)"
}

test_agent_killed() {
    start 35 leave --nnodes 2
    told 'four workers save' 'held 30$' 4
    on_disk 'once to the disk' 0
    kill -KILL "$(field nodes.1.agent_pid)"
    wait_exit 60 "$spawned"
    is "$status" 75 'a run that lacks a node ends, and may go on' || show_run
    spawn run "$MUSTER" resume $root run
    told 'with its node it starts from the memory of both' 'from 30$' 4
    go_home
    is "$(grep -c 'is wrong' run.err)" 0 'what they loaded was right'
    ok 'no memory is left' test ! -e "$(shm)"
}

# Nor is it enough where the memory of a rank is gone: then it is what is on the disk.
test_half_killed() {
    start 35 leave --nnodes 2
    told 'four workers save' 'held 30$' 4
    on_disk 'once to the disk' 0
    kill_all
    rm -f "$(shm)"/snap-1-3-*
    spawn run "$MUSTER" resume $root run
    told 'without the memory of a rank they start from the disk' 'from 0$' 4
    go_home
    ok 'no memory is left' test ! -e "$(shm)"
}

# Nobody waits for the last save: it gets to the disk once all is over.
test_run_fails() {
    start 15 leave --nnodes 2 --max-restarts 0
    told 'four workers save' 'held 10$' 4
    : >run/die
    pace 25
    wait_exit 60 "$spawned"
    ok 'a run fails' test "$status" -gt 0
    is "$(steps)" '0 20 ' 'what it saved last is a checkpoint' || show_run
    is "$(field resume_step)" 20 'which the run knows of'
    ok 'no memory is left' test ! -e "$(shm)"
}

# Who is told to stop need not save: the newest goes to the disk meanwhile.
test_stopped() {
    start 25 leave --nnodes 2 --set limits.grace=60s
    told 'four workers save' 'held 20$' 4
    on_disk 'once to the disk' 0
    run "$MUSTER" suspend run
    is "$status" 0 'the run is suspended' || show
    wait_exit 60 "$spawned"
    is "$(steps)" '0 20 ' 'and the newest is a checkpoint' || show_run
    is "$(field resume_step)" 20 'to go on from'
    drop_memory # nobody does, and the next case takes its directory
}

# As with a store: one that was passed over is told so.
test_python() {
    sanitized && { skip 'libmuster wants the sanitizer in the program' 5; return; }
    rm -rf run ck
    cat >wait.py <<'END'
import sys
import muster.ckpt
with muster.ckpt.Checkpoints(sys.argv[1]) as checkpoints:
    def save(step):
        return checkpoints.save(step, {"step": step})
    first = save(1)
    checkpoints.wait(first, level="disk", timeout=60)
    passed, last = save(2), save(3)
    print("yet", checkpoints.is_durable(last), flush=True)
    checkpoints.wait(last, level="disk", timeout=60)
    print("there", checkpoints.is_durable(last), flush=True)
    try:
        checkpoints.wait(passed, level="disk")
    except muster.ckpt.CheckpointError as error:
        print(error, flush=True)
END
    PYTHONPATH=$MUSTER_SRCDIR/python LIBMUSTER=$MUSTER_BUILDDIR/.libs/libmuster.so.0 run "$MUSTER" run $root --run-dir run \
        --set checkpoint.diskEvery=1h --max-restarts 0 -- python3 wait.py "$TRASH/ck"
    is "$status" 0 'a Python program waits for the disk' || show
    like "$(cat out)" 'yet False' 'a later save stays in memory'
    like "$(cat out)" 'there True' 'until it is wanted on the disk'
    like "$(cat out)" 'save 2 was not taken to the disk: save 3, a later one, was' 'and one was passed over' || show
    is "$(steps)" '1 3 ' 'two are there'
}

# A program with two directories: neither's saves take the place of the other's, and the
# next workers start from the last of both.
test_two_directories() {
    sanitized && { skip 'libmuster wants the sanitizer in the program' 4; return; }
    rm -rf run ck ck-b
    cat >two.py <<'END'
import os
import signal
import sys
import muster.ckpt
with muster.ckpt.Checkpoints(sys.argv[1]) as a, muster.ckpt.Checkpoints(sys.argv[1] + "-b") as b:
    first, second = a.load(), b.load()
    if first or second:
        print("from", first and first.step, second and second.step, flush=True)
        sys.exit(0)
    for step in range(1, 8):
        a.save(step, {"step": step}, lazy=True)
        b.save(100 - step, {"step": 100 - step}, lazy=True)
        a.fence()
        b.fence()
        b.save(100 + step, {"step": 100 + step})
    print("saved", flush=True)
    muster.barrier()  # both have said it
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
END
    PYTHONPATH=$MUSTER_SRCDIR/python LIBMUSTER=$MUSTER_BUILDDIR/.libs/libmuster.so.0 run "$MUSTER" run $root --run-dir run \
        --nproc-per-node 2 --set checkpoint.diskEvery=1h --max-restarts 1 --set restart.backoff=1ms..1ms -- python3 two.py "$TRASH/ck"
    is "$status" 0 'a program saves to two directories, lazily, and dies' || show
    is "$(grep -c 'saved' out)" 2 'all of its saves are taken' || show
    is "$(grep -c 'from 7 107' out)" 2 'and it goes on from the last of each' || show
    is "$(grep -c 'is none' run/events.jsonl)" 0 'none has come to nothing' || show
}

run_cases
