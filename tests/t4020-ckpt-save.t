#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of muster's own: from Python and C, alone, by the workers of a run, and
# by the ranks of an MPI program; and what others can read of them.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
PY=$MUSTER_SRCDIR/tests/py
export PYTHONPATH=$MUSTER_SRCDIR/python PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
export LIBMUSTER=$MUSTER_BUILDDIR/.libs/libmuster.so.0 XDG_STATE_HOME=$TRASH/state
export OMPI_MCA_mpi_yield_when_idle=1
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
! nm -D "$LIBMUSTER" 2>/dev/null | grep -q __asan || {
    skip 'libmuster wants the sanitizer in the program'
    done_testing
}

state_of() { "$MUSTER" ckpt verify "$1" -o json | json 0.state; }
retell() { # the TAP of a program, in `out`
    while read -r line; do
        case $line in
        'ok '*'# SKIP'*) skip "${line#*# SKIP }" ;;
        'ok '*) pass "${line#* - }" ;;
        'not ok '*) fail "${line#* - }" ;;
        esac
    done <out
    matches "$(tail -n 1 out)" '^1\.\.[0-9]+$' 'to its end'
}
run_ranks() { # run_ranks WORKERS WHAT STEP [OPTION...]
    rm -rf run
    run timeout 400 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node "$1" "${@:4}" -- \
        "$MODULE_PYTHON" "$PY/ckpt_ranks.py" "$2" "$TRASH/ranks.d" "$3"
}

# A program leaves it to the job when to save, which says it in steps.
test_due_by_steps() {
    need_module numpy
    rm -rf run
    run timeout 100 "$MUSTER" run $root --run-dir run --nproc-per-node 1 --set checkpoint.everySteps=4 -- "$MODULE_PYTHON" -c '
from muster import ckpt
with ckpt.Checkpoints("due.d") as c:
    print("due at", [s for s in range(1, 14) if c.due(s)])'
    is "$status" 0 'a program that leaves it to the job when to save' || show
    like "$(cat out)" 'due at [4, 8, 12]' 'does so each so many steps' || show
}

test_alone() {
    need_torch
    run timeout 200 "$TORCH_PYTHON" "$PY/ckpt_state.py" alone.d
    is "$status" 0 'the test of muster.ckpt' || show
    retell
    run "$MUSTER" ckpt verify alone.d
    is "$status" 1 'muster ckpt sees the damage'
    matches "$(grep damaged out)" '^step-000000000200-[0-9a-f]{8} +muster +200 ' 'of which'
    matches "$("$MUSTER" ckpt last-valid alone.d)" '^alone.d/step-000000000100-' 'the last valid one'
}

