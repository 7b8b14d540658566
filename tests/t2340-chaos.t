#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Random faults, one after the other, while charlm trains on four hosts: each step
# counts once in the model that comes out of it, and nothing is left on any host.
#
# MUSTER_CHAOS_SECONDS=1800   how long there are faults (60); see tests/README.md
# MUSTER_CHAOS_SEED=N         which (1)
# MUSTER_CHAOS_LEAD=1         also those that take the node of the lead away
# MUSTER_CHAOS_FAULTS="a b"   these alone, in that order, again and again

# The run directory is a file system of its own, in a mount namespace of its own.
if [ -z "${MUSTER_CHAOS_MOUNTS:-}" ] && [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
    MUSTER_CHAOS_MOUNTS=own exec unshare --mount --propagation private -- bash "$0" "$@"
fi
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun fsfreeze losetup mkfs.ext4
[ -n "${MUSTER_CHAOS_MOUNTS:-}" ] || skip_rig 'not root, or no mount namespaces'
. "$MUSTER_SRCDIR/tests/lib/chaos-run.sh"

chaos_place
rig_hosts_up
there=$MUSTER_BUILDDIR
chaos_begin
run_cases
