#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The front end before a run begins: hosts that cannot be reached, and more
# than fits.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

mrun() {
    rm -rf run
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run "$@"
}

# As with a stack of 100 KiB, where mpirun is killed before it says a word.
test_mpirun_is_killed() {
    mkdir -p bin
    printf '#!/bin/sh\n[ "$1" != --version ] || exec "%s" --version\nkill -SEGV $$\n' "$(command -v mpirun)" >bin/mpirun
    chmod +x bin/mpirun
    PATH=$PWD/bin:$PATH mrun --nproc-per-node 1 -- true
    is "$status" 69 'an mpirun that is killed starts nothing' || show
    like "$(cat err)" 'could not start muster on all hosts: mpirun was ended by SIGSEGV' 'how it ended is told' || show
    printf '#!/bin/sh\n[ "$1" != --version ] || exec "%s" --version\nexit 7\n' "$(command -v mpirun)" >bin/mpirun
    PATH=$PWD/bin:$PATH mrun --nproc-per-node 1 -- true
    is "$status" 69 'one that fails does not either' || show
    like "$(cat err)" 'could not start muster on all hosts: mpirun ended (status 7)' 'with its status' || show
    over Failed 69 'could not start muster on all hosts: mpirun ended (status 7)'
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run --hosts no-such-host.invalid --ssh /bin/false -- true
    is "$status" 69 'a second start finds no host' || show
    over Failed 69 'host no-such-host.invalid'
    is "$("$MUSTER" status run -o json | json starts)" 2 'as the second one'
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- true
    is "$status" 0 'a third one goes on' || show
    is "$("$MUSTER" status run -o json | json state)" Succeeded 'to its end'
}
# over STATE STATUS REASON: no agent was ever there to say so.
over() {
    is "$("$MUSTER" status run -o json | json state):$("$MUSTER" status run -o json | json verdict.exit_status)" "$1:$2" \
        'the run is over'
    like "$("$MUSTER" status run)" "$3" 'and says why'
}

# Ctrl-C while mpirun has not started anything.
test_stopped_before() {
    mkdir -p bin
    printf '#!/bin/sh\n[ "$1" != --version ] || exec "%s" --version\nexec sleep 1000\n' "$(command -v mpirun)" >bin/mpirun
    chmod +x bin/mpirun
    rm -rf run
    PATH=$PWD/bin:$PATH spawn early timeout -s KILL 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- true
    ok 'mpirun is run' wait_for 60 test -e run/mpirun.log
    kill -INT "$(pgrep -P "$spawned")"
    wait_exit 60 "$spawned"
    is "$status" 130 'it is stopped before it began' || diag "$(cat early.err)"
    over Stopped 130 'stopped before the run began'
}

# A remote shell that ends, and leaves somebody who holds its output open.
test_ssh_leaves_somebody() {
    local start
    cat >shell <<'EOF'
#!/bin/bash
sleep 45 &
echo $! >>left
echo "$1: go away" >&2
exit 255
EOF
    chmod +x shell
    start=$(now_ms)
    mrun --ssh "$PWD/shell" --hosts nohost-a,nohost-b --nnodes 2 -- true
    is "$status" 69 'hosts that refuse are not waited for' || show
    num $(($(now_ms) - start)) -lt 20000 'whoever holds their pipes'
    like "$(cat err)" 'nohost-a: go away' 'the host and what it said are named' || show
    while read -r pid; do kill "$pid" 2>/dev/null; done <left
}

# For a run that is known by its directory, and has a front end.
test_attach_usage() {
    run "$MUSTER" run --allow-run-as-root --attach -- true
    is "$status" 2 '--attach without a directory is bad usage' || show
    run env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$MUSTER" run --attach --run-dir run -- true
    is "$status" 2 'and so it is by hand' || show
}

# All nodes get the environment, in one piece.
test_huge_environment() {
    local i chunk
    chunk=$(head -c 120000 /dev/zero | tr '\0' x)
    if ! (ulimit -s unlimited) 2>/dev/null; then
        skip 'the stack limit cannot be raised here'
        return
    fi
    (
        ulimit -s unlimited
        for i in {1..37}; do export "BIG$i=$chunk"; done
        "$MUSTER" run --allow-run-as-root --run-dir run2 -- true >out 2>err
        builtin echo $? >code
    )
    is "$(cat code)" 1 'too much environment fails at once'
    like "$(cat err)" 'environment are' 'and says so' || show
}

run_cases
