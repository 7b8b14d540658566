#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# import muster: against agents that are wrong in every way, and the real one.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"

SERVE=$MUSTER_BUILDDIR/tests/lib/worker_serve
need_command python3

spawn serve "$SERVE" "$TRASH/s"
wait_for 10 grep -q ready serve.out || bail_out "worker_serve does not start: $(cat serve.err)"
export PYTHONPATH=$MUSTER_SRCDIR/python PYTHONDONTWRITEBYTECODE=1
timeout 120 python3 -W error::ResourceWarning "$MUSTER_SRCDIR/tests/py/muster_test.py" \
    "$TRASH/s" "$spawned" >tap 2>err
is $? 0 'the test of the Python module passes'
while read -r line; do
    case $line in
    'ok '*) pass "${line#* - }" ;;
    'not ok '*) fail "${line#* - }" ;;
    esac
done <tap
unlike "$(tail -n 1 tap)" 'not ok' 'to its end' && like "$(tail -n 1 tap)" '1..' 'with its plan'
wait_for 5 grep -q '^bye' serve.out
is "$(sed 's/^hello 1 [0-9]*$/hello 1 PID/' serve.out)" 'ready
hello 1 PID
report 1 41 loss=0.25 accuracy=1
saved 1 /ckpt/42 42
bye 1 ' 'what the agent was told'
[ $n_failed -eq 0 ] || diag "$(cat tap err)"
done_testing
