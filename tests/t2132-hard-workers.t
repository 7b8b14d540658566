#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Workers that make it hard: floods without a newline, bytes of all kinds, closed
# descriptors, storms of children, every exit status and signal there is.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

mrun() {
    rm -rf run
    run timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run --max-restarts 0 "$@"
}
field() { "$MUSTER" status run -o json | json "$1"; }
nobody_left() { run_gone "$(json id run/run.json)"; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.0.state)" = Running ]; }
start_run() {
    rm -rf run
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run --max-restarts 0 "$@"
    runner=$spawned
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
}

test_flood() {
    local n=100000000 peak agent
    mkfifo hold
    start_run --nproc-per-node 1 -- python3 -c "
import sys
for i in range($n // 1000000): sys.stdout.write('x' * 1000000)
sys.stdout.flush()
open('hold').read()"
    is $? 0 'a worker with 100 MB on one line'
    agent=$(field nodes.0.agent_pid)
    ok 'all of it is in its file' wait_for 120 eval "[ \"\$(stat -c %s run/logs/1/0/stdout)\" = $n ]"
    peak=$(awk '/VmHWM/ { print $2 }' "/proc/$agent/status")
    sanitized || num "$peak" -lt 100000 'the agent has not kept it in memory'
    : >hold
    wait_exit 60 "$runner"
    is "$status" 0 'the run ends well' || diag "$(tail -c 2000 run.err)"
    is "$(tr -cd x <run.out | wc -c)" $n 'and all of it was shown'
}

test_bytes() {
    mrun --nproc-per-node 1 -- python3 -c '
import sys
out = sys.stdout.buffer
out.write(b"nul \0 inside\n\x1b[31mred\x1b[0m\x1b]0;title\x07\n\xff\xfe no text\n\r\r\nlast words \x1b[2J\0end\n")
out.flush()
sys.exit(9)'
    is "$status" 9 'bytes of all kinds' || diag "$(cat -v err)"
    ok 'are in the file as they came' python3 -c '
want = b"nul \0 inside\n\x1b[31mred\x1b[0m\x1b]0;title\x07\n\xff\xfe no text\n\r\r\nlast words \x1b[2J\0end\n"
assert open("run/logs/1/0/stdout", "rb").read() == want'
    like "$(field failure.lines)" 'last words' 'they are last words'
    "$MUSTER" status run >out 2>err
    is "$(tr -cd '\033\007\000' <out | wc -c)" 0 'status shows none that moves a cursor'
    is "$(tr -d '\n' <out | iconv -f UTF-8 -t UTF-8 2>&1 >/dev/null)" '' 'and is UTF-8'
    "$MUSTER" list -o json >out
    ok 'the records parse' python3 -c 'import json
for line in open("run/events.jsonl"): json.loads(line)
json.load(open("run/status.json"))'
}

test_closed() {
    mrun --nproc-per-node 2 -- sh -c 'exec >&- 2>&- <&-; i=0; while [ $i -lt 5 ]; do sleep 0.1; i=$((i+1)); done; exit 0'
    is "$status" 0 'workers that close all descriptors' || show
    mrun --nproc-per-node 2 -- sh -c 'exec >&- 2>&-; sleep 0.3; [ $RANK = 0 ] || exit 6; sleep 60'
    is "$status" 6 'are heard of when they fail' || show
    mrun --nproc-per-node 1 -- sh -c 'exec >/dev/full; echo x; exit 4'
    is "$status" 4 'so are those with a full device for stdout' || show
    ok 'nobody is left' wait_for 60 nobody_left
}

test_statuses() {
    local case want
    for case in 'exit 69:1' 'exit 124:1' 'exit 126:1' 'exit 127:1' 'exit 128:128' 'exit 254:254' 'exit 255:255' \
        'kill -HUP $$:129' 'kill -ABRT $$:134' 'kill -TERM $$:143' 'kill -PIPE $$:141' 'kill -35 $$:163' \
        'kill -64 $$:192'; do
        want=${case##*:}
        mrun --nproc-per-node 2 -- bash -c "ulimit -c 0; [ \$RANK = 0 ] || { ${case%:*}; }; sleep 60"
        is "$status" "$want" "'${case%:*}' ends the run with $want" || show
        is "$(field failure.rank)" 1 "'${case%:*}': the rank is known"
    done
    like "$("$MUSTER" status run)" '64' 'a signal without a name has a number' || diag "$("$MUSTER" status run)"
    ok 'nobody is left' wait_for 60 nobody_left
}

# Children without end, bounded: some are being made while others are killed.
test_storm() {
    cat >storm <<'END'
import os, signal, time
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
open("storming", "w").close()
n = 0
while n < 3000:
    n += 1
    pid = os.fork()
    if pid == 0:
        if n % 2: os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    if n % 200 == 0:
        time.sleep(0.01)
    os.waitpid(pid, 0)
time.sleep(1000)
END
    rm -f storming
    start_run --nproc-per-node 1 --set limits.grace=1s -- python3 storm
    is $? 0 'a worker that forks without end'
    ok 'is at it' wait_for 60 test -e storming
    "$MUSTER" cancel run >out 2>&1
    is $? 0 'is cancelled' || show
    wait_exit 120 "$runner"
    is "$status" 130 'the run ends' || diag "$(cat run.err)"
    ok 'and nobody is left' wait_for 60 nobody_left
}

run_cases
