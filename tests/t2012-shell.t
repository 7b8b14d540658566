#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster shell: a command, or a shell on a terminal, with what a worker has:
# environment, directory, umask, limits, binding. It is no worker, and nothing
# that ends workers ends it.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun taskset
export XDG_RUNTIME_DIR=$TRASH/rt SHELL=/bin/bash
mkdir -m 700 rt

field() { "$MUSTER" status run -o json | json "$1"; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.1.state)" = Running ]; }
start_run() {
    rm -rf run go
    spawn run "$@"
    front=$spawned
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
    id=$(json id run/run.json)
}
mrun() { start_run "$MUSTER" run --allow-run-as-root --run-dir run "$@"; }
until_go='until [ -e go ]; do sleep 0.1; done'
stop_run() {
    kill -KILL "$front" 2>/dev/null
    "$MUSTER" cancel --force run >/dev/null 2>&1
    wait_for 60 eval '[ -z "$(run_traces "$id")" ]' # an agent that leaves still takes questions
}

test_what_it_has() {
    local cpu pid
    mkdir -p work
    cpu=$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')
    start_run sh -c 'umask 027; ulimit -n 777; exec taskset -c "$0" "$@"' "$cpu" "$MUSTER" run --allow-run-as-root \
        --run-dir run --nproc-per-node 2 --set workdir="$PWD/work" --set env.API_TOKEN=hunter2-secret \
        --set 'env.LINES2=one
two' -- sh -c 'sleep 1000 # a worker'
    is $? 0 'a run'
    pid=$(field workers.1.pid)
    run "$MUSTER" shell run 1 -- cat /proc/self/environ
    is "$status" 0 'a command where worker 1 is' || show
    is "$(tr '\0\n' '\n@' <out | sort)" "$(tr '\0\n' '\n@' <"/proc/$pid/environ" |
        grep -vE '^(MUSTER_AGENT|MUSTER_SOCKET|MUSTER_SET|TORCHELASTIC_ERROR_FILE)=' | sed "s/^TERM=.*/TERM=${TERM-}/" | sort)" \
        'has its environment, to the byte'
    like "$(tr '\0' '\n' <out)" 'API_TOKEN=hunter2-secret' 'secrets too'
    is "$(tr '\0' '\n' <out | grep -cE '^(RANK=1|LOCAL_RANK=1|WORLD_SIZE=2)$')" 3 'and its place'
    run "$MUSTER" shell run 1 -- pwd
    is "$(cat out)" "$TRASH/work" 'the directory'
    run "$MUSTER" shell run 1 -- sh -c umask
    is "$(cat out)" 0027 'the umask'
    run "$MUSTER" shell run 1 -- cat /proc/self/limits
    is "$(cat out)" "$(cat "/proc/$pid/limits")" 'the limits'
    run "$MUSTER" shell run 1 -- grep Cpus_allowed_list /proc/self/status
    is "$(cat out)" "$(grep Cpus_allowed_list "/proc/$pid/status")" 'the binding'
    run "$MUSTER" shell run -- sh -c 'echo $RANK'
    is "$(cat out)" 0 'without a rank it is worker 0' || show
    run "$MUSTER" shell run 1 -- sh -c 'kill -PIPE $$'
    is "$status" 141 'signals are what they were'
    unlike "$(cat run/events.jsonl run/status.json run/front.json run.err)" hunter2 'no record has the secret'
    stop_run
}

test_status() {
    mrun --nproc-per-node 2 -- sh -c "[ \$RANK = 1 ] || exec sleep 1000; $until_go"
    run "$MUSTER" shell run -- sh -c 'exit 7'
    is "$status" 7 'the exit status is that of the command' || show
    run "$MUSTER" shell run -- no-such-program
    is "$status" 127 'of one that there is not' || show
    like "$(cat err)" 'no-such-program' 'which is named'
    run "$MUSTER" shell run -- /etc/passwd
    is "$status" 126 'or that cannot be run' || show
    is "$(echo 'read from here' | "$MUSTER" shell run -- cat)" 'read from here' 'it has standard input'
    echo 'echo $RANK; exit 5' | "$MUSTER" shell run 1 >out 2>err
    is "$?:$(cat out)" 5:1 'without a terminal a shell reads its commands there' || show
    run "$MUSTER" shell run 2 -- true
    is "$status" 2 'a rank that there is not' || show
    like "$(cat err)" 'expected a rank from 0 to 1' 'is told with those that there are'
    run "$MUSTER" shell run one -- true
    is "$status" 2 'nor is a word a rank' || show
    touch go
    wait_for 60 eval '[ "$(field workers.1.state)" = Exited ]'
    run "$MUSTER" shell run 1 -- true
    is "$status" 1 'a worker that has ended' || show
    like "$(cat err)" 'worker 1 has ended' 'is told so'
    stop_run
    run "$MUSTER" shell run -- true
    is "$status" 1 'a run that is over' || show
    like "$(cat err)" 'has no workers now' 'is told so'
    run "$MUSTER" shell nothing-of-that-name -- true
    is "$status" 1 'or is not there' || show
    if [ "$(id -u)" = 0 ]; then
        mrun --nproc-per-node 2 -- sleep 1000
        chown 12345 run
        run "$MUSTER" shell run -- true
        is "$status" 1 'a run of another user' || show
        like "$(cat err)" 'is that of user 12345' 'is left alone'
        chown 0 run
        stop_run
    fi
}

