# SPDX-License-Identifier: Apache-2.0
#
# What a test over several hosts asks of its run, which is in $SHARED/run; to be
# sourced. One whose run is elsewhere has a field() and an event() of its own.

field() { "$MUSTER" status "$SHARED/run" -o json 2>/dev/null | json "$1"; }
event() { grep -q "$1" "$SHARED/run/events.jsonl"; }
# running N [GENERATION]: N workers of it, and no more.
running() {
    [ "$(field state)" = Running ] && [ "$(field "workers.$(($1 - 1)).state")" = Running ] &&
        ! field "workers.$1.state" && [ "$(field generation)" = "${2:-1}" ]
}
show_run() { diag "$(tail -n 30 "$SHARED/run.err")"; diag "$(grep -v checkpoint_saved "$SHARED/run/events.jsonl" | tail -n 20)"; }
nobody_left() {
    ok 'nobody is left' wait_for 90 run_gone "$(json id "$SHARED/run/run.json")" ||
        diag "$(run_alive "$(json id "$SHARED/run/run.json")")"
}
