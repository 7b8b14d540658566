#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints through the agents: a save is safe once it is held, whatever becomes of
# the worker; the agents write it, the lead commits it, and the next workers start
# from it.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

root=--allow-run-as-root
worker=$MUSTER_BUILDDIR/tests/lib/snap_worker
field() { "$MUSTER" status run -o json 2>/dev/null | json "$1"; }
shm() { echo "/dev/shm/muster-$(id -u)-$(json id run/run.json)"; }
n_steps() { find ck -name COMMIT 2>/dev/null | wc -l; }
# start OPTION...
start() {
    rm -rf run ck
    spawn run "$MUSTER" run $root --run-dir run --agent-is-node --nproc-per-node 2 "$@" -- "$worker" "$PWD/ck" "${elements:-480000}"
}
told() { ok "$1" wait_for 60 eval '[ "$(grep -c "'"$2"'" run.out)" -ge '"$3"' ]' || diag "$(tail -n 30 run.out run.err)"; }
go_home() {
    : >run/go
    wait_exit 60 "$spawned"
    is "$status" 0 "${1:-it ends well}" || diag "$(tail -n 30 run.out run.err)"
}

test_saved() {
    start --nnodes 2
    told 'saves' 'held 30' 4
    ok 'and is saved, by the agents' wait_for 60 eval '[ -n "$(field resume_path)" ]' || diag "$(tail -n 30 run.err)"
    ok 'in memory of theirs' test -d "$(shm)"
    go_home
    num "$(n_steps)" -ge 1 'there are checkpoints'
    num "$(n_steps)" -le 3 'not more than are kept' || diag "$(ls ck)"
    run "$MUSTER" ckpt verify ck
    is "$status" 0 'they are whole' || show
    is "$(find ck -name '*.part' | wc -l)" 0 'nothing else is left in them'
    ok 'no memory is left' test ! -e "$(shm)"
}

test_worker_dies() {
    start --nnodes 2 --max-restarts 1
    told 'four workers save' 'held 20' 4
    : >run/die
    told 'after the death of one all start again' 'from [0-9]' 4
    rm run/die
    told 'and save' 'held' 20
    go_home 'the run ends well'
    is "$(grep -c 'is wrong' run.err)" 0 'what they loaded was right'
    is "$(field restarts)" 1 'one restart'
}

# What a rank has saved is in memory of its node still: a disk that has spoilt the
# file since does no harm.
test_from_memory() {
    start --nnodes 2 --max-restarts 1
    told 'four workers save' 'held 10' 4
    : >run/spoil
    told 'one spoils its file, and dies' 'spoilt [0-9]' 1
    step=$(sed -n 's/.*spoilt //p' run.out)
    told 'all start from that step' "from $step\$" 4
    go_home
}

# Whoever leads next goes on with what the agents hold, or finds that it is there.
test_lead_lost() {
    start --nnodes 2:3
    told 'six workers save' 'held 20' 6
    kill -KILL "$(field nodes.0.agent_pid)"
    told 'four go on from what was saved' 'from [0-9]' 4
    before=$(grep -c checkpoint_saved run/events.jsonl)
    ok 'and save, under another lead' wait_for 60 eval '[ "$(grep -c checkpoint_saved run/events.jsonl)" -gt $((before + 2)) ]' || diag "$(tail -n 20 run.err)"
    go_home
    is "$(field lead)" 1 'the second node leads'
    run "$MUSTER" ckpt verify ck # a killed lead may leave what it was removing
    is "$(grep step- out | grep -vc -e whole -e unfinished)" 0 'nothing that is there is damaged' || show
    rm -rf "$(shm)" # a killed agent leaves what it held to gc
}

# A disk that takes nothing fails saves, not the run.
test_no_disk() {
    start --nnodes 2
    told 'workers save' 'held 10' 4
    mv ck ck.away
    ok 'the disk is gone' wait_for 60 grep -q 'is none' run/events.jsonl
    mv ck.away ck
    before=$(grep -c checkpoint_saved run/events.jsonl)
    ok 'and back' wait_for 60 eval '[ "$(grep -c checkpoint_saved run/events.jsonl)" -gt "$before" ]'
    go_home
}

run_cases
