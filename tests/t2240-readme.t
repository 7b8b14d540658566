#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What README.md shows runs as it is written there: the file, and every way to
# start it, on the hosts and in the batch system of a bed.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
. "$MUSTER_SRCDIR/tests/lib/slurm-job.sh"
need_muster
need_command sbatch mpirun mpicc python3
rig_slurm_up --nodes 2
cd "$SHARED" || bail_out "no $SHARED"
readme=$MUSTER_SRCDIR/README.md

# A directory where `muster` is the one under test, and nobody asks about root.
mkdir bin
ln -s "$MUSTER" bin/muster
export PATH=$SHARED/bin:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
echo 'import os; print(os.environ["RANK"], "of", os.environ["WORLD_SIZE"])' >train.py

sed -n '/^```yaml/,/^```/{/^```/d;p}' "$readme" >job.yaml

# shown PATTERN: the lines of the block that has it, without their indentation.
shown() {
    awk -v want="$1" '
        function out() { if (index(block, want)) printf "%s", block; block = "" }
        /^    / { block = block substr($0, 5) "\n"; next }
        { out() }
        END { out() }' "$readme"
}


# all_of FILE NAME: each of 8 workers has said where it stands.
all_of() {
    is "$(grep -oE '[0-7] of 8$' "$1" | sort | tr '\n' ' ')" \
        '0 of 8 1 of 8 2 of 8 3 of 8 4 of 8 5 of 8 6 of 8 7 of 8 ' "$2" || diag "$(cat "$1")"
}

# submit NAME [SBATCH-OPTION...]: the script NAME, to its end; what it says is in NAME.out.
submit() {
    local name=$1 job
    shift
    job=$(on ctl sbatch --parsable "$@" -o "$name.out" --chdir="$SHARED" "$name")
    at_exit "on ctl scancel $job"
    ok "$name: the batch job ends" wait_for 120 job_over "$job"
}

test_file() {
    cd "$SHARED" || return
    run muster validate job.yaml
    is "$status" 0 'the file is a job' || show
    is "$(cat err)" '' 'without a warning'
}

test_login_node() {
    cd "$SHARED" || return
    shown '--hosts n1,n2 job.yaml' | sed 's/n1,n2/node1,node2/' >login
    is "$(grep -c 'muster run --hosts node1,node2 job.yaml' login)" 1 'a line for the login node'
    run on ctl sh ./login
    is "$status" 0 'runs over ssh' || show
    all_of out 'with all workers'
}

test_batch() {
    cd "$SHARED" || return
    shown '#SBATCH' >batch
    is "$(head -c 2 batch)" '#!' 'a batch script'
    submit batch
    all_of batch.out 'runs all workers'
}

test_mpirun() {
    cd "$SHARED" || return
    { echo '#!/bin/sh'; shown 'mpirun -np'; } >launch
    is "$(grep -c '^mpirun .* muster run' launch)" 1 'a line for a launch by mpirun'
    submit launch -N 2
    all_of launch.out 'runs all workers'
}

test_mpi_program() {
    cd "$SHARED" || return
    mpicc -I"$MUSTER_BUILDDIR" -o simulate "$MUSTER_SRCDIR/tests/lib/mpi_prog.c"
    shown './simulate' | sed 's/n1,n2/node1,node2/' >simulation
    is "$(grep -c '^muster run .* -- mpirun -n 8 ./simulate' simulation)" 1 'a line for an MPI program'
    run on ctl sh ./simulation
    is "$status" 0 'runs over ssh' || show
    is "$(grep -oE 'MPI [0-7] of 8, sum 36; [0-7] of 8, local [0-3] of 4' out | sort | tr '\n' ';')" \
        "$(for r in 0 1 2 3 4 5 6 7; do printf 'MPI %d of 8, sum 36; %d of 8, local %d of 4;' $r $r $((r % 4)); done)" \
        'as one MPI world' || show
}

test_no_file() {
    cd "$SHARED" || return
    { echo '#!/bin/sh'; shown '--nproc-per-node'; } >options
    is "$(grep -c '^muster run .*--nnodes 2' options)" 1 'a line without a file'
    submit options -N 2
    all_of options.out 'runs all workers'
}

run_cases