# Somebody saves, and keeps one, while it is read.
test_replaced() {
    local pid
    need_module numpy
    rm -rf few.d next.d
    run timeout 100 "$MODULE_PYTHON" -c '
import numpy
from muster import ckpt
for path, step, n in ("few.d", 1, 1 << 28), ("next.d", 2, 8):
    with ckpt.Checkpoints(path) as c:
        c.save(step, {"a": numpy.zeros(n, "u1")})'
    is "$status" 0 'two of them' || show
    "$MUSTER" ckpt last-valid few.d >out 2>err &
    pid=$!
    kill_at_exit $pid
    for _ in $(seq 20000); do
        [ -d "/proc/$pid/fd" ] || break
        case $(readlink /proc/$pid/fd/*) in
        *r00000.safetensors*) kill -STOP $pid && break ;;
        esac
    done 2>/dev/null
    mv next.d/step-* few.d/
    rm few.d/step-000000000001-*/COMMIT
    rm -r few.d/step-000000000001-*
    kill -CONT $pid 2>/dev/null
    wait $pid
    is $? 0 'one is whole all the time' || show
    matches "$(cat out)" '^few.d/step-00000000000[12]-' 'and is told'
}

# Killed as they save, once there is a file: the next that keeps some removes what they left.
test_killed() {
    local i
    need_module numpy
    rm -rf killed.d
    for i in 1 2 3; do
        run timeout 100 "$MODULE_PYTHON" -c '
import glob, numpy, os, signal, threading, time
from muster import ckpt
def kill():
    while not glob.glob("killed.d/step-*2-*/r00000.safetensors") or not glob.glob("killed.d/step-*2-*/.saver"):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)
state = {"a": numpy.ones(1 << 27, "u1")}
with ckpt.Checkpoints("killed.d", keep=2) as c:
    c.save(1, {"a": numpy.ones(8, "u1")})
    threading.Thread(target=kill, daemon=True).start()
    c.save(2, state)
    time.sleep(60)'
        is "$status" 137 "program $i is killed" || show
        is "$(ls -d killed.d/step-*2-*/.saver | wc -l)" 1 'and leaves what it has, after what those before it had went' || show
    done
    run timeout 100 "$MODULE_PYTHON" -c '
from muster import ckpt
with ckpt.Checkpoints("killed.d", keep=2) as c:
    c.save(1000000, {"a": 1})'
    is "$status" 0 'a save that keeps two' || show
    run "$MUSTER" ckpt verify killed.d
    is "$status:$(grep -c whole out)" 0:2 'leaves nothing that is not whole' || show
    is "$(ls -d killed.d/step-*/.saver 2>/dev/null)" '' 'and no mark'
    rm -rf killed.d
}

test_damaged() {
    need_module numpy
    run timeout 200 "$MODULE_PYTHON" "$PY/ckpt_damaged.py" damaged.d
    is "$status" 0 'the test of damaged checkpoints' || show
    retell
    rm -rf run
    run timeout 400 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node 2 -- \
        "$MODULE_PYTHON" "$PY/ckpt_damaged.py" "$TRASH/damaged.d" together
    is "$status" 0 'two workers load what that left' || show
    is "$(grep -c "rank . damaged: 61: .*tensor 'b' is not in it" out)" 2 'what one of them cannot leave as it was fails both' || show
    is "$(grep -o 'rank . [mu][a-z]*: 61: [A-Z][A-Za-z]*' out | sort | tr '\n' ';')" \
        'rank 0 missing: 61: CheckpointError;rank 0 unexpected: 61: CheckpointError;rank 1 missing: 61: KeysError;rank 1 unexpected: 61: KeysError;' \
        'so do keys that are not what one of them wants' || show
    is "$(grep -o 'rank . fixed: [0-9A-Za-z]*: [A-Z][A-Za-z]*' out | sort | tr '\n' ';')" \
        'rank 0 fixed: 61: CheckpointError;rank 1 fixed: None: TypeError;' 'or memory that cannot be written' || show
    is "$(grep -c "rank . unread: step 1, missing \['b'\], 1.0 -1.0" out)" 2 'where one cannot read it nothing was filled' || show
}

test_refused() {
    need_module numpy
    run timeout 200 "$MODULE_PYTHON" "$PY/ckpt_refused.py" refused.d
    is "$status" 0 'the test of what is rare, or refused' || show
    retell
    is "$(state_of refused.d.threads)" whole 'what threads have saved is whole'
}

# A daemon thread that is in a call, as long as the process lives, does not keep it there.
test_exit() {
    local what closed=' busy idle'
    need_module numpy
    for what in '' busy; do
        [ -z "$what" ] || closed=
        run timeout 60 "$MODULE_PYTHON" "$PY/ckpt_exit.py" exit.d $what
        is "$status:$(cat out)" "0:closed:$closed" "a program ends, ${what:-idle}" || show
        rm -rf run
        run timeout 100 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node 1 -- \
            timeout 60 "$MODULE_PYTHON" "$PY/ckpt_exit.py" "$TRASH/exit.d" $what
        is "$status:$(grep -o 'closed:.*' out)" "0:closed:$closed" 'so does a worker' || show
    done
}

