#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# MPI programs keep their ranks: under `mpirun ... muster exec`, and as the command
# of `muster run`, where each generation is an MPI world of its own.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun mpicc
prog=$TRASH/mpi_prog
mpicc -I"$MUSTER_BUILDDIR" -o "$prog" "$MUSTER_SRCDIR/tests/lib/mpi_prog.c" 2>err || bail_out "$(cat err)"
export XDG_STATE_HOME=$TRASH/state PYTHONPATH=$MUSTER_SRCDIR/python
export OMPI_MCA_mpi_yield_when_idle=1
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

need_mpi4py() { /usr/bin/python3 -c 'import mpi4py' 2>/dev/null || { skip 'no mpi4py: see scripts/install-deps'; return 1; }; }

mpi() {
    local n=$1
    shift
    run timeout 120 mpirun $root --oversubscribe -n "$n" "$@"
}
mrun() {
    rm -rf run
    run timeout 200 "$MUSTER" run $root --run-dir run "$@"
}
start_run() {
    rm -rf run
    spawn run "$MUSTER" run $root --run-dir run "$@"
    runner=$spawned
    wait_for 60 eval '[ "$(grep -c "rank [0-2] waits" run.out)" = 3 ]'
    is $? 0 'a run of an MPI program' || diag "$(cat run.out run.err)"
}
field() { "$MUSTER" status run -o json 2>/dev/null | json "$1"; }
nobody_left() {
    ok 'nobody is left' wait_for 60 run_gone "$(json id run/run.json)" || diag "$(run_alive "$(json id run/run.json)")"
}
who() { grep -o 'MPI .* on' out | sort | tr '\n' ';'; }
three='MPI 0 of 3, sum 6; 0 of 3, local 0 of 3, node 0 of 1 on;MPI 1 of 3, sum 6; 1 of 3, local 1 of 3, node 0 of 1 on;'
three+='MPI 2 of 3, sum 6; 2 of 3, local 2 of 3, node 0 of 1 on;'
dead() { ! grep -qE "^State:[[:space:]]+[^ZX]" "/proc/$1/status" 2>/dev/null; }
orphan() { grep -h -o 'orphan [0-9]*' "$@" | cut -d ' ' -f 2; }

# --- mpirun ... muster exec ---

test_direct() {
    mpi 3 "$MUSTER" exec -- "$prog"
    is "$status" 0 'a C program under mpirun ... muster exec' || show
    is "$(who)" "$three" 'keeps its MPI ranks, and has them in the environment'
    mpi 3 "$MUSTER" exec "$prog"
    is "$status" 0 'also without --' || show
}

test_direct_slurm() {
    need_mpi4py || return
    run env SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1 SLURM_STEP_ID=0 \
        SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NODELIST=elsewhere timeout 120 mpirun $root --oversubscribe -n 2 \
        "$MUSTER" exec -- /usr/bin/python3 -c '
from mpi4py import MPI
import os
w = MPI.COMM_WORLD
names = ("SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "JAX_PROCESS_ID", "HOROVOD_SIZE", "MUSTER_RANK",
         "TORCHELASTIC_USE_AGENT_STORE")
os.write(1, (" ".join(["rank", str(w.rank), str(w.allreduce(1))] + [os.environ[k] for k in names]) + "\n").encode())'
    is "$status" 0 'mpi4py, among the variables of Slurm' || show
    is "$(sort out | tr '\n' ';')" 'rank 0 2 0 2 0 0 2 0 False;rank 1 2 1 2 1 1 2 1 False;' 'has those of its own rank'
}

