#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a worker finds around it, what of it is told to the user and to the
# records, and what is left when it is gone.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun ss

# mrun OPTION...: a run in a directory of its own, ./run.
mrun() {
    rm -rf run
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run "$@"
}
field() { "$MUSTER" status run -o json | json "$1"; }
nobody_left() { run_gone "$(json id run/run.json)"; }

# listening PID: the addresses at which it listens.
listening() { ss -ltnpH | grep -E "pid=$1," | awk '{ print $4 }'; }

# said RANK NAME [FILE]: what that rank printed for NAME, under its own label.
said() { sed -n "s/^\[$1\] $2=//p" "${3:-out}"; }

test_surroundings() {
    local rank
    cat >worker <<'END'
#!/bin/sh
echo rank=$RANK
echo rank=$RANK >&2
echo umask=$(umask)
echo job=$OF_JOB
echo oom=$(cat /proc/self/oom_score_adj)
echo leaks=$(for f in /proc/$$/fd/*; do readlink $f; done | grep -cvE '^(pipe:.*|/dev/null|.*/worker)$')
echo max=$TORCHELASTIC_MAX_RESTARTS
echo ompi=$(env | grep -E '^(PMIX|PRTE|ORTE|PMI)_|^OMPI_MCA' | grep -vc '^OMPI_MCA_orte_hnp_uri=0\.0;')
END
    chmod +x worker
    (umask 027 && exec timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nnodes 2 --agent-is-node \
        --nproc-per-node 2 --max-restarts 5 --set env.OF_JOB='of the job' -- ./worker) >out 2>err </dev/null
    is $? 0 'four workers on two agents' || diag "$(cat err)"
    for rank in 0 1 2 3; do
        is "$(said $rank rank)" $rank "rank $rank has its own label"
        is "$(said $rank rank err)" $rank 'on stderr, too'
        is "$(said $rank umask)" 0027 "the user's umask"
        is "$(said $rank job)" 'of the job' "the job's environment"
        is "$(said $rank oom)" 500 'goes before its agent when memory runs out'
        is "$(said $rank leaks)" 0 'has no descriptor but its own'
        is "$(said $rank max)" 5 'knows the budget'
        # All but a name of ours for JAX.
        is "$(said $rank ompi)" 0 "knows nothing of the agents' MPI"
    done
    ok 'nobody is left' wait_for 60 nobody_left
    ok 'nor a file outside of the run directory' \
        wait_for 60 test ! -e "${TMPDIR:-/tmp}/muster-$(id -u)/$(json id run/run.json)"
}

# A worker may be a script that runs an mpirun of its own, by the user's settings.
test_nested_mpirun() {
    cat >world.c <<'END'
#include <mpi.h>
#include <stdio.h>

int main(void)
{
    int rank, size;

    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("%d of %d\n", rank, size);
    return MPI_Finalize();
}
END
    mpicc -o world world.c 2>err || { fail "mpicc: $(cat err)"; return; }
    local own=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=tcp,self)
    rm -rf run
    run env "${own[@]}" timeout 120 "$MUSTER" run --run-dir run --nproc-per-node 2 -- \
        sh -c 'echo btl=$OMPI_MCA_btl; mpirun -n 3 ./world && echo ready'
    is "$status" 0 'an mpirun in each worker, as root if the user agreed to it' || show
    is "$(sed 's/^\[.\] //' out | sort | uniq -c | sed 's/^ *//' | tr '\n' ';')" \
        '2 0 of 3;2 1 of 3;2 2 of 3;2 btl=tcp,self;2 ready;' 'is a world of its own' || show
    rm -rf run
    run env "${own[@]}" timeout 120 mpirun -np 1 --map-by ppr:1:node "$MUSTER" run --run-dir run --nproc-per-node 2 -- \
        sh -c 'echo btl=$OMPI_MCA_btl; mpirun --oversubscribe -n 3 ./world && echo ready'
    is "$status" 0 'also where mpirun has started the run' || show
    is "$(sed 's/^\[.\] //' out | sort | uniq -c | sed 's/^ *//' | tr '\n' ';')" \
        '2 0 of 3;2 1 of 3;2 2 of 3;2 btl=tcp,self;2 ready;' 'whose mapping is not theirs, nor are there colours' || show
}

test_failure_is_named() {
    mrun --nnodes 2 --agent-is-node --nproc-per-node 2 --max-restarts 0 -- \
        sh -c 'echo last words; [ $RANK = 3 ] && kill -KILL $$; sleep 1000'
    is "$status" 137 'the last rank is killed' || show
    is "$(field failure.rank)" 3 'its rank is in the status'
    is "$(field failure.node)" 1 'and its node'
    is "$(field failure.signal)" 9 'and the signal'
    is "$(field workers.3.signal)" 9 'likewise of the worker'
    matches "$(field failure.reason)" '^rank 3 \(node 1, .*\) was killed by signal 9 \(SIGKILL\)' 'in words'
    like "$(field failure.lines)" 'last words' 'with what it said'
    like "$(cat err)" 'rank 3 (node 1' 'which the user sees'
}

# No worker of a generation meets anybody of the one before.
test_generations() {
    cat >forks <<'END'
#!/bin/sh
if [ $MUSTER_GENERATION = 1 ]; then
    setsid sh -c 'echo $$ >daemon; exec sleep 1000' &
    until [ -s daemon ]; do sleep 0.01; done
    exit 1
fi
kill -0 $(cat daemon) && exit 9
exit 0
END
    chmod +x forks
    mrun --nproc-per-node 1 --max-restarts 1 --set restart.backoff=10ms..20ms -- ./forks
    is "$status" 0 'a daemon of a failed worker is gone before the next one starts' || show
    is "$(field restarts)" 1 'after a restart'
    is "$(field generation)" 2 'in its generation'
    is "$(field max_restarts)" 1 'of as many as there may be'
}

