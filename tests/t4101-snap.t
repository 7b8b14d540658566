#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints through the agents: a save is safe once it is held, whatever becomes of
# the worker; the agents write it, the lead commits it, and the next workers start
# from it.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

root=--allow-run-as-root
worker=$MUSTER_BUILDDIR/tests/lib/snap_worker
field() { "$MUSTER" status run -o json 2>/dev/null | json "$1"; }
runtime_dir() { [ -n "${XDG_RUNTIME_DIR:-}" ] && echo "$XDG_RUNTIME_DIR/muster" || echo "${TMPDIR:-/tmp}/muster-$(id -u)"; }
shm() { echo "/dev/shm/muster-$(id -u)-$(json id run/run.json)"; }
n_steps() { find ck -name COMMIT 2>/dev/null | wc -l; }
# start OPTION...
start() {
    rm -rf run ck
    spawn run "$MUSTER" run $root --run-dir run --agent-is-node --nproc-per-node 2 "$@" -- "${program:-$worker}" "$PWD/ck" 480000
}
told() { ok "$1" wait_for 60 eval '[ "$(grep -c "'"$2"'" run.out)" -ge '"$3"' ]' || diag "$(tail -n 30 run.out run.err)"; }
go_home() {
    : >run/go
    wait_exit 60 "$spawned"
    is "$status" 0 "${1:-it ends well}" || diag "$(tail -n 30 run.out run.err)"
}

test_saved() {
    start --nnodes 2
    told 'saves' 'held 30' 4
    ok 'and is saved, by the agents' wait_for 60 eval '[ -n "$(field resume_path)" ]' || diag "$(tail -n 30 run.err)"
    ok 'in memory of theirs' test -d "$(shm)"
    go_home
    num "$(n_steps)" -ge 1 'there are checkpoints'
    # Three, and the one that was read again last.
    num "$(n_steps)" -le 4 'not more than are kept' || diag "$(ls ck)"
    run "$MUSTER" ckpt verify ck
    is "$status" 0 'they are whole' || show
    is "$(find ck -name '*.part' | wc -l)" 0 'nothing else is left in them'
    ok 'no memory is left' test ! -e "$(shm)"
}

# Besides the newest: every hundredth step, and the best by what was saved along.
test_kept() {
    start --nnodes 1 --set checkpoint.keep=1 --set checkpoint.keepEvery=100 --set checkpoint.keepBest=far
    told 'two workers save' 'held 250' 2
    go_home
    run "$MUSTER" ckpt verify ck
    is "$status" 0 'all that stay are whole' || show
    like "$(ls ck)" step-000000000030- 'the best stays' || show
    like "$(ls ck)" step-000000000100- 'a multiple stays'
    like "$(ls ck)" step-000000000200- 'so does the next'
    unlike "$(ls ck)" step-000000000120- 'others do not'
    unlike "$(ls ck)" step-000000000040- 'nor those that come close'
}

# By a metric that none has, as where its name is misspelt.
test_no_best() {
    start --nnodes 1 --set checkpoint.keep=1 --set checkpoint.keepBest=nothing
    told 'two workers save' 'held 60' 2
    go_home
    is "$(grep -c "ck has a metric 'nothing', .*: older ones go as if there were none" run.err)" 1 'that none has the metric is told, once' ||
        diag "$(tail -n 30 run.err)"
    unlike "$(ls ck)" step-000000000000- 'and older ones go' || show
}

test_worker_dies() {
    start --nnodes 2 --max-restarts 1
    told 'four workers save' 'held 20' 4
    : >run/die
    told 'one dies as soon as it has saved' 'dies at' 1
    step=$(sed -n 's/.*dies at //p' run.out)
    told 'all start from that save, on its way to the disk as it was' "from $step\$" 4
    rm run/die
    told 'and save' 'held' 20
    go_home 'the run ends well'
    is "$(grep -c 'is wrong' run.err)" 0 'what they loaded was right'
    is "$(field restarts)" 1 'one restart'
}