test_direct_store() {
    mpi 2 "$MUSTER" exec -- sh -c 'echo $MASTER_ADDR:$MASTER_PORT $MUSTER_RUN_ID $TORCHELASTIC_RUN_ID'
    is "$(sort -u out | wc -l)" 1 'all ranks are told the same place to meet' || show
    matches "$(head -n 1 out)" '^127.0.0.1:[23][0-9]{4} mpi-[0-9a-f]{16} mpi-[0-9a-f]{16}$' 'here, at a port of the launch'
    run env MASTER_ADDR=a.example MASTER_PORT=4711 timeout 120 mpirun $root -x MASTER_ADDR -x MASTER_PORT -n 1 \
        "$MUSTER" exec -- sh -c 'echo $MASTER_ADDR $MASTER_PORT'
    is "$(cat out)" 'a.example 4711' 'or at the place that the user says' || show
}

# libmuster and MPI in one program.
build_comm() {
    local lib
    for lib in "$MUSTER_BUILDDIR/.libs" "$MUSTER_BUILDDIR/comm/.libs"; do
        [ -e "$lib/libmuster.so" ] || continue
        mpicc -I"$MUSTER_BUILDDIR" -I"$MUSTER_SRCDIR/include" -o mpi_comm "$MUSTER_SRCDIR/tests/lib/mpi_comm.c" -L"$lib" -lmuster \
            -Wl,-rpath,"$lib" 2>err && return
    done
    skip "no program with libmuster: $(cat err)"
    return 1
}

test_comm() {
    ! sanitized || { skip 'a program without the sanitizer cannot load libmuster with it'; return; }
    build_comm || return
    mrun -- mpirun -np 3 ./mpi_comm
    is "$status" 0 'MPI and collectives of muster in one program' || show
    is "$(grep -o 'rank [012]: MPI.*' out | sort | tr '\n' ';')" \
        'rank 0: MPI 6, muster 6;rank 1: MPI 6, muster 6;rank 2: MPI 6, muster 6;' 'say the same'
    is "$(grep -c '"name":"sum","value":6' run/metrics.jsonl)" 3 'reports are recorded'
    mrun --agent-is-node --nnodes 2 --nproc-per-node 2 -- mpirun ./mpi_comm
    is "$status" 0 'over two nodes, too' || show
    is "$(grep -c 'MPI 10, muster 10' out)" 4 'they do'
    mpi 2 "$MUSTER" exec -- ./mpi_comm
    is "$status" 0 'without an agent' || show
    is "$(grep -c 'MPI 3, muster: no agent' out)" 2 'muster adds nothing up, and says so'
}

test_direct_module() {
    mpi 2 "$MUSTER" exec -- /usr/bin/python3 -c '
import muster
muster.report(step=1, loss=0.5)
try:
    muster.barrier()
except ConnectionError as error:
    print(f"rank {muster.rank()} of {muster.world()}: {error}", flush=True)'
    is "$status" 0 'the Python module of muster without an agent' || show
    is "$(grep -o 'rank [01] of 2: muster: barrier' out | sort | tr '\n' ';')" \
        'rank 0 of 2: muster: barrier;rank 1 of 2: muster: barrier;' 'knows its rank, and passes no barrier'
}

test_direct_stdio() {
    echo hello | timeout 120 mpirun $root --oversubscribe -n 2 "$MUSTER" exec -- \
        sh -c 'read x; echo "$RANK got $x"; ulimit -n' >out 2>err
    like "$(cat out)" '0 got hello' 'rank 0 has the input of mpirun' || show
    is "$(grep -c '^[0-9]*$' out)" 2 'limits are set for all' || show
    is "$(grep '^[0-9]*$' out | sort -u)" "$(ulimit -H -n | sed 's/unlimited/1048576/')" 'to the hard limit of open files'
}

test_direct_status() {
    mpi 3 "$MUSTER" exec -- "$prog" fail 1 7
    is "$status" 7 'the exit status is that of mpirun' || show
    mpi 2 "$MUSTER" exec -- sh -c 'kill -SEGV $$'
    is "$status" 139 'for a signal too' || show
    mpi 1 "$MUSTER" exec -- no-such-program
    is "$status" 127 'a missing program' || show
    like "$(cat err)" 'muster exec: rank 0: cannot run no-such-program: not found in PATH' 'is named'
}

