#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What torchrun's agents promise of a group of workers over one or several nodes:
# ranks, results, failures and restarts. Agents on this machine count as nodes.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
export XDG_RUNTIME_DIR=$TRASH/rt OMP_NUM_THREADS=1
mkdir -m 700 rt
PY=$MUSTER_SRCDIR/tests/py
need_torch
# The system's own PyTorch is imported faster, and one is enough here.
quick=$TORCH_PYTHON
! has_torch /usr/bin/python3 || quick=/usr/bin/python3

mrun() {
    rm -rf run
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --agent-is-node --set restart.backoff=1ms..1ms "$@"
}
# Several agents that share the processes of one node, unevenly where they do not
# divide.
shared() {
    rm -rf run
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --set restart.backoff=1ms..1ms "$@"
}
field() { json "$1" <run/status.json; }
nobody_left() { run_gone "$(json id run/run.json)"; }

# Ranks are 0 to N - 1, in one piece for each agent, the same for each role and its
# size; agents count from 0.
test_ranks() {
    cat >place.sh <<'END'
#!/bin/sh
echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE
END
    chmod +x place.sh
    cat >check.py <<'END'
import collections, sys
groups, role = collections.defaultdict(list), set()
lines = [l.split("] ")[1].split() for l in open("places")]
for rank, local, group, name, in_role in lines:
    (rank, world), (local, n_local), (group, n_groups) = (map(int, x.split("/")) for x in (rank, local, group))
    assert world == len(lines) and in_role == "%d/%d" % (rank, world), (rank, world, in_role)
    groups[group].append((rank, local, n_local, n_groups))
    role.add(name)
assert role == {sys.argv[1]}, role
assert sorted(groups) == list(range(len(groups))), groups
at = 0
for group in range(len(groups)):
    for i, (rank, local, n_local, n_groups) in enumerate(sorted(groups[group])):
        assert (rank, local, n_local, n_groups) == (at, i, len(groups[group]), len(groups)), (group, groups[group])
        at += 1
print(*[len(groups[g]) for g in sorted(groups)])
END
    mrun --nnodes 3 --nproc-per-node 2 --set torch.role=trainer -- ./place.sh
    is "$status" 0 'three agents with two workers each' || show
    cp out places
    run python3 check.py trainer
    is "$status,$(cat out)" '0,2 2 2' 'have their ranks in order' || show
    shared --agents-per-node 3 --nproc-per-node 7 -- ./place.sh
    is "$status" 0 'three agents with seven workers together' || show
    cp out places
    run python3 check.py default
    is "$status,$(cat out)" '0,3 2 2' 'too' || show
    mrun --nnodes 2 --nproc-per-node 2 --max-restarts 2 -- sh -c '[ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 7; ./place.sh'
    is "$status,$(field restarts)" 0,2 'a group that was started again twice' || show
    cp out places
    run python3 check.py default
    is "$status,$(cat out)" '0,2 2' 'likewise' || show
}