# Agents that do not come again, for there is no front end: one that leaves, as one that
# nobody hears any more does, one that is killed, one whose watch is, and one with its watch.
test_agent_goes() {
    local signal run_files agent watch
    for signal in TERM KILL watch both; do
        start --nnodes 1:2 --set detach.timeout=10m
        told 'four workers save' 'held 20' 4
        run_files=$(runtime_dir)/$(json id run/run.json)
        kill -KILL "$spawned"
        agent=$(field nodes.1.agent_pid)
        watch=$(ps -o ppid= -p "$agent")
        case $signal in
            watch) kill -KILL $watch ;; # the agent leaves in order then
            both) kill -KILL "$agent" $watch ;;
            *) kill -$signal "$agent" ;;
        esac
        ok "two go on when the agent of others goes ($signal)" \
            wait_for 60 eval '[ "$(field state),$(field generation),$(field nodes.1.state)" = Running,2,Lost ]'
        ok 'what the other ones saved stays' eval 'ls "$(shm)" | grep -q "^snap-1-"'
        sleep 3
        ok 'for as long as the run goes on' eval 'ls "$(shm)" | grep -q "^snap-1-"'
        : >run/go
        ok 'which comes to its end' wait_for 60 eval '[ "$(field state)" = Succeeded ]' || diag "$("$MUSTER" status run)"
        ok 'and takes it along' wait_for 30 test ! -e "$(shm)"
        ok 'and all else' wait_for 30 test ! -e "$run_files"
        ok 'nobody is left' wait_for 30 run_gone "$(json id run/run.json)" || diag "$(run_alive "$(json id run/run.json)")"
    done
}

# Out of memory of the agent, and what is mapped stays when that is written to again.
test_mapped() {
    need_module numpy
    ! nm -D "$MUSTER_BUILDDIR/.libs/libmuster.so.0" 2>/dev/null | grep -q __asan || { skip 'libmuster wants the sanitizer in the program' 4; return; }
    rm -rf run ck
    run env PYTHONPATH="$MUSTER_SRCDIR/python" PYTHONDONTWRITEBYTECODE=1 LIBMUSTER="$MUSTER_BUILDDIR/.libs/libmuster.so.0" \
        timeout 200 "$MUSTER" run $root --run-dir run --max-restarts 1 --nproc-per-node 2 -- \
        "$MODULE_PYTHON" "$MUSTER_SRCDIR/tests/py/ckpt_map.py" "$PWD/ck"
    is "$status" 0 'two workers start again, of which one was killed' || show
    is "$(grep -o 'rank.*step.*' out | sort | tr '\n' ';')" \
        'rank 0: step 1: agent agent r00001.safetensors True True;rank 1: step 1: agent agent r00000.safetensors True True;' \
        'each maps what it had saved, where the agent has it' || show
    is "$(grep -o 'rank.*then.*' out | sort | tr '\n' ';')" \
        'rank 0: then: none none r00001.safetensors True;rank 1: then: none none r00000.safetensors True;' \
        'later saves leave it as it is' || show
    is "$(grep -c 'closed: True True' out)" 2 'so does the end' || show
}

# The memory of a second save is there before it comes, and goes with the run.
test_once() {
    mkdir -p once
    printf '#!/bin/sh\n: >"$MUSTER_RUN_DIR/once"\nexec %s "$@"\n' "$worker" >once/worker
    chmod +x once/worker
    program=$PWD/once/worker start --nnodes 1
    told 'two workers save, once' 'held 0$' 2
    ok 'their agent makes memory for a second save' wait_for 60 eval '[ -e "$(shm)/snap-0-0-1" ] && [ -e "$(shm)/snap-0-1-1" ]' || diag "$(ls -l "$(shm)")"
    go_home
    is "$(grep -c held run.out)" 2 'which does not come'
    ok 'no memory is left' test ! -e "$(shm)"
}

# Which saves lazily.
lazy_worker() {
    mkdir -p lazily
    printf '#!/bin/sh\n: >"$MUSTER_RUN_DIR/lazy"\nexec %s "$@"\n' "$worker" >lazily/worker
    chmod +x lazily/worker
    echo "$PWD/lazily/worker"
}

