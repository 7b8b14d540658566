#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster tidy: of what an agent left that was killed, files go when no agent lives there, memory with the run.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
mkdir -p -m 700 rt state
RUN=("$MUSTER" run --allow-run-as-root --quiet --nproc-per-node 1)

# left_by N RUNDIR: agent N of that run was killed here. Its files in $dir, its memory
# in $shm, beside that of agent 99.
left_by() {
    id=$(json id "$2/run.json")
    dir=rt/muster/$id shm=/dev/shm/muster-$(id -u)-$id
    at_exit "rm -rf '$shm'"
    mkdir -p -m 700 "$dir" "$shm"
    touch "$dir/agent-$1.lock" "$dir/agent-$1.log" "$shm/snap-$1-0-0" "$shm/copy-$1-3-1" "$shm/snap-99-1-0"
    printf '%s\n%s\n%s' "${lease:-10000}" "$id" "$(readlink -f "$2")" >"$dir/agent-$1.run"
}
memory() { (cd "$shm" 2>/dev/null && echo *-*); }
all_memory="copy-7-3-1 snap-7-0-0 snap-99-1-0"
tidy() { run timeout 60 "$MUSTER" tidy --tag="$id" --index=7; }

# over NAME STATUS COMMAND...: a run that is over; its agent has taken its own away.
over() {
    local name=$1 code=$2
    shift 2
    run "${RUN[@]}" --run-dir "$name" -- "$@"
    is "$status" "$code" "a run: $name"
    left_by 7 "$name"
    tidy
    is "$status" 0 'is tidied up after'
    not_ok 'its files go' test -e "$dir"
}

test_over() {
    over succeeded 0 true
    is "$(memory)" snap-99-1-0 'with its memory, and no other'
    over failed 3 sh -c 'exit 3'
    is "$(memory)" snap-99-1-0 'likewise'
    over stopped 130 sh -c '"$MUSTER" cancel "$MUSTER_RUN_DIR"; exec sleep 1000'
    is "$(memory)" "$all_memory" 'memory stays where the run can be gone on with'
}

test_goes_on() {
    local first second
    spawn kept "${RUN[@]}" --run-dir kept -- sh -c 'until [ -e "$MUSTER_RUN_DIR/go" ]; do sleep 0.1; done'
    ok 'a run goes on' wait_for 60 grep -qs '"state":"Running","generation":1' kept/status.json
    left_by 7 kept
    spawn tidy "$MUSTER" tidy --tag="$id" --index=7
    first=$spawned
    sleep 3
    spawn tidy2 "$MUSTER" tidy --tag="$id" --index=7
    second=$spawned
    sleep 2
    is "$(memory)" "$all_memory" 'memory stays meanwhile'
    ok 'so do files, beside those of an agent that lives' test -e "$dir/agent-7.log"
    kill -KILL "$first"
    sleep 1
    not_ok 'one who waits for the end is not enough: it may be killed' gone "$second"
    touch kept/go
    wait_exit 60 "$second"
    is "$status" 0 'and go with it'
    not_ok 'both, and all of it where the front end was' test -e "$shm"
    ok 'also the directory' wait_for 20 not test -e "$dir"
}

# Who has its lock may be one that sweeps up after it; who has told its run there is
# another agent.
test_succeeded_by_another() {
    local tidier holder
    run "${RUN[@]}" --run-dir other -- true
    left_by 7 other
    spawn lock flock "$dir/agent-7.lock" sh -c 'echo held; exec sleep 1000'
    holder=$spawned
    wait_for 20 grep -q held lock.out
    spawn tidy "$MUSTER" tidy --tag="$id" --index=7
    tidier=$spawned
    sleep 3
    is "$(memory)" "$all_memory" 'what another one has its hand on stays'
    cp "$dir/agent-7.run" "$dir/new" && mv "$dir/new" "$dir/agent-7.run"
    wait_exit 30 "$tidier"
    is "$status,$(memory)" "0,$all_memory" 'also where that is another agent'
    ok 'with the files' test -e "$dir/agent-7.log"
    spawn tidy "$MUSTER" tidy --tag="$id" --index=7
    tidier=$spawned
    sleep 3
    kill $(child_of "$holder")
    wait_exit 30 "$tidier"
    is "$status,$(memory)" 0,snap-99-1-0 'and goes when that one is gone'
}

test_elsewhere() {
    run "${RUN[@]}" --run-dir gone -- true
    left_by 7 gone
    rm -rf gone
    tidy
    is "$status,$(memory)" "0,$all_memory" 'a run that is not seen from here may go on'
    not_ok 'but needs no files' test -e "$dir"
    # Without a shared directory there is one of that name, with what workers here said.
    run "${RUN[@]}" --run-dir apart -- true
    left_by 7 apart
    rm apart/run.json
    tidy
    is "$status,$(memory)" "0,$all_memory" 'nor is one whose logs alone are here'
    not_ok 'and needs no files' test -e "$dir"
    # Another run has come into its directory.
    run "${RUN[@]}" --run-dir again -- true
    left_by 7 again
    rm -rf again
    run "${RUN[@]}" --run-dir again -- true
    tidy
    is "$status,$(memory)" "0,$all_memory" 'nor is one whose directory another one has'
    # By hand agents meet by another name than the run's.
    run "${RUN[@]}" --run-dir byhand -- true
    left_by 7 byhand
    mv "$dir" rt/muster/mpi-123
    run timeout 60 "$MUSTER" tidy --tag=mpi-123 --index=7
    is "$status,$(memory)" 0,snap-99-1-0 'one that was started by hand is'
    not_ok 'with its files' test -e rt/muster/mpi-123
    run "${RUN[@]}" --run-dir other -- true
    left_by 7 other
    rm "$dir/agent-7.run"
    tidy
    is "$status" 0 'an agent that never knew its run'
    ok 'leaves its log for who looks' test -e "$dir/agent-7.log"
    printf 'run' >"$dir/agent-7.run"
    tidy
    is "$status" 1 'a strange name is none'
    like "$(cat err)" 'agent-7.run names no run' 'which is told'
}

# A real one, whose muster-watch sees that it was killed.
test_killed() {
    local agent
    spawn killed "${RUN[@]}" --run-dir killed -- sleep 1000
    ok 'a run of one node' wait_for 60 grep -qs '"state":"Running","generation":1' killed/status.json
    id=$(json id killed/run.json)
    kill -KILL "$(json nodes.0.agent_pid killed/status.json)"
    wait_exit 90 "$spawned"
    is "$status" 75 'ends when its agent is killed' || diag "$(cat killed.err)"
    ok 'and leaves no file' wait_for 30 not test -e "rt/muster/$id"
    ok 'nor anybody' wait_for 20 eval '[ -z "$(run_traces "$id")" ]' || diag "$(run_traces "$id")"
}
run_cases
