#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Power that is lost while checkpoints are saved, removed, copied, converted and pulled, on
# ext4 and on xfs of a virtual machine (lib/power_loss.c). MUSTER_SWEEP_STRIDE=1: at all points.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
[ -z "${MUSTER_INSTRUMENTED:-}" ] || skip_all 'the kernel is the same under instruments'
[ -x "$MUSTER_BUILDDIR/tests/lib/power_loss" ] || skip_all "no power_loss in $MUSTER_BUILDDIR"
rig_up vm "$TRASH/ext4"
rig_up vm "$TRASH/xfs"

# A machine for each; both have a processor.
test_sweep() {
    local type pids=()
    for type in ext4 xfs; do
        spawn $type "$MUSTER_SRCDIR/tests/lib/power-loss.sh" "$TRASH/$type" $type
        pids+=($spawned)
    done
    for type in ext4 xfs; do
        wait_exit 7200 "${pids[0]}"
        pids=("${pids[@]:1}")
        is "$status" 0 "$type: the newest that was told is there, whatever the loss" || {
            diag "$(grep '^not ok' $type.out)"
            diag "$(cat $type.err)"
        }
        diag "$(grep '^# ' $type.out | sed 's/^# //')"
        is "$(grep -c '^ok' $type.out)" 11 "$type: all programs have run, and the faults that are planted are found"
    done
}

run_cases