# What a rank has copied its agent has, though the rank is not at the fence yet; what it has
# not is no checkpoint. With the check it is handed over at the fence.
test_worker_dies_copying() {
    program=$(lazy_worker) start --nnodes 2
    told 'four workers save lazily' 'held 20' 4
    : >run/copied
    told 'the agents have what was copied' 'whole before the fence' 2
    is "$(grep -c 'none before' run.out)" 0 'in time'
    go_home
    program=$(lazy_worker) start --nnodes 2 --max-restarts 1 --set env.MUSTER_CKPT_CHECK=1
    told 'four workers save lazily' 'held 20' 4
    : >run/copying
    told 'one dies before the fence' 'dies copying' 1
    step=$(sed -n 's/.*dies copying at //p' run.out)
    told 'all start from the save before' "from $((step - 10))\$" 4
    rm run/copying
    told 'and save' "held $((step + 10))" 4
    go_home
    is "$(grep -c 'is wrong' run.err)" 0 'what they loaded was right'
    run "$MUSTER" ckpt verify ck # what was not copied may be on the disk, without COMMIT
    is "$(grep step- out | grep -vc -e whole -e unfinished)" 0 'nothing that is there is damaged' || show
}

# Workers that start again wait for what was saved, however slow its disk is.
test_slow_disk() {
    local run tracer
    can_trace || { skip 'no strace: see scripts/install-deps' 6; return; }
    start --nnodes 1 --max-restarts 1
    run=$spawned
    told 'two workers save' 'held 20' 2
    spawn strace strace -f -qq -p "$(field nodes.0.agent_pid)" -e trace=fsync -e inject=fsync:delay_enter=300000 -o trace
    tracer=$spawned
    ok 'their disk becomes slow' wait_for 60 test -s trace || diag "$(cat strace.err)"
    : >run/die
    told 'one dies as soon as it has saved' 'dies at' 1
    step=$(sed -n 's/.*dies at //p' run.out)
    told 'all start from that save' "from $step\$" 2
    rm run/die
    kill "$tracer"
    ok 'the disk is as it was' wait_for 60 gone "$tracer"
    spawned=$run
    go_home
}

# Saves that would have to wait are skipped, by all ranks or by none, though one node
# alone is slow.
test_skip() {
    local run tracer skipped
    can_trace || { skip 'no strace: see scripts/install-deps' 7; return; }
    start --nnodes 2
    run=$spawned
    told 'four workers save' 'held 20' 4
    spawn strace strace -f -qq -p "$(field nodes.1.agent_pid)" -e trace=fsync -e inject=fsync:delay_enter=300000 -o trace
    tracer=$spawned
    ok 'the disk of a node becomes slow' wait_for 60 test -s trace || diag "$(cat strace.err)"
    : >run/skip
    told 'saves are skipped' 'skipped [0-9]*: step [0-9]* is skipped: .*two snapshots of rank' 8
    kill "$tracer"
    ok 'the disk is as it was' wait_for 60 gone "$tracer"
    spawned=$run
    before=$(grep -c held run.out)
    told 'and saved' held $((before + 8))
    go_home
    skipped=$(sed -n 's/.*skipped \([0-9]*\):.*/\1/p' run.out | sort -n | uniq -c | awk '$1 != 4')
    is "$skipped" '' 'by all ranks'
    is "$(sed -n 's/.*skipped \([0-9]*\):.*/held \1$/p' run.out | sort -u | grep -cf - run.out)" 0 'and by no rank saved'
}

# The end of a run that fails leaves nothing behind that was saved.
test_run_fails() {
    start --nnodes 2 --max-restarts 0
    told 'four workers save' 'held 20' 4
    : >run/die
    wait_exit 60 "$spawned"
    ok 'the run fails' test "$status" -gt 0
    step=$(sed -n 's/.*dies at //p' run.out)
    is "$(find ck -path "*/step-*${step:-?}-*/COMMIT" | wc -l)" 1 'what it saved last is a checkpoint' || diag "$(find ck; tail -n 30 run.err)"
    ok 'no memory is left' test ! -e "$(shm)"
}

# Agents tell each other of the directory in JSON: there the ranks write themselves.
test_odd_directory() {
    printf '#!/bin/sh\nmkdir -p "$1"\nexec %s "$1/%b" "$2"\n' "$worker" 'odd\0377' >odd
    chmod +x odd
    program=$PWD/odd start --nnodes 1
    told 'two workers save' 'held 30' 2
    go_home
    num "$(n_steps)" -ge 1 'there are checkpoints'
}

