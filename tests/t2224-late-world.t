#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An mpirun that hangs before there is an MPI world.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up --hosts node1,node2,node3
there=$MUSTER_BUILDDIR
. "$MUSTER_SRCDIR/tests/lib/late-world.sh"
done_testing