# On one machine nothing of a run can be reached from others, but for agents.
test_doors() {
    rm -rf run
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 -- \
        sh -c 'echo pid=$$; echo store=$MASTER_ADDR:$MASTER_PORT; exec sleep 1000'
    ok 'two workers' wait_for 60 eval '[ "$(grep -c store= run.out)" = 2 ] && [ "$(field workers.1.state)" = Running ]'
    is "$(field workers.0.pid) $(field workers.1.pid)" "$(said 0 pid run.out) $(said 1 pid run.out)" 'the status has their pids'
    is "$(listening $spawned | grep -v '^127.0.0.1:')" '' 'the front end listens for this machine alone'
    matches "$(said 0 store run.out)" '^127.0.0.1:[0-9]+$' 'the store has an address'
    is "$(ss -ltnH "sport = :$(said 0 store run.out | cut -d : -f 2)" | awk '{ print $4 }')" "$(said 0 store run.out)" \
        'and listens there alone'
    kill -INT $spawned
    wait_exit 60 $spawned
    is "$status" 130 'the run is cancelled'
}

# What lies in the directory of a run that is run again.
test_again() {
    mrun --nproc-per-node 1 -- true
    is "$status" 0 'a run' || show
    echo '{"v":1,"op":"cancel"}' >run/control/0.json
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- sleep 4
    is "$status" 0 'a request to an earlier life does not count in this one' || show
    is "$(ls run/control)" '' 'and is gone'
    chmod 644 run/key
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- true
    is "$status" 1 'a key that others can read is not used'
    like "$(cat err)" 'can be read by others' 'and that is said' || show
    run "$MUSTER" run --allow-run-as-root --dry-run --hosts a,b,c --nnodes 2 -- true
    like "$(cat out)" $'# RUN-DIR/hostfile\na\nb\n\n' 'no more hosts than asked for' || show
}

test_policies() {
    mrun --nproc-per-node 1 --max-restarts 3 --set restart.policy=ExitCode --set 'restart.exitCodes=[7]' \
        --set restart.backoff=10ms..20ms -- sh -c '[ $MUSTER_GENERATION = 1 ] && exit 7; exit 8'
    is "$status" 8 'a code that is not to be retried' || show
    is "$(field restarts)" 1 'after one that is'
    mrun --nproc-per-node 1 --set limits.deadline=2s -- sleep 1000
    is "$status" 124 'a deadline ends a run' || show
    is "$(field state)" Stopped 'to be gone on with'
    is "$(field verdict.resumable)" true 'as the verdict says'
    mrun --nproc-per-node 1 --set logs.files=none -- echo shown
    is "$(cat out)" '[0] shown' 'without log files'
    is "$(find run/logs -type f | wc -l)" 0 'there are none'
}

# The budget is of the job, not of one life of it.
test_budget() {
    rm -rf run
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 --max-restarts 1 \
        --set restart.backoff=10ms..20ms -- sh -c '[ $MUSTER_GENERATION = 1 ] && exit 5; exec sleep 1000'
    ok 'a run that has spent its restart' wait_for 60 eval '[ "$(field restarts)" = 1 ] && [ "$(field state)" = Running ]'
    isnt "$(cut -d ' ' -f 6 "/proc/$(child_of $spawned)/stat")" "$(cut -d ' ' -f 6 /proc/$spawned/stat)" \
        'mpirun has a session of its own'
    is "$(listening "$(field nodes.0.agent_pid)" | wc -l)" 2 'the agent has one store open, besides its own door'
    kill -TERM $spawned
    wait_exit 60 $spawned
    is "$status" 75 'is stopped' || diag "$(cat run.err)"
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 --max-restarts 1 \
        --set restart.backoff=10ms..20ms -- sh -c 'exit 5'
    is "$status" 5 'gone on with, it has none left' || show
    is "$(field generation)" 3 'and tries no second time'
    ok 'nobody is left' wait_for 60 nobody_left
}

# Workers that do not want to be killed are told to stop.
test_should_stop() {
    cat >polite <<'END'
#!/usr/bin/env python3
import signal, time, muster
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while not muster.should_stop(): time.sleep(0.05)
print("told", flush=True)
END
    chmod +x polite
    rm -rf run
    spawn run env PYTHONPATH="$MUSTER_SRCDIR/python" "$MUSTER" run --allow-run-as-root --run-dir run \
        --nproc-per-node 2 --set limits.grace=600s -- ./polite
    ok 'two workers' wait_for 60 eval '[ "$(grep -c up run.out)" = 2 ]' || diag "$(cat run.err)"
    kill -INT $spawned
    wait_exit 60 $spawned
    is "$status" 130 'are cancelled' || diag "$(cat run.err)"
    is "$(grep -c told run.out)" 2 'by a word'
}

# A reader that never reads holds the worker up, not its output in our memory.
test_back_pressure() {
    mkfifo unread
    sleep 1000 <unread &
    kill_at_exit $!
    rm -rf run
    spawn front sh -c 'exec "$@" >unread' _ "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- \
        sh -c 'echo >begun; head -c 64000000 /dev/zero | tr "\0" "\n"; echo >printed'
    ok 'a worker prints' wait_for 60 test -e begun
    not_ok 'and waits for its reader' wait_for 5 test -e printed
    "$MUSTER" cancel run --force >/dev/null
    wait_for 60 eval '[ "$(field state)" = Stopped ]'
    is $? 0 'it can be cancelled'
    kill -INT $spawned 2>/dev/null
    wait_exit 60 $spawned
    is $? 0 'and ends'
}

run_cases
