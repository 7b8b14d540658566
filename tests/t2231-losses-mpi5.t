#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same as t2204 with Open MPI 5, which ends a whole world with any process of it.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
rig_mpi5_up
. "$MUSTER_SRCDIR/tests/lib/losses.sh"
run_cases
