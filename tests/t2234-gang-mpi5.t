#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same as t2161 with Open MPI 5.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
rig_mpi5_up --hosts node1,node2,node3
launch_options=(--prtemca plm_ssh_agent "$BED/ssh")
. "$MUSTER_SRCDIR/tests/lib/gang.sh"
run_cases