test_workers() {
    need_module numpy
    run_ranks 3 save 7
    is "$status" 0 'three workers save' || show
    is "$(grep -c 'saved, due 0' out)" 3 'all of them'
    is "$(state_of ranks.d)" whole 'it is whole'
    is "$(ls ranks.d/step-*/ | tr '\n' ' ')" \
        'COMMIT manifest.json r00000.safetensors r00001.safetensors r00002.safetensors tensors.index ' 'its files'
    is "$(json resume_step <run/status.json)" 7 'the run knows of it'
    run_ranks 2 load 7
    is "$status" 0 'two workers load it' || show
    is "$(grep -o 'rank . of 2.*' out | sort | tr '\n' ';')" \
        'rank 0 of 2: step 7, right True, own 0;rank 1 of 2: step 7, right True, own 1;' 'what was saved'
    run_ranks 5 load 7
    is "$(grep -o 'rank . of 5.*' out | sort | tail -n 2 | tr '\n' ';')" \
        'rank 3 of 5: step 7, right True, own None;rank 4 of 5: step 7, right True, own None;' 'so do five'
    run_ranks 3 lazy 9
    is "$status:$(json resume_step <run/status.json)" 0:9 'three save lazily' || show
    run_ranks 2 load 9
    is "$(grep -c 'step 9, right True' out)" 2 'what was there at the fence' || show
    run_ranks 2 gone 7
    is "$status:$(grep -c 'step 7, right True' out)" 0:2 'where it is gone for one of them both load the one before' || show
    rm -rf ranks.d/step-000000000009-*
    run_ranks 3 differ 8
    is "$(grep -c "tensor 'm': no rank has \[7:8, 0:5\] of it" out)" 3 'a hole is told by all' || show
    run_ranks 2 values 8
    is "$(grep -c "differs between rank 0 and rank 1 .* it is in 'list.0.n.y' of the state" out)" 2 'a value that is not the same has its name' || show
    run_ranks 2 order 8
    is "$(grep -o "it is in 'values' of the state, whose keys are .*: expected the same keys in the same order" out | sort | tr '\n' ';')" \
        "it is in 'values' of the state, whose keys are 'x', 'y' here: expected the same keys in the same order;it is in 'values' of the state, whose keys are 'y', 'x' here: expected the same keys in the same order;" \
        'so have keys in another order' || show
    run_ranks 2 metrics 8
    is "$(grep -c "blob 'metrics' differs between rank 0 and rank 1 .*: expected the same metrics on all ranks" out)" 2 'and metrics' || show
    run_ranks 2 more 8
    is "$(grep -c 'differs between rank 0 and rank 1 .* it is in what tensors there are' out)" 2 'so have tensors of one rank alone' || show
    like "$(grep 'rank 0:' out)" 'this rank has no more there; expected the same keys' 'by what each of them has' || show
    like "$(grep 'rank 1:' out)" "this rank has 'shared2', I64 [9] there; expected the same keys" 'there' || show
    run_ranks 2 middle 8
    like "$(grep 'rank 0:' out)" "this rank has 'shared', I64 [9] there" 'also in the midst of others' || show
    like "$(grep 'rank 1:' out)" "this rank has 'extra', F32 [3] there; expected the same keys" 'whatever is behind it' || show
    run_ranks 2 tied 8
    like "$(grep 'rank 0:' out)" 'which tensors are one memory: this rank has none there; expected the same ones tied' 'or what is tied' || show
    like "$(grep 'rank 1:' out)" "this rank has 'again' tied to 'shared'; expected the same ones tied on all ranks" 'on one of them' || show
    MUSTER_CKPT_CHECK=1 run_ranks 2 unlike 8
    is "$(grep -c "'shared' is not the same on ranks 0 and 1, and one rank's is saved" out)" 2 'what is not alike is told where somebody asks for it' || show
    run_ranks 2 nothing 8
    is "$(grep -c 'saved, due 0' out)" 2 'a piece without elements is a key of a rank that has nothing' || show
    is "$(state_of ranks.d)" whole 'of a tensor that is whole'
    rm -rf ranks.d/step-000000000008-*
    is "$(ls ranks.d)" "$(cd ranks.d && ls -d step-000000000007-*)" 'and nothing is left of that'
}

