#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unmodified PyTorch scripts on one machine, with each PyTorch that is here: they
# run, are restarted, go on from their checkpoint, and never clash over a port.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
need_torch
PY=$MUSTER_SRCDIR/tests/py
DDP=$MUSTER_SRCDIR/examples/ddp.py

# The system's own PyTorch beside that of the virtual environment; it is also
# the one that is imported faster, so it runs what one of them is enough for.
pythons=("$TORCH_PYTHON")
debian=/usr/bin/python3
quick=$TORCH_PYTHON
if [ "$TORCH_PYTHON" != $debian ] && has_torch $debian; then
    pythons+=($debian)
    quick=$debian
fi

# Where a spec says python3 or torchrun.
mkdir bin
for name in python3 torchrun; do
    printf '#!/bin/sh\n[ "${0##*/}" = python3 ] || exit 99\nexec %s "$@"\n' "$quick" >bin/$name
    chmod +x bin/$name
done

# mrun DIR OPTION...: a run in a directory of its own.
mrun() {
    local dir=$1
    shift
    rm -rf "$dir"
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir "$dir" "$@"
}
field() { "$MUSTER" status "$1" -o json | json "$2"; }
nobody_left() { run_gone "$(json id "$1/run.json")"; }
no_clash() { ! grep -riE 'EADDRINUSE|address already in use' "$@"; }

test_env() {
    mkdir -p one four
    mrun run --nproc-per-node 4 -- python3 "$PY/env_check.py" one WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 \
        GROUP_RANK=0 GROUP_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 TORCHELASTIC_USE_AGENT_STORE=True \
        TORCHELASTIC_RESTART_COUNT=0
    is "$status" 0 'four workers have the environment of torchrun' || show
    is "$(ls one | tr '\n' ' ')" '0 1 2 3 ' 'each its own rank'
    run env MASTER_PORT=1 RANK=7 OMP_NUM_THREADS=3 timeout 60 "$MUSTER" run --allow-run-as-root \
        --run-dir run4 --nnodes 2 --agent-is-node --nproc-per-node 2 -- \
        python3 "$PY/env_check.py" four WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_WORLD_SIZE=2 OMP_NUM_THREADS=3
    is "$status" 0 'so have four on two nodes' || show
    is "$(ls four | tr '\n' ' ')" '0 1 2 3 ' 'each its own rank'
    like "$(cat err)" 'RANK=7' 'what the user set of it is not taken, and said' || show
}