test_direct_orphans() {
    mpi 2 "$MUSTER" exec -- "$prog" orphan
    is "$status" 0 'a program that leaves a process in a session of its own' || show
    ok 'which does not outlive the job' dead "$(orphan out)"
    spawn killed timeout 120 mpirun $root --oversubscribe -n 2 "$MUSTER" exec -- sh -c \
        'setsid sh -c "echo orphan \$\$; exec sleep 1000" & exec sleep 1000'
    ok 'two of them' wait_for 60 eval '[ "$(orphan killed.out | wc -l)" = 2 ]'
    kill -KILL "$(child_of "$spawned")"
    wait_exit 60 "$spawned"
    for p in $(orphan killed.out); do
        ok 'nor does one where mpirun is killed' wait_for 60 dead "$p"
    done
}

test_direct_refused() {
    run "$MUSTER" exec -- true
    is "$status" 2 'outside of an MPI launch it is refused' || show
    like "$(cat err)" 'no process of an MPI launch: start it by `mpirun -n N muster exec -- PROGRAM`' 'and says how'
    run "$MUSTER" exec --max-restarts 3 -- true
    is "$status" 2 'restarts are refused' || show
    like "$(cat err)" 'muster run --max-restarts N -- mpirun ... PROGRAM' 'with what to do'
    mpi 1 "$MUSTER" exec
    is "$status" 2 'without a program it is refused' || show
    mpi 1 "$MUSTER" run $root -- mpirun -n 2 "$prog"
    is "$status" 2 'an mpirun inside of mpirun is refused' || show
    like "$(cat err)" 'mpirun ... muster exec -- PROGRAM' 'with what to do'
}

# --- muster run -- mpirun ... ---

test_run() {
    mrun -- mpirun -np 3 --tag-output --mca btl self,vader,tcp -x WORD=given sh -c "echo \$WORD; exec $prog"
    is "$status" 0 'muster run -- mpirun -np 3' || show
    is "$(who)" "$three" 'runs the ranks as workers'
    is "$(grep -c '] given' out)" 3 'with variables of -x'
    like "$(cat err)" '--tag-output of mpirun has no effect' 'what muster does itself is told'
    is "$(field state) $(field workers | grep -o '"exit_code": 0' | wc -l)" 'Succeeded 3' 'the status has them'
    is "$(cat run/logs/1/2/stdout | grep -o 'MPI 2 of 3')" 'MPI 2 of 3' 'each has its log'
    like "$(cat run/spec.yaml)" 'mpiArgs: ["--mca", btl, "self,vader,tcp"]' 'the spec has the options of the MPI library'
    nobody_left
    rm -rf again && cp run/spec.yaml again.yaml
    mrun again.yaml
    is "$status" 0 'and can be run itself' || show
    ok 'nothing is left in the directory of sockets' wait_for 60 eval \
        '[ -z "$(ls -d "${TMPDIR:-/tmp}/muster-$(id -u)/$(json id run/run.json)" 2>/dev/null)" ]'
}

test_dry_run() {
    run "$MUSTER" run $root --dry-run --name n -- mpirun -np 3 --bind-to core --mca btl self,vader -x A=b "$prog"
    is "$status" 0 '--dry-run' || show
    matches "$(tail -n 1 out)" " --bind-to core --mca btl self,vader -np 3 --oversubscribe [^ ]*/muster exec --run-id=[^ ]* --generation=GENERATION$" \
        'shows the mpirun of the program, with the options of the job'
    like "$(cat out)" 'A: b' 'whose variables are those of the job'
}

test_report() {
    need_mpi4py || return
    mrun -- mpirun -np 2 /usr/bin/python3 "$MUSTER_SRCDIR/tests/py/mpi_report.py"
    is "$status" 0 'mpi4py and the Python module of muster' || show
    is "$(grep -o 'rank [01]: .*' out | sort | tr '\n' ';')" \
        'rank 0: MPI 0 of 2, sum 3, stop False;rank 1: MPI 1 of 2, sum 3, stop False;' 'work together'
    is "$(grep -c '"name":"sum","value":3' run/metrics.jsonl)" 2 'metrics are recorded'
}

