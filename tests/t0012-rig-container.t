#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The bed of pods behaves as pods do: addresses of their own, limits, a user that
# is not root, a grace time, an out-of-memory kill.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
BED=$TRASH/bed SHARED=$BED/shared
rig_up container "$BED" --pods 2

pods() { local verb=$1; shift; "$MUSTER_SRCDIR/tests/rigs/container" "$verb" "$BED" "$@"; }

test_pod() {
    pods start pod0 -- sh -c 'hostname; id -u; df -m /dev/shm | tail -n 1; touch /x; echo put >/shared/f; mpirun --version'
    is "$(pods wait pod0)" 0 'a container runs' || diag "$(pods logs pod0 2>&1)"
    pods logs pod0 >log 2>&1
    matches "$(cat log)" '^pod0' 'with its own name'
    like "$(cat log)" '1000' 'as a user that is not root'
    matches "$(cat log)" 'shm +6[34] ' 'with a small /dev/shm'
    like "$(cat log)" 'Read-only file system' 'and a root that cannot be written'
    like "$(cat log)" 'Open MPI' 'and Open MPI'
    is "$(cat "$SHARED/f")" put 'it writes to the volume'
    pods start pod0 -- sh -c 'exit 7'
    is "$(pods wait pod0)" 7 'its status is known'
}

test_network() {
    pods start pod0 -- python3 -c 'import socket
s = socket.create_server(("", 5000)); c, a = s.accept(); c.sendall(a[0].encode())'
    pods start pod1 -- python3 -c 'import socket, time
for _ in range(200):
    try:
        s = socket.create_connection(("pod0", 5000), 1)
        break
    except OSError:
        time.sleep(0.05)
print(s.recv(100).decode())'
    is "$(pods wait pod1)" 0 'pods talk to each other' || diag "$(pods logs pod1 2>&1)"
    is "$(pods logs pod1)" "$(pods address pod1)" 'from their own addresses'
    pods wait pod0 >/dev/null
}

test_stop() {
    pods start pod0 -- sh -c 'trap "echo told; exit 3" TERM; echo up; while :; do sleep 0.1; done'
    ok 'a container that listens' wait_for 60 eval '[ "$(pods logs pod0)" = up ]'
    ok 'is told to stop' pods stop pod0 20
    is "$(pods state pod0 ExitCode)" 3 'and does, in its own way'
    pods start pod0 -- sh -c 'trap "" TERM; echo up; while :; do sleep 0.1; done'
    ok 'one that does not listen' wait_for 60 eval '[ "$(pods logs pod0)" = up ]'
    ok 'is given a second' pods stop pod0 1
    is "$(pods state pod0 ExitCode)" 137 'and killed'
}

test_memory() {
    pods start pod1 --memory=64m --memory-swap=64m -- sh -c \
        'python3 -c "x = bytearray(256 << 20)"; echo status $?; cat /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events 2>/dev/null; true'
    is "$(pods wait pod1)" 0 'a container over its memory limit'
    pods logs pod1 >log 2>&1
    like "$(cat log)" 'status 137' 'loses the process that took it'
    like "$(cat log)" 'oom_kill 1' 'and its cgroup says why'
}

test_gone() {
    local pid
    pods start pod0 -- sleep 1000
    pid=$(pods state pod0 Pid)
    ok 'a running container' test -d "/proc/$pid"
    id=$(cat "$BED/state/id")
    ok 'goes with its bed' pods down
    ok 'and so does its process' wait_for 60 gone "$pid"
    is "$(grep -c "$BED" /proc/self/mounts)" 0 'and all mounts'
    is "$(find /sys/fs/cgroup -name "muster-*-$id*")" '' 'and all cgroups'
}

run_cases
