#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same as t2209 with Open MPI 5.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
rig_mpi5_up
. "$MUSTER_SRCDIR/tests/lib/grow.sh"
run_cases