# Each worker gives its rank, and all get the sum.
test_sum() {
    local case n
    cp "$PY/gloo_allreduce.py" .
    for case in '--nnodes 2 --agent-is-node --nproc-per-node 2:4' \
        '--agents-per-node 2 --nproc-per-node 3:3' '--agents-per-node 3 --nproc-per-node 4:4'; do
        n=${case##*:}
        shared ${case%:*} --set env.GROUP=all -- "$quick" gloo_allreduce.py
        is "$status,$(grep -c "of $n in all: ok" out)" "0,$n" "the sum over ${case%:*}" || show
    done
}

# A program finds out who started it, and meets the others in either way.
test_launched() {
    cat >launched.py <<'END'
import os, sys
import torch.distributed as dist
print("launched", dist.is_torchelastic_launched())
method = sys.argv[1]
if method == "tcp":
    method = "tcp://%s:%s" % (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
dist.init_process_group("gloo", init_method=method, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
dist.barrier()
dist.destroy_process_group()
END
    local method port
    for method in env:// tcp; do
        mrun --nproc-per-node 2 -- "$quick" launched.py $method
        is "$status,$(grep -c 'launched True' out)" 0,2 "$method, under muster" || show
    done
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    run env RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$quick" launched.py env://
    is "$status,$(cat out)" '0,launched False' 'and without' || show
}

# All fail at once: any of them may be the first, and who started muster learns the
# same as the worker that was.
test_sad() {
    cat >sad.py <<'END'
import json, os, sys
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as f:
    json.dump({"message": {"message": "ValueError: sad %s" % os.environ["RANK"],
                           "extraInfo": {"py_callstack": "Traceback", "timestamp": "1795206357"}}}, f)
sys.exit(1)
END
    local rank
    rm -rf run
    run env TORCHELASTIC_ERROR_FILE="$PWD/reply.json" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run \
        --nproc-per-node 2 --max-restarts 0 -- python3 sad.py
    rank=$(field failure.rank)
    is "$status" 1 'two workers that both fail' || show
    matches "$rank" '^[01]$' 'one of them is the cause'
    like "$(cat err)" "ValueError: sad $rank" 'in its own words'
    is "$(json message.message reply.json)" "ValueError: sad $rank" 'which muster passes on to who started it' || show
    is "$(json message.extraInfo.timestamp reply.json)" 1795206357 'with its time'
    is "$(json message.errorCode reply.json)" 1 'and its exit status'
    is "$(stat -c %a reply.json)" 600 'in a private file'
    unlike "$(cat err)" 'TORCHELASTIC_ERROR_FILE' 'without a word about that'
    rm -rf run reply.json
    run env TORCHELASTIC_ERROR_FILE="$PWD/reply.json" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run \
        --nproc-per-node 2 --max-restarts 0 -- sh -c '[ $RANK = 0 ] || kill -SEGV $$; sleep 1000'
    is "$status,$(json message.errorCode reply.json)" 139,-11 'also where a signal ended it' || show
    like "$(json message.message reply.json)" 'rank 1 (node 0' 'and it left no file'
    run env TORCHELASTIC_ERROR_FILE="$PWD/none.json" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run2 \
        --nproc-per-node 1 --max-restarts 1 --set restart.backoff=1ms..1ms -- sh -c '[ $TORCHELASTIC_RESTART_COUNT = 1 ]'
    is "$status,$(test -e none.json && echo made)" '0,' 'but not of a failure that was got over' || show
    run env TORCHELASTIC_ERROR_FILE="$PWD/no/such/dir" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run3 \
        --nproc-per-node 1 --max-restarts 0 -- sh -c 'exit 5'
    is "$status" 5 'where it cannot be written the end is the same'
    like "$(cat err)" 'TORCHELASTIC_ERROR_FILE is not written' 'and that is told' || show
}

# Workers of even rank end well, those of odd rank never do.
test_bipolar() {
    cat >bipolar.sh <<'END'
#!/bin/sh
echo "$RANK" >>"ran.$TORCHELASTIC_RESTART_COUNT"
[ $((RANK % 2)) = 0 ] || exit 9
END
    chmod +x bipolar.sh
    rm -f ran.*
    mrun --nnodes 2 --nproc-per-node 2 --max-restarts 2 -- ./bipolar.sh
    is "$status,$(field state)" 9,Failed 'workers of which some always fail' || show
    is "$(field restarts),$(field max_restarts)" 2,2 'use up all restarts'
    is "$(find . -name 'ran.*' | sort | tr '\n' ' ')" './ran.0 ./ran.1 ./ran.2 ' 'and no more'
    matches "$(field failure.rank)" '^[13]$' 'the cause is one of those'
    ok 'nobody is left' wait_for 60 nobody_left
}

# Those that have ended well wait for nobody, and nobody minds.
test_drift() {
    local end
    drifted() { [ "$(field workers.0.state)" = Exited ] && [ "$(field workers.1.state)" = Running ]; }
    for end in 0 6; do
        rm -rf run go
        spawn drift "$MUSTER" run --allow-run-as-root --run-dir run --agent-is-node --nnodes 2 --nproc-per-node 1 \
            --max-restarts 0 -- sh -c "[ \$RANK = 1 ] || exit 0; until [ -e go ]; do sleep 0.05; done; exit $end"
        ok 'a worker has ended, long before the other' wait_for 60 drifted || diag "$(cat drift.err)"
        is "$(field state)" Running 'which goes on'
        : >go
        wait_exit 60 "$spawned"
        is "$status" "$end" "and how it ends, $end, is how the run does" || diag "$(cat drift.err)"
    done
    is "$(field failure.rank)" 1 'by its fault alone'
    ok 'nobody is left' wait_for 60 nobody_left
}

# with_two OPTION...: two agents with a worker each, that end when there is a file go.
with_two() {
    rm -rf run go
    spawn two "$MUSTER" run --allow-run-as-root --run-dir run --agent-is-node --nproc-per-node 1 --max-restarts 0 "$@" -- \
        sh -c 'echo $MUSTER_GENERATION $RANK/$WORLD_SIZE; until [ -e go ]; do sleep 0.05; done'
    two=$spawned
    ok 'two agents' wait_for 60 eval '[ "$(grep -c "1 [01]/2" two.out)" = 2 ]' || diag "$(cat two.err)"
    ok 'run' wait_for 60 eval '[ "$(field state)" = Running ]'
    kill -KILL "$(field nodes.1.agent_pid)"
}

# One of two is killed, and started again: the job goes on, and ends well.
test_double_agent_fault_tolerance() {
    with_two --nnodes 2
    wait_exit 60 "$two"
    is "$status" 75 'without one of two that it needs a job stops, to be resumed' || diag "$(cat two.err)"
    spawn two "$MUSTER" resume --allow-run-as-root run
    two=$spawned
    ok 'both are started again' wait_for 60 eval '[ "$(grep -c "2 [01]/2" two.out)" = 2 ]' || diag "$(cat two.err)"
    : >go
    wait_exit 60 "$two"
    is "$status,$(field state),$(field restarts)" 0,Succeeded,0 'and the job ends well' || diag "$(cat two.err)"
    ok 'nobody is left' wait_for 60 nobody_left
}

# One of one to two is killed: the other is enough.
test_double_agent_elastic() {
    with_two --nnodes 1:2 --set elastic.growInterval=1h
    ok 'the other goes on alone' wait_for 60 grep -q '2 0/1' two.out || diag "$(cat two.err)"
    : >go
    wait_exit 60 "$two"
    is "$status,$(field state)" 0,Succeeded 'and ends well' || diag "$(cat two.err)"
    is "$(field node_failures),$(field restarts),$(field nodes.1.state)" 1,0,Lost 'without the one that was killed' || show
    ok 'nobody is left' wait_for 60 nobody_left
}

# All end well in their first life, and none has another.
test_once() {
    rm -f lives
    mrun --nnodes 2 --nproc-per-node 3 --max-restarts 5 -- sh -c 'echo $RANK >>lives'
    is "$status,$(sort -n lives | tr '\n' ' ')" '0,0 1 2 3 4 5 ' 'a group that ends well is started once' || show
    is "$(field state),$(field restarts)" Succeeded,0 'and has used no restart'
}

# PyTorch's own client asks; whoever does not release its timer in time gets its signal.
test_timers() {
    cat >timed.py <<'END'
import os, subprocess, sys, time
import torch.distributed.elastic.timer as timer
file = os.environ["TORCHELASTIC_TIMER_FILE"]
timer.configure(timer.FileTimerClient(file))
if len(sys.argv) > 1:
    with timer.expires(after=0.1, scope="in a child"):
        time.sleep(1000)
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
with timer.expires(after=600, scope="long"):
    if first and os.environ["RANK"] == "0":
        print("mode %o" % os.stat(file).st_mode, flush=True)
        open("told", "w").close()
with timer.expires(after=0.1, scope="quick"):
    pass
time.sleep(0.5)
if first and os.environ["RANK"] == "1":
    while not os.path.exists("told"):  # else this one may end it first
        time.sleep(0.05)
    if os.environ["WHO"] == "child":
        timer.configure(timer.FileTimerClient(file, signal=0))
    with timer.expires(after=0.1, scope="epoch 3"):
        if os.environ["WHO"] == "child":
            subprocess.run([sys.executable, __file__, "child"], start_new_session=True)
        time.sleep(1000)
print("over")
END
    rm -f told
    export TORCHELASTIC_ENABLE_FILE_TIMER=1
    mrun --nproc-per-node 2 --max-restarts 1 --set env.WHO=worker -- "$quick" timed.py
    is "$status,$(field restarts),$(grep -cF '[1] over' out)" 0,1,1 'a worker that does not release its timer' || show
    like "$(cat out)" 'mode 10600' 'by a private FIFO'
    like "$(cat err)" 'rank 1 (node 0' 'is named'
    like "$(cat err)" 'hangs: timer epoch 3 expired' 'with the timer' || show
    mrun --nproc-per-node 2 --max-restarts 0 --set env.WHO=child -- "$quick" timed.py
    is "$status,$(field failure.rank)" 137,1 'one whose child does not ends the run' || show
    like "$(cat err)" 'timer in a child expired' 'by the timer of the child' || show
    like "$(cat err)" 'timer epoch 3 of process' 'a timer without a signal is told alone' || show
    ok 'nobody is left' wait_for 60 nobody_left
    is "$(find rt /tmp/muster-"$(id -u)" -name '*.timers' 2>/dev/null | wc -l)" 0 'nor is a FIFO'
}

# Who has the pid of somebody else gets that one no signal, and noise is told once.
test_timers_of_others() {
    export TORCHELASTIC_ENABLE_FILE_TIMER=1
    spawn other sleep 1000
    mrun --nproc-per-node 1 --max-restarts 0 --set env.OTHER="$spawned" -- sh -c '
        ask() { echo "{\"pid\": $1, \"scope_id\": \"$2\", \"expiration_time\": 1, \"signal\": 9}" >"$TORCHELASTIC_TIMER_FILE"; }
        echo noise >"$TORCHELASTIC_TIMER_FILE"
        head -c 100000 /dev/zero >"$TORCHELASTIC_TIMER_FILE"
        echo >"$TORCHELASTIC_TIMER_FILE"
        ask $OTHER stranger; ask $PPID agent; ask 1 init; ask 4194304 nobody
        ask $$ own; sleep 1000'
    is "$status" 137 'a worker may end itself' || show
    like "$(cat err)" 'timer own expired' 'and it is named'
    is "$(grep -c 'is left out' err)" 1 'noise is told once' || show
    ok 'a process of somebody else lives' kill -0 "$spawned"
    kill "$spawned"
    mrun --nproc-per-node 1 --set env.TORCHELASTIC_ENABLE_FILE_TIMER=0 -- sh -c 'echo "file ${TORCHELASTIC_TIMER_FILE-none}"'
    like "$(cat out)" 'file none' 'where nobody asks for timers there are none' || show
}

run_cases
