#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster-watch: what it passes on, and that nothing outlives its agent.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"

WATCH=$MUSTER_BUILDDIR/muster-watch
[ -x "$WATCH" ] || skip_all 'muster-watch is not built'
command -v python3 >/dev/null || skip_all 'no python3'

export WATCH_TEST=$$.$RANDOM
# living: the processes that came from this test's agents.
living() {
    local p n=0
    for p in /proc/[0-9]*; do
        [ "${p#/proc/}" != "$BASHPID" ] && [ "${p#/proc/}" != "$$" ] || continue
        grep -qzsx "AGENT_TAG=$WATCH_TEST" "$p/environ" && n=$((n + 1))
    done
    echo $n
}
none_living() { [ "$(living)" -eq 0 ]; }

# start CMD...: in the background, with nothing of an earlier one in w.out.
start() {
    rm -f w.out w.err
    spawn w "$@"
}

# The agent's stand-in: 36 descendants, most of them setsid'ed, some behind a
# double fork, some that ignore signals, some stopped, one that runs away; a
# line when all are there.
cat >agent.py <<'END'
import os, signal, sys, time
os.environ["X"] = "1"
r, w = os.pipe()
def spawn(i):
    if os.fork():
        return
    if i % 6:
        os.setsid()
    if i % 3 == 0:
        if os.fork():
            if i % 2: os._exit(0)
            os.write(w, b"x")
            while True: signal.pause()
        os.setsid()
    if i % 5 == 0:
        for s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)
    os.write(w, b"x")
    if i % 7 == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    if i == 8:
        end = time.time() + 20
        while time.time() < end:
            if os.fork(): os._exit(0)
            os.setsid()
            time.sleep(0.002)
    while True: signal.pause()
n = 0
for i in range(30):
    n += 2 if i % 3 == 0 and i % 2 == 0 else 1
    spawn(i)
while n: n -= len(os.read(r, n))
print(os.getpid(), flush=True)
if len(sys.argv) > 1: sys.exit(int(sys.argv[1]))
while True: signal.pause()
END

test_status() {
    local code
    for code in 0 1 7 75 255; do
        run "$WATCH" -- sh -c "exit $code"
        is "$status" $code "exits with the agent's $code"
    done
    run "$WATCH" sh -c 'kill -KILL $$'
    is "$status" 137 'or with 128 and its signal'
    run "$WATCH" --keep=2 -- ./none
    is "$status $(cat err)" \
        '127 muster-watch: cannot run ./none: No such file or directory' \
        'an agent that is not there'
    run "$WATCH" --after=-c --after='[ "$0,$1,$#" = "word,two words,1" ] && exit 5' --after=word --after='two words' -- sh -c 'exit 3'
    is "$status" 5 'after one that failed it becomes another'
    run "$WATCH" --after=-c --after='exit 5' -- sh -c 'kill -KILL $$'
    is "$status" 5 'or that was killed'
    run "$WATCH" --after=-c --after='exit 5' -- sh -c true
    is "$status" 0 'and not after one that did not'
    run "$WATCH" --after=x -- ./none
    is "$status" 127 'nor after one that is not there'
    run "$WATCH" --after={1..9} -- true
    is "$status" 2 'too many words for it'
    run "$WATCH"
    is "$status" 2 'no agent'
    run "$WATCH" --nonsense -- true
    is "$status" 2 'an unknown option'
}

test_descriptors() {
    exec 8>kept 9>dropped
    run "$WATCH" --keep=1 --keep=8 -- python3 -c '
import os
print([int(f) for f in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + f)])
print([os.readlink(f"/proc/self/fd/{i}") for i in (0, 2)])
print(os.listdir(f"/proc/{os.getppid()}/fd"))
print(os.getsid(0) == os.getppid())'
    exec 8>&- 9>&-
    is "$(sed -n 1p out)" '[0, 1, 2, 8]' 'the agent gets what is kept'
    is "$(sed -n 2p out)" "['/dev/null', '/dev/null']" 'and nothing else'
    is "$(sed -n 3p out)" "['0', '1', '2']" 'the watch keeps nothing open'
    is "$(sed -n 4p out)" True 'a session of its own'
}

# Whoever starts the watch may ignore and block what it likes.
test_inherited() {
    cat >rude.py <<'END'
import os, signal, sys
for s in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE): signal.signal(s, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, 40])
os.execv(sys.argv[1], sys.argv[1:])
END
    run python3 rude.py "$WATCH" -- sh -c 'sleep 0.1; exit 7'
    is "$status" 7 'the status is seen though SIGCHLD was ignored'
    run python3 rude.py "$WATCH" --keep=1 -- grep -E '^Sig(Blk|Ign)' /proc/self/status
    # 32 and 33 are the C library's own, which nobody else can set.
    matches "$(cat out)" $'^SigBlk:\t0{16}\nSigIgn:\t0{7}[01][08]0{7}$' 'an agent inherits none of it'
    run "$WATCH" --keep=1 -- python3 -c '
