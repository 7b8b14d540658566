#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# SIGKILL of any one process of a run, and of any two at once, while workers have
# children in sessions of their own: soon nothing is alive that the design does not
# want alive. The design says 10 s; how long it took is told, not tested, because a
# slow machine is no fault of the program.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
export XDG_RUNTIME_DIR=$TRASH/rt
mkdir -m 700 rt

field() { "$MUSTER" status run -o json | json "$1"; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.1.state)" = Running ]; }
grandchildren() { [ "$(run_alive "$id" | grep -c 'sleep 1000')" -ge 6 ]; }

start_run() {
    rm -rf run
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run --max-restarts 0 --nproc-per-node 2 \
        --set detach.timeout=1s -- sh -c 'setsid sleep 1000 & (setsid sh -c "sleep 1000 & wait" &) ; exec sleep 1000'
    front=$spawned
    wait_for 60 running || return 1
    id=$(json id run/run.json)
    wait_for 60 grandchildren
}

no_files() { [ -z "$(find rt/muster -mindepth 1)" ]; }
all_gone() { [ -z "$(run_traces "$id")" ]; }

kill_parts() {
    local part pids=()
    for part; do pids+=("${!part}"); done
    kill -KILL "${pids[@]}"
}

slowest=0
# note_time SINCE WHAT: what of the kills took longest.
note_time() {
    local ms=$((($(date +%s%N) - $1) / 1000000))
    [ "$ms" -gt "$slowest" ] || return 0
    slowest=$ms slowest_what=$2
}

check() {
    local what="$*" since
    start_run
    is $? 0 "($what) a run" || { diag "$(cat run.err)"; return; }
    run_parts "$id" "$front" "$(field nodes.0.agent_pid)"
    ok "($what) of five parts" kill -0 "$front" "$mpirun" "$mpi" "$watch" "$agent" || return
    since=$(date +%s%N)
    kill_parts "$@"
    case " $what " in
    *' agent '* | *' watch '* | *' front '*) ;;
    *)
        ok "($what) the workers do not notice" eval 'sleep 1; grandchildren'
        since=$(date +%s%N)
        kill -INT "$front"
        ;;
    esac
    ok "($what) nothing is left" wait_for 60 all_gone || diag "$(run_traces "$id")"
    note_time "$since" "$what"
    case " $what " in
    *' front '*) ;;
    *' agent '* | *' watch '*)
        wait_exit 20 "$front"
        is "$status" 75 "($what) the run counts as stopped, resumable" || diag "$(cat run.err)"
        ;;
    *)
        wait_exit 20 "$front"
        is "$status" 130 "($what) and the run is still ours to cancel" || diag "$(cat run.err)"
        ;;
    esac
    ok "($what) nor is a file left" wait_for 60 no_files || diag "$(find rt/muster)"
}

parts=(front mpirun mpi watch agent)
for ((i = 0; i < ${#parts[@]}; i++)); do
    check "${parts[i]}"
    for ((k = i + 1; k < ${#parts[@]}; k++)); do
        check "${parts[i]}" "${parts[k]}"
    done
done
# Far more than it takes, and far less than what a lease and a grace time that wait for
# one another in turn would come to.
num "$slowest" -le 30000 'nothing is left for long'
diag "nothing was left after at most $slowest ms (killed: $slowest_what)"
done_testing
