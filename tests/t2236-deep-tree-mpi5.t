#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same as t2222 with Open MPI 5.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
export MUSTER_TEST_TREE_ARITY=1
rig_mpi5_up
. "$MUSTER_SRCDIR/tests/lib/deep-tree.sh"
run_cases
