#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster gc: what dead runs left goes, what lives or could be wanted stays.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
mkdir -p -m 700 rt state
RUN=("$MUSTER" run --allow-run-as-root --quiet)

# a_run NAME: a run of one worker that succeeds; its directory in run_path.
a_run() {
    run "${RUN[@]}" --name "$1" --nproc-per-node 1 -- true
    run_path=$(readlink -f "muster-runs/$1/latest")
}

test_nothing() {
    run "$MUSTER" gc
    is "$status,$(cat out)" '0,nothing to remove' 'there may be nothing to remove'
    a_run tidy
    is "$(find rt/muster -mindepth 1)" '' 'a run that ends leaves nothing'
    run "$MUSTER" gc
    is "$(cat out)" 'nothing to remove' 'and is not removed unless asked for'
}

# The agent takes its time: mpirun, and so the front end, wait for it.
test_slow_agent() {
    can_trace || { skip 'no strace: see scripts/install-deps' 3; return; }
    spawn slow "${RUN[@]}" --run-dir slow --nproc-per-node 1 -- \
        sh -c 'echo $PPID >agent.new && mv agent.new agent && until [ -e go ]; do sleep 0.1; done'
    ok 'a worker runs' wait_for 60 test -e agent
    strace -qq -f -o trace -e trace=unlink -e inject=unlink:delay_enter=200000 -p "$(cat agent)" &
    ok 'its agent is slow' wait_for 20 grep -q '^TracerPid:.[1-9]' "/proc/$(cat agent)/status"
    touch go
    wait "$spawned"
    is "$?,$(find rt/muster -mindepth 1),$(ps -o pid= -p "$(cat agent)")" 0,, 'and gone when the run has ended'
    wait
}

# Whether any process of $id has the mark in its environment.
marked() { run_alive "$id" | grep -q 'sleep 1000'; }

test_killed() {
    local dir front agent watch mpirun mpi
    spawn kept "${RUN[@]}" --run-dir kept --nproc-per-node 1 -- sh -c 'setsid sleep 1000 & sleep 1000'
    front=$spawned
    ok 'a run starts' wait_for 60 grep -qs '"state":"Running","generation":1' kept/status.json
    id=$(json id kept/run.json)
    ok 'and has workers' wait_for 60 marked
    dir=rt/muster/$id
    touch -d '5 minutes ago' "$dir"
    run "$MUSTER" gc
    is "$(cat out)" 'nothing to remove' 'while it lives gc leaves it alone'
    ok 'its directory too' test -e "$dir/agent-0.lock"
    # All of it at once, so that nobody is left to clean up.
    agent=$(json nodes.0.agent_pid kept/status.json)
    watch=$(awk '{ sub(/.*\) /, ""); print $2 }' "/proc/$agent/stat")
    mpirun=$(child_of "$front")
    mpi=$(child_of "$mpirun")
    kill -STOP "$front" "$mpirun" "$mpi" "$watch" "$agent"
    kill -KILL "$front" "$mpirun" "$mpi" "$watch" "$agent"
    wait "$front" 2>/dev/null
    ok 'its agent and watch are gone' wait_for 60 flock -n "$dir/agent-0.lock" true
    touch -d '5 minutes ago' "$dir"
    run "$MUSTER" gc --dry-run
    like "$(cat out)" 'would remove what a killed run left in ' 'gc tells what it would do'
    ok 'but does not' test -e "$dir/agent-0.lock"
    ok 'nor end anybody' marked
    run "$MUSTER" gc
    is "$status" 0 'gc removes'
    not_ok 'what it left' test -e "$dir"
    ok 'and ends its processes' wait_for 60 not marked
}

# memory_of ID: what an agent that was killed has left of its snapshots, a while ago.
memory_of() {
    shm=/dev/shm/muster-$(id -u)-$1
    mkdir -m 700 "$shm" && echo saved >"$shm/snap-0-0-0" && touch -d '5 minutes ago' "$shm"
    at_exit "rm -rf '$shm'"
}

