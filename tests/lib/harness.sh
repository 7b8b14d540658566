# SPDX-License-Identifier: Apache-2.0
#
# A test script in TAP, to be sourced by tests/tNNNN-*.t (bash):
#
#   . "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
#   need_muster
#   test_version() {
#       run "$MUSTER" version
#       is "$status" 0 'version succeeds'
#       like "$(cat out)" 'muster ' 'and names the program'
#   }
#   run_cases                     # every test_* function, in order of definition
#
# or a plain list of checks that ends with done_testing. Each script runs in a
# trash directory of its own ($TRASH, the current directory), which is removed
# when all passed and kept and named when not. Checks count: never call them in
# a subshell or in a pipeline.

set -u

# What nohup, or the background of a script, starts ignores signals that tests send: HUP,
# INT, QUIT and TERM. A shell cannot undo that for those that it starts.
if (($(sed -n 's/^SigIgn:[[:space:]]*/0x/p' /proc/$$/status) & 0x4007)) && [ -z "${MUSTER_TEST_SIGNALS-}" ]; then
    MUSTER_TEST_SIGNALS=reset exec env --default-signal=HUP,INT,QUIT,TERM bash "$0" "$@"
fi
export LC_ALL=C.UTF-8
umask 022

MUSTER_SRCDIR=$(cd "${MUSTER_SRCDIR:-$(dirname "${BASH_SOURCE[0]}")/../..}" && pwd) || exit 1
: "${MUSTER_BUILDDIR:=$MUSTER_SRCDIR/build}"
: "${MUSTER_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/muster}"
export MUSTER_SRCDIR MUSTER_BUILDDIR MUSTER_CACHE

test_name=$(basename "$0" .t)
test_pid=$BASHPID
n_cases=0
n_failed=0
plan_printed=
status=0
exit_commands=()

# Where the wall-clock stamp of now, in milliseconds, is wanted.
now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

# --- results -----------------------------------------------------------------

# report PASSED NAME: the one place that counts.
report() {
    n_cases=$((n_cases + 1))
    local name=${2//[$'\n'#]/ }
    if [ "$1" = yes ]; then
        echo "ok $n_cases - $name"
        return 0
    fi
    n_failed=$((n_failed + 1))
    echo "not ok $n_cases - $name"
    local i=1
    while [ "${BASH_SOURCE[i]}" = "${BASH_SOURCE[0]}" ]; do i=$((i + 1)); done
    echo "#   at ${BASH_SOURCE[i]}:${BASH_LINENO[i - 1]}"
    return 1
}

diag() { printf '%s\n' "$*" | sed 's/^/# /'; }

# ok NAME CMD...: passes if CMD succeeds; what CMD printed is shown if not.
ok() {
    local name=$1 said rc
    shift
    said=$("$@" 2>&1) && rc=0 || rc=$?
    if [ $rc -eq 0 ]; then report yes "$name"; return; fi
    report no "$name" || { diag "  status $rc: $*"; diag "$said"; return 1; }
}

# not_ok NAME CMD...: passes if CMD fails with a status, not by a signal.
not_ok() {
    local name=$1 said rc
    shift
    said=$("$@" 2>&1) && rc=0 || rc=$?
    if [ $rc -gt 0 ] && [ $rc -lt 128 ]; then report yes "$name"; return; fi
    report no "$name" || { diag "  status $rc: $*"; diag "$said"; return 1; }
}

pass() { report yes "$1"; }
fail() { report no "$1"; }

# is GOT WANT NAME
is() {
    if [ "$1" = "$2" ]; then report yes "$3"; return; fi
    report no "$3" || { diag "  got      '$1'"; diag "  expected '$2'"; return 1; }
}

isnt() {
    if [ "$1" != "$2" ]; then report yes "$3"; return; fi
    report no "$3" || { diag "  got '$1', expected anything else"; return 1; }
}

# like GOT PART NAME: PART occurs in GOT.
like() {
    case $1 in *"$2"*) report yes "$3"; return ;; esac
    report no "$3" || { diag "  got         '$1'"; diag "  lacks part  '$2'"; return 1; }
}

unlike() {
    case $1 in *"$2"*) ;; *) report yes "$3"; return ;; esac
    report no "$3" || { diag "  got  '$1'"; diag "  has  '$2'"; return 1; }
}

