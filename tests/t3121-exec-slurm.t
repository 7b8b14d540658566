#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In a real Slurm job of two nodes, MPI programs: as the command of muster run, under
# `srun --mpi=pmix muster exec`, and under `mpirun ... muster exec`.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
. "$MUSTER_SRCDIR/tests/lib/slurm-job.sh"
need_muster
need_command sbatch mpirun mpicc
rig_slurm_up --nodes 2
cd "$SHARED" || bail_out "no $SHARED"
prog=$SHARED/mpi_prog
mpicc -I"$MUSTER_BUILDDIR" -o "$prog" "$MUSTER_SRCDIR/tests/lib/mpi_prog.c" 2>err || bail_out "$(cat err)"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

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

python="/usr/bin/python3 $MUSTER_SRCDIR/tests/py/mpi_who.py JAX_PROCESS_ID SLURM_PROCID"

test_srun_python() {
    /usr/bin/python3 -c 'import mpi4py' 2>/dev/null || { skip 'no mpi4py: see scripts/install-deps' 2; return; }
    batch srunpy "srun --mpi=pmix -N 2 --ntasks-per-node=2 $MUSTER exec -- $python"
    like "$(cat srunpy.out)" 'status 0' 'srun --mpi=pmix muster exec with mpi4py' || diag "$(cat srunpy.out)"
    is "$(who srunpy.out)" "$two" 'has the ranks'
    batch mpipy "mpirun $root -n 4 --map-by slot $MUSTER exec -- $python"
    like "$(cat mpipy.out)" 'status 0' 'and so has mpirun ... muster exec in a job' || diag "$(cat mpipy.out)"
    is "$(who mpipy.out)" "$two" 'over both nodes'
    batch runpy "$MUSTER run $root --run-dir rundir --nnodes 2 -- mpirun -np 4 $python"
    like "$(cat runpy.out)" 'status 0' 'and muster run -- mpirun' || diag "$(cat runpy.out; cat rundir/logs/*/mpirun)"
    is "$(who runpy.out)" "$two" 'in each of its generations'
}

test_srun_interface() {
    batch iface "srun --mpi=pmix -N 2 --ntasks-per-node=2 $MUSTER exec --interface eth0 -- \\
        sh -c 'echo to \$MASTER_ADDR \$GROUP_RANK of \$GROUP_WORLD_SIZE'"
    is "$(grep '^to ' iface.out | sort | uniq -c | sed 's/^ *//' | tr '\n' ';')" \
        '2 to 10.77.0.1 0 of 2;2 to 10.77.0.1 1 of 2;' 'rank 0 tells its address in a network that was chosen' || diag "$(cat iface.out)"
}

test_mpirun() {
    batch one "mpirun $root -n 2 --host node1:2 $MUSTER exec -- $prog"
    like "$(cat one.out)" 'status 0' 'mpirun ... muster exec on a node of the job' || diag "$(cat one.out)"
    is "$(who one.out)" "$(printf 'MPI %d of 2, sum 3; %d of 2, local %d of 2, node 0 of 1 on node1;' 0 0 0 1 1 1)" 'keeps the ranks'
}

run_cases