# What a rank has saved is in memory of its node still: a disk that has spoilt the
# file since does no harm.
test_from_memory() {
    start --nnodes 2 --max-restarts 1
    told 'four workers save' 'held 10' 4
    : >run/spoil
    told 'one spoils its file, and dies' 'spoilt [0-9]' 1
    step=$(sed -n 's/.*spoilt //p' run.out)
    told 'all start from that step' "from $step\$" 4
    go_home
}

# What others on its node have saved is there, too, for a rank that needs all of it, as in
# data-parallel training: the disk is spoilt altogether.
test_all_from_memory() {
    local step file
    start --nnodes 1 --max-restarts 1
    told 'two workers save' 'held 10' 2
    : >run/whole
    : >run/start
    : >run/die
    told 'one dies' 'dies at [0-9]' 1
    step=$(sed -n 's/.*dies at //p' run.out)
    ok 'they start again' wait_for 60 eval '[ "$(field generation)" = 2 ]' || diag "$(tail -n 20 run.err)"
    for file in ck/step-*/r*.safetensors; do
        printf '\377\377\377' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 3)) conv=notrunc status=none
    done
    rm run/start
    told 'each has all of it, from memory' 'has loaded all, 0 of it wrong' 2
    told 'of the newest step' "from $step\$" 2
    told 'and saves its own part again' "held $((step + 10))\$" 2
    go_home
}

# Where none of it is in memory the disk has to give each byte once, however many ranks
# of a node need it.
test_all_from_disk() {
    local file
    start --nnodes 1
    told 'two workers save' 'held 10' 2
    go_home
    mkdir -p whole
    printf '#!/bin/sh\n: >"$MUSTER_RUN_DIR/whole"\nexec %s "$@"\n' "$worker" >whole/worker
    chmod +x whole/worker
    for file in ck/step-*/r*.safetensors; do
        dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none
    done
    mv ck kept
    spawn again "$MUSTER" run $root --run-dir again --nproc-per-node 2 -- "$PWD/whole/worker" "$PWD/kept" 480000
    ok 'another run has all of it' wait_for 60 eval '[ "$(grep -c "has loaded all, 0 of it wrong" again.out)" = 2 ]' || diag "$(tail -n 30 again.out again.err)"
    : >again/go
    wait_exit 60 "$spawned"
    is "$status" 0 'and ends well' || diag "$(tail -n 30 again.out again.err)"
    sum=$(awk '/has read/ {sum += $(NF - 3)} END {print sum}' again.out)
    all=$(awk '/has read/ {print $(NF - 1); exit}' again.out)
    if [ "$sum" -eq 0 ]; then
        skip 'the disk of this directory does not say what it gives: memory, say' 1
    else
        num "$sum" -le $((all * 3 / 2)) 'which the disk has given once' || diag "$(grep 'has read' again.out)"
    fi
}

# Whoever leads next goes on with what the agents hold, or finds that it is there.
test_lead_lost() {
    start --nnodes 2:3
    told 'six workers save' 'held 20' 6
    kill -KILL "$(field nodes.0.agent_pid)"
    told 'four go on from what was saved' 'from [0-9]' 4
    before=$(grep -c checkpoint_saved run/events.jsonl)
    ok 'and save, under another lead' wait_for 60 eval '[ "$(grep -c checkpoint_saved run/events.jsonl)" -gt $((before + 2)) ]' || diag "$(tail -n 20 run.err)"
    go_home
    is "$(field lead)" 1 'the second node leads'
    run "$MUSTER" ckpt verify ck # a killed lead may leave what it was removing
    is "$(grep step- out | grep -vc -e whole -e unfinished)" 0 'nothing that is there is damaged' || show
    ok 'no memory is left, of the killed agent either' test ! -e "$(shm)"
}