# matches GOT REGEX NAME (extended)
matches() {
    if [[ $1 =~ $2 ]]; then report yes "$3"; return; fi
    report no "$3" || { diag "  got        '$1'"; diag "  not like   /$2/"; return 1; }
}

# num LEFT OP RIGHT NAME: integers; OP is one of -lt -le -eq -ne -ge -gt.
num() {
    if [ "$1" "$2" "$3" ]; then report yes "$4"; return; fi
    report no "$4" || { diag "  not true: $1 $2 $3"; return 1; }
}

# skip WHY [N]: N cases (1) that cannot run here.
skip() {
    local i
    for ((i = 0; i < ${2:-1}; i++)); do
        n_cases=$((n_cases + 1))
        echo "ok $n_cases # SKIP ${1//$'\n'/ }"
    done
}

# skip_all WHY: the whole script cannot run here, before its first check.
skip_all() {
    plan_printed=yes
    echo "1..0 # SKIP ${1//$'\n'/ }"
    exit 0
}

# skip_rig WHY [N]: as skip_all, or as skip of N cases, but a failure where the beds
# must work, as in CI.
skip_rig() {
    if [ "${MUSTER_REQUIRE_RIGS:-0}" = 1 ]; then
        report no "the test bed works: $1"
        [ -n "${2:-}" ] || done_testing
        return 1
    fi
    if [ -n "${2:-}" ]; then skip "$@"; else skip_all "$1"; fi
}

bail_out() { echo "Bail out! $*"; exit 255; }

done_testing() {
    plan_printed=yes
    echo "1..$n_cases"
    [ $n_failed -eq 0 ]
    exit
}

# once_is_enough NAME...: these cases run, of what is built here, nothing that others do
# not run as well: where MUSTER_INSTRUMENTED says that a build is many times as slow,
# they are left out. (For whole scripts scripts/check has the same.)
left_out=
once_is_enough() { [ -z "${MUSTER_INSTRUMENTED:-}" ] || left_out+=" $* "; }

# run_cases: all functions named test_*, in order of definition, then the plan.
# MUSTER_TEST_ONLY names some.
run_cases() {
    local f
    shopt -s extdebug
    local all
    all=$(for f in $(compgen -A function test_); do
        declare -F "$f"
    done | sort -k 2n | cut -d ' ' -f 1)
    shopt -u extdebug
    for f in ${MUSTER_TEST_ONLY:-$all}; do
        [ -n "${MUSTER_TEST_ONLY:-}" ] || [[ $left_out != *" $f "* ]] || continue
        diag "$f"
        cd "$TRASH" || bail_out "no $TRASH"
        "$f"
    done
    done_testing
}

# --- running things ----------------------------------------------------------

# run CMD...: status in $status, output in the files out and err.
run() {
    "$@" >out 2>err </dev/null
    status=$?
}

# show: what the last run said, as a comment; for use after a failed check.
show() { diag "status $status"; [ ! -s out ] || diag "$(cat out)"; [ ! -s err ] || diag "$(cat err)"; }

