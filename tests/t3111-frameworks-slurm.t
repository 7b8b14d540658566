#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In a real Slurm job, workers that look at Slurm's variables by themselves: an
# MPI program is a world of one, and JAX finds all workers, not the tasks of a step.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
. "$MUSTER_SRCDIR/tests/lib/slurm-job.sh"
need_muster
need_command sbatch mpirun
/usr/bin/python3 -c 'import mpi4py' 2>/dev/null || skip_rig 'no mpi4py: see scripts/install-deps'
need_module jax
rig_slurm_up
cd "$SHARED" || bail_out "no $SHARED"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

# batch NAME COMMAND: as a job of two nodes, with two workers on each.
batch() {
    cd "$SHARED" || return
    cat >"$1" <<END
#!/bin/sh
export JAX_PLATFORMS=cpu
$MUSTER run $root --name $1 --nnodes 2 --nproc-per-node 2 --max-restarts 0 -- $2
echo status \$?
END
    job=$(on ctl sbatch --parsable -N 2 --exclusive -o "$1.out" --chdir="$SHARED" "$1")
    at_exit "on ctl scancel $job"
    ok "$1: the job ends" wait_for 300 job_over "$job"
    like "$(cat "$1.out")" 'status 0' "$1: well" || diag "$(cat "$1.out")"
}

test_mpi() {
    batch mpi "/usr/bin/python3 $MUSTER_SRCDIR/tests/py/mpi_alone.py"
    is "$(grep -o 'rank [0-3]: MPI .*' mpi.out | sort | tr '\n' ';')" \
        'rank 0: MPI 0 of 1, sum 1;rank 1: MPI 0 of 1, sum 2;rank 2: MPI 0 of 1, sum 3;rank 3: MPI 0 of 1, sum 4;' \
        'four MPI programs, each a world of one'
}

test_jax() {
    batch jax "$MODULE_PYTHON $MUSTER_SRCDIR/examples/jax_train.py 20"
    is "$(grep -o 'process [0-3] of .*' jax.out | sort | tr '\n' ';')" \
        'process 0 of 4: 4 devices;process 1 of 4: 4 devices;process 2 of 4: 4 devices;process 3 of 4: 4 devices;' \
        'JAX finds four processes'
    like "$(cat jax.out)" 'done: loss' 'that compute together'
}

run_cases
