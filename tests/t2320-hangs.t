#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hang.timeout, and slow ranks: workers that make no progress are found, their stacks kept, the
# one that is behind is named, and all are started again; and nobody is taken to
# hang who is stopped, slow, waited for, or not looked at.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
PY=$MUSTER_SRCDIR/tests/py
export PYTHONPATH=$MUSTER_SRCDIR/python

mrun() {
    rm -rf run
    run timeout 180 "$MUSTER" run --allow-run-as-root --run-dir run "$@"
}
field() { "$MUSTER" status run -o json | json "$1"; }
start_run() {
    rm -rf run
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run "$@"
    runner=$spawned
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
}
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.0.state)" = Running ]; }
events() { grep -c "\"event\":\"$1\"" run/events.jsonl; }
nobody_left() { run_gone "$(json id run/run.json)"; }
# matches TEXT PATTERN NAME
matches() { printf '%s\n' "$1" | grep -qE -- "$2"; is $? 0 "$3" || diag "$1"; }
reason() { grep '"event":"restarting".*"failure"' run/events.jsonl | head -n 1 | json failure.reason /dev/stdin; }

test_sleeps() {
    touch others_go_on
    mrun --nproc-per-node 2 --hang-timeout 1s --max-restarts 1 -- python3 "$PY/hang_once.py" 1 sleep say
    rm -f others_go_on
    is "$status" 0 'a worker that sleeps is ended, and the next try is well' || show
    is "$(field restarts)" 1 'that was a restart of the budget'
    matches "$(reason)" 'rank 1 \(.*\) hangs: .* for [0-9]+s' 'it is the cause' || show
    like "$(reason)" 'errors/1-1.stack' 'with where its stack is'
    matches "$(cat run/errors/1-1.stack)" 'hang_once.py", line [0-9]+ in stuck' 'which has the frame of Python'
    ok 'there is one of the other worker' test -s run/errors/1-0.stack
    like "$(cat err)" 'in stuck' 'the terminal has the frame, too'
    is "$(events hang)" 1 'there is an event of it'
    is "$(find run/errors -type f ! -perm 600)" '' 'stacks are private'
    ok 'nobody is left' wait_for 60 nobody_left
}

test_spins() {
    mrun --nproc-per-node 2 --hang-timeout 2s --max-restarts 1 -- python3 "$PY/hang_once.py" 1 spin report
    is "$status" 0 'a worker that spins and reports no more' || show
    matches "$(reason)" 'rank 1 .* hangs: no report.*its last step is 3, others are at' 'is named by its step'
    cat >spin.c <<'END'
#include <stdio.h>
#include <stdlib.h>
volatile unsigned turns;
int main(void)
{
    puts("at work");
    fflush(stdout);
    while (getenv("TORCHELASTIC_RESTART_COUNT")[0] == '0') {
        turns++;
    }
    return 0;
}
END
    cc -o spin spin.c || bail_out 'no C compiler'
    mrun --hang-timeout 2s --max-restarts 1 -- ./spin
    is "$status" 0 'a C program that spins' || show
    like "$(reason)" 'hangs: no output for' 'is known by its silence'
    if command -v gdb >/dev/null || command -v eu-stack >/dev/null; then
        matches "$(cat run/errors/1-0.stack)" '^#[0-9].* main( |$)' 'its native stack is kept'
    else
        skip 'no gdb, no eu-stack: see scripts/install-deps' 1
    fi
}

test_blocked() {
    mkfifo never
    mrun --hang-timeout 1s --max-restarts 0 -- sh -c 'read x <never'
    is "$status" 137 'one that waits in a read, without restarts: as if it was killed' || show
    like "$(field verdict.reason)" 'hangs: no CPU time for' 'the verdict says so'
    is "$(field failure.signal)" 9 'and what it was ended by'
    matches "$(cat run/errors/1-0.stack)" 'process [0-9]+ \(sh\), state S' 'the state of the process is kept'
    mrun --hang-timeout 1s --max-restarts 0 -- sh -c 'sleep 1000; true'
    like "$(cat run/errors/1-0.stack)" '(sleep), state S' 'and of those below it' || show
}

