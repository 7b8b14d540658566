#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The sweep with losses of power (power_loss.c), in a virtual machine of its own:
#
#   power-loss.sh DIR ext4|xfs
#
# DIR is as of tests/rigs/vm, after its `up`. Prints TAP. MUSTER_SWEEP_STRIDE=1: all points.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${MUSTER_BUILDDIR:=$here/../../build}"
secs=600 # a sample; all of it takes an hour
[ -z "${MUSTER_SWEEP_STRIDE:-}" ] || secs=7000
exec "$here/../rigs/vm" run "$1" --secs $secs \
    --module "brd rd_nr=2 rd_size=307200" --module loop --module dm_log_writes --module "$2" -- \
    sh -c 'mkdir -m 700 /run/disk && exec "$@"' sh "$MUSTER_BUILDDIR/tests/lib/power_loss" "$2" /run/disk
