#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Nodes that are lost while a run over four hosts goes on, with the MPI here.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up
there=$MUSTER_BUILDDIR
. "$MUSTER_SRCDIR/tests/lib/losses.sh"
run_cases