test_restart() {
    mrun --max-restarts 1 --set restart.backoff=1s..1s -- mpirun -np 3 "$prog" fail 1 5
    is "$status" 0 'a rank that fails ends its world, and a new one is made' || show
    is "$(field restarts) $(field generation)" '1 2' 'which is a restart'
    like "$(cat err)" 'rank 1 (node 0, ' 'the rank is named'
    like "$(cat err)" 'exited with code 5' 'and how it ended'
    mrun --max-restarts 0 -- mpirun -np 3 "$prog" fail 2 6
    is "$status" 6 'the exit status of a failed job is that of its rank' || show
    is "$(field failure.rank)" 2 'which is the first failure'
    nobody_left
}

# Rank 1 ends as Open MPI 5 ends a rank that has lost a peer; then mpirun, played by
# a script here, ends rank 0; and only then comes the end of the one to blame.
test_blame() {
    cat >ends_one <<'END'
#!/bin/bash
case " $* " in *" exec --run-id"*) ;; *) exec mpirun "$@" ;; esac
until [ "${1##*/}" = muster ]; do shift; done
export OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_SIZE=3 PMIX_NAMESPACE=played
for r in 0 1 2; do
    OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_LOCAL_RANK=$r setsid "$@" &
    pid[r]=$!
done
wait "${pid[1]}"
kill -TERM -- "-${pid[0]}"
wait
END
    chmod +x ends_one
    mrun --max-restarts 0 --mpirun "$PWD/ends_one" -- mpirun -np 3 sh -c '
        case $RANK in
        0) echo $$ >pid.0; exec sleep 1000 ;;
        1) until [ -s pid.0 ]; do sleep 0.01; done; exit 14 ;;
        esac
        until [ -s pid.0 ]; do sleep 0.01; done
        while kill -0 $(cat pid.0) 2>/dev/null; do :; done
        exit 5'
    is "$status" 5 'ranks that end because of another one take no blame' || show
    like "$(cat err)" 'rank 2 (node 0, ' 'that one is named'
    nobody_left
    mrun --max-restarts 0 -- mpirun -np 1 sh -c 'exit 14'
    is "$status" 14 'but with nobody else to blame one does' || show
    nobody_left
}

test_cancel() {
    start_run -- mpirun -np 3 "$prog" wait
    ok 'is listed' wait_for 60 eval '"$MUSTER" list | grep -q Running'
    run "$MUSTER" cancel run
    is "$status" 0 'it can be cancelled' || show
    wait_exit 60 "$runner"
    is "$status" 130 'with the exit status of that' || diag "$(cat run.err)"
    is "$(grep -o 'rank [0-9] was told' run.out | sort | tr '\n' ';')" \
        'rank 0 was told;rank 1 was told;rank 2 was told;' 'all ranks were told, and had the time to leave MPI'
    nobody_left
    ok 'no mpirun either' eval '! pgrep -f -- "exec --run-id=$(json id run/run.json)"'
}

test_mpirun_dies() {
    start_run --max-restarts 1 --set restart.backoff=1s..1s -- mpirun -np 3 \
        sh -c "[ \$MUSTER_GENERATION = 1 ] || set -- ok; exec $prog \${1-wait}"
    kill -KILL "$(pgrep -o -f -- "mpirun .* exec --run-id=$(json id run/run.json)")"
    wait_exit 120 "$runner"
    is "$status" 0 'the loss of its mpirun is a failure, and a new world is made' || diag "$(cat run.out run.err)"
    is "$(field generation)" 2 'as the next generation'
    nobody_left
}

