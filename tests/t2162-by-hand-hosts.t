#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An mpirun by hand over hosts, and the loss of its MPI world, with the MPI here.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up --hosts node1,node2,node3
there=$(dirname "$MUSTER")
. "$MUSTER_SRCDIR/tests/lib/by-hand.sh"
run_cases