# start_time PID: when it began. With that its number means it and nobody else:
# numbers come again within minutes.
start_time() {
    local stat
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
    set -- ${stat##*) }
    echo "${20}"
}

# kill_at_exit PID...: those that still run at the end of the script, and nobody who has got
# their number since.
kill_at_exit() {
    local pid
    for pid; do
        at_exit "[ \"\$(start_time $pid)\" != '$(start_time "$pid")' ] || { kill -KILL $pid; wait $pid; } 2>/dev/null"
    done
}

# spawn NAME CMD...: in the background, output in NAME.out and NAME.err, its pid
# in $spawned; killed at the end of the script if it still runs.
spawn() {
    local name=$1
    shift
    : >"$name.out" # what an earlier one said is gone before anybody looks
    : >"$name.err"
    "$@" >"$name.out" 2>"$name.err" </dev/null &
    spawned=$!
    kill_at_exit "$spawned"
}

# snooze SECS: as sleep, without a process: tests wait for thousands of things. Nobody
# writes into the pipe that is read here.
snooze() { { read -rt "$1" <>"$TRASH/.quiet" || [ $? -gt 128 ]; } 2>/dev/null || sleep "$1"; }

# wait_for SECS CMD...: until CMD succeeds; fails at the deadline. To look costs more than
# to wait, and others are at work: who has waited for long looks less often, and is late
# by 3 % of that, or a quarter of a second. Its variables have names that are
# nobody else's, for CMD sees them.
wait_for() {
    local _began=${EPOCHREALTIME/[.,]/} _now _us _pause
    local _until=$((_began + $1 * 1000000)) _secs=$1
    shift
    until "$@" >/dev/null 2>&1; do
        _now=${EPOCHREALTIME/[.,]/}
        [ "$_now" -lt $_until ] || { echo "waited $_secs s in vain: $*" >&2; return 1; }
        _us=$(((_now - _began) / 32))
        _us=$((_us < 50000 ? 50000 : _us > 250000 ? 250000 : _us))
        printf -v _pause '0.%06d' $_us
        snooze "$_pause"
    done
}

# not CMD...: for wait_for.
not() { ! "$@"; }

# wait_exit SECS PID: the status of a child of this script in $status, 124 (and
# failure) if it still runs at the deadline.
wait_exit() {
    if ! wait_for "$1" gone "$2"; then
        status=124
        return 1
    fi
    wait "$2" 2>/dev/null
    status=$?
    return 0
}

# gone PID: no such process, or dead and not yet waited for. Never true of what is not one
# number: none and two have no process either.
gone() {
    local stat
    case $1 in '' | *[!0-9]*) diag "gone: '$1' is not a process id"; return 1 ;; esac
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
    case ${stat##*) } in [ZX]*) return 0 ;; esac
    return 1
}

# child_of PID: the pid of its first child (as a namespace tool has one).
child_of() {
    local pids
    pids=$(cat "/proc/$1/task/$1/children" 2>/dev/null)
    [ -n "$pids" ] || return 1
    echo "${pids%% *}"
}

# inner_pid PID: what PID, started by `on`, runs in the host: its first
# descendant in another process namespace. As seen from here: signal that one,
# for the tools on the way pass nothing on.
inner_pid() {
    local p=$1 ours ns
    ours=$(readlink /proc/self/ns/pid)
    while p=$(child_of "$p"); do
        ns=$(readlink "/proc/$p/ns/pid") || return 1
        [ "$ns" = "$ours" ] || { echo "$p"; return; }
    done
    return 1
}

# wait_inner SECS PID: the same in $inner, as soon as it is there.
wait_inner() {
    wait_for "$1" inner_pid "$2" && inner=$(inner_pid "$2")
}

# sanitized: what is under test was built with a sanitizer.
sanitized() { grep -qE '^#define SANITIZER' "$MUSTER_BUILDDIR/config.h" 2>/dev/null; }

# can_trace: strace works here, delays and failures included. What it traces from here
# on looks for no leaks at its end: a sanitizer would have to trace it for that itself.
can_trace() {
    strace -qq -o /dev/null -e inject=fsync:delay_enter=1 true 2>/dev/null || return
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
}

# run_alive RUNID: "pid command" of each live process of that run, found by the
# run id in its environment, whatever its session, parent or namespace.
run_alive() {
    local d stat
    grep -slzxF "MUSTER_RUN_ID=$1" /proc/[0-9]*/environ | while read -r d; do
        d=${d%/environ}
        read -r stat 2>/dev/null <"$d/stat" || continue
        case ${stat##*) } in [ZX]*) continue ;; esac
        echo "${d#/proc/} $(tr '\0' ' ' 2>/dev/null <"$d/cmdline")"
    done
    return 0
}

# run_gone RUNID: none is left.
run_gone() { [ -z "$(run_alive "$1")" ]; }

# run_traces ID: the same, and whoever has the run on its command line.
run_traces() {
    run_alive "$1"
    pgrep -f -a -- "--(run-id|tag)=$1|/$1( |\$)|dir=[^ ]*/$1" | grep -v pgrep
}

# run_parts ID FRONT AGENT: the pids of the parts of a run on this machine, in
# $front, $mpirun, $mpi, $watch and $agent.
run_parts() {
    front=$2 agent=$3
    watch=$(awk '{ sub(/.*\) /, ""); print $2 }' "/proc/$agent/stat")
    mpirun=$(child_of "$front")
    mpi=$(pgrep -f "muster-mpi --run-id=$1" | while read -r p; do
        [ "$(readlink "/proc/$p/exe" | sed 's/.*\///')" = muster-mpi ] && echo "$p"
    done | head -n 1)
}

# json PATH [FILE]: the value at a dotted path ("workers.0.pid"); a string is
# printed as it is, anything else as JSON. Fails where there is none.
json() { "$MUSTER_BUILDDIR/tests/lib/json" "$@"; }

# at_exit CMD: evaluated when the script ends, the last one first.
at_exit() { exit_commands=("$1" ${exit_commands[@]+"${exit_commands[@]}"}); }

# --- what is under test ------------------------------------------------------

# need_muster: the program as built (or $MUSTER, or the one in $MUSTER_BINDIR).
need_muster() {
    local f
    for f in "${MUSTER:-}" "${MUSTER_BINDIR:-/nonexistent}/muster" \
        "$MUSTER_BUILDDIR/launcher/muster" "$MUSTER_BUILDDIR/muster"; do
        [ -n "$f" ] && [ -x "$f" ] || continue
        MUSTER=$f
        export MUSTER
        return 0
    done
    skip_all "muster is not built in $MUSTER_BUILDDIR"
}

# need_command NAME...: skips the script where one is missing.
need_command() {
    local c
    for c; do
        command -v "$c" >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v "$c" >/dev/null ||
            skip_rig "no $c: see scripts/install-deps"
    done
}

# has_torch PYTHON: it is looked for, not imported: that takes seconds.
has_torch() { "$1" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' 2>/dev/null; }

# need_torch: $TORCH_PYTHON has PyTorch (scripts/install-deps check makes it).
need_torch() {
    local f
    for f in "${TORCH_PYTHON:-}" "$MUSTER_CACHE/venv/bin/python3" python3; do
        [ -n "$f" ] && has_torch "$f" || continue
        TORCH_PYTHON=$f
        export TORCH_PYTHON
        return 0
    done
    skip_rig 'no PyTorch: see scripts/install-deps'
}

# need_module NAME...: $MODULE_PYTHON can import these (scripts/install-deps check).
# A module is looked for, not imported: that may take long.
need_module() {
    local f m
    for f in "${MODULE_PYTHON:-}" "$MUSTER_CACHE/venv/bin/python3" python3; do
        [ -n "$f" ] || continue
        m=$("$f" -c '
import importlib.util, sys
print(*[m for m in sys.argv[1:] if not importlib.util.find_spec(m)])' "$@" 2>/dev/null) || continue
        [ -z "$m" ] || continue
        MODULE_PYTHON=$f
        export MODULE_PYTHON
        return 0
    done
    skip_rig "no Python with $*: see scripts/install-deps"
}

# --- test beds ---------------------------------------------------------------

# Each bed is a program in tests/rigs with up, down, run and more; a bed that
# cannot be here ends `up` with 77 and a reason.

# rig_up NAME DIR ARG...: skips the script where the bed cannot be.
rig_up() {
    local rig=$MUSTER_SRCDIR/tests/rigs/$1 dir=$2 rc
    shift 2
    "$rig" up "$dir" --owner "$test_pid" "$@" >"$TRASH/rig.log" 2>&1 && rc=0 || rc=$?
    at_exit "'$rig' down '$dir' >/dev/null 2>&1"
    case $rc in
    0) return 0 ;;
    77) skip_rig "$(tail -n 1 "$TRASH/rig.log")" ;;
    *) diag "$(cat "$TRASH/rig.log")"; bail_out "$(basename "$rig") up: status $rc" ;;
    esac
}

# rig_hosts_up [--hosts a,b,...] [--no-shared] ...: hosts node1..node4 in $BED;
# what they share is in $SHARED.
rig_hosts_up() {
    BED=$TRASH/bed
    SHARED=$BED/shared
    rig_up hosts "$BED" "$@"
}

rig_slurm_up() {
    BED=$TRASH/bed
    SHARED=$BED/shared
    rig_up slurm "$BED" "$@"
}

# rig_mpi5_up [--hosts a,b,...]: likewise, with Open MPI 5; the folder of a muster that
# is built for it is in $there.
rig_mpi5_up() {
    [ -x "$MUSTER_SRCDIR/configure" ] || skip_all 'no configure in the sources'
    BED=$TRASH/bed
    SHARED=$BED/shared
    rig_up mpi5 "$BED" "$@"
    there=$("$MUSTER_SRCDIR/tests/rigs/mpi5" build "$BED" 2>err) || bail_out "$(cat err)"
}

# rig_vm_up: a virtual machine with another kernel, which `in_vm` boots.
rig_vm_up() {
    BED=$TRASH/vm
    rig_up vm "$BED"
}

# in_vm [--secs N] [--module NAME]... [--disk MB]... -- CMD...: boots it, and runs CMD
# in this directory; what that writes to $BED/out stays.
in_vm() { "$MUSTER_SRCDIR/tests/rigs/vm" run "$BED" "$@"; }

# on HOST CMD...: in that host, in the same directory.
on() {
    local host=$1
    shift
    "$MUSTER_SRCDIR/tests/rigs/hosts" run "$BED" "$host" -- "$@"
}

# hosts VERB ARG...: power_off, power_on, link_down, partition, ... on the bed.
hosts() {
    local verb=$1
    shift
    "$MUSTER_SRCDIR/tests/rigs/hosts" "$verb" "$BED" "$@"
}

# pids_on HOST PATTERN: of processes there whose command line matches, as seen from
# here.
pids_on() {
    local ns p
    ns=$(readlink "/proc/$(hosts pid "$1")/ns/pid")
    for p in $(pgrep -f -- "$2"); do
        [ "$(readlink "/proc/$p/ns/pid" 2>/dev/null)" != "$ns" ] || echo "$p"
    done
}

# --- begin and end -----------------------------------------------------------

# A run outlives its front end, by design: where a test fails before it has ended its
# run, agents and workers would go on. They are found by what their environment says.
kill_left() {
    local d
    grep -slzxF "XDG_STATE_HOME=$TRASH/state" /proc/[0-9]*/environ | while read -r d; do
        d=${d#/proc/}
        kill -KILL "${d%/environ}"
    done 2>/dev/null
}

# A run that can be gone on with leaves its memory on this host, for the next life of it.
drop_memory() {
    local f id
    for f in "$TRASH"/*/run.json "$TRASH"/*/*/run.json; do
        id=$(json id "$f" 2>/dev/null) && [ -n "$id" ] || continue
        rm -rf "/dev/shm/muster-$UID-$id"
    done
}

finish() {
    local rc=$? c
    trap - EXIT
    trap '' INT TERM HUP
    [ "$BASHPID" = "$test_pid" ] || exit $rc
    cd "$TRASH" 2>/dev/null || cd /
    for c in ${exit_commands[@]+"${exit_commands[@]}"}; do eval "$c"; done
    if [ -z "$plan_printed" ]; then
        diag "ended before done_testing (status $rc)"
        [ $rc -ne 0 ] || rc=1
    fi
    [ $rc -eq 0 ] || kill_left
    drop_memory
    cd /
    if [ $rc -eq 0 ] && [ -z "${MUSTER_KEEP_TRASH:-}" ]; then
        rm -rf --one-file-system "$TRASH"
    else
        diag "kept $TRASH"
    fi
    exit $rc
}

# Unix socket names are short: so is this path.
TRASH=$(mktemp -d "${TMPDIR:-/tmp}/${test_name%%-*}.XXXXXX") || bail_out 'no trash directory'
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
cd "$TRASH" || bail_out "no $TRASH"
mkfifo -m 600 "$TRASH/.quiet"

# Nothing of the user's own settings or of a batch system leaks into a test.
export XDG_STATE_HOME=$TRASH/state XDG_CONFIG_HOME=$TRASH/config
unset XDG_RUNTIME_DIR
# A make of our own shares no job server with the one that runs the tests.
unset MAKEFLAGS MFLAGS MAKELEVEL
while read -r name; do unset "$name"; done < <(compgen -e | grep -E '^(SLURM_|OMPI_|PMIX_|PRTE_|PET_|TORCHELASTIC_)')
for name in MUSTER_RUN_ID MUSTER_RUN_DIR RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT; do unset "$name"; done
unset name
