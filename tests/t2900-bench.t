#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The benchmarks run and tell what they are said to; how fast is not asked here.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun mpicc
need_torch
! sanitized || skip_all 'what a sanitizer makes of it is nobody'"'"'s measure'

test_launch() {
    run "$MUSTER_SRCDIR/scripts/bench" launch --rounds 1 --quick -o json
    num "$status" -le 1 'launch is measured' || show
    is "$(json 0.name out) $(json 1.name out) $(json 2.name out)" \
        'launch.time launch.vs-mpirun launch.vs-torchrun' 'against mpirun and torchrun'
    is "$(json 1.op out) $(json 1.target out)" '<= 1.5' 'with a target'
    like "$(json 1.command out)" 'muster run' 'and the command that was run'
}

# figures NAME WANTED: its figures have these names.
figures() {
    run "$MUSTER_SRCDIR/scripts/bench" "$1" --rounds 1 --quick -o json
    num "$status" -le 1 "$1 is measured" || show
    is "$(grep -o '"name": "[^"]*"' out | cut -d '"' -f 4 | tr '\n' ' ')" "$2 " 'with all its figures'
}

test_others() {
    figures restart 'restart.time restart.vs-torchrun'
    figures warm 'warm.time warm.vs-torchrun'
    figures idle 'idle.cpu idle.memory'
    figures logs 'logs.rate logs.vs-cat logs.wrong logs.memory'
    is "$(json 2.value out)" 0 'and every byte came once' || show
    figures ddp 'ddp.time ddp.vs-hand ddp.vs-torchrun'
    figures store "$(for where in apart near; do
        echo store.$where.{rate-vs-torch,cpu-vs-torch,bare-vs-torch,cpu-vs-bare,p99-vs-torch}
    done | tr '\n' ' ' | sed 's/ $//')"
}

# figures_of SIZE [MORE...]: what is measured of each
figures_of() {
    local size=$1
    shift
    printf '%s, '"$size"' ' first second third eager durable lazy restore cold drain "$@"
}

test_checkpoints() {
    figures ckpt "$(figures_of 1M partner lost started partner-encrypted)$(figures_of '1e2 tensors')map plan, 1e6 chunks plan, by columns plan, in a grid plan, 1e6 tensors $(for size in 1M '1e2 tensors'; do
        for peer in 'blocked vs torch' 'blocked vs dcp' 'blocked vs dcp-async' \
            'durable vs torch' 'durable vs dcp' 'durable vs dcp-async' 'load vs torch' 'load vs dcp'; do
            printf '%s, %s ' "$peer" "$size"
        done
    done | sed 's/ $//')"
}

# Rows by name, whole or up to the comma, and told while others are still measured.
test_rows() {
    run "$MUSTER_SRCDIR/scripts/bench" --list ckpt --quick
    is "$(grep -c . out):$(sed -n '8p;24p' out | tr '\n' ';')" '43:cold, 1M;plan, 1e6 chunks;' 'rows are listed' || show
    run bash -c '"$1" --list ckpt --quick | : ; echo ${PIPESTATUS[0]}' bash "$MUSTER_SRCDIR/scripts/bench"
    is "$(cat err)" '' 'also to who does not read on'
    run "$MUSTER_SRCDIR/scripts/bench" ckpt --quick --rounds 1 --only 'cold, 1M,drain'
    is "$(grep -o '^[a-z]*, [0-9a-z]* *[a-zM]*' out | sed 's/ *$//' | tr '\n' ';')" 'cold, 1M;drain, 1M;drain, 1e2 tensors;' \
        'rows that are asked for are measured, and no others' || show
    run env MUSTER=/bin/false "$MUSTER_SRCDIR/scripts/bench" ckpt --quick --rounds 1 --only 'plan,blocked vs torch'
    is "$(grep -c '^plan, 1e6 chunks ' out) $(head -n 1 err)" '1 bench: ckpt: status 1 of /bin/false:' \
        'each is told before the next is measured' || show
    run "$MUSTER_SRCDIR/scripts/bench" ckpt --quick --rounds 1 --only partner,lost
    is "$(grep -c '^partner, 1M .*; MPI over TCP of loopback: .*; to have it signed alone, .* times MPI, and this [0-9.]* times that' out) $(grep -c '^lost, 1M ' out)" '1 1' \
        'copies between agents, beside MPI over the same' || show
    run script -qec "'$MUSTER_SRCDIR/scripts/bench' ckpt --quick --rounds 1 --only plan" /dev/null
    is "$(tr '\r' '\n' <out | sed 's/\x1b\[K//' | grep -c -e '^plan, 1e6 chunks$' -e '^plan, 1e6 chunks .*ms')" 2 \
        'a terminal shows what is measured before there is a row' || show
    run "$MUSTER_SRCDIR/scripts/bench" ckpt --only cold,nothing
    is "$status $(cat err)" '1 bench: ckpt has no row nothing: --list ckpt names them' 'a row that there is not is refused'
    run "$MUSTER_SRCDIR/scripts/bench" launch --only cold
    like "$status $(cat err)" 'there is no --only' 'as they are where rows are measured together'
}