# The shell is the user's: no worker, and in nobody's way.
test_lives_on() {
    local shell
    mrun --nproc-per-node 2 --max-restarts 3 -- sleep 1000
    spawn shell "$MUSTER" shell run 1 -- sh -c 'echo in; until [ -e go ]; do sleep 0.1; done; echo out'
    shell=$spawned
    wait_for 60 grep -q in shell.out
    kill -KILL "$(field workers.0.pid)"
    wait_for 60 eval '[ "$(field generation)" = 2 ]' && wait_for 60 running
    is $? 0 'a new generation starts'
    ok 'beside a shell of the one before' kill -0 "$shell"
    is "$(field workers.1.state)" Running 'which nobody takes for a worker'
    # Who sweeps up after an agent that died with its watch goes by environment.
    kill -KILL "$(awk '{ sub(/.*\) /, ""); print $2 }' "/proc/$(field nodes.0.agent_pid)/stat")" "$(field nodes.0.agent_pid)"
    wait_exit 60 "$front"
    is "$status" 75 'all of the run is lost' || diag "$(cat run.err)"
    ok 'all others are gone' wait_for 60 eval '[ "$(run_alive "$id" | grep -c "sleep 1000")" = 0 ]' || diag "$(run_alive "$id")"
    ok 'but not the shell' kill -0 "$shell"
    touch go
    wait_exit 60 "$shell"
    is "$status:$(tr '\n' ' ' <shell.out)" '0:in out ' 'which comes to its own end'
}

test_error_file() {
    mrun --nproc-per-node 2 --max-restarts 0 -- sh -c "$until_go"
    "$MUSTER" shell run -- sh -c 'echo "${TORCHELASTIC_ERROR_FILE-none} ${MUSTER_SOCKET-none} ${MUSTER_AGENT-none}"' >out
    is "$(cat out)" 'none none none' 'what a worker speaks through is not given away'
    touch go
    wait_exit 60 "$front"
    is "$status" 0 'the run does not notice' || diag "$(cat run.err)"
}

test_agents() {
    mrun --nnodes 2 --agent-is-node --nproc-per-node 1 -- sleep 1000
    run "$MUSTER" shell run 1 -- sh -c 'echo $RANK $LOCAL_RANK'
    is "$(cat out)" '1 0' 'of several agents on a host the right one is asked' || show
    # A login may have another runtime directory.
    stop_run
    (unset XDG_RUNTIME_DIR TMPDIR; mrun --nproc-per-node 2 -- sleep 1000; echo $? >started)
    is "$(cat started)" 0 'a run whose sockets are in another place'
    id=$(json id run/run.json)
    run "$MUSTER" shell run 1 -- sh -c 'echo $RANK'
    is "$status:$(cat out)" 0:1 'is found there' || show
    "$MUSTER" cancel --force run >/dev/null 2>&1
    wait_for 60 run_gone "$id"
}

# On a terminal: a shell with job control, that ends with a status.
test_terminal() {
    mrun --nproc-per-node 2 -- sleep 1000
    cat >term.py <<'END2'
import os, pty, re, select, sys, time
pid, master = pty.fork()
if pid == 0:
    os.environ['PS1'] = '$ '
    os.environ['TERM'] = 'dumb'
    os.execv(sys.argv[1], sys.argv[1:])
deadline = time.time() + 60
seen = ''
def until(pattern):
    global seen
    while not re.search(pattern, seen):
        if not select.select([master], [], [], max(0, deadline - time.time()))[0]:
            sys.exit('no %r in %r' % (pattern, seen))
        seen += os.read(master, 65536).decode(errors='replace')
    seen = seen[re.search(pattern, seen).end():]
def say(text):
    os.write(master, text.encode())
say('set -m; echo is=$RANK=$TERM $-\n')
until(r'is=1=dumb \S*m')
# A job of one process: a shell that starts others is not to be stopped between
# its vfork and their exec.
say('python3 job.py\n')
until(r'going')
say('\x1a')
until(r'Stopped')
say('fg\n')
until(r'continued')
say('\x03')
say('echo code=$?=\n')
until(r'code=130=')
say('exit 9\n')
try:
    while os.read(master, 65536): pass
except OSError: pass
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END2
    cat >job.py <<'END3'
import signal
def on_cont(*_): print('continued', flush=True)
signal.signal(signal.SIGCONT, on_cont)
signal.signal(signal.SIGINT, signal.SIG_DFL)
print('going', flush=True)
while True: signal.pause()
END3
    run timeout 100 python3 term.py "$MUSTER" shell run 1
    is "$status:$(cat out)" 0:9 'a terminal has a shell with job control, and its exit status' || show
    is "$(field workers.1.state)" Running 'the worker does not notice Ctrl-C'
    stop_run
}

run_cases
