#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An mpirun that hangs before there is an MPI world: with Open MPI 5.0.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
rig_mpi5_up --hosts node1,node2,node3
. "$MUSTER_SRCDIR/tests/lib/late-world.sh"
done_testing
