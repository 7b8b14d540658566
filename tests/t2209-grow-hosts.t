#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Hosts that come and go, and commands that want more or fewer, with the MPI here.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
need_command python3
rig_hosts_up
there=$MUSTER_BUILDDIR
. "$MUSTER_SRCDIR/tests/lib/grow.sh"
run_cases
