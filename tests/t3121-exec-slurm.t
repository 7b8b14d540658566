#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In a real Slurm job of two nodes, MPI programs: as the command of muster run, under
# `srun --mpi=pmix muster exec`, and under `mpirun ... muster exec`.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command sbatch mpirun mpicc
rig_slurm_up --nodes 2
cd "$SHARED" || bail_out "no $SHARED"
prog=$SHARED/mpi_prog
mpicc -I"$MUSTER_BUILDDIR" -o "$prog" "$MUSTER_SRCDIR/tests/lib/mpi_prog.c" 2>err || bail_out "$(cat err)"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

job_over() { [ -z "$(on ctl squeue -h -j "$1" -t pending,running,completing 2>/dev/null)" ]; }

# batch NAME COMMAND: as a job of two nodes.
batch() {
    cd "$SHARED" || return
    printf '#!/bin/sh\n%s\necho status $?\n' "$2" >"$1"
    job=$(on ctl sbatch --parsable -N 2 --exclusive -o "$1.out" --chdir="$SHARED" "$1")
    at_exit "on ctl scancel $job"
    ok "$1: the job ends" wait_for 300 job_over "$job"
}
who() { grep -o 'MPI [0-9] of .* on node[12]' "$1" | sort -u | tr '\n' ';'; }
two='MPI 0 of 4, sum 10; 0 of 4, local 0 of 2, node 0 of 2 on node1;'
two+='MPI 1 of 4, sum 10; 1 of 4, local 1 of 2, node 0 of 2 on node1;'
two+='MPI 2 of 4, sum 10; 2 of 4, local 0 of 2, node 1 of 2 on node2;'
two+='MPI 3 of 4, sum 10; 3 of 4, local 1 of 2, node 1 of 2 on node2;'

test_run() {
    batch run "$MUSTER run $root --run-dir rundir --nnodes 2 --max-restarts 1 --set restart.backoff=1s..1s -- mpirun -np 4 $prog fail 3 5"
    like "$(cat run.out)" 'status 0' 'well, in its second generation' || diag "$(cat run.out; cat rundir/logs/*/mpirun)"
    is "$(who run.out)" "$two" 'with an MPI world over both nodes'
    is "$("$MUSTER" status rundir -o json | json generation)" 2 'each time'
    like "$(cat run.out)" 'rank 3 (node 1, node2) exited with code 5' 'and the rank that failed is named'
}

test_srun() {
    like "$(on ctl srun --mpi=list 2>&1)" pmix 'this Slurm has PMIx' || return
    batch srun "srun --mpi=pmix -N 2 --ntasks-per-node=2 $MUSTER exec -- $prog"
    like "$(cat srun.out)" 'status 0' 'srun --mpi=pmix muster exec' || diag "$(cat srun.out)"
    is "$(who srun.out)" "$two" 'keeps the ranks, and knows the nodes'
}

test_mpirun() {
    batch one "mpirun $root -n 2 --host node1:2 $MUSTER exec -- $prog"
    like "$(cat one.out)" 'status 0' 'mpirun ... muster exec on a node of the job' || diag "$(cat one.out)"
    is "$(who one.out)" "$(printf 'MPI %d of 2, sum 3; %d of 2, local %d of 2, node 0 of 1 on node1;' 0 0 0 1 1 1)" 'keeps the ranks'
}

run_cases