test_launchers() {
    local command
    for command in 'torchrun --nproc_per_node=2' \
        "$quick -m torch.distributed.run --nproc-per-node 2 --standalone" \
        "$quick -m torch.distributed.launch --nproc_per_node=2 --use_env"; do
        rm -rf seen && mkdir seen
        cat >job.yaml <<END
apiVersion: muster/v1
kind: Job
name: launched
command: [${command// /, }, $PY/env_check.py, seen, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2]
END
        rm -rf run
        run env PATH="$PWD/bin:$PATH" timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run job.yaml
        is "$status" 0 "in a spec, ${command#"$quick "} is unwrapped" || show
        like "$(cat err)" 'is not run: muster starts' 'and that is said'
        is "$(ls seen | tr '\n' ' ')" '0 1 ' 'two workers ran'
    done
}

# Each PyTorch, all at once on the same machine.
test_ddp() {
    local i pids=()
    for i in "${!pythons[@]}"; do
        spawn "ddp$i" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir "run-ddp$i" \
            --nproc-per-node 2 --max-restarts 0 -- "${pythons[i]}" "$DDP" --steps 60
        pids+=("$spawned")
    done
    for i in "${!pythons[@]}"; do
        wait_exit 120 "${pids[i]}"
        is "$status" 0 "${pythons[i]} trains" || diag "$(cat "ddp$i.err")"
        like "$(cat "ddp$i.out")" '[0] world 2: from step 0 to 60' 'two workers, from the beginning'
        like "$(cat "ddp$i.out")" 'done: accuracy' 'to the end'
        ok 'the checkpoint is in the run directory' test -s "run-ddp$i/ddp.pt"
        ok 'no port is in use twice' no_clash "run-ddp$i/logs"
    done
    [ ${#pythons[@]} -lt 2 ] ||
        is "$(grep loss ddp1.out)" "$(grep loss ddp0.out)" 'two runs at once do not disturb each other'
}

test_specs() {
    cd "$MUSTER_SRCDIR" || bail_out "no $MUSTER_SRCDIR"
    run_spec() {
        timeout 120 env PATH="$TRASH/bin:$PATH" PYTHONDONTWRITEBYTECODE=1 "$MUSTER" run \
            --allow-run-as-root "$@" >"$TRASH/out" 2>"$TRASH/err" </dev/null
        status=$?
    }
    run_spec --run-dir "$TRASH/run-ome" examples/ome-job.yaml
    cd "$TRASH" || bail_out "no $TRASH"
    is "$status" 0 'examples/ome-job.yaml runs as it is' || show
    like "$(cat out)" '[0] world 2: from step 0 to 300' 'torchrun is not needed for two workers'
    is "$(field run-ome name)" ddp 'it has its name'
    cd "$MUSTER_SRCDIR" || bail_out "no $MUSTER_SRCDIR"
    run_spec --run-dir "$TRASH/run-yaml" --agent-is-node --nnodes 2 --nproc-per-node 1 examples/ddp.yaml
    cd "$TRASH" || bail_out "no $TRASH"
    is "$status" 0 'so does examples/ddp.yaml, on two nodes' || show
    like "$(cat out)" '[0] world 2: from step 0 to 300' 'with two workers'
    is "$(grep 'step 300' out)" "$(grep 'step 300' run-ome/logs/1/0/stdout | sed 's/^/[0] /')" \
        'and the same result'
}

test_crash() {
    local how reason
    while read -r how reason; do
        rm -rf dir && mkdir dir
        mrun run --nproc-per-node 3 --max-restarts 1 --set restart.backoff=10ms..20ms -- \
            python3 "$PY/crash_once.py" dir 1 "$how" 30
        is "$status" 0 "crash_once: $how" || show
        is "$(sort dir/started | tr '\n' ';')" '0 0 3;0 1 3;1 0 3;1 1 3;2 0 3;2 1 3;' \
            'every worker starts twice, with TORCHELASTIC_RESTART_COUNT 0 and 1'
        is "$(sort dir/finished | tr '\n' ';')" '0 1 3;1 1 3;2 1 3;' 'and finishes once'
        is "$(field run generation)" 2 'in a new generation'
        is "$(field run failure.rank)" 1 'the cause is rank 1'
        like "$(cat err)" "$reason" 'the user sees how it failed' || show
    done <<<'raise exited with code 1: RuntimeError: crash_once: as told
kill SIGKILL
segv SIGSEGV'
}

# What a script wrote of its failure by @record, or printed, is what the user is
# told first; each failure is shown once.
test_words() {
    local i
    cat >recorded.py <<'END'
import sys
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    for i in range(30):
        print("noise", i, file=sys.stderr)
    raise ValueError("shard 7 is bad")
main()
END
    for i in "${!pythons[@]}"; do
        mrun run --nproc-per-node 1 --max-restarts 0 -- "${pythons[i]}" recorded.py
        is "$status" 1 "a script with @record fails (${pythons[i]})" || show
        like "$(cat err)" 'exited with code 1: ValueError: shard 7 is bad' 'the exception is the reason'
        is "$(grep -c '^muster:.*Traceback' err)" 1 'its traceback is shown once' || show
        unlike "$(grep '^muster:' err)" 'noise' 'without what was printed before'
        like "$("$MUSTER" status run)" 'raise ValueError("shard 7 is bad")' 'and is in the status'
        is "$(field run failure.error_file)" errors/1-0.json 'its error file is named'
        is "$(json message.message run/errors/1-0.json)" 'ValueError: shard 7 is bad' 'the error file is kept'
        ok 'nothing is left of it elsewhere' not compgen -G "${TMPDIR:-/tmp}/muster-$UID/$(json id run/run.json)*/*.json"
    done
    mrun run --nproc-per-node 2 --max-restarts 0 -- python3 -c 'import os, time
if os.environ["RANK"] == "1": raise KeyError("no such shard")
time.sleep(60)'
    like "$(cat err)" "exited with code 1: KeyError: 'no such shard'" 'so without @record'
}

# The worker that failed takes its time to end; the one that lost it does not.
# Which of them is to blame is clear to a person, and must be to muster.
test_echo() {
    cat >slow_end.py <<'END'
import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
try:
    if dist.get_rank() == 1:
        raise ValueError("shard 7 is bad")
    dist.all_reduce(value)
finally:
    dist.destroy_process_group()
    time.sleep(0.7 * int(os.environ["RANK"]))
END
    mrun run --nproc-per-node 2 --max-restarts 0 -- "$quick" slow_end.py
    is "$status" 1 'a worker fails and is slow to end' || show
    like "$(cat err)" 'rank 1 (node 0' 'it is the cause' || show
    like "$(cat err)" 'exited with code 1: ValueError: shard 7 is bad' 'in its own words' || show
    unlike "$(grep '^muster:' err)" 'Connection' 'not the one that lost it'
    ok 'nobody is left' wait_for 60 nobody_left run
    mrun run --nnodes 2 --agent-is-node --nproc-per-node 1 --max-restarts 0 -- "$quick" slow_end.py
    like "$(cat err)" 'exited with code 1: ValueError: shard 7 is bad' 'so on another node' || show
    ok 'nobody is left' wait_for 60 nobody_left run
    mrun run --nproc-per-node 2 --max-restarts 0 -- python3 -c 'import os, time
if os.environ["RANK"] == "1": raise ConnectionResetError(104, "Connection reset by peer")
time.sleep(60)'
    is "$status" 1 'one who lost a peer that does not end' || show
    like "$(cat err)" 'rank 1 (node 0' 'is the cause in the end' || show
}

# A worker of a training is lost: all go on from the last checkpoint, to the very
# result that they would have come to.
test_resume() {
    rm -rf run
    spawn resume "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 --max-restarts 1 \
        --set restart.backoff=10ms..20ms -- "$quick" "$DDP" --steps 60 --step-time 0.02
    ok 'a training has saved a checkpoint' wait_for 60 grep -q 'step 20 ' resume.out || diag "$(cat resume.err)"
    kill -KILL "$(field run workers.1.pid)"
    wait_exit 60 "$spawned"
    is "$status" 0 'and goes on after the loss of a worker' || diag "$(cat resume.err)"
    matches "$(cat resume.out)" 'from step (20|40) to 60' 'from that checkpoint'
    is "$(grep 'step 60' resume.out)" "$(grep 'step 60' ddp0.out)" 'to the result of a training without loss'
    ok 'no port is in use twice' no_clash run/logs
    ok 'nobody is left' wait_for 60 nobody_left run
}

test_generations() {
    mrun run --nproc-per-node 2 --max-restarts 5 --set restart.backoff=10ms..20ms -- \
        "$quick" "$PY/ddp_generations.py" 5
    is "$status" 0 'a process group six times' || show
    is "$(field run restarts)" 5 'after five restarts in a row'
    is "$(grep -c '^\[[01]\] try [0-5] rank [01] port' out)" 12 'each with a store that is new' || show
    ok 'no port is in use twice' no_clash run/logs
}

test_report() {
    rm -rf run
    spawn report env PYTHONPATH="$MUSTER_SRCDIR/python" PYTHONDONTWRITEBYTECODE=1 "$MUSTER" run \
        --allow-run-as-root --run-dir run --nproc-per-node 2 -- python3 "$PY/report_loss.py"
    shows_loss() { "$MUSTER" status run | grep -q 'loss 0.25'; }
    ok 'what import muster reports is in the status' wait_for 60 shows_loss ||
        diag "$(cat report.err; "$MUSTER" status run)"
    num "$(field run step)" -gt 0 'with the step'
    ok 'it can be cancelled' "$MUSTER" cancel run
    wait_exit 30 "$spawned"
    is "$status" 130 'and ends as cancelled'
    is "$(grep -c 'stopped at step' report.out)" 2 'each worker was told to stop' || diag "$(cat report.out)"
    ok 'metrics are kept' grep -q '"name":"loss"' run/metrics.jsonl
}

run_cases
