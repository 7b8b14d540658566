#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The processes that wait to become the workers of a restart: what becomes of them, and
# that they go with the run, however it ends.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun pgrep

field() { "$MUSTER" status run -o json | json "$1"; }
running() { [ "$(field generation)" = "$1" ] && [ "$(field workers.2.state)" = Running ]; }
waiting() { pgrep -P "$agent" -f -- '--wait='; }
any_waits() { [ -n "$(waiting)" ]; }
n_waiting() { [ "$(waiting | wc -l)" = "$1" ]; }
worker_pids() { for i in 0 1 2; do field workers.$i.pid; done; }

# What does not differ from one worker to the next; then it waits.
cat >worker <<'END'
#!/bin/sh
{
    ulimit -a
    umask
    pwd
    cat /proc/self/oom_score_adj /proc/self/cgroup
    grep -E 'Sig(Blk|Ign|Cgt)|Cpus_allowed:|NoNewPrivs' /proc/self/status
    cut -d ' ' -f 19 /proc/self/stat
    awk '{ sub(/.*\) /, ""); print ($3 == '$$') ($4 == '$$') }' /proc/$$/stat
    ls /proc/$$/fd
    env | cut -d = -f 1 | sort
} >seen.$MUSTER_GENERATION.$RANK
exec sleep 1000
END
chmod +x worker

# begin OPTION...: three workers of a run, and as many that wait.
begin() {
    rm -rf run
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 3 --set restart.backoff=0s \
        --set limits.grace=0s "$@" -- ./worker
    wait_for 60 running 1 || diag "$(cat run.err)"
    agent=$(field nodes.0.agent_pid) id=$(field id)
}

test_restart() {
    local before old
    begin --max-restarts 2
    ok 'three wait' wait_for 60 n_waiting 3 || diag "$(pgrep -a -P "$agent")"
    before=$(waiting | sort)
    is "$(for p in $before; do tr '\0' '\n' <"/proc/$p/environ" | cut -d = -f 1; done | sort -u | xargs)" \
        'MUSTER_AGENT MUSTER_RUN_ID' 'with nothing in their environment but whose they are'
    kill -KILL "$(field workers.1.pid)"
    ok 'a worker fails' wait_for 60 running 2 || diag "$(cat run.err)"
    is "$(worker_pids | sort)" "$before" 'those that waited are the workers'
    is "$(cat seen.2.1)" "$(cat seen.1.1)" 'which find what the first ones did'
    ok 'three others wait' wait_for 60 n_waiting 3
    old=$(waiting | head -n 1)
    kill -STOP "$old"
    kill -KILL "$(waiting | tail -n 1)"
    ok 'one dies' wait_for 60 n_waiting 2
    kill -KILL "$(field workers.1.pid)"
    ok 'the next restart has all workers' wait_for 60 running 3 || diag "$(cat run.err)"
    ok 'without the one that was stopped' gone "$old"
    is "$(cat seen.3.1)" "$(cat seen.1.1)" 'as before'
    ok 'there is no restart left that others could wait for' eval '! wait_for 1 any_waits'
    is "$(field restarts)" 2 'nothing else was a failure'
    "$MUSTER" cancel --force run >/dev/null 2>&1
    ok 'nobody is left' wait_for 60 run_gone "$id" || diag "$(run_alive "$id")"
}

test_ends() {
    local how
    for how in cancel force kill; do
        begin --max-restarts 1
        ok "$how: three wait" wait_for 60 n_waiting 3
        kill -STOP "$(waiting | head -n 1)"
        case $how in
        cancel) "$MUSTER" cancel run ;;
        force) "$MUSTER" cancel --force run ;;
        kill) kill -KILL "$agent" ;;
        esac >/dev/null 2>&1
        ok 'and go with the run' wait_for 60 run_gone "$id" || diag "$(run_alive "$id")"
    done
}

run_cases
