#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster end: one process, of which it is certain that it is the one.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster

start_of() {
    local stat
    stat=$(cat "/proc/$1/stat") && set -- ${stat##*) } && echo "${20}"
}
host=$(hostname | cut -c 1-20)
boot=$(cat /proc/sys/kernel/random/boot_id)
here=$boot/$(readlink /proc/self/ns/pid)/$host
# victim CMD...: a process that is not a child of this shell, in $victim.
victim() {
    rm -f victim
    (setsid "$@" & echo $! >victim)
    victim=$(cat victim)
    kill_at_exit "$victim"
}
end() { run timeout 60 "$MUSTER" end "$@"; }

test_ends() {
    victim sleep 1000
    end --machine="$here" --start="$(start_of "$victim")" "$victim"
    is "$status" 0 'a process' || show
    ok 'is ended' gone "$victim"
    victim sh -c 'trap "" TERM; touch deaf; while :; do sleep 0.1; done'
    wait_for 60 test -e deaf
    end --machine="$here" --start="$(start_of "$victim")" "$victim"
    is "$status" 0 'and one that does not listen' || show
    ok 'as well' gone "$victim"
    victim sleep 1000
    kill -STOP "$victim"
    end --machine="$here" --start="$(start_of "$victim")" "$victim"
    is "$status" 0 'and one that is stopped' || show
    ok 'as well' gone "$victim"
}

test_waits() {
    victim sh -c 'trap "echo told >told; exit" TERM; sleep 1; echo by itself >told'
    end --machine="$here" --start="$(start_of "$victim")" --wait=50 "$victim"
    is "$status:$(cat told)" '0:by itself' 'one that is given the time ends by itself' || show
}

test_others() {
    local start
    victim sleep 1000
    start=$(start_of "$victim")
    end --machine="$here" --start=$((start + 1)) "$victim"
    is "$status" 0 'one that has the pid now is none of ours' || show
    end --machine="00000000-0000-0000-0000-000000000000/${here#*/}" --start="$start" "$victim"
    is "$status" 0 'nor one of another boot' || show
    end --machine="$boot/pid:[1]/$host" --start="$start" "$victim"
    is "$status" 1 'where pids mean something else nothing is done' || show
    like "$(cat err)" 'not the machine that was meant' 'and that is said'
    end --machine="$boot/pid:[1]/other" --start="$start" "$victim"
    is "$status" 1 'as on another host' || show
    not_ok 'it lives after all that' gone "$victim"
}

test_usage() {
    local word
    for word in 0 1 -1 -5 x 99999999999; do
        end --machine="$here" --start=1 -- "$word"
        is "$status" 2 "'$word' is refused" || show
    done
    end --machine="$here" $$
    is "$status" 2 'a pid alone does not do' || show
    end --start=1 $$
    is "$status" 2 'nor without a machine' || show
}

run_cases
