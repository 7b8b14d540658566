#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A host that is none of the run, on the network of one that is: what its agents
# and its store answer, and what that does to the run.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun ss
rig_hosts_up --hosts node1,node2,node3
cd "$SHARED" || bail_out "no $SHARED"

field() { "$MUSTER" status run -o json | json "$1"; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ -s store ]; }
nobody_left() { run_gone "$(json id run/run.json)"; }

# A store's greeting and a ping, to which it answers with the same number.
cat >ping.py <<'END'
import socket, struct, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
try:
    s.sendall(b'\0' + struct.pack('<I', 0x3C85F7CE) + b'\x0d' + struct.pack('<I', 77))
    print(s.recv(16))
except ConnectionError:
    print(b'')
END
# Holds many connections: silent, with half a handshake, garbage, one byte at a time.
cat >crowd.py <<'END'
import os, resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
words = [b'', b'MSTR', b'MSTR\0\3\1' + os.urandom(32), b'MSTR\0\3\1' + os.urandom(32) + b'\0\0\x20\0' + b'x' * 100,
         b'MSTR\0\3\0' + os.urandom(32) + b'\xff' * 4, b'MSTR\0\1' + os.urandom(32), os.urandom(100000)]
held, answered = [], 0
for i in range(3000):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
    s.setblocking(False)
    try:
        s.send(words[i % len(words)])
    except OSError:
        pass
    held.append(s)
    if len(held) > 1000:
        held.pop(0).close()
print('crowded', flush=True)
while not os.path.exists('crowd-over'):
    for s in held[::7]:
        try:
            s.send(b'M')
        except OSError:
            pass
    time.sleep(0.1)
END

test_store() {
    local addr port
    cd "$SHARED" || return
    spawn run on node1 "$MUSTER" run --allow-run-as-root --run-dir run --hosts node1,node2 --nnodes 2 --nproc-per-node 1 \
        --max-restarts 1 --set heartbeat.timeout=3s -- sh -c '
            if [ $RANK = 0 ]; then echo $MASTER_ADDR $MASTER_PORT >store; fi
            while [ ! -e go ]; do [ ! -e fail$RANK ] || { rm fail$RANK; exit 3; }; sleep 0.1; done; echo done'
    runner=$spawned
    ok 'a run on two of three hosts' wait_for 60 running || diag "$(cat run.err)"
    wait_for 60 test -s store
    read -r addr port <store
    is "$(on node2 python3 ping.py "$addr" "$port")" "b'M\\x00\\x00\\x00'" 'its store answers a host of the run'
    is "$(on node3 python3 ping.py "$addr" "$port")" "b''" 'and closes what comes from another'
    ok 'which is told' wait_for 60 grep -q 'has closed a connection from 10.77.0.3: not a host of this run' run/events.jsonl
    on node3 python3 ping.py "$addr" "$port" >/dev/null
    is "$(grep -c 'not a host of this run' run/events.jsonl)" 1 'once'
}

test_tree() {
    local ports port pid n i
    cd "$SHARED" || return
    ports=$(on node1 ss -ltnpH | awk -v store="$(cut -d ' ' -f 2 store)" '/"muster"/ {
        sub(/.*:/, "", $4); if ($4 != store) print $4 }' | sort -un)
    is "$(wc -w <<<"$ports")" 2 'front end and agent listen' || diag "$(on node1 ss -ltnpH)"
    i=0
    for port in $ports; do
        i=$((i + 1))
        spawn crowd$i on node3 python3 crowd.py 10.77.0.1 "$port"
    done
    ok 'strangers crowd at both' wait_for 60 grep -q crowded crowd1.out &&
        ok 'by thousands' wait_for 60 grep -q crowded crowd2.out || diag "$(cat crowd1.err crowd2.err)"
    touch fail1
    ok 'a worker is restarted beside a crowd of strangers' wait_for 60 eval '[ "$(field generation)" = 2 ] && running' ||
        diag "$(cat run.err)"
    pid=$("$MUSTER_SRCDIR/tests/rigs/hosts" pid "$BED" node1)
    n=0
    for i in /proc/[0-9]*; do
        [ "$(readlink "$i/ns/pid")" = "$(readlink "/proc/$pid/ns/pid")" ] || continue
        case $(readlink "$i/exe") in */muster) ;; *) continue ;; esac
        [ "$(ls "$i/fd" | wc -l)" -le $n ] || n=$(ls "$i/fd" | wc -l)
    done
    num $n -le 400 'descriptors stay few' && num $n -ge 100 'and strangers had some' || diag "$n"
    is "$(grep -c node_lost run/events.jsonl)" 0 'no node is lost'
    is "$("$MUSTER" status run -o json | json restarts)" 1 'and nothing else is restarted'
    touch go
    wait_exit 60 "$runner"
    is "$status" 0 'and the run ends well' || diag "$(cat run.err)"
    touch crowd-over
    ok 'nobody is left' wait_for 60 nobody_left
}

run_cases
