#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --watch of status, list and nodes: what changes is shown, in place on a
# terminal and as lines elsewhere, until the run is over or nobody reads.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command python3

# put_run ID STATE STEP: a run directory of the name `seen`. Its status is newer
# than now, so that it does not get stale.
late=$(($(date +%s) + 1000))
put_run() {
    local dir=$TRASH/runs/$1
    mkdir -p "$dir" "$XDG_STATE_HOME/muster/runs/seen"
    echo "{\"v\":1,\"id\":\"$1\",\"name\":\"seen\",\"created\":$((late - 2000))}" >"$dir/run.json"
    echo "{\"v\":1,\"id\":\"$1\",\"name\":\"seen\",\"state\":\"$2\",\"generation\":1,\"created\":$((late - 2000)),
        \"updated\":$late,\"step\":$3,
        \"nodes\":[{\"rank\":0,\"host\":\"n0\",\"state\":\"Running\",\"agent_pid\":11,\"n_procs\":2}],
        \"workers\":[{\"rank\":0,\"node\":0,\"pid\":21,\"state\":\"Running\"}]}" >"$dir/new"
    mv "$dir/new" "$dir/status.json"
    ln -sfn "$dir" "$XDG_STATE_HOME/muster/runs/seen/$1"
}
said() { grep -q -- "$2" "$1.out"; }
lines() { [ "$(wc -l <"$1.out")" -ge "$2" ]; }

test_status_lines() {
    put_run s1 Running 1
    spawn text "$MUSTER" status s1 -w
    local text=$spawned
    spawn json "$MUSTER" status s1 -w -o json
    local json=$spawned
    ok 'the state of now comes first' wait_for 60 said text 'seen  *Running.*step 1'
    ok 'as JSON too' wait_for 60 lines json 1
    put_run s1 Running 2
    ok 'a change is a line' wait_for 60 said text 'step 2'
    ok 'one of JSON' wait_for 60 lines json 2
    put_run s1 Running 2
    put_run s1 Succeeded 3
    ok 'it ends with the run' wait_exit 60 $text
    is "$status" 0 'well'
    ok 'the other too' wait_exit 60 $json
    like "$(tail -n 1 text.out)" Succeeded 'and the end is shown'
    is "$(wc -l <text.out)" 3 'what did not change was not' || diag "$(cat text.out)"
    is "$(python3 -c 'import json; print([json.loads(l)["step"] for l in open("json.out")])')" '[1, 2, 3]' 'each line is a document'
    run "$MUSTER" status s1 -w
    is "$status:$(wc -l <out)" 0:1 'a run that is over is shown once'
}

test_list_lines() {
    put_run l1 Running 1
    spawn list "$MUSTER" list -w
    local list=$spawned
    ok 'the list of now' wait_for 60 said list 'l1 .*Running'
    put_run l2 Running 7
    ok 'a new run is a line' wait_for 60 said list 'l2 .*Running .* 7 '
    put_run l1 Failed 1
    ok 'and so is another state' wait_for 60 said list 'l1 .*Failed'
    is "$(grep -c '^NAME' list.out):$(grep -c 'l2' list.out)" 1:1 'with one head, and nothing twice'
    kill $list
    run timeout 60 bash -c "'$MUSTER' list -w -o json | head -n 1"
    is "$status" 0 'it ends when nobody reads'
    run timeout 60 bash -c "'$MUSTER' nodes -w -o json | head -n 1"
    is "$status" 0 'so do nodes'
    is "$(json state out)" Up 'with a line for each' || show
}

# What a terminal of 12 rows and 40 columns is sent; a Ctrl-C at the end.
cat >on_terminal <<'E2'
import fcntl, os, pty, select, signal, struct, subprocess, sys, termios, time
first, then, change, *argv = sys.argv[1:]
pid, fd = pty.fork()
if pid == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # may be ignored where this runs
    time.sleep(0.2)
    os.execvp(argv[0], argv)
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 40, 0, 0))
before = termios.tcgetattr(fd)
seen = b""
def until(what):
    global seen
    end = time.monotonic() + 60
    while what.encode() not in seen and time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            seen += os.read(fd, 4096)
until(first)
subprocess.run(["bash", "-c", change])
until(then)
print("modes", termios.tcgetattr(fd) == before)
os.write(fd, b"\x03")
end = time.monotonic() + 60
while not (done := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < end:
    time.sleep(0.05)
if not done[0]:
    os.kill(pid, signal.SIGKILL)
    done = os.waitpid(pid, 0)
how = done[1]
print("ended", os.WIFSIGNALED(how) and os.WTERMSIG(how))
open("seen", "wb").write(seen)
E2

test_terminal() {
    put_run t1 Running 1
    export -f put_run
    export XDG_STATE_HOME TRASH late
    run python3 on_terminal 'step 1' 'step 2' 'put_run t1 Running 2' "$MUSTER" status t1 --watch
    is "$(cat out)" 'modes True
ended 2' 'a terminal is left as it was, by Ctrl-C' || show
    ok 'what is new is painted over the old' python3 - <<'E2'
import re
seen = open("seen", "rb").read().decode()
up = re.search("\x1b\\[(\\d+)A\r\x1b\\[J", seen)
assert up and int(up.group(1)) == seen[:up.start()].count("\n"), seen
for line in re.sub("\x1b\\[[0-9;]*[a-zA-Z]", "", seen).split("\n"):
    assert len(line.rstrip("\r")) <= 40, line
E2
    for i in $(seq 30); do put_run "many$i" Running 1; done
    run python3 on_terminal '...' 'xyz' 'put_run xyz Running 1' "$MUSTER" list -w
    ok 'no more than fits' python3 -c '
import re
seen = open("seen", "rb").read().decode()
assert max(p.count("\n") for p in seen.split("\x1b[J")) <= 11, seen'
}

test_bad_usage() {
    put_run u1 Running 1
    for c in status list nodes; do
        run "$MUSTER" $c -w -o yaml
        is "$status" 2 "$c: YAML cannot be watched"
    done
    run "$MUSTER" status nothing -w
    is "$status" 1 'no such run'
}

run_cases