# The stacks of all nodes, and the failure told by the node that has it.
test_nodes() {
    touch others_go_on
    mrun --nnodes 3 --agent-is-node --nproc-per-node 1 --hang-timeout 2s --max-restarts 1 -- \
        python3 "$PY/hang_once.py" 2 spin report
    rm -f others_go_on
    is "$status" 0 'on three nodes' || show
    like "$(reason)" 'rank 2 (node 2' 'the last one is behind'
    is "$(ls run/errors | tr '\n' ' ')" '1-0.stack 1-1.stack 1-2.stack ' 'all have left a stack'
    mrun --nnodes 2 --agent-is-node --nproc-per-node 1 --hang-timeout 1s --max-restarts 0 -- \
        sh -c '[ "$RANK" = 1 ] || exec sleep 3600'
    is "$status" 137 'a node that is done is not waited for' || show
    like "$(field failure.reason)" 'rank 0 (node 0' 'and the other one is named'
}

# Ranks are other ones after a node was lost, and so are those that hang.
test_after_loss() {
    cat >later.py <<'END'
import os, time
generation = int(os.environ["MUSTER_GENERATION"])
step = 0
while generation == 1 or step < 8:
    if generation == 2 and os.environ["RANK"] == "1" and step == 4:
        time.sleep(3600)
    print("step", step, flush=True)
    step += 1
    time.sleep(0.05)
END
    start_run --nnodes 1:3 --agent-is-node --nproc-per-node 1 --hang-timeout 2s --max-restarts 1 -- python3 later.py
    kill -KILL "$(field nodes.1.agent_pid)"
    wait_exit 120 "$runner"
    is "$status" 0 'a run that has lost a node, and hangs then' || diag "$(cat run.err)"
    matches "$(reason)" 'rank 1 \(node 2, .* hangs: ' 'is told of with where that is now' || diag "$(cat run.err)"
    ok 'and leaves its stacks' test -s run/errors/2-1.stack
}

test_ddp() {
    mrun --nproc-per-node 2 --hang-timeout 5s --max-restarts 1 -- "$TORCH_PYTHON" "$PY/hang_once.py" 1 sleep gloo
    is "$status" 0 'a rank that leaves the others waiting in a collective' || show
    matches "$(reason)" 'rank 1 .* hangs: .*others wait in a collective' 'is named, though all are idle'
    like "$(cat run/errors/1-1.stack)" 'in stuck' 'its stack shows why'
    like "$(cat run/errors/1-0.stack)" 'backward' 'that of the other one where it waits'
}

# Gloo's thread polls as long as it lives: on a slow machine that is CPU time which looks
# like work.
test_polls() {
    cat >polls.py <<'END'
import ctypes, sys, threading, time
def poll():
    ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        since = time.thread_time()
        while time.thread_time() - since < 0.001:
            pass
        time.sleep(0.02)
thread = threading.Thread(target=poll)
thread.start()
thread.join()
END
    mrun --hang-timeout 3s --max-restarts 0 -- python3 polls.py gloo_tcp_loop
    is "$status:$(events hang)" 137:1 'a rank of which only that thread lives hangs' || show
    mrun --hang-timeout 3s --max-restarts 0 -- python3 polls.py works
    is "$status:$(events hang)" 0:0 'one of another name may be at work' || show
}

# One that never came to the others: they wait for its key in the store.
test_store() {
    cat >late.py <<'END'
import os, time
import torch.distributed as dist
if os.environ["RANK"] == "2" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(3600)
dist.init_process_group("gloo")
dist.barrier()
END
    mrun --nproc-per-node 3 --hang-timeout 5s --max-restarts 1 -- "$TORCH_PYTHON" late.py
    is "$status" 0 'a rank that does not join the group' || show
    matches "$(reason)" "rank 2 .* others wait in the store for '.*/2', which it has to set" 'is named by its key' || show
}