# What one worker fails of before it is in a call no other one waits for.
test_one_fails() {
    need_module numpy
    rm -rf run
    run timeout 200 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node 2 -- \
        "$MODULE_PYTHON" "$PY/ckpt_one_fails.py" "$TRASH/fails.d"
    is "$status" 0 'two workers, of which one fails' || show
    is "$(grep -o 'rank 0 .*: 125 CheckpointError: .*rank 1: it cannot save' out | cut -d : -f 1 | tr '\n' ';')" \
        'rank 0 a file of its own;rank 0 a state;rank 0 a moment;rank 0 a step;rank 0 a number;rank 0 metrics;rank 0 lazily;' 'of each save the other one hears' || show
    is "$(grep -o 'rank 0 .*: 61 CheckpointError: .*rank 1: the checkpoint is not what it wants' out | cut -d : -f 1 | tr '\n' ';')" \
        'rank 0 made anew;rank 0 what is loaded;rank 0 into;rank 0 where to;' 'and of each load' || show
    is "$(grep -o 'rank 1 .*: [0-9A-Z][0-9A-Za-z]* [A-Z][A-Za-z]*:' out | sed 's/^rank 1 //; s/:$//' | tr '\n' ';')" \
        'a file of its own: None TypeError;a state: None RuntimeError;a moment: None KeyboardInterrupt;a step: None TypeError;a number: 22 CheckpointError;metrics: None TypeError;lazily: None TypeError;made anew: None RuntimeError;what is loaded: None TypeError;into: None RuntimeError;where to: None ValueError;' \
        'and who fails has its own error' || show
    is "$(grep -c 'at last: right' out)" 2 'both go on' || show
    is "$(ls fails.d | sed 's/-[0-9a-f]*$//')" step-000000000002 'and nothing is left of what was refused'
}

# A process that a worker has forked, as for data, has what it opened, and is not that worker.
test_forked() {
    need_module numpy
    cat >forked.py <<'END'
import os, sys
import numpy
from muster import ckpt
with ckpt.Checkpoints(sys.argv[1]) as c:
    c.save(1, {"a": numpy.ones(3)}, lazy=True)
    for call in (lambda: c.fence() or c.wait(), lambda: c.latest(), lambda: c.load(), lambda: c.due(1),
                 lambda: c.save(2, {}), lambda: c.map(1)):
        pid = os.fork()
        if pid == 0:
            try:
                call()
            except ckpt.CheckpointError as error:
                sys.exit(0 if "was forked from the one that opened these checkpoints" in str(error) else str(error))
            sys.exit("nothing")
        print("child:", os.waitpid(pid, 0)[1], flush=True)
    c.fence()
    c.wait()
    print("parent:", c.latest(), c.due(1), flush=True)
END
    rm -rf run
    run timeout 100 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node 1 -- "$MODULE_PYTHON" forked.py "$TRASH/forked.d"
    is "$status:$(grep -c 'child: 0' out)" 0:6 'children that are forked are refused' || show
    is "$(grep -o 'parent: .*' out)" 'parent: 1 0' 'and their parent goes on' || show
}

