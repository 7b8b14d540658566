#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A second mpirun joins the agents of a run that live, and brings new hosts: with
# Open MPI 5.0.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
[ -x "$MUSTER_SRCDIR/configure" ] || skip_all 'no configure in the sources'
BED=$TRASH/bed SHARED=$BED/shared
rig_up mpi5 "$BED"
there=$("$MUSTER_SRCDIR/tests/rigs/mpi5" build "$BED" 2>err)/muster || bail_out "$(cat err)"
. "$MUSTER_SRCDIR/tests/lib/second-mpirun.sh"
done_testing