test_memory() {
    local over lost
    a_run memory
    memory_of "$(json id "$run_path/run.json")"
    over=$shm
    memory_of "t2004-nobody-$$"
    lost=$shm
    run "$MUSTER" gc --dry-run
    is "$(cat out)" "would remove memory of a run in $over" 'memory of a run that is over can go'
    run "$MUSTER" gc
    is "$status,$(cat out)" "0,removed memory of a run in $over" 'and does'
    # Another home may know it, and its agent have another runtime directory.
    run "$MUSTER" gc --stopped
    ok 'not that of a run which is not in the list' test -e "$lost"
    a_run fresh
    memory_of "$(json id "$run_path/run.json")"
    touch -d now "$shm"
    run "$MUSTER" gc
    ok 'nor what is new' test -e "$shm"
    # Whoever can go on needs it.
    run "${RUN[@]}" --run-dir halted --nproc-per-node 1 -- sh -c '"$MUSTER" cancel "$MUSTER_RUN_DIR"; exec sleep 1000'
    is "$status" 130 'a run that was stopped'
    memory_of "$(json id halted/run.json)"
    run "$MUSTER" gc
    ok 'keeps its memory' test -e "$shm"
    run "$MUSTER" gc --stopped --dry-run
    like "$(cat out)" "would remove memory of a run in $shm" 'unless it is not to'
    rm -rf halted
    run "$MUSTER" gc
    not_ok 'or is gone' test -e "$shm"
}

# Whose agent lives has it, whatever else is known.
test_memory_in_use() {
    spawn uses "${RUN[@]}" --run-dir uses --nproc-per-node 1 -- sleep 1000
    ok 'a run' wait_for 60 grep -qs '"state":"Running","generation":1' uses/status.json
    memory_of "$(json id uses/run.json)"
    mv uses/run.json kept.json
    run "$MUSTER" gc --stopped
    ok 'keeps its memory while an agent of it is here' test -e "$shm" || show
    mv kept.json uses/run.json
    "$MUSTER" cancel --force uses >/dev/null
    wait_exit 60 "$spawned"
}

test_young() {
    mkdir -m 700 rt/muster/starting
    run "$MUSTER" gc
    ok 'a directory that was made just now stays' test -d rt/muster/starting
    touch -d '5 minutes ago' rt/muster/starting
    run "$MUSTER" gc
    not_ok 'later it does not' test -d rt/muster/starting
}

test_runs() {
    local one two three
    a_run job; one=$run_path
    a_run job; two=$run_path
    a_run job; three=$run_path
    run "$MUSTER" gc --older-than 1h job
    is "$(cat out)" 'nothing to remove' 'runs of today are not older than an hour'
    sed -i -E 's/"(ended|updated)":[0-9.]+/"\1":9999999999.0/g' "$one/status.json"
    run "$MUSTER" gc --older-than 1h job
    is "$(cat out)" 'nothing to remove' 'nor is one that ended tomorrow, by a clock that was wrong'
    run "$MUSTER" gc --keep 1 --dry-run job
    is "$(grep -c 'would remove run' out)" 2 'all but one could go'
    ok 'nothing did' test -d "$one"
    run "$MUSTER" gc --keep 1 job
    is "$(ls -d "$one" "$two" "$three" 2>/dev/null)" "$three" 'the newest is kept'
    run "$MUSTER" list job
    is "$(sed 1d out | wc -l)" 1 'and listed alone'
    run "$MUSTER" gc --keep 0 tidy
    like "$(cat out)" 'removed run ' 'none may be kept'
    rm -rf "$three"
    run "$MUSTER" gc
    like "$(cat out)" "removed the entry of a run that is gone, $three" 'entries of runs that are gone go too'
    run "$MUSTER" gc
    is "$(cat out)" 'nothing to remove' 'once'
}

test_stopped() {
    local dir
    spawn held "${RUN[@]}" --name held --nproc-per-node 1 -- sleep 1000
    ok 'a run is alive' wait_for 60 grep -qs '"Running"' muster-runs/held/latest/status.json
    dir=$(readlink -f muster-runs/held/latest)
    run "$MUSTER" gc --keep 0 --stopped held
    ok 'it is never removed' test -d "$dir"
    run "$MUSTER" cancel held
    wait_exit 60 "$spawned"
    is "$status" 130 'stopped by hand'
    run "$MUSTER" gc --keep 0 held
    ok 'it could be resumed, and stays' test -d "$dir"
    run "$MUSTER" gc --keep 0 --stopped held
    not_ok 'unless that is asked for' test -d "$dir"
}

test_usage() {
    run "$MUSTER" gc --older-than soon
    is "$status" 2 'a time must be one'
    like "$(cat err)" "found 'soon'" 'and the other is named'
    local n
    for n in -1 few ''; do
        run "$MUSTER" gc --keep "$n"
        is "$status,$(grep -o "option --keep: .* found .*" err | sed 's/expected .*, //')" "2,option --keep: found '$n'" "'$n' is no number of runs"
    done
}

run_cases
