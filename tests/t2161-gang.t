#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Nodes that do not come together in time, with the MPI here.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up --hosts node1,node2,node3
there=$MUSTER_BUILDDIR
. "$MUSTER_SRCDIR/tests/lib/gang.sh"
run_cases
