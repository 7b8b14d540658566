#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# import muster: against agents that are wrong in every way, and the real one.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"

SERVE=$MUSTER_BUILDDIR/tests/lib/worker_serve
need_command python3

spawn serve "$SERVE" "$TRASH/s"
agent=$spawned
wait_for 60 grep -q ready serve.out || bail_out "worker_serve does not start: $(cat serve.err)"
spawn store "$MUSTER_BUILDDIR/tests/lib/store_serve"
wait_for 60 grep -q . store.out || bail_out "store_serve does not start: $(cat store.err)"
export PYTHONPATH=$MUSTER_SRCDIR/python PYTHONDONTWRITEBYTECODE=1
timeout 300 python3 -W error::ResourceWarning "$MUSTER_SRCDIR/tests/py/muster_test.py" \
    "$TRASH/s" "$agent" "127.0.0.1:$(head -n 1 store.out)" >tap 2>err
is $? 0 'the test of the Python module passes'
while read -r line; do
    case $line in
    'ok '*) pass "${line#* - }" ;;
    'not ok '*) fail "${line#* - }" ;;
    esac
done <tap
unlike "$(tail -n 1 tap)" 'not ok' 'to its end' && like "$(tail -n 1 tap)" '1..' 'with its plan'
wait_for 60 grep -q '^bye' serve.out
is "$(sed 's/^hello 1 [0-9]*$/hello 1 PID/' serve.out)" 'ready
hello 1 PID
report 1 41 loss=0.25 accuracy=1
saved 1 /ckpt/42 42
bye 1 ' 'what the agent was told'

# Where there is a mypy, every name has its type.
mypy=$(command -v mypy || ls "$MUSTER_CACHE/venv/bin/mypy" 2>/dev/null)
if [ -n "$mypy" ]; then
    ok 'mypy --strict finds nothing' "$mypy" --strict --no-site-packages --python-version 3.10 --cache-dir "$TRASH/mypy" \
        --ignore-missing-imports "$MUSTER_SRCDIR/python/muster"
else
    skip 'no mypy: see scripts/install-deps'
fi
[ $n_failed -eq 0 ] || diag "$(cat tap err)"
done_testing