# It ends late, or by force, and the run all the same.
test_mpirun_hangs() {
    local p
    printf '#!/bin/sh\nmpirun "$@"\ncase $* in *--version*) ;; *) trap "" TERM; sleep 1000 & echo $! >>%s; wait ;; esac\n' "$PWD/below" >hanging
    chmod +x hanging
    mrun --mpirun "$PWD/hanging" -- mpirun -np 2 "$prog"
    is "$status" 0 'an mpirun that outlives its ranks is ended' || show
    nobody_left
    num "$(wc -l <below)" -ge 2 'that of the run, and that of its generation'
    for p in $(cat below); do
        ok 'with all that is below it' wait_for 60 dead "$p"
    done
    mrun --mpirun "$PWD/hanging" --agent-is-node --nnodes 2 --nproc-per-node 1 -- mpirun \
        sh -c "$prog; [ \$RANK = 0 ] || sleep 15; echo \$RANK is done"
    is "$status" 0 'but not before ranks on other nodes have ended' || show
    is "$(grep -o '[01] is done' out | sort | tr '\n' ';')" '0 is done;1 is done;' 'which say so'
    nobody_left
}

# One that starts nobody: no run waits for it for ever.
test_mpirun_starts_nobody() {
    printf '#!/bin/sh\ncase $* in *"exec --run-id"*) exec sleep 1000 ;; esac\nexec mpirun "$@"\n' >idle
    chmod +x idle
    mrun --mpirun "$PWD/idle" --max-restarts 0 --set gang.timeout=20s -- mpirun -np 2 "$prog"
    is "$status" 1 'an mpirun that starts nobody' || show
    like "$(cat err)" 'mpirun has started no process of MPI rank' 'is a failure after gang.timeout'
    nobody_left
}

test_agent_dies() {
    start_run -- mpirun -np 3 sh -c "setsid sleep 1000 & exec $prog wait"
    kill -KILL "$(field nodes.0.agent_pid)"
    wait_exit 120 "$runner"
    is "$status" 75 'the loss of the agent ends the run, to be resumed' || diag "$(cat run.err)"
    nobody_left
}

test_rank_killed() {
    local pid
    start_run --max-restarts 0 -- mpirun -np 3 sh -c "setsid sleep 1000 & exec $prog wait"
    pid=$(run_alive "$(json id run/run.json)" | grep "$prog wait" | head -n 1 | cut -d ' ' -f 1)
    kill -KILL "$pid"
    wait_exit 120 "$runner"
    is "$status" 137 'a rank that is killed' || diag "$(cat run.err)"
    like "$(cat run.err)" 'was killed by signal 9' 'is told as such'
    nobody_left
}

test_orphans() {
    mrun -- mpirun -np 2 "$prog" orphan
    is "$status" 0 'a rank that leaves a process in a session of its own' || show
    ok 'which does not outlive the run' dead "$(orphan out)"
    nobody_left
}

test_cannot_start() {
    mrun --max-restarts 0 -- mpirun -np 2 --bind-to nonsense "$prog"
    is "$status" 1 'an mpirun that cannot start' || show
    like "$(cat err)" 'mpirun ended, and left workers without their process' 'is a failure'
    like "$(cat err run/logs/1/mpirun)" 'nonsense' 'in its own words'
    nobody_left
    mrun --max-restarts 0 -- mpirun -np 2 ./no-such-program
    is "$status" 127 'a program that is not there' || show
    like "$(cat err)" 'cannot run ./no-such-program' 'is named'
    mrun -- mpirun -np 2 --bogus "$prog"
    is "$status" 2 'an option that mpirun does not have is refused' || show
    like "$(cat err)" '--bogus of mpirun' 'by its name'
    mrun --set program=mpi --set 'mpiArgs=[--host, a]' -- "$prog"
    is "$status" 2 'and one that muster gives itself' || show
    like "$(cat err)" 'mpiArgs has --host, which muster itself tells mpirun' 'by its name'
}

run_cases