# What a program says that is of no effect in a run is told once; and ranks that no agent leads
# are not each alone.
test_who() {
    need_module numpy
    cat >who.py <<'END'
import os, subprocess, sys, warnings
import numpy
from muster import ckpt
path = sys.argv[1]
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    ckpt.Checkpoints(path).close()
    for _ in range(2):
        ckpt.Checkpoints(path, keep=2, keep_every=10).close()
    ckpt.Checkpoints(path, group=(0, 1, lambda data: [data])).close()
for w in told:
    print("told:", w.category.__name__, w.filename.endswith("who.py"), w.message, flush=True)
if os.environ.get("MUSTER_RANK") == "0":
    subprocess.run([sys.executable, "-c", """
import sys
from muster import ckpt
try:
    ckpt.Checkpoints(sys.argv[1])
except ckpt.CheckpointError as error:
    print("a child:", error, flush=True)
""", path], check=True)
END
    rm -rf run
    run timeout 100 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node 2 -- "$MODULE_PYTHON" who.py "$TRASH/who.d"
    is "$status" 0 'workers that say what does not count' || show
    is "$(grep -c 'told: RuntimeWarning True keep, keep_every and keep_best .*checkpoint.keep (3 where' out)" 1 'are told of keep once, by one of them' || show
    is "$(grep -c 'a child: .*in them already: .*group=(0, 1, lambda data: \[data\])' out)" 1 'a child of one is told how it opens checkpoints' || show
    is "$(grep -c 'told: RuntimeWarning True Checkpoints(group=...) in a run: .*due() tells of no request' out)" 2 'and of a group' || show
    run "$MODULE_PYTHON" who.py "$TRASH/alone.who"
    is "$status:$(cat out)" 0: 'outside of a run both count' || show
    command -v mpirun >/dev/null || { skip 'no MPI: see scripts/install-deps' 2; return; }
    run timeout 100 mpirun $root --oversubscribe -n 2 "$MUSTER" exec -- "$MODULE_PYTHON" who.py "$TRASH/exec.who"
    isnt "$status" 0 'ranks of mpirun muster exec are not each alone'
    like "$(cat err out)" 'muster run -- mpirun -n 2 PROGRAM' 'which says what to do' || show
}

due_by() { # due_by GENERATIONS OPTION...
    local n=$1
    shift
    rm -rf run
    run timeout 100 "$MUSTER" run $root --run-dir run --set restart.policy=OnFailure --max-restarts 1 --nproc-per-node 2 "$@" -- \
        "$MODULE_PYTHON" "$PY/ckpt_due.py" "$TRASH/due.d" "$n"
}

# A save that has no room is refused before it begins; others are as they were.
test_no_space() {
    need_module numpy
    unshare -m sh -c 'mount -t tmpfs none /mnt' 2>/dev/null || { skip 'no tmpfs can be mounted here' 6; return; }
    mkdir -p full
    cat >full.py <<'END'
import os
import numpy
from muster import ckpt
with ckpt.Checkpoints("full/ck") as checkpoints:
    checkpoints.save(1, {"a": numpy.arange(1 << 18)})
    try:
        checkpoints.save(2, {"a": numpy.arange(1 << 20)})
    except ckpt.CheckpointError as error:
        print(error)
    print(len(os.listdir("full/ck")), "there")
    checkpoints.save(3, {"a": numpy.arange(8)})
    found = checkpoints.load(1)
    print("step", found.step, int(found.state["a"].sum()))
END
    run unshare -m sh -c 'mount -t tmpfs -o size=6m none full && exec "$@"' sh "$MODULE_PYTHON" full.py
    is "$status" 0 'a disk with little room' || show
    matches "$(cat out)" 'Errno 28. save step 2: .*/full/ck: its filesystem has [0-9]+ bytes left, and this checkpoint has 83[0-9]+' 'refuses with numbers' || show
    like "$(cat out)" '1 there' 'leaves nothing of it'
    like "$(cat out)" 'step 1 34359607296' 'and the one before as it was'
    is "$(grep -c Traceback err)" 0 'and the next one is saved'
    run unshare -m sh -c 'mount -t tmpfs none full && mkdir full/ck && mount -o remount,ro full && exec "$@"' sh "$MODULE_PYTHON" full.py
    matches "$(tail -n 1 err)" 'save step 1: in .*/full/ck: make step-000000000001-.*: Read-only' 'and one that is read-only has its name' || show
}

