#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A push to an object store, and removing there, killed at system calls and with calls
# that fail (ckpt/store_sweep_test.c). MUSTER_SWEEP_STRIDE=1: at all of them.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
. "$MUSTER_SRCDIR/tests/lib/object-store.sh"
need_object_store
store_up

test_sweep() {
    run "$MUSTER_BUILDDIR/ckpt/store_sweep_test" bucket
    is "$status" 0 'whole or not there, whatever came' || show
    diag "$(grep '^# ' out)"
    num "$(grep -c '^ok' out)" -ge 5 'all of it has run'
}

run_cases