# It says that a save is a checkpoint, and is gone: whoever leads next has heard as much.
test_lead_lost_at_once() {
    local last
    mkdir -p path
    printf '#!/bin/sh\necho "path $MUSTER_RESUME_PATH"\nexec %s "$@"\n' "$worker" >path/worker
    chmod +x path/worker
    program=$PWD/path/worker start --nnodes 1:2 --set limits.nodeFailures=1
    told 'four workers save' 'held 20' 4
    field nodes.0.agent_pid >fell
    mv fell run/fell
    ok 'the lead is lost just after a save has got to the disk' wait_for 60 grep -qrs 'fells at' run/logs || diag "$(tail -n 30 run.out run.err)"
    last=$(sed -n 's/.*fells at //p' run/logs/1/*/stdout)
    told 'two go on' 'path .*/step-' 2
    num "$((10#$(sed -n 's,.*path .*/step-\([0-9]*\)-.*,\1,p' run.out | sort -n | head -n 1)))" -ge "$last" 'from that one, or a later one' ||
        diag "$(tail -n 30 run.out run.err run/events.jsonl)"
    go_home
}

# A worker that cuts the memory which its agent holds for it spoils its own saves, and
# neither its agent nor the run.
test_cut() {
    local agent
    start --nnodes 2
    told 'four workers save' 'held 20' 4
    agent=$(field nodes.1.agent_pid)
    : >run/cut
    told 'one cuts what its agent has of it' 'has cut [12] files' 3
    ok 'a save fails of that' wait_for 60 grep -q 'has cut the shared memory that step [0-9]* of rank 3' run/events.jsonl || diag "$(tail -n 20 run.err)"
    rm run/cut
    before=$(grep -c checkpoint_saved run/events.jsonl)
    ok 'later ones do not' wait_for 60 eval '[ "$(grep -c checkpoint_saved run/events.jsonl)" -gt "$((before + 1))" ]' || diag "$(tail -n 20 run.err)"
    is "$(field nodes.1.agent_pid)/$(field generation)" "$agent/1" 'its agent lives, and nobody was started again'
    go_home
    run "$MUSTER" ckpt verify ck
    is "$status" 0 'what is there is whole' || show
    ok 'no memory is left' test ! -e "$(shm)"
}

# What an agent has just begun to write may be of a step below those that are kept: it is
# left alone until it would have told of it.
test_stray() {
    local stray=ck/step-000000000001-0badc0de
    mkdir -p step
    printf '#!/bin/sh\n: >"$MUSTER_RUN_DIR/disk"\n[ -e "$MUSTER_RUN_DIR/pace" ] || echo 19 >"$MUSTER_RUN_DIR/pace"\nexec %s "$@"\n' "$worker" >step/worker
    chmod +x step/worker
    program=$PWD/step/worker start --nnodes 1 --set checkpoint.keep=1
    told 'two workers save' 'on disk 10$' 2
    mkdir "$stray"
    : >"$stray/r00000.part"
    echo 29 >run/pace.new
    mv run/pace.new run/pace
    told 'and save again' 'on disk 20$' 2
    ok 'what may have begun meanwhile is there' test -e "$stray/r00000.part"
    rm run/pace
    ok 'what nobody tells of is not, in the end' wait_for 60 test ! -e "$stray" || diag "$(ls ck)"
    go_home
}

# Where there is no room for a save it fails with numbers, and the run goes on.
test_no_room() {
    rm -rf run ck
    unshare -m sh -c 'mount -t tmpfs none /mnt' 2>/dev/null || { skip 'no tmpfs can be mounted here' 6; return; }
    mkdir -p little
    spawn run unshare -m sh -c 'mount -t tmpfs -o size=5m none little && exec "$@"' sh "$MUSTER" run $root --run-dir run \
        --agent-is-node --nproc-per-node 2 --nnodes 2 --set checkpoint.keep=2 -- "$worker" "$PWD/little/ck" 480000
    ok 'a disk with room for two saves' wait_for 60 eval '[ "$(grep -c checkpoint_saved run/events.jsonl 2>/dev/null)" -ge 2 ]' || diag "$(tail -n 30 run.err)"
    ok 'a third one has none' wait_for 60 grep -q 'is none: rank [0-9]: .*little/ck: its filesystem has [0-9]* bytes left, and what this rank has of step [0-9]* takes 48' run/events.jsonl run.err || diag "$(tail -n 30 run.err)"
    ok 'and the run goes on' wait_for 30 eval '[ "$(field state)/$(field generation)" = Running/1 ]' || diag "$("$MUSTER" status run)"
    before=$(grep -c held run.out)
    ok 'and saves' wait_for 60 eval '[ "$(grep -c held run.out)" -gt "$((before + 8))" ]'
    : >run/go
    wait_exit 60 "$spawned"
    like "$(cat run.err run.out)" 'wait: ' 'up to one that has no room' || diag "$(tail -n 30 run.out run.err)"
    ok 'no memory is left' test ! -e "$(shm)"
}

# A worker ends before it has copied all of a lazy save, which others have handed over: that is
# told, and nobody waits for it.
test_never_copied() {
    need_module numpy
    ! nm -D "$MUSTER_BUILDDIR/.libs/libmuster.so.0" 2>/dev/null | grep -q __asan || { skip 'libmuster wants the sanitizer in the program' 4; return; }
    rm -rf run ck
    cat >lazy.py <<'END'
import os
import sys
import time
import numpy
import muster
from muster import ckpt

rank, world, many = muster.rank(), muster.world(), 20000000
c = ckpt.Checkpoints(sys.argv[1])
b = numpy.full(1000 if rank == 0 else many, 1.0)
at = 0 if rank == 0 else 1000 + (rank - 1) * many
piece = {"b": ckpt.Piece(b, (1000 + (world - 1) * many,), (at,))}
c.save(1, piece, wait=True)
c.save(2, piece, lazy=True)
if rank == 0:
    time.sleep(0.5)
    c.wait(level="memory")
os._exit(0)
END
    run env PYTHONPATH="$MUSTER_SRCDIR/python" PYTHONDONTWRITEBYTECODE=1 LIBMUSTER="$MUSTER_BUILDDIR/.libs/libmuster.so.0" \
        "$MUSTER" run $root --run-dir run --nproc-per-node 3 --max-restarts 0 -- "$MODULE_PYTHON" "$PWD/lazy.py" "$PWD/ck"
    is "$status" 0 'workers end well, in the middle of a lazy save' || show
    is "$(grep -c 'step 2 is none: rank [12]: its worker ended before it had handed all of it over' run/events.jsonl)" 1 'which is none, as is told' || diag "$(cat run/events.jsonl)"
    is "$(cd ck && echo *)" "$(cd ck && echo step-000000000001-*)" 'nothing is left of it'
    ok 'no memory is left' test ! -e "$(shm)"
}

# Saves that follow one another without a pause, on a disk that has room for one more than is
# kept: each waits until the one before has been read again and older ones have gone.
test_tight_disk() {
    need_module numpy
    ! nm -D "$MUSTER_BUILDDIR/.libs/libmuster.so.0" 2>/dev/null | grep -q __asan || { skip 'libmuster wants the sanitizer in the program' 3; return; }
    rm -rf run ck
    unshare -m sh -c 'mount -t tmpfs none /mnt' 2>/dev/null || { skip 'no tmpfs can be mounted here' 3; return; }
    mkdir -p tight
    cat >saves.py <<'END'
import sys
import numpy
from muster import ckpt

b = numpy.zeros(600000)
with ckpt.Checkpoints(sys.argv[1]) as c:
    for step in range(1, 9):
        b[:] = step
        c.save(step, {"b": b})
END
    spawn run unshare -m sh -c 'mount -t tmpfs -o size=12m none tight && "$@" && exec ls tight/ck >left' sh \
        env PYTHONPATH="$MUSTER_SRCDIR/python" PYTHONDONTWRITEBYTECODE=1 LIBMUSTER="$MUSTER_BUILDDIR/.libs/libmuster.so.0" \
        "$MUSTER" run $root --run-dir run --nproc-per-node 1 --set checkpoint.keep=1 -- "$MODULE_PYTHON" "$PWD/saves.py" "$PWD/tight/ck"
    wait_exit 120 "$spawned"
    is "$status" 0 'the run ends well' || diag "$(tail -n 30 run.out run.err)"
    is "$(grep -c 'is none' run/events.jsonl)" 0 'no save was without room' || diag "$(grep 'is none' run/events.jsonl | head)"
    is "$(sed 's/-[0-9a-f]*$//' left)" step-000000000008 'the last one is there, alone'
}

# What the disk has no room for is in memory still, and gets there when workers end, if there
# is room by then: the next ones start from it.
test_room_later() {
    local top
    rm -rf run ck
    unshare -m sh -c 'mount -t tmpfs none /mnt' 2>/dev/null || { skip 'no tmpfs can be mounted here' 8; return; }
    mkdir -p small
    spawn run unshare -m sh -c 'mount -t tmpfs -o size=5m none small && exec "$@"' sh "$MUSTER" run $root --run-dir run \
        --agent-is-node --nproc-per-node 2 --nnodes 2 --max-restarts 1 -- sh -c '[ -e "$MUSTER_RUN_DIR/pace" ] || echo 5 >"$MUSTER_RUN_DIR/pace"
            exec "$@"' sh "$worker" "$PWD/small/ck" 240000
    ok 'four ranks save' wait_for 60 eval '[ "$(grep -c checkpoint_saved run/events.jsonl 2>/dev/null)" -ge 1 ]' || diag "$(tail -n 30 run.err)"
    top=/proc/$spawned/root$PWD/small
    fallocate -l 3600k "$top/filler"
    echo 15 >run/pace
    ok 'a disk that is full' wait_for 60 grep -q 'step 10 is none: rank [0-9]: .*; it stays in memory' run/events.jsonl run.err || diag "$(tail -n 30 run.err)"
    ok 'is no reason to end' wait_for 30 eval '[ "$(field state)/$(field generation)" = Running/1 ]' || diag "$("$MUSTER" status run)"
    rm "$top/filler"
    kill -KILL "$(field workers.0.pid)"
    ok 'the next workers start from what had no room' wait_for 60 eval '[ "$(grep -c "from 10" run.out)" = 4 ]' || diag "$(tail -n 30 run.out run.err)"
    is "$(cd "$top" && echo ck/step-*10-*/COMMIT)" "$(cd "$top" && find ck -path '*0010-*/COMMIT')" 'which is a checkpoint by then'
    : >run/go
    wait_exit 60 "$spawned"
    is "$status" 0 'the run ends well' || diag "$(tail -n 30 run.out run.err)"
    is "$(grep -c 'is none' run/events.jsonl)" 1 'that was its only trouble'
    ok 'no memory is left' test ! -e "$(shm)"
}

# A directory that nobody can write to: it is named, and when workers have ended nobody is
# told that it will be tried again.
test_no_place() {
    rm -rf run
    unshare -m sh -c 'mount -t tmpfs none /mnt' 2>/dev/null || { skip 'no tmpfs can be mounted here' 4; return; }
    mkdir -p fixed
    spawn run unshare -m sh -c 'mount -t tmpfs none fixed && mkdir fixed/ck && mount -o remount,ro fixed && exec "$@"' sh "$MUSTER" run $root --run-dir run \
        --max-restarts 0 --agent-is-node --nproc-per-node 2 --nnodes 1 -- sh -c 'echo 5 >"$MUSTER_RUN_DIR/.pace.$RANK" && mv "$MUSTER_RUN_DIR/.pace.$RANK" "$MUSTER_RUN_DIR/pace"
            exec "$@"' sh "$worker" "$PWD/fixed/ck" 48000
    ok 'a save fails, and it is said where' wait_for 60 grep -q "step 0 is none: .*: Read-only file system (in $PWD/fixed/ck); it stays in memory" run/events.jsonl run.err ||
        diag "$(tail -n 30 run.err)"
    : >run/go
    wait_exit 60 "$spawned"
    matches "$(cat run/events.jsonl)" 'step 0 is none: .*; workers have ended' 'they end, and it was tried again' || diag "$(tail -n 30 run.err)"
    is "$(grep -c 'step 0 is none: .*; it stays' run/events.jsonl)" 1 'which nobody promises once more'
    ok 'no memory is left' test ! -e "$(shm)"
}

# Memory that the agent has seen to be there is taken by others before the worker fills it:
# its save fails, and the next worker's does not.
test_no_memory() {
    can_trace || { skip 'no strace: see scripts/install-deps' 5; return; }
    mkdir -p short
    cat >short/worker <<END
#!/bin/sh
[ "\$MUSTER_GENERATION" = 1 ] && [ "\$RANK" = 0 ] || exec $worker "\$@"
exec strace -f -qq -o trace -e trace=pwrite64 -e inject=pwrite64:error=ENOSPC:when=1 $worker "\$@"
END
    chmod +x short/worker
    program=$PWD/short/worker start --nnodes 1 --max-restarts 1
    ok 'a save finds too little' wait_for 60 grep -q 'save step .*: take shared memory for a snapshot: No space left on device' run.err run.out || diag "$(tail -n 20 run.err run.out)"
    told 'those of the next workers do not' 'held 30' 2
    go_home
    is "$(field restarts)" 1 'it had to be started once more'
    ok 'no memory is left' test ! -e "$(shm)"
}

# Checkpoints are read again behind the back of all, at any time after they were made: what
# the disk has damaged by then is told, and older ones go once a newer one was right.
test_read_again() {
    local first
    mkdir -p slowly
    printf '#!/bin/sh\n: >"$MUSTER_RUN_DIR/damage"\nexec %s "$@"\n' "$worker" >slowly/worker
    chmod +x slowly/worker
    program=$PWD/slowly/worker start --nnodes 1 --set checkpoint.keep=1
    ok 'what is on the disk is read again, and wrong' wait_for 60 grep -q 'step-[0-9]*-[0-9a-f]* is damaged: .*older ones stay' run/events.jsonl || diag "$(tail -n 20 run.err run.out)"
    rm run/damage
    first=$(grep -l . ck/*/COMMIT | sort | head -n 1)
    told 'saves go on' 'held' $(($(grep -c held run.out) + 8))
    ok 'and once one was right others go' wait_for 60 eval '[ ! -e "$first" ]' || diag "$(ls ck)"
    go_home
    num "$(n_steps)" -le 3 'again one is kept, and what was read last' || diag "$(ls ck)"
}

# A disk that takes nothing fails saves, not the run.
test_no_disk() {
    start --nnodes 2
    told 'workers save' 'held 10' 4
    mv ck ck.away
    ok 'the disk is gone' wait_for 60 grep -q 'is none' run/events.jsonl
    mv ck.away ck
    before=$(grep -c checkpoint_saved run/events.jsonl)
    ok 'and back' wait_for 60 eval '[ "$(grep -c checkpoint_saved run/events.jsonl)" -gt "$before" ]'
    go_home
}

# Whoever reads the journal knows why workers wait for the disk.
test_little_memory() {
    [ "$(id -u)" = 0 ] || { skip 'only root mounts a small /dev/shm' 3; return; }
    rm -rf run ck
    run unshare --mount sh -c 'mount -t tmpfs -o size=20m none /dev/shm && exec "$@"' sh \
        "$MUSTER" run $root --run-dir run --nproc-per-node 2 --max-restarts 0 -- \
        sh -c ': >"$MUSTER_RUN_DIR/go" && exec "$@"' sh "$worker" "$PWD/ck" 12000000
    is "$status" 0 'a save that has no room in memory' || show
    ok 'is one' test -n "$(find ck -name COMMIT)"
    is "$(grep -c 'workers write what they save by themselves, and wait for the disk: a snapshot takes .* MiB of shared memory' run/events.jsonl)" 1 'and it is told once why it took so long' || diag "$(cat run/events.jsonl)"
}

test_memory_read_only() {
    [ "$(id -u)" = 0 ] || { skip 'only root mounts another /dev/shm' 3; return; }
    rm -rf run ck
    run unshare --mount sh -c 'mount -t tmpfs -o ro none /dev/shm && exec "$@"' sh \
        "$MUSTER" run $root --run-dir run --nproc-per-node 2 --max-restarts 0 -- \
        sh -c ': >"$MUSTER_RUN_DIR/go" && exec "$@"' sh "$worker" "$PWD/ck" 1000000
    is "$status" 0 'a save where shared memory may not be written' || show
    ok 'is one' test -n "$(find ck -name COMMIT)"
    is "$(grep -c 'workers write what they save by themselves, and wait for the disk: make /dev/shm/.*: Read-only file system' run/events.jsonl)" 1 'and it is told once why it took so long' || diag "$(cat run/events.jsonl)"
}

run_cases
