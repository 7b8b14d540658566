#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster as the entrypoint of a container, and across pods with ssh: a user that
# is not root, a root that cannot be written, 64 MB of shared memory, a memory
# limit, and a grace time.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
sanitized && skip_all 'the image has no sanitizer libraries'
BED=$TRASH/bed SHARED=$BED/shared
rig_up container "$BED" --pods 3
charlm=/usr/local/libexec/muster/examples/charlm/charlm

pods() { local verb=$1; shift; "$MUSTER_SRCDIR/tests/rigs/container" "$verb" "$BED" "$@"; }
logs() { pods logs "$1" 2>&1; }
field() { "$MUSTER" status "$SHARED/$1" -o json 2>/dev/null | json "$2"; }
running() { [ "$(field "$1" state)" = Running ] && [ "$(field "$1" workers.1.state)" = Running ]; }

test_entrypoint() {
    pods start pod0 -- muster run --nproc-per-node 2 -- sh -c 'echo $RANK of $WORLD_SIZE on $(hostname)'
    is "$(pods wait pod0)" 0 'a job in a pod succeeds' || diag "$(logs pod0)"
    is "$(pods logs pod0 2>/dev/null | grep -o '[01] of 2 on pod0' | sort | tr '\n' ';')" '0 of 2 on pod0;1 of 2 on pod0;' \
        'with its workers'
    pods start pod0 -- muster run --nproc-per-node 2 -- python3 -c \
        'import glob, sys; sys.path += glob.glob("/usr/local/lib/python3*/*-packages"); import muster; print("module", muster.rank())'
    is "$(pods wait pod0)" 0 'one in Python too' || diag "$(logs pod0)"
    is "$(pods logs pod0 2>/dev/null | grep -o 'module [01]$' | sort | tr '\n' ';')" 'module 0;module 1;' 'with the module'
    ok 'and leaves its records in the volume' test -e "$SHARED/muster-runs/sh/latest"
    pods start pod0 -- muster run --nproc-per-node 2 --max-restarts 0 -- sh -c 'exit $((RANK + 7))'
    matches "$(pods wait pod0)" '^[78]$' 'a failed one ends with the status of its worker'
}

test_charlm() {
    pods start pod0 -- muster run --run-dir one --nproc-per-node 2 -- $charlm --steps 20 --batch 8
    is "$(pods wait pod0)" 0 'charlm trains in a pod with 64 MB of shared memory' || diag "$(logs pod0)"
    like "$(logs pod0)" 'step 20/20' 'to its last step'
    is "$(field one state)" Succeeded 'as the run directory says'
}

test_pods() {
    local p
    for p in pod1 pod2; do pods sshd $p; done
    pods start pod0 -- muster run --run-dir three --ssh /shared/ssh/client --hosts pod0,pod1,pod2 --nnodes 3 --nproc-per-node 1 -- \
        $charlm --steps 20 --batch 6
    is "$(pods wait pod0)" 0 'charlm trains over three pods' || diag "$(logs pod0; cat "$SHARED/three/mpirun.log")"
    is "$(field three state):$(field three nodes | grep -o '"host": "pod[012]"' | tr '\n' ';')" \
        'Succeeded:"host": "pod0";"host": "pod1";"host": "pod2";' 'as the run directory says'
    pods start pod0 -- muster run --run-dir lost --ssh /shared/ssh/client --hosts pod0,pod1,pod2 --nnodes 3 --nproc-per-node 1 -- \
        sleep 1000
    ok 'a run over pods' wait_for 60 running lost || diag "$(logs pod0)"
    ok 'that loses one' pods kill pod2 KILL
    is "$(pods wait pod0)" 75 'ends resumable' || diag "$(logs pod0)"
    like "$(logs pod0)" pod2 'and names it'
    ok 'with nobody left in another' wait_for 60 not pods exec pod1 -- pgrep -x 'sleep|muster.*'
    for p in pod1 pod2; do pods remove $p; done
}

