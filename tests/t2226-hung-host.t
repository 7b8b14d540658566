#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A host at which mpirun hangs is left out, with the MPI here.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up --hosts node1,node2,node3
there=$MUSTER_BUILDDIR
. "$MUSTER_SRCDIR/tests/lib/hung-host.sh"
run_cases
