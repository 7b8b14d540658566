#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The c10d store under PyTorch's own clients, of each PyTorch that is here:
# what they see of it is compared with what they see of their own server, and
# process groups are made over it.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"

SERVE=$MUSTER_BUILDDIR/tests/lib/store_serve
PY=$MUSTER_SRCDIR/tests/py
[ -x "$SERVE" ] || skip_all "store_serve is not built"

# Each import takes seconds: what is to be known of a PyTorch is asked once.
pythons=()
declare -A versions has_libuv
for python in "$MUSTER_CACHE/venv/bin/python3" /usr/bin/python3; do
    said=$("$python" -c 'import torch, torch.distributed as d
print(torch.__version__, "use_libuv" in (d.TCPStore.__init__.__doc__ or ""))' 2>/dev/null) || continue
    pythons+=("$python")
    versions[$python]=${said% *} has_libuv[$python]=${said##* }
done
[ ${#pythons[@]} -gt 0 ] || skip_all 'no PyTorch: see scripts/install-deps'

# serve NAME CMD...: starts a server; its port in $port, its pid in $spawned.
serve() {
    rm -f "$1.out" # of the last one of that name: its port is not ours
    spawn "$@"
    wait_for 60 test -s "$1.out" || bail_out "$1 does not start: $(cat "$1.err")"
    port=$(head -n 1 "$1.out")
}

trunk_port() { sed -n 2p "$1"; }

# serve_tree: a server, and one that passes requests on to it; that one's port.
serve_tree() {
    serve ours "$SERVE"
    keys=$spawned
    serve relay "$SERVE" --upstream "$(trunk_port ours.out)"
}

# ends PID NAME: it does when it is told to, well
ends() {
    kill -TERM "$1"
    wait_exit 10 "$1"
    is $status 0 "$2"
}

# compare PYTHON CLIENT_FLAG SERVER_FLAG: ours against theirs, and one that has no keys
compare() {
    local python=$1 client=$2 server=$3 what ours where
    what="PyTorch ${versions[$python]}${client:+ $client}"
    mkfifo hold.$$ && { sleep 600 >hold.$$ & } # its stdin: it serves until then
    local holder=$!
    "$python" "$PY/store_ops.py" serve ${server:+$server} <hold.$$ >theirs.out 2>theirs.err &
    local theirs=$!
    kill_at_exit "$theirs" "$holder"
    wait_for 60 test -s theirs.out || bail_out "PyTorch does not serve: $(cat theirs.err)"
    serve alone "$SERVE"
    ours=$spawned where="theirs:$(cat theirs.out) ours:$port"
    serve_tree
    rm -f ./*.ops
    run timeout 300 "$python" "$PY/store_ops.py" ops $where "tree:$port" ${client:+$client}
    is $status 0 "$what: own server, this one, and through another one" || show
    kill -KILL $theirs $holder
    wait $theirs $holder 2>/dev/null
    rm -f hold.$$ theirs.out
    num "$(wc -l <ours.ops)" -ge 30 "$what: did $(wc -l <ours.ops) operations"
    ok "$what: no difference" diff -u theirs.ops ours.ops
    ok "$what: no difference there" diff -u theirs.ops tree.ops
    ends "$ours" "$what: the server ends clean"
    ends "$spawned" "$what: so does the one without keys"
    ends "$keys" "$what: and the one with the keys"
}

test_differences() {
    local python
    for python in "${pythons[@]}"; do
        compare "$python" '' ''
        [ "${has_libuv[$python]}" = False ] || compare "$python" --no-libuv --no-libuv
    done
}

# Where this server is better than the old one of PyTorch.
test_abandoned_wait() {
    local python want
    want='gives up: raises *Error
add: 41
add again: 42
get: b?x?'
    serve ours "$SERVE"
    for python in "${pythons[@]}"; do
        kill -USR1 "$spawned"
        run timeout 60 "$python" "$PY/store_ops.py" abandon "$port"
        # shellcheck disable=SC2053
        [[ $(cat out) == $want ]] && pass "$python: not answered late" ||
            { fail "$python: not answered late"; show; }
    done
}

# group NAME PYTHON WORLD: a process group whose store is at $port
group() {
    local r pids=()
    for ((r = 0; r < $3; r++)); do
        RANK=$r WORLD_SIZE=$3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port GROUP=$1 \
            OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo TORCHELASTIC_USE_AGENT_STORE=True \
            TORCHELASTIC_RESTART_COUNT=0 \
            timeout 120 "$2" "$PY/gloo_allreduce.py" >"$1.$r.out" 2>"$1.$r.err" &
        pids+=($!)
    done
    status=0
    for r in "${pids[@]}"; do wait "$r" || status=$?; done
}

test_process_groups() {
    local python n=0
    serve ours "$SERVE"
    for python in "${pythons[@]}"; do
        n=$((n + 1))
        group "first$n" "$python" 4
        is $status 0 "$python: 4 ranks over gloo"
        is "$(cat first$n.?.out | grep -c ok)" 4 'all of them'
        kill -USR1 "$spawned" # a new generation, on the same port
        group "second$n" "$python" 2
        is $status 0 "$python: 2 ranks in the next generation"
        kill -USR1 "$spawned"
    done
    is "$(cat ours.err)" '' 'nothing was refused'
    kill -TERM "$spawned"
    wait_exit 10 "$spawned"
    is $status 0 'the server ends clean'
}

refuses() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Two nodes: the ranks of each ask a server of their own.
test_tree_groups() {
    local python r pids=() ports n=0
    serve_tree
    ports[0]=$port
    serve relay2 "$SERVE" --upstream "$(trunk_port ours.out)"
    ports[1]=$port
    for python in "${pythons[@]}"; do
        n=$((n + 1)) pids=()
        for r in 0 1 2 3; do
            RANK=$r WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=${ports[r / 2]} GROUP=tree$n \
                OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo TORCHELASTIC_USE_AGENT_STORE=True \
                TORCHELASTIC_RESTART_COUNT=0 \
                timeout 120 "$python" "$PY/gloo_allreduce.py" >"tree$n.$r.out" 2>"tree$n.$r.err" &
            pids+=($!)
        done
        for r in "${pids[@]}"; do wait "$r"; done
        is "$(cat tree$n.?.out | grep -c ok)" 4 "$python: 4 ranks on two nodes" || cat tree$n.?.err
    done
    is "$(ss -tnH state established "( sport = :$(trunk_port ours.out) )" | wc -l)" 2 \
        'the server with the keys has a connection of each other one'
    kill -KILL "$keys"
    ok 'without keys there is no store' wait_for 60 refuses "${ports[0]}"
}

run_cases