test_grace() {
    pods start pod0 -- muster run --run-dir grace --nproc-per-node 2 -- \
        $charlm --steps 100000 --batch 8 --checkpoint-every 100000
    ok 'charlm trains' wait_for 60 eval 'logs pod0 | grep -q "step [0-9]*/100000"' || diag "$(logs pod0)"
    ok 'and the pod is told to go' pods stop pod0 60
    is "$(pods state pod0 ExitCode)" 75 'it ends resumable' || diag "$(logs pod0)"
    ok 'with a checkpoint' eval 'ls "$SHARED"/grace/ckpt/*.ckpt' || diag "$(logs pod0)"
    is "$(field grace state):$(field grace verdict.resumable)" Stopped:true 'as the run directory says'
    pods start pod0 -- muster run --run-dir grace2 --nproc-per-node 1 -- sh -c 'trap "echo told; exit 0" TERM; echo up; while :; do sleep 0.1; done'
    ok 'another job runs' wait_for 60 eval 'logs pod0 | grep -q up'
    ok 'and is told to go' pods stop pod0 60
    like "$(logs pod0)" told 'its worker hears of it' || diag "$(logs pod0)"
    isnt "$(pods state pod0 ExitCode)" 137 'and there is no need to kill'
}

# As the kubelet does it, which kills 30 s after it has told, to a worker that saves for
# long, and then does not go.
test_whole_grace() {
    cat >"$SHARED/slow.py" <<'END'
import glob, os, signal, sys, time
sys.path += glob.glob("/usr/local/lib/python3*/*-packages")
import muster
told = []
signal.signal(signal.SIGTERM, lambda *a: told.append(1))
print("up", flush=True)
while not told:
    time.sleep(0.1)
path = os.environ["MUSTER_RUN_DIR"] + "/ckpt/last"
with open(path, "w") as f:
    for i in range(15):
        print(i, file=f, flush=True)
        time.sleep(1)
muster.checkpoint_saved(path, 15)
while True:
    time.sleep(1)
END
    pods start pod0 -- env KUBERNETES_SERVICE_HOST=10.0.0.1 muster run --run-dir whole --nproc-per-node 1 -- python3 /shared/slow.py
    ok 'a job runs' wait_for 60 eval 'logs pod0 | grep -q up' || diag "$(logs pod0)"
    ok 'and its pod is told to go' pods stop pod0 30
    is "$(pods state pod0 ExitCode)" 75 'it ends before it is killed' || diag "$(logs pod0)"
    is "$(wc -l <"$SHARED/whole/ckpt/last"):$(field whole resume_step)" 15:15 'with a checkpoint that is whole, and known'
    is "$(field whole state):$(field whole verdict.resumable)" Stopped:true 'as the run directory says'
}

# A worker that takes more memory than the pod has.
greedy='[ $RANK = 1 ] && exec python3 -c "x = bytearray(512 << 20)"; exec sleep 1000'

test_memory() {
    local limit=(--memory=128m --memory-swap=128m)
    pods start pod0 "${limit[@]}" -- muster run --run-dir greedy --nproc-per-node 2 -- sh -c "$greedy"
    is "$(pods wait pod0)" 137 'a job whose worker takes too much memory fails' || diag "$(logs pod0)"
    like "$(logs pod0)" 'rank 1 (node 0, pod0) was killed by the kernel for lack of memory' 'the worker and the reason are named'
    is "$(field greedy restarts):$(field greedy failure.rank)" 0:1 'it is not started again, to do the same'
    pods start pod0 "${limit[@]}" -- muster run --run-dir killed --nproc-per-node 2 --max-restarts 1 --set restart.backoff=1s..1s -- \
        sh -c '[ $MUSTER_GENERATION.$RANK = 1.1 ] && kill -9 $$; [ $MUSTER_GENERATION = 2 ] || exec sleep 1000'
    is "$(pods wait pod0)" 0 'one that was killed by somebody is' || diag "$(logs pod0)"
    is "$(field killed restarts)" 1 'once'
}

run_cases