test_when() {
    need_module numpy
    due_by 1 --set checkpoint.every=1s
    is "$status:$(grep -c 'due 2, after 0 failures' out)" 0:2 'workers save as often as the job says' || show
    due_by 2 --set restart.backoff=1ms..1ms
    is "$status:$(grep -c 'due 16, after 1 failures' out)" 0:2 'or as muster chooses, soon where the run has just failed' || show
    is "$(grep -c 'before a save: True' out)" 2 'what a save costs is assumed before there is one' || show
    is "$(json save_plan.failures run/status.json),$(json save_plan.assumed run/status.json)" 1,false 'by what status tells'
    matches "$(json save_plan.every run/status.json)" '^[0-9.]+$' 'with the time'
    is "$(json save_levels.0.level run/status.json),$(json save_levels.1.level run/status.json)" memory,disk 'by level, too'
    is "$(json save_levels.0.saves run/status.json),$(json save_levels.0.failures run/status.json),$(json save_levels.1.failures run/status.json)" \
        1,1,0 'of which a worker that died needs memory alone'
    is "$(json save_levels.1.assumed run/status.json)" false 'and what the disk takes was measured'
}

test_mpi() {
    command -v mpirun >/dev/null && command -v mpicc >/dev/null || {
        skip 'no MPI: see scripts/install-deps'
        return
    }
    prog=$TRASH/ckpt_mpi
    mpicc -std=c11 -I"$MUSTER_BUILDDIR" -I"$MUSTER_SRCDIR/include" -o "$prog" "$MUSTER_SRCDIR/tests/lib/ckpt_mpi.c" \
        "$LIBMUSTER" -Wl,-rpath,"$MUSTER_BUILDDIR/.libs" 2>err || bail_out "$(cat err)"
    run timeout 120 mpirun $root --oversubscribe -n 3 "$prog" save mpi.d 5
    is "$status" 0 'three ranks save' || show
    run timeout 120 mpirun $root --oversubscribe -n 2 "$prog" load mpi.d 5
    is "$status" 0 'two ranks load' || show
    is "$(grep -c 'step 5, 0 wrong' out)" 2 'what was saved'
    local step
    for step in 10 11 12; do
        timeout 120 mpirun $root --oversubscribe -n 2 "$prog" save many.d $step 5 >out 2>err || show
    done
    is "$(ls many.d | sed 's/-[0-9a-f]*$//' | tr '\n' ' ')" 'step-000000000010 step-000000000012 ' 'the newest and a multiple stay'
    file=$(ls -d mpi.d/step-*)/r00001.safetensors
    truncate -s -1 "$file"
    run timeout 120 mpirun $root --oversubscribe -n 2 "$prog" load mpi.d 5
    isnt "$status" 0 'not once it is cut'
    is "$(grep -c 'r00001.safetensors is cut: expected [0-9]* bytes, found [0-9]*' out)" 2 'which all ranks tell' || show
}

# The example in C: saved by three workers, and by two that go on.
test_charlm() {
    prog=$MUSTER_BUILDDIR/examples/charlm/charlm
    yes 'the quick brown fox jumps over the lazy dog' | head -n 200 >text
    small=(--data "$TRASH/text" --width 16 --heads 2 --layers 1 --batch 6 --context 16 --save-together
        --checkpoint-dir "$TRASH/charlm.d" --checkpoint-every 10 --keep 3)
    rm -rf run
    run timeout 120 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node 3 -- "$prog" "${small[@]}" --steps 20
    is "$status" 0 'charlm saves by three workers' || show
    is "$(json resume_step <run/status.json)" 20 'the run knows of it'
    rm -rf run
    run timeout 120 "$MUSTER" run $root --run-dir run --max-restarts 0 --nproc-per-node 2 -- "$prog" "${small[@]}" --steps 30
    is "$status" 0 'and trains on with two' || show
    like "$(cat out)" 'resumed from step 20' 'from there'
    is "$("$MUSTER" ckpt verify charlm.d | grep -c ' whole')" 3 'three are there, and whole'
}

run_cases