# On four hosts, and with a file system of its own.
test_elastic() {
    local bench=$MUSTER_SRCDIR/scripts/bench views='elastic.view-messages elastic.view-rounds elastic.view-cpu elastic.many'
    local on_hosts='elastic.closed elastic.closed-vs-torchrun elastic.silent elastic.silent-vs-torchrun elastic.alarms'
    local models='elastic.model, 1000 ranks;elastic.model, 10000 ranks;elastic.model, 100000 ranks;'
    local tree=$(printf 'tree-store.%s ' {8,32}-nodes.{connections,messages-vs-direct,cpu-vs-direct})
    run "$bench" --list elastic
    is "$(tr '\n' ';' <out)" "${views// /;};$models${tree// /;}warm.time;warm.vs-torchrun;${on_hosts// /;};" \
        'its rows are named, with those of the benchmarks that belong to it' || show
    run "$bench" elastic --rounds 1 --quick -o json --only elastic.view-rounds,elastic.model
    is "$(grep -o '"name": "[^"]*"' out | cut -d '"' -f 4 | tr '\n' ';')" "elastic.view-rounds;$models" 'some of them alone' || show
    like "$(json 3.baseline out)" 'start: ' 'the model names what costs most' || show
    run "$bench" elastic --rounds 1 --quick -o json --only "${tree%% *}"
    is "$(grep -o '"name": "[^"]*"' out | cut -d '"' -f 4)" "${tree%% *}" 'one of another benchmark, too' || show
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || { skip 'not root, or no namespaces' 3; return; }
    run "$bench" elastic --rounds 1 --quick -o json --only "$(echo $views $on_hosts | tr ' ' ,)"
    num "$status" -le 1 'elastic is measured' || show
    is "$(grep -o '"name": "[^"]*"' out | cut -d '"' -f 4 | tr '\n' ' ')" "$views $on_hosts " 'with its figures on four hosts'
    is "$(json 0.ok out)$(json 1.ok out)" truetrue 'a change of view takes no more messages and rounds than it should' || show
}

test_model() {
    run "$MUSTER_SRCDIR/scripts/model" -o json 8 1000 100000
    is "$status:$(json results.0.nodes out),$(json results.1.nodes out),$(json results.2.depth out)" 0:1,125,3 'the model of scaling' || show
    run "$MUSTER_SRCDIR/scripts/model" --measure 1000
    like "$(cat out)" 'cross-check: 600 agents' 'measures what it is fed with, and compares' || show
    like "$(cat out)" 'failure, silent node: 10.0' 'and names what each fault costs' || show
    run "$MUSTER_SRCDIR/scripts/model" --set nothing=1
    is "$status" 1 'a constant that it does not know is refused'
}

# Of the row the worker runs for as long as there are rounds.
test_ended() {
    local memory
    mkdir there
    spawn ended env TMPDIR="$PWD/there" "$MUSTER_SRCDIR/scripts/bench" ckpt --quick --rounds 100 --only 'map'
    memory() { echo "/dev/shm/muster-$(id -u)-$(json id there/bench.*/run/run.json)"; }
    ok 'a benchmark has a directory, and its run memory' wait_for 60 eval 'test -n "$(find "$(memory)" -name "snap-*")"' ||
        diag "$(cat ended.out ended.err)"
    memory=$(memory)
    kill -TERM "$spawned"
    wait_exit 120 "$spawned"
    is "$status" 143 'one that is told to end does' || diag "$(cat ended.err)"
    is "$(ls -d there/bench.* "$memory" 2>/dev/null)" '' 'and both go'
    ok 'with what it has started' wait_for 60 eval '! grep -slzF "TMPDIR=$TRASH/there" /proc/[0-9]*/environ' ||
        diag "$(grep -slzF "TMPDIR=$TRASH/there" /proc/[0-9]*/environ)"
}

test_refusals() {
    run "$MUSTER_SRCDIR/scripts/bench" nothing
    is "$status" 1 'an unknown benchmark is refused'
    like "$(cat err)" 'launch' 'and the known ones are named'
    run env MUSTER=/bin/false "$MUSTER_SRCDIR/scripts/bench" launch --rounds 1
    like "$(cat err)" 'status 1 of /bin/false run' 'a command that fails is no measurement'
    run env MUSTER=/bin/false "$MUSTER_SRCDIR/scripts/bench" logs --rounds 1 --quick
    is "$status:$(grep -c Traceback err)" 1:0 'nor is output that does not come' || show
    run env MUSTER=/bin/false "$MUSTER_SRCDIR/scripts/bench" restart --rounds 1
    like "$(cat err)" 'did not come so far' 'nor workers that do not'
}

run_cases
