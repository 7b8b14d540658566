#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Pods that are killed and made again, as a StatefulSet or a JobSet does: one with
# workers comes back into the run, and the one with the launcher goes on with it.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
sanitized && skip_all 'the image has no sanitizer libraries'
need_torch
BED=$TRASH/bed SHARED=$BED/shared
# The PyTorch here, for the Python there.
torch=$("$TORCH_PYTHON" -c 'import importlib.util, os; print(os.path.dirname(os.path.dirname(importlib.util.find_spec("torch").origin)))')
rig_up container "$BED" --pods 3 --volume "$torch:/torch"
charlm="/usr/local/libexec/muster/examples/charlm/charlm --width 16 --heads 2 --layers 1 --context 16 --batch 6"
launch="muster run --ssh /shared/ssh/client --nproc-per-node 1"

pods() { local verb=$1; shift; "$MUSTER_SRCDIR/tests/rigs/container" "$verb" "$BED" "$@"; }
logs() { pods logs "${1:-pod0}" 2>&1; }
field() { "$MUSTER" status "$SHARED/$dir" -o json 2>/dev/null | json "$1"; }
# running N [GENERATION]: N workers of that one, or of a later one: a node that comes
# back is taken in without being waited for.
running() {
    [ "$(field state)" = Running ] && [ "$(field "workers.$(($1 - 1)).state")" = Running ] &&
        ! field "workers.$1.state" && [ "$(field generation)" -ge "${2:-1}" ]
}
show_run() { diag "$(logs | tail -n 20)"; diag "$(grep -v checkpoint_saved "$SHARED/$dir/events.jsonl" | tail -n 20)"; diag "$(tail -n 20 "$SHARED/$dir/mpirun.log")"; }
idle() { ! pods exec "$1" -- pgrep -l 'sleep|muster|charlm|orted'; }
nobody_left() {
    local p
    for p; do ok "nobody is left in $p" wait_for 60 idle "$p" || diag "$(pods exec "$p" -- ps ax)"; done
    ok 'and no memory' wait_for 60 eval '[ -z "$(for p in '"$*"'; do pods exec $p -- ls -A /dev/shm; done)" ]'
}
up() { local p; for p in pod1 pod2; do pods sshd $p; done; }

charlm_over() { # DIR HOSTS OPTION...
    local run=$1 hosts=$2
    shift 2
    dir=$run
    pods start pod0 -- $launch --run-dir $run --hosts $hosts "$@"
}

trains() {
    local step
    step=$(field step)
    wait_for 60 eval '[ "$(field step)" -gt '"$((step + 5))"' ]'
}
# The next MPI world is made of all who answer.
next_world() {
    trains && pods exec pod0 -- pkill -KILL -x mpirun
    wait_for 60 eval '[ "$(field "nodes.'"$1"'.host")" = pod2 ]'
}

# At the old address, and at another one.
test_worker_again() {
    up
    charlm_over again pod0,pod1,pod2 --nnodes 2:3 -- $charlm --steps 1000000 --checkpoint-every 100
    ok 'charlm over three pods' wait_for 60 eval 'running 3 && [ "$(field resume_step)" -gt 0 ]' || show_run
    pods kill pod2 KILL
    ok 'goes on over two when one is killed' wait_for 60 running 2 2 || show_run
    pods sshd pod2
    ok 'one that comes in its place is taken into the run' next_world 3 || show_run
    kill_worker pod1
    ok 'and takes part from the next restart on, at the latest' wait_for 60 running 3 3 || show_run
    ok 'in training' trains || show_run
    pods kill pod2 KILL
    ok 'it goes on without that one, too' wait_for 60 running 2 4 || show_run
    moved pod2 10.77.0.77
    pods sshd pod2
    ok 'and with one at another address' next_world 4 || show_run
    kill_worker pod1
    ok 'that makes three again' wait_for 60 running 3 5 || show_run
    ok 'which train' trains || show_run
    is "$(field node_failures)" 2 'two nodes were lost'
    pods stop pod0 60
    is "$(pods state pod0 ExitCode):$(field verdict.resumable)" 75:true 'it stops with its pod' || show_run
    nobody_left pod1 pod2
    moved pod2 10.77.0.3
}
kill_worker() { pods exec "$1" -- pkill -KILL -x charlm; }
# moved POD ADDRESS: its network and its name have another one.
moved() {
    local old
    old=$(awk -v p="$1" '$2 == p { print $1 }' "$BED/state/etc-hosts")
    nsenter --net="/proc/$(pods pid "$1")/ns/net" sh -c "ip addr del $old/24 dev eth0; ip addr add $2/24 dev eth0"
    sed "s/^$old /$2 /" "$BED/state/etc-hosts" >hosts
    cat hosts >"$BED/state/etc-hosts"
}

