#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The scripts that other tests run as workers, by themselves: examples/ddp.py
# over the c10d store, and tests/py/.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"

SERVE=$MUSTER_BUILDDIR/tests/lib/store_serve
PY=$MUSTER_SRCDIR/tests/py

# as_rank RANK WORLD CMD...: with the environment of a worker
as_rank() {
    local rank=$1 world=$2
    shift 2
    RANK=$rank LOCAL_RANK=$rank ROLE_RANK=$rank WORLD_SIZE=$world \
        LOCAL_WORLD_SIZE=$world ROLE_WORLD_SIZE=$world GROUP_RANK=0 \
        GROUP_WORLD_SIZE=1 ROLE_NAME=default MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=${port:-29500} TORCHELASTIC_RESTART_COUNT=${attempt:-0} \
        TORCHELASTIC_MAX_RESTARTS=3 TORCHELASTIC_RUN_ID=test \
        TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_ERROR_FILE=/dev/null \
        TORCH_NCCL_ASYNC_ERROR_HANDLING=1 OMP_NUM_THREADS=1 \
        GLOO_SOCKET_IFNAME=lo timeout 120 "$@"
}

# ranks WORLD NAME CMD...: all of them at once; the last failure in $status
ranks() {
    local world=$1 name=$2 r pids=()
    shift 2
    for ((r = 0; r < world; r++)); do
        as_rank $r "$world" "$@" >"$name.$r.out" 2>"$name.$r.err" </dev/null &
        pids+=($!)
    done
    status=0
    for r in "${pids[@]}"; do wait "$r" || status=$?; done
}

test_env_check() {
    mkdir -p seen
    run as_rank 1 2 python3 "$PY/env_check.py" seen WORLD_SIZE=2 -NO_SUCH_NAME
    is $status 0 'env_check: a complete environment'
    ok 'and a file named by the rank' test -s seen/1
    run as_rank 2 2 python3 "$PY/env_check.py" seen
    is $status 1 'a rank beyond the world'
    like "$(cat err)" 'RANK=2 does not fit WORLD_SIZE=2' 'is named'
    run as_rank 0 2 env -u MASTER_PORT PMIX_RANK=1 python3 "$PY/env_check.py" seen HOME=/none
    is $status 1 'a missing, a left over and a wrong one'
    like "$(cat err)" 'MASTER_PORT is not set' 'are named: missing'
    like "$(cat err)" 'PMIX_RANK is left over' 'left over'
    like "$(cat err)" "expected '/none'" 'wrong'
    not_ok 'and leave no file' test -e seen/0
}

test_crash_once() {
    local how want
    while read -r how want; do
        rm -f started finished
        run as_rank 0 1 python3 "$PY/crash_once.py" . 0 "$how" 10
        is $status "$want" "crash_once: $how"
        not_ok 'is not finished' test -e finished
        attempt=1 run as_rank 0 1 python3 "$PY/crash_once.py" . 0 "$how" 10
        is $status 0 'and well in the next try'
        is "$(cat started finished)" "0 0 1
0 1 1
0 1 1" 'as noted'
    done <<<'raise 1
kill 137
segv 139
7 7'
}

# The same steps by one rank, and by two and then by one from a checkpoint.
test_ddp() {
    need_torch
    [ -x "$SERVE" ] || { skip 'store_serve is not built'; return; }
    local ddp=$MUSTER_SRCDIR/examples/ddp.py
    spawn serve "$SERVE"
    wait_for 60 grep -q . serve.out || bail_out 'store_serve does not start'
    port=$(head -n 1 serve.out)
    ranks 1 whole "$TORCH_PYTHON" "$ddp" --steps 40 --checkpoint whole.pt
    is $status 0 'ddp: 40 steps by one rank'
    kill -USR1 "$spawned"
    ranks 2 half "$TORCH_PYTHON" "$ddp" --steps 20 --checkpoint half.pt
    is $status 0 '20 steps by two ranks'
    is "$(ls ./*.tmp 2>/dev/null)" '' 'no half a checkpoint is left'
    kill -USR1 "$spawned"
    MUSTER_RUN_DIR=$PWD
    export MUSTER_RUN_DIR
    mv half.pt ddp.pt
    ranks 1 rest "$TORCH_PYTHON" "$ddp" --steps 40
    is $status 0 'and 20 more by one, from the checkpoint in the run directory'
    like "$(cat rest.0.out)" 'from step 20 to 40' 'it goes on where they were'
    is "$(tail -n 2 rest.0.out)" "$(tail -n 2 whole.0.out)" 'to the same loss'
    like "$(cat whole.0.out)" 'step 40 loss 0.' 'which is one'
}

run_cases
