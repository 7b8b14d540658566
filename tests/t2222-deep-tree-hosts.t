#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An inner node of a deep tree is lost, with the MPI here.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
export MUSTER_TEST_TREE_ARITY=1
rig_hosts_up
there=$MUSTER_BUILDDIR
. "$MUSTER_SRCDIR/tests/lib/deep-tree.sh"
run_cases
