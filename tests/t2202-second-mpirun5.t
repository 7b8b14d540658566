#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A second mpirun joins the agents of a run that live, and brings new hosts: with
# Open MPI 5.0.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
rig_mpi5_up
there=$there/muster
. "$MUSTER_SRCDIR/tests/lib/second-mpirun.sh"
done_testing
