#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Hosts with the same version of muster, and not the same build: which ones is told
# when they first meet, whoever meets first. What a build is goes by sources,
# configuration and flags, and by nothing else.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
. "$MUSTER_SRCDIR/tests/lib/run-status.sh"
need_muster
need_command mpirun
rig_hosts_up --hosts node1,node2
cd "$SHARED" || bail_out "no $SHARED"

this=$("$MUSTER" version | cut -d ' ' -f 2-)
other=$("$MUSTER_BUILDDIR/tests/lib/other_muster" version | cut -d ' ' -f 2-)
mpi=$(dirname "$MUSTER")/muster-mpi

# other HOST PROGRAM...: there, from here on, the same path is of the other build.
other() {
    local host=$1 p
    shift
    for p in "$@"; do
        case $p in
        muster) on "$host" mount --bind "$MUSTER_BUILDDIR/tests/lib/other_muster" "$MUSTER" ;;
        muster-mpi) on "$host" mount --bind "$MUSTER_BUILDDIR/tests/lib/other_muster_mpi" "$mpi" ;;
        esac || fail "$p of another build on $host"
    done
}
same() { on "$1" umount "$MUSTER"; on "$1" umount "$mpi" 2>/dev/null; }
left() { local h; for h in node1 node2; do pids_on "$h" '(muster|muster-mpi|muster-watch|muster-exec|orted|mpirun)( |$)'; done; }
nobody_left() { ok 'nobody is left' wait_for 60 eval '[ -z "$(left)" ]' || diag "$(left | xargs -r ps -o pid,args -p)"; }

test_shown() {
    matches "$this" '^[^ ]+ \(build [0-9a-f]{12}\)$' 'muster version shows the build'
    is "${other%% *}" "${this%% *}" 'another one of the same version'
    unlike "$other" "$this" 'is another build'
    "$MUSTER" version -o json >out
    is "$(json build out)" "$(sed 's/.*build \(.*\))/\1/' <<<"$this")" 'in JSON, too'
}

# Two hosts, over ssh: before mpirun is started.
test_probe() {
    other node2 muster muster-mpi
    run on node1 timeout 120 "$MUSTER" run --allow-run-as-root --run-dir probe --hosts node1,node2 --nnodes 2 --nproc-per-node 1 -- true
    is "$status" 69 'a host with another build' || show
    like "$(cat err)" "host node2: has muster $other, this machine has $this" 'is named, with both' || show
    run on node1 timeout 120 "$MUSTER" nodes --hosts node1,node2
    like "$(cat out err)" "has muster $other, this machine has $this" 'by muster nodes, too' || show
    same node2
    nobody_left
}

by_hand() {
    run on node1 timeout 120 mpirun --allow-run-as-root -np 2 --host node1:1,node2:1 \
        "$MUSTER" run --run-dir "$1" --nnodes 2 --nproc-per-node 1 --set gang.timeout=60s -- true
}

# Nobody has asked the hosts: those that start there tell one another.
test_by_hand() {
    other node2 muster muster-mpi
    by_hand hand
    unlike "$status" '^0$' 'under an mpirun by hand it does not start' || show
    like "$(cat out err)" "muster is version $this on node1, but version $other on node2" 'which host has which build' || show
    same node2
    nobody_left
}

# One host with both: half of an installation was replaced.
test_half() {
    other node2 muster
    by_hand half
    unlike "$status" '^0$' 'half of another build on one host does not start' || show
    like "$(cat out err)" "this agent is of muster $other" 'is told so' || show
    like "$(cat out err)" "muster-mpi of muster $this" 'with both' || show
    same node2
    nobody_left
}

# A front end that takes over a run, from another build.
test_attach() {
    local runner
    other node2 muster
    cd "$SHARED" && rm -rf run go
    spawn run on node1 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 --set detach.timeout=10m -- \
        sh -c 'until [ -e go ]; do sleep 0.1; done'
    runner=$spawned
    ok 'a run' wait_for 60 eval '[ "$(field workers.0.state)" = Running ]' || diag "$(cat run.err)"
    kill -KILL "$(inner_pid "$runner")"
    ok 'loses its front end' wait_for 60 grep -q front_lost run/events.jsonl
    run on node2 timeout 60 "$MUSTER" attach run
    unlike "$status" '^0$' 'an attach from another build is refused' || show
    like "$(cat err)" "has muster $this, and this one $other" 'with both' || show
    touch go
    wait_exit 60 "$runner"
    same node2
    nobody_left
}

# The same sources, configuration and flags are the same build wherever they lie.
test_digest() {
    local id=$MUSTER_SRCDIR/build-aux/build-id first
    cd "$TRASH" || return
    mkdir -p a/base a/launcher
    echo 'int x;' >a/base/x.c
    echo 'int t;' >a/base/x_test.c
    echo '#define A 1' >config.h
    first=$("$id" a config.h -O2 -g)
    matches "$first" '^[0-9a-f]{12}$' 'twelve digits'
    cp -r a b && touch -d '2001-01-01' b/base/x.c
    is "$("$id" b config.h -O2 -g)" "$first" 'in another folder, of another time'
    is "$("$id" b config.h -O2 -ffile-prefix-map=/there=. -g)" "$first" 'with a flag that maps its name'
    unlike "$("$id" b config.h -O1 -g)" "$first" 'other flags are another build'
    echo 'int u;' >>b/base/x_test.c
    is "$("$id" b config.h -O2 -g)" "$first" 'a test is not part of it'
    echo '#define A 2' >config2.h
    unlike "$("$id" a config2.h -O2 -g)" "$first" 'another configuration is'
    echo >>b/base/x.c
    unlike "$("$id" b config.h -O2 -g)" "$first" 'and a source'
    mv a/base/x.c a/launcher/
    unlike "$("$id" a config.h -O2 -g)" "$first" 'and its name'
}

run_cases
