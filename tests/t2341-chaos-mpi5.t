#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same as t2340 with Open MPI 5, for a shorter time, and with the node of the lead
# among those that are lost.
# The run directory is a file system of its own, in a mount namespace of its own.
if [ -z "${MUSTER_CHAOS_MOUNTS:-}" ] && [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
    MUSTER_CHAOS_MOUNTS=own exec unshare --mount --propagation private -- bash "$0" "$@"
fi
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
: "${MUSTER_CHAOS_SECONDS:=45}" "${MUSTER_CHAOS_LEAD=1}"
need_muster
need_command fsfreeze losetup mkfs.ext4
[ -n "${MUSTER_CHAOS_MOUNTS:-}" ] || skip_rig 'not root, or no mount namespaces'
. "$MUSTER_SRCDIR/tests/lib/chaos-run.sh"

chaos_place
rig_mpi5_up
chaos_begin
run_cases
