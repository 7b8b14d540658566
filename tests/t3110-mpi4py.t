#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Workers that call MPI_Init are each a world of one, also where muster itself was
# started by Slurm or mpirun: neither the agents' MPI nor the batch step is taken
# for the worker's own.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
PY=$MUSTER_SRCDIR/tests/py
python=/usr/bin/python3
"$python" -c 'import mpi4py' 2>/dev/null || skip_rig 'no mpi4py: see scripts/install-deps'

# What a batch step of one task sets, as far as MPI libraries look at it; and
# what makes Open MPI's own mpirun believe it, for which there is t3111.
step=(SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1
    SLURM_NPROCS=1 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NUM_NODES=1 SLURM_TASKS_PER_NODE=1
    SLURM_STEP_TASKS_PER_NODE=1 SLURM_GTIDS=0 SLURM_STEP_NODELIST=localhost SLURM_SRUN_COMM_PORT=1
    SLURM_SRUN_COMM_HOST=127.0.0.1 SLURM_LAUNCH_NODE_IPADDR=127.0.0.1)
job=(SLURM_JOBID=77 SLURM_STEPID=0 SLURM_NODELIST=localhost)

said='rank 0: MPI 0 of 1, sum 1;rank 1: MPI 0 of 1, sum 2;'

mpi_run() {
    rm -rf run
    run timeout 300 "$@" "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 --max-restarts 0 -- \
        "$python" "$PY/mpi_alone.py"
}
is_alone() {
    is "$status" 0 "$1" || show
    is "$(grep -o 'rank [01]: MPI .*' out | sort | tr '\n' ';')" "$said" 'each a world of one'
}

test_plain() {
    mpi_run env
    is_alone 'workers with mpi4py'
}

# Left as they are, these variables end a worker: so they are worth a test.
test_spoilt() {
    run env "${step[@]}" "${job[@]}" RANK=0 timeout 120 "$python" "$PY/mpi_alone.py"
    isnt "$status" 0 'without muster, the variables of a step end MPI_Init'
}

test_step() {
    mpi_run env "${step[@]}"
    is_alone 'workers with mpi4py, among the variables of Slurm'
}

test_under_mpirun() {
    rm -rf run
    run timeout 300 mpirun --allow-run-as-root --oversubscribe -np 1 "$MUSTER" run --allow-run-as-root \
        --run-dir run --nproc-per-node 2 --max-restarts 0 -- "$python" "$PY/mpi_alone.py"
    is_alone 'workers with mpi4py, under an mpirun'
}

run_cases