test_launcher_again() {
    up
    charlm_over launcher pod0,pod1,pod2 --nnodes 3 --attach -- $charlm --steps 1000000 --checkpoint-every 100
    ok 'charlm over three pods' wait_for 60 eval 'running 3 && [ "$(field resume_step)" -gt 0 ]' || show_run
    pods kill pod0 KILL
    charlm_over launcher pod0,pod1,pod2 --nnodes 3 --attach -- $charlm --steps 1000000 --checkpoint-every 100
    ok 'goes on when the one with the launcher is killed and comes again' wait_for 60 eval 'running 3 2' || show_run
    ok 'from where it was' wait_for 60 eval 'logs | grep -q "resumed from step"' || show_run
    ok 'in training' trains || show_run
    is "$(field starts)" 2 'in the same run'
    pods stop pod0 60
    is "$(pods state pod0 ExitCode)" 75 'and stops with its pod' || show_run
    nobody_left pod1 pod2
}

# As an MPIJob has it: the launcher's pod has no workers.
test_launcher_apart() {
    up
    charlm_over apart pod1,pod2 --nnodes 2 --attach -- $charlm --steps 1000000 --checkpoint-every 100
    ok 'charlm over two pods' wait_for 60 eval 'running 2 && [ "$(field resume_step)" -gt 0 ]' || show_run
    pods kill pod0 KILL
    charlm_over apart pod1,pod2 --nnodes 2 -- $charlm --steps 1000000 --checkpoint-every 100
    is "$(pods wait pod0)" 1 'that go on without the launcher, beside which there is none' || show_run
    like "$(logs)" 'muster attach' 'which is said'
    charlm_over apart pod1,pod2 --nnodes 2 --attach -- $charlm --steps 1000000 --checkpoint-every 100
    ok 'are taken over by the next one' wait_for 60 eval 'logs | grep -q "attached to run"' || show_run
    ok 'which gives them a new MPI world' trains || show_run
    is "$(field starts):$(field generation):$(field restarts)" 1:1:0 'and do not notice' || show_run
    pods stop pod0 60
    is "$(pods state pod0 ExitCode)" 75 'it stops with that pod' || show_run
    nobody_left pod1 pod2
}

# An unmodified PyTorch script.
test_ddp() {
    local version='import sys; print(sys.version_info[:2])'
    up
    [ "$("$TORCH_PYTHON" -c "$version")" = "$(pods exec pod1 -- python3 -c "$version")" ] ||
        { skip_rig 'PyTorch is there for another Python' 7; return; }
    dir=ddp
    pods start pod0 --env PYTHONPATH=/torch --env OMP_NUM_THREADS=1 -- $launch --run-dir ddp --hosts pod0,pod1,pod2 \
        --nnodes 2:3 -- python3 /usr/local/libexec/muster/examples/ddp.py --steps 80 --step-time 0.2
    ok 'PyTorch over three pods' wait_for 120 eval 'logs | grep -q "step 20 "' || show_run
    pods kill pod2 KILL
    is "$(pods wait pod0)" 0 'comes to the end without one that is killed' || show_run
    matches "$(logs)" 'world 2: from step [246]0 to 80' 'from a checkpoint'
    like "$(logs)" 'done: accuracy' 'with its result'
    is "$(field node_failures):$(field restarts)" 1:0 'by one loss'
    nobody_left pod1
}

test_succeeded() {
    local i
    dir=done
    for i in 1 2; do
        pods start pod0 -- muster run --run-dir done --attach -- true
        is "$(pods wait pod0):$(field starts)" 0:1 'what has succeeded is not run once more' || show_run
    done
    like "$(logs)" 'is over: Succeeded' 'which is said'
}

run_cases
