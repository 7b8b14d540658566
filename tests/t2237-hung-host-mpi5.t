#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same as t2226 with Open MPI 5, but for what muster decides without looking at MPI.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
rig_mpi5_up --hosts node1,node2,node3
. "$MUSTER_SRCDIR/tests/lib/hung-host.sh"
unset -f test_needed test_refused_of_two
run_cases