# The ranks of an MPI program are no descendants of the agent.
test_mpi() {
    command -v mpicc >/dev/null || { skip 'no mpicc: see scripts/install-deps' 3; return; }
    cat >mpi.c <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    puts("at work");
    fflush(stdout);
    if (rank == 1 && getenv("TORCHELASTIC_RESTART_COUNT")[0] == '0') {
        sleep(3600);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
END
    mpicc -o mpi mpi.c || bail_out 'mpicc fails'
    mrun --hang-timeout 3s --max-restarts 1 -- mpirun -np 2 ./mpi
    is "$status" 0 'an MPI program of which a rank does not come to a barrier' || show
    matches "$(cat run/errors/1-1.stack)" 'process [0-9]+ \(mpi\)' 'the program is looked at, not its stand-in'
    if command -v gdb >/dev/null || command -v eu-stack >/dev/null; then
        matches "$(reason)" 'rank 1 .*others wait in a collective, it does not' 'the one that sleeps is named' || show
    else
        skip 'no gdb, no eu-stack: see scripts/install-deps' 1
    fi
}

# A debugger that never ends: what was there by then is kept.
test_debugger() {
    mkdir -p slow
    printf '#!/bin/sh\necho attached\nexec sleep 98765\n' >slow/eu-stack
    chmod +x slow/eu-stack
    rm -rf run
    run env PATH="$PWD/slow:$PATH" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --hang-timeout 1s \
        --max-restarts 0 -- python3 "$PY/hang_once.py" 0 sleep say
    is "$status" 137 'a debugger that hangs does not keep the run' || show
    like "$(cat run/errors/1-0.stack)" 'attached' 'what it said is kept'
    like "$(cat run/errors/1-0.stack)" 'in stuck' 'beside the stack of Python'
    ok 'it does not stay behind' wait_for 60 eval '! pgrep -xf "sleep 98765"'
}

test_tools() {
    mkdir bin
    ln -s /usr/bin/* bin/ 2>/dev/null
    rm -f bin/gdb bin/eu-stack
    ln -sf "$(command -v python3)" bin/python3
    rm -rf run
    run env PATH="$PWD/bin" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --hang-timeout 1s \
        --max-restarts 0 -- python3 "$PY/hang_once.py" 0 sleep say
    is "$status" 137 'without debuggers a hang is found as well' || show
    like "$(cat run/errors/1-0.stack)" 'in stuck' 'with the stack of Python'
    like "$(cat run/errors/1-0.stack)" '== end' 'and what the kernel tells'
    unlike "$(cat run/errors/1-0.stack)" 'native' 'but no native one'
}

# Nothing of these is a hang.
test_stopped() {
    local worker agent
    start_run --nproc-per-node 2 --hang-timeout 1s -- sh -c 'until [ -e go ]; do sleep 0.1; echo x; done'
    worker=$(field workers.1.pid)
    agent=$(field nodes.0.agent_pid)
    kill -STOP "$worker"
    sleep 4
    is "$(events hang)" 0 'a worker that is stopped'
    kill -CONT "$worker"
    kill -STOP "$agent"
    sleep 4
    kill -CONT "$agent"
    touch go
    wait_exit 60 "$runner"
    is "$status" 0 'an agent that is stopped' || diag "$(cat run.err)"
    is "$(events hang)" 0 'is no reason to see one'
    rm -f go
}

# A process is in the kernel, and cannot be killed, until its vfork() has execed.
test_uninterruptible() {
    cat >deep.c <<'END'
#include <unistd.h>
int main(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        sleep(5);
        _exit(0);
    }
    return 0;
}
END
    cc -o deep deep.c || bail_out 'no C compiler'
    mrun --hang-timeout 1s -- ./deep
    is "$status" 0 'one that is stuck in the kernel' || show
    is "$(events hang)" 0 'is waited for'
}

# A control group that gets a thousandth of a CPU.
make_throttle() {
    local dir
    for dir in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
        throttle=$dir/muster-t2320-$$
        mkdir "$throttle" 2>/dev/null || continue
        at_exit "rmdir $throttle 2>/dev/null"
        { echo 1000000 >"$throttle/cpu.cfs_period_us" && echo 1000 >"$throttle/cpu.cfs_quota_us" ||
            echo '1000 1000000' >"$throttle/cpu.max"; } 2>/dev/null && return
    done
    return 1
}
test_throttled() {
    make_throttle || { skip_rig 'no CPU control group of our own' 2; return; }
    mrun --hang-timeout 1s -- sh -c \
        'echo $$ >"$0/cgroup.procs"; i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); done' "$throttle"
    is "$status" 0 'a worker that gets next to no CPU time' || show
    is "$(events hang)" 0 'is slow, and does not hang'
}

test_busy() {
    mrun --hang-timeout 1s -- python3 -c '
import time
end = time.process_time() + 4
while time.process_time() < end:
    pass'
    is "$status" 0 'one that works in silence (an import, a compilation)' || show
    is "$(events hang)" 0 'makes progress'
    # One that speaks keeps those up that printed something once.
    mrun --nproc-per-node 2 --hang-timeout 1s -- sh -c 'echo warning
        if [ "$RANK" = 1 ]; then
            exec python3 -c "
import time
end = time.process_time() + 4
while time.process_time() < end:
    pass
open(\"is_done\", \"w\")"
        fi
        until [ -e is_done ]; do sleep 0.1; echo at work; done'
    is "$status" 0 'one that said something once and works in silence' || show
    is "$(events hang)" 0 'is not expected to speak'
}

# The front end does not take output: workers wait in write().
test_reader() {
    mkfifo unread
    sleep 1000 <>unread &
    kill_at_exit $!
    rm -rf run
    "$MUSTER" run --allow-run-as-root --run-dir run --hang-timeout 1s -- sh -c \
        'echo begin; while [ ! -e go ]; do echo again and again and again and again; done' >unread 2>run.err </dev/null &
    runner=$!
    kill_at_exit "$runner"
    ok 'with a reader that does not read' wait_for 60 running
    sleep 5
    is "$(events hang)" 0 'workers that wait for it do not hang'
    touch go
    cat unread >/dev/null &
    kill_at_exit $!
    wait_exit 60 "$runner"
    is "$status" 0 'and go on later' || diag "$(cat run.err)"
    rm -f go
}

# Who is slow: by what ranks say of their steps, else by when they report.
test_slow() {
    cat >slow.py <<'END'
import os, sys, time
import muster
step = 0
while not os.path.exists("seen"):
    step += 1
    late = muster.rank() == 1 and not os.path.exists("better")
    if sys.argv[1] == "said":
        muster.report(step, step_time=0.25 if late else 0.1)
    else:
        muster.report(step)
        time.sleep(0.3 if late else 0)
    time.sleep(0.05)
END
    start_run --nproc-per-node 3 -- python3 slow.py said
    ok 'a rank that says that its steps take long' wait_for 60 eval '[ "$(events slow)" = 1 ]'
    matches "$(grep '"event":"slow"' run/events.jsonl)" 'rank 1 .* is slow: .* 2.50 times the median, 0.25 s against 0.1 s' 'is named'
    ok 'is in the status' wait_for 60 eval '[ "$(field workers.1.slow_percent)" = 250 ]'
    matches "$("$MUSTER" status run)" 'slow +rank 1 \(2.50 times the median step\)' 'for people, too'
    touch better
    ok 'it is told that it keeps up again' wait_for 60 eval '[ "$(events slow)" = 2 ]'
    touch seen
    wait_exit 60 "$runner"
    is "$status" 0 'nothing else happens to it' || diag "$(cat run.err)"
    rm -f seen better
    start_run --nproc-per-node 3 -- python3 slow.py measured
    ok 'a rank that reports seldom is slow as well' wait_for 60 grep -q '"event":"slow".*rank 1' run/events.jsonl
    touch seen
    wait_exit 60 "$runner"
    rm -f seen
}

# What is put before PYTHONPATH must not hide what is there.
test_python() {
    mkdir -p site
    echo 'import sys; sys.flags_of_mine = 42' >site/sitecustomize.py
    run env PYTHONPATH="$PWD/site" "$MUSTER" run --allow-run-as-root --hang-timeout 60s -- python3 -c \
        'import sys; print(sys.flags_of_mine, "muster-python" in " ".join(sys.path))'
    like "$(cat out)" '42 False' "the user's sitecustomize is run, and sys.path is as it was" || show
    run "$MUSTER" run --allow-run-as-root -- sh -c 'echo "stacks:$MUSTER_STACKS"; echo "$PYTHONPATH"'
    matches "$(cat out)" 'stacks:$' 'without hang.timeout nothing is set'
    unlike "$(cat out)" 'muster-python' 'nor PYTHONPATH changed'
}

if need_torch; then :; fi
run_cases
