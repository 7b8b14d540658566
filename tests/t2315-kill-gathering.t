#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# SIGKILL of each process of a run that is being put together, before there are any
# workers: it gives up in its time, and nothing is left.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
export XDG_RUNTIME_DIR=$TRASH/rt
mkdir -m 700 rt

# Whatever belongs to the run, by its environment or its command line.
alive() {
    run_alive "$id"
    pgrep -f -a -- "--run-id=$id|/$id( |\$)|dir=[^ ]*/$id" | grep -v pgrep
}
all_gone() { [ -z "$(alive)" ]; }
no_files() { [ -z "$(find rt/muster -mindepth 1)" ]; }

# The second of two agents is held back, so that the first one waits for it. The time
# for that is over soon.
mpirun_path=$(command -v mpirun)
cat >held-mpirun <<END
#!/bin/bash
words=()
for word; do
    case \$word in
    */muster-mpi) words+=("$TRASH/hold" "\$word") ;;
    *) words+=("\$word") ;;
    esac
done
exec "$mpirun_path" "\${words[@]}"
END
cat >hold <<'END'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec sleep 45
exec "$@"
END
chmod +x held-mpirun hold
program() { readlink "/proc/$1/exe" | sed 's/.*\///'; }
# first_pid PROGRAM PATTERN
first_pid() {
    pgrep -f -- "$2" | while read -r p; do
        [ "$(program "$p")" = "$1" ] && echo "$p" && break
    done
}
has_agent() {
    id=$(json id "run.$1/run.json" 2>/dev/null) && agent=$(first_pid muster "agent .*$id") && [ -n "$agent" ]
}
# All at once: each takes its time to give up.
declare -A fronts=() ids=() # set -u: one that is only declared has no number
for part in front mpirun mpi watch agent; do
    spawn "run.$part" "$MUSTER" run --allow-run-as-root --run-dir "run.$part" --set detach.timeout=1s \
        --set gang.timeout=20s --agent-is-node --nnodes 2 --mpirun "$TRASH/held-mpirun" --nproc-per-node 1 \
        -- sleep 1000
    fronts[$part]=$spawned
done
# Each loses a process as soon as it has an agent: the time of all is running.
strike() {
    local part=$1 mpirun mpi watch
    front=${fronts[$part]} ids[$part]=$id
    mpirun=$(child_of "$front")
    mpi=$(first_pid muster-mpi "muster-mpi --run-id=$id")
    watch=$(awk '{ sub(/.*\) /, ""); print $2 }' "/proc/$agent/stat")
    ok "($part) an agent waits for another, with all that belongs to it" \
        kill -0 "$front" "$mpirun" "$mpi" "$watch" "$agent" || diag "$(cat "run.$part.err")"
    kill -KILL "${!part}"
}
strike_those_there() {
    local part
    for part in "${!fronts[@]}"; do
        [ -n "${ids[$part]:-}" ] || ! has_agent "$part" || strike "$part"
    done
    [ ${#ids[@]} = ${#fronts[@]} ]
}
until=$(($(now_ms) + 60000))
until strike_those_there || [ "$(now_ms)" -gt $until ]; do sleep 0.1; done
is ${#ids[@]} ${#fronts[@]} 'all runs have come so far'
for part in "${!ids[@]}"; do
    front=${fronts[$part]} id=${ids[$part]}
    wait_exit 120 "$front"
    case $part:$status in
    front:137) ;;
    *:69 | *:75) pass "($part) the run ends with $status" ;;
    *) fail "($part) the run ends with $status, expected 69 or 75" || diag "$(cat "run.$part.err")" ;;
    esac
    ok "($part): nothing is left" wait_for 120 all_gone || diag "$(alive)"
done
ok 'nor a file' wait_for 60 no_files || diag "$(find rt/muster)"
done_testing