import os, time
def fds(): return [os.readlink(f"/proc/{os.getppid()}/fd/{i}") for i in (0, 1, 2)]
end = time.time() + 60
while fds() != ["/dev/null"] * 3 and time.time() < end: time.sleep(0.01)
print(fds())'
    is "$(cat out)" "['/dev/null', '/dev/null', '/dev/null']" 'the watch holds nobody up by its stdio'
}

test_killed_agent() {
    local agent t
    start env AGENT_TAG="$WATCH_TEST" "$WATCH" --keep=1 -- python3 agent.py
    wait_for 60 test -s w.out || bail_out 'the stand-in does not start'
    agent=$(cat w.out)
    num "$(living)" -ge 36 'an agent with 36 descendants'
    t=$(now_ms)
    kill -KILL "$agent"
    wait_exit 20 $spawned
    diag "all gone $(($(now_ms) - t)) ms after the agent"
    is "$status" 137 'the watch ends'
    is "$(living)" 0 'and nothing is left'
}

# The same with our own workers: stubborn ones, many children, daemons.
test_killed_with_workers() {
    local agent
    if [ ! -x "$MUSTER_BUILDDIR/launcher/workers_test" ]; then
        skip 'workers_test is not built' 3
        return
    fi
    start "$WATCH" --keep=1 -- "$MUSTER_BUILDDIR/launcher/workers_test" agent
    wait_for 60 test -s w.out || bail_out 'the agent does not start'
    agent=$(cat w.out)
    num "$(grep -lzsx "AGENT=$agent" /proc/[0-9]*/environ 2>&- | wc -l)" -ge 29 \
        'an agent with workers, their children and daemons'
    kill -KILL "$agent"
    wait_exit 20 $spawned
    is "$status" 137 'the watch ends'
    is "$(grep -lzsx "AGENT=$agent" /proc/[0-9]*/environ 2>&- | wc -l)" 0 \
        'and nothing is left of them'
}

test_exited_agent() {
    start env AGENT_TAG="$WATCH_TEST" "$WATCH" --keep=1 -- python3 agent.py 3
    wait_exit 30 $spawned
    is "$status" 3 'an agent that exits leaves nothing either'
    is "$(living)" 0 'nothing'
}

test_signals() {
    local sig
    for sig in TERM INT HUP QUIT USR1 USR2 WINCH; do
        start "$WATCH" --keep=1 -- python3 -c "
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIG$sig])
print('up', flush=True)
print('got', signal.sigwait([signal.SIG$sig]) == signal.SIG$sig)
sys.exit(9)"
        wait_for 60 grep -q up w.out
        kill -$sig $spawned
        wait_exit 10 $spawned
        is "$status $(tail -n 1 w.out)" '9 got True' "SIG$sig reaches the agent"
    done
    start "$WATCH" --keep=1 -- bash -c 'echo up; sleep 1000'
    wait_for 60 grep -q up w.out
    kill -PIPE $spawned; kill -ALRM $spawned; kill -TSTP $spawned
    ok 'others do nothing to the watch' kill -0 $spawned
    kill -TERM $spawned
    wait_exit 10 $spawned
    is "$status" 143 'it still watches'
}

# What the agent was told as it ended is nothing to what comes after it.
test_late_signals() {
    local agent
    start "$WATCH" --keep=1 --after=-c --after='exit 5' -- sh -c '
kill -STOP $PPID
for s in HUP INT TERM; do kill -$s $PPID; done
echo $$
exit 3'
    wait_for 60 test -s w.out
    agent=$(cat w.out)
    ok 'an agent ends while its watch stands still' wait_for 60 grep -q ') Z ' /proc/$agent/stat
    kill -CONT $spawned
    wait_exit 20 $spawned
    is "$status" 5 'what comes after it is not ended by what was said to it'
}

test_killed_watch() {
    start "$WATCH" --keep=1 -- python3 -c "
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
was = os.getppid()
print('up', flush=True)
signal.sigwait([signal.SIGTERM])
print(was, os.getppid())"
    wait_for 60 grep -q up w.out
    kill -KILL $spawned
    ok 'an agent without its watch gets SIGTERM' wait_for 60 sh -c '[ "$(wc -l <w.out)" -eq 2 ]'
    set -- $(tail -n 1 w.out)
    is "$1" $spawned 'its parent was the watch'
    isnt "$2" $spawned 'and is not any more'
}

test_idle() {
    start "$WATCH" --keep=1 -- sh -c 'echo up; exec sleep 1000'
    wait_for 60 grep -q up w.out
    local before after
    # CPU ticks and context switches
    used() {
        awk '{ print $14 + $15 }' /proc/$spawned/stat
        grep ctxt_switches /proc/$spawned/status
    }
    wait_for 10 grep -q 'State:.S' /proc/$spawned/status
    before=$(used)
    sleep 1 # the time that is measured
    after=$(used)
    is "$after" "$before" 'it does not run while nothing happens'
    kill -TERM $spawned
    wait_exit 10 $spawned
}

run_cases
