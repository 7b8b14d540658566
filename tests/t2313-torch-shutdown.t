#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What torchrun promises of its end: whichever signal it gets, its workers are asked,
# given their time, and killed; and no process is left, of them or of muster.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
export XDG_RUNTIME_DIR=$TRASH/rt
mkdir -m 700 rt

field() { json "$1" <run/status.json; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(wc -l <pids)" = "$1" ]; }
# Whatever belongs to the run, by its environment or its command line.
alive() {
    run_alive "$id"
    pgrep -f -a -- "--run-id=$id|/$id( |\$)|dir=[^ ]*/$id" | grep -v pgrep
}
nobody_left() { [ -z "$(alive)" ]; }
pids_gone() { local p; while read -r p; do gone "$p" || return 1; done <pids; }

# start N OPTION... SCRIPT: N workers, that have put N pids into ./pids.
start() {
    local n=$1
    shift
    rm -rf run
    : >pids
    spawn run "$MUSTER" torchrun --allow-run-as-root --run-dir=run "$@"
    runner=$spawned
    wait_for 60 running "$n" || { diag "$(cat run.err)"; return 1; }
    id=$(json id run/run.json)
}

# A worker with a child, and one more in a session of its own.
cat >family.sh <<'END'
#!/bin/sh
sleep 1000 &
echo $! >>pids
setsid sh -c 'trap "" TERM INT HUP QUIT; echo $$ >>pids; while :; do sleep 1; done' &
echo $$ >>pids
wait
END
# One that is not to be asked.
cat >stubborn.sh <<'END'
#!/bin/sh
trap '' TERM INT HUP QUIT USR1 USR2
echo $$ >>pids
while :; do sleep 0.2; done
END
chmod +x family.sh stubborn.sh

# The status is 75 where a batch system may have sent it, and the run can go on; 130
# where it was a person. A terminal that closes (SIGHUP) leaves the run alone for as
# long as detach.timeout says: torchrun would end it at once.
test_signals() {
    local case sig
    for case in TERM:75 INT:130 HUP:129 QUIT:130 USR1:75 USR2:75; do
        sig=${case%:*}
        start 6 --set detach.timeout=1s --nproc-per-node=2 --no-python ./family.sh
        is $? 0 'two workers with children'
        kill -"$sig" "$runner"
        wait_exit 60 "$runner"
        is "$status" "${case#*:}" "are stopped by SIG$sig" || diag "$(cat run.err)"
        ok 'all of them' wait_for 60 pids_gone || diag "$(cat pids)"
        ok 'and all of muster' wait_for 60 nobody_left || diag "$(alive)"
    done
}

# How long is given: by option, by environment, by default.
test_timeout() {
    local seconds env options want
    while IFS='|' read -r env options want; do
        run env $env "$MUSTER" explain --key limits.grace -- torchrun $options show.py
        like "$(sed 1d out)" "$want" "'$env' and '$options' give $want" || show
    done <<'END'
||30s
|--shutdown-timeout=120|2m
TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600||10m
TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600|--shutdown-timeout 120|2m
PET_SHUTDOWN_TIMEOUT=7||7s
TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600 PET_SHUTDOWN_TIMEOUT=7||7s
END
    for seconds in -1 -30 soon 1.5.2; do
        run "$MUSTER" torchrun --allow-run-as-root --shutdown-timeout=$seconds show.py
        is "$status" 2 "'$seconds' is none"
        like "$(cat err)" '--shutdown-timeout of torchrun is' 'which is told' || show
        run env TORCH_ELASTIC_SHUTDOWN_TIMEOUT=$seconds "$MUSTER" torchrun --allow-run-as-root show.py
        is "$status" 2 'nor in the environment'
        like "$(cat err)" 'TORCH_ELASTIC_SHUTDOWN_TIMEOUT' 'which is told, too' || show
    done
}

test_stubborn() {
    start 2 --shutdown-timeout=1 --nproc-per-node=2 --no-python ./stubborn.sh
    is $? 0 'two workers that do not listen'
    kill -TERM "$runner"
    wait_exit 60 "$runner"
    is "$status" 75 'are killed when their time is over' || diag "$(cat run.err)"
    ok 'both' wait_for 60 pids_gone
    start 2 --shutdown-timeout=600 --nproc-per-node=2 --no-python ./stubborn.sh
    is $? 0 'two others'
    kill -TERM "$runner"
    ok 'are asked' wait_for 60 grep -q 'asking the workers' run.err
    ok 'and being stopped' wait_for 60 eval '[ "$(field state)" = Stopping ]'
    not_ok 'have more time than the default' wait_for 3 pids_gone
    kill -INT "$runner"
    wait_exit 60 "$runner"
    is "$status" 75 'and none when asked again' || diag "$(cat run.err)"
    ok 'both are gone' wait_for 60 pids_gone
    ok 'and all of muster' wait_for 60 nobody_left || diag "$(alive)"
}

# Workers that use their time, and end well or not: that they were stopped is what
# counts.
test_graceful() {
    local code
    for code in 0 3; do
        cat >graceful.sh <<END
#!/bin/sh
trap 'echo saved; exit $code' TERM
echo \$\$ >>pids
while :; do sleep 0.05; done
END
        chmod +x graceful.sh
        start 2 --nproc-per-node=2 --max-restarts=3 --no-python ./graceful.sh
        is $? 0 "two workers that end with $code when asked"
        kill -TERM "$runner"
        wait_exit 60 "$runner"
        is "$status,$(grep -c saved run.out)" 75,2 'end, and the run is one that can go on' || diag "$(cat run.err)"
        is "$(field restarts)" 0 'none of them is started again'
    done
}

# A worker that fails takes the others along, also those that do not listen; they
# are given 2 s at most, and no restart waits for their --shutdown-timeout.
test_failure() {
    start 2 --shutdown-timeout=600 --nproc-per-node=2 --max-restarts=0 --no-python sh -c '
        echo $$ >>pids; trap "" TERM; until [ -e go ]; do sleep 0.05; done; [ $RANK = 1 ] && exit 7; while :; do sleep 0.2; done'
    is $? 0 'a worker that will fail, and one that does not listen'
    touch go
    wait_exit 60 "$runner"
    is "$status" 7 'end with the status of the first' || diag "$(cat run.err)"
    ok 'both' wait_for 60 pids_gone
    ok 'and all of muster' wait_for 60 nobody_left || diag "$(alive)"
    is "$(field failure.rank)" 1 'and the cause is the one that failed, not the one that was killed'
}

# Nobody knows that the workers are muster's but muster: SIGKILL of the command, and
# they are gone when the time for that is over.
test_killed() {
    start 6 --set=detach.timeout=1s --nproc-per-node=2 --no-python ./family.sh
    is $? 0 'two workers with children'
    kill -KILL "$runner"
    wait "$runner" 2>/dev/null
    ok 'are gone soon after their command was killed' wait_for 60 pids_gone || diag "$(cat pids)"
    ok 'and all of muster' wait_for 60 nobody_left || diag "$(alive)"
}

run_cases
