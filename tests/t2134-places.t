#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs from odd places: no HOME, no current directory, temporary directories that
# are missing, deep or not executable, any umask, the plain C locale; and run
# directories that vanish, fill up or become read-only under a run.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

# outside CMD...: as run, for where no file can be made.
outside() { "$@" >../out 2>../err </dev/null; status=$?; }
# Every case in a directory of its own, the run in ./run.
mrun() { run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 2 "$@"; }
place() { mkdir "$TRASH/$1" && cd "$TRASH/$1" || bail_out "no place $1"; }
field() { "$MUSTER" status run -o json | json "$1"; }
nobody_left() { run_gone "$(json id run/run.json)"; }
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.0.state)" = Running ]; }
start_run() {
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run "$@"
    runner=$spawned
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
    id=$(json id run/run.json)
}

test_no_home() {
    place home
    run env -u HOME -u XDG_STATE_HOME -u XDG_CONFIG_HOME timeout 120 "$MUSTER" run --allow-run-as-root \
        --run-dir run -- sh -c 'echo home ${HOME-none}'
    is "$status" 0 'a run without HOME' || show
    like "$(cat out)" 'home none' 'has none' || show
    run env -u HOME -u XDG_STATE_HOME "$MUSTER" list
    is "$status" 0 'nor does list need one' || show
    run env -u XDG_STATE_HOME HOME=/proc/nonexistent/home timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run1 -- true
    is "$status" 0 'one that does not exist will do' || show
}

test_no_cwd() {
    place cwd
    mkdir gone && cd gone && rmdir ../gone
    outside "$MUSTER" run --allow-run-as-root --run-dir run -- true
    isnt "$status" 0 'no run starts in a directory that is gone'
    num "$status" -lt 126 'by an exit status' || diag "$(cat ../err)"
    like "$(cat ../err)" 'muster: ' 'with a message'
    like "$(cat ../err)" 'No such file or directory' 'that names the reason'
    outside "$MUSTER" version
    is "$status" 0 'what needs none works'
    cd ..
    mkdir there
    start_run --set "workdir=$PWD/there" -- sh -c 'while [ ! -e go ]; do sleep 0.1; done; pwd; exit 0'
    touch there/go
    wait_exit 60 "$runner"
    is "$status" 0 'a working directory of its own' || diag "$(cat run.err)"
}

test_tmpdir() {
    local deep long i bad
    place tmp
    run env TMPDIR="$PWD/missing" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run -- sh -c 'echo done'
    is "$status" 0 'a TMPDIR that is missing is done without' || show
    like "$(cat out)" done 'and workers run'
    deep=$PWD/$(printf 'd%.0s' {1..50})/$(printf 'e%.0s' {1..50})
    mkdir -p "$deep"
    run env TMPDIR="$deep" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run1 -- sh -c 'echo done'
    is "$status" 0 'a TMPDIR too deep for sockets is done without' || show
    long=/tmp/$(printf 'x%.0s' {1..300})
    run env TMPDIR="$long" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run2 -- true
    num "$status" -lt 126 'one longer than any name ends by an exit status' || show
    [ "$(id -u)" = 0 ] && mkdir noexec && mount -t tmpfs -o noexec none noexec 2>/dev/null ||
        { skip 'no tmpfs can be mounted here'; return; }
    at_exit "umount '$PWD/noexec' 2>/dev/null"
    mount -o remount,ro noexec
    : >file
    for bad in noexec noexec/a/b file; do
        run env TMPDIR="$PWD/$bad" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir no-run -- true
        is "$status" 2 "a TMPDIR of which mpirun would fail, $bad, is refused" || show
        like "$(cat err)" "muster: TMPDIR $PWD/$bad: mpirun cannot have its files there, for $PWD/${bad%%/*} " 'by name'
    done
    ok 'before there is a run' test ! -e no-run
    run env TMPDIR="$PWD/noexec" timeout 120 "$MUSTER" run --allow-run-as-root --dry-run -- true
    is "$status" 2 'by --dry-run as well' || show
    run env TMPDIR="$PWD/noexec" OMPI_MCA_orte_tmpdir_base=/tmp PRTE_MCA_prte_tmpdir_base=/tmp timeout 120 \
        "$MUSTER" run --allow-run-as-root --run-dir run6 -- true
    is "$status" 0 'where mpirun has another place it does not matter' || show
    mount -o remount,rw noexec
    run env TMPDIR="$PWD/noexec" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run3 -- true
    is "$status" 0 'a TMPDIR without programs is one' || show
    umount noexec
    mount -t tmpfs -o size=64k,nr_inodes=200 none noexec || bail_out 'no second tmpfs'
    cat /dev/zero >noexec/full 2>/dev/null
    run env -u XDG_RUNTIME_DIR TMPDIR="$PWD/noexec" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run4 -- true
    is "$status" 0 'nor one without room for data' || show
    i=0
    while : 2>/dev/null >"noexec/$i"; do i=$((i + 1)); done
    run env -u XDG_RUNTIME_DIR TMPDIR="$PWD/noexec" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run5 -- true
    num "$status" -gt 0 'one without room for files'
    like "$(cat err)" "$PWD/noexec" 'is named' || show
    like "$(cat err)" 'No space left' 'with the reason' || show
    umount noexec
}

# A stack that is too small for most programs is raised, one without a limit stays.
test_stack() {
    place stack
    run bash -c 'ulimit -Ss 256; timeout 120 "$MUSTER" run --allow-run-as-root --nproc-per-node 1 --run-dir run --set logs.prefix=none -- sh -c "ulimit -Ss"'
    is "$status:$(cat out)" 0:8192 'a stack of 256 KiB becomes 8 MiB' || show
    run bash -c 'ulimit -Ss unlimited && timeout 120 "$MUSTER" run --allow-run-as-root --nproc-per-node 1 --run-dir run1 --set logs.prefix=none -- sh -c "ulimit -Ss"'
    is "$status:$(cat out)" 0:unlimited 'unlimited stays' || show
}

test_umask() {
    local mask
    for mask in 000 077; do
        place "umask-$mask"
        (umask $mask; exec timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- \
            sh -c 'umask; : >made') >"$TRASH/out" 2>"$TRASH/err" </dev/null
        is "$?" 0 "umask $mask" || diag "$(cat "$TRASH/err")"
        like "$(cat "$TRASH/out")" "0$mask" "umask $mask: the worker has it"
        is "$(find run -perm /077 ! -path '*/logs/*' | tr '\n' ' ')" '' "umask $mask: the records are private all the same"
        ok "umask $mask: and can be read" "$MUSTER" status "$PWD/run"
    done
}

test_locale() {
    local l
    for l in C POSIX xx_NONE.UTF-8; do
        place "locale-$l"
        run env LC_ALL=$l LANG=$l timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- \
            sh -c 'printf "caf\303\251 \342\234\223\n"'
        is "$status" 0 "locale $l" || show
        is "$(cat out)" '[0] café ✓' "locale $l: bytes go through as they are"
        ok "locale $l: status" env LC_ALL=$l "$MUSTER" status run
    done
}

# Whoever removes the run directory loses the records, not the run.
test_vanishing() {
    place vanish
    start_run -- sh -c 'while [ ! -e go ]; do sleep 0.1; done; echo after the fall'
    is $? 0 'a run'
    mv run fallen
    rm -rf fallen
    touch go
    wait_exit 60 "$runner"
    is "$status" 0 'goes on without its directory' || diag "$(cat run.err)"
    like "$(cat run.out)" 'after the fall' 'and shows what workers say'
    like "$(cat run.err)" 'records cannot be written' 'but tells'
    ok 'nobody is left' wait_for 60 run_gone "$id"
    is "$(find run -name status.json 2>/dev/null)" '' 'and makes no half of one'
    rm -rf run
    start_run -- sleep 1000
    is $? 0 'another run'
    rm -rf run
    kill -INT "$runner"
    wait_exit 60 "$runner"
    is "$status" 130 'can still be stopped' || diag "$(cat run.err)"
    ok 'and leaves nobody' wait_for 60 run_gone "$id"
}

# in_group GROUP COMMAND...: in this control group, as a host with this logind.conf.
in_group() { unshare -m sh -c 'echo $$ >"$0/cgroup.procs" && mount --bind login /etc/systemd && exec "$@"' "$@"; }

# Who else may end what runs here is named at the start.
test_sessions() {
    local top=/sys/fs/cgroup group what want
    [ ! -d "$top/systemd" ] || top=$top/systemd
    top=$top/muster-test.$$
    if [ "$(id -u)" != 0 ] || [ ! -d /etc/systemd ] || ! unshare -m true 2>/dev/null || ! mkdir "$top" 2>/dev/null; then
        skip 'no control groups or mount namespaces here' 6
        return
    fi
    at_exit "for i in 1 2 3 4 5; do find $top -depth -type d -exec rmdir {} + 2>/dev/null; [ -e $top ] || break; sleep 0.2; done"
    place sessions
    mkdir login && printf '[Login]\nKillUserProcesses=yes\nKillExcludeUsers=\n' >login/logind.conf
    while IFS='|' read -r group what want; do
        mkdir -p "$top/$group"
        rm -rf run
        run in_group "$top/$group" env -u SLURM_JOB_ID USER=ann timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run -- true
        is "$status" 0 "$what: a run" || show
        if [ -n "$want" ]; then
            like "$(cat err)" "$want" 'is told' || show
        else
            unlike "$(cat err)" 'KillUserProcesses' 'hears nothing of it' || show
        fi
    done <<'END'
session-7.scope|a login that logind clears away|logind of this host ends all processes of a login with it (KillUserProcesses)
job_17/step_extern/task_0|a login by ssh into a job of Slurm|Slurm took the ssh to this host into job 17 (pam_slurm_adopt)
run-7.scope|a scope of its own|
END
}

on_disk() { # on_disk OPTIONS: a small file system as the current directory
    [ "$(id -u)" = 0 ] && mkdir -p "$TRASH/disk" && mount -t tmpfs -o "$1" none "$TRASH/disk" 2>/dev/null ||
        { skip 'no tmpfs can be mounted here'; return 1; }
    cd "$TRASH/disk" || bail_out 'no disk'
}
off_disk() { cd "$TRASH" && umount disk && rmdir disk; }
at_exit "umount '$TRASH/disk' 2>/dev/null"

test_read_only() {
    on_disk ro,size=1m || return
    outside "$MUSTER" run --allow-run-as-root --run-dir run -- true
    is "$status" 1 'none starts on one that is'
    like "$(cat ../err)" 'Read-only file system' 'and says so'
    off_disk
}

# The state of a run on a full disk is the true one, the last most of all.
test_full() {
    local want
    for want in 0 7; do
        on_disk size=256k || return
        start_run --nproc-per-node 2 --max-restarts 0 -- sh -c "while [ ! -e $TRASH/go ]; do sleep 0.1; done; exit $want"
        is $? 0 'a run' || { off_disk; return; }
        cat /dev/zero >fill 2>/dev/null
        not_ok 'a disk that is full' eval 'echo more >more && [ -s more ]'
        touch "$TRASH/go"
        wait_exit 60 "$runner"
        is "$status" $want "the run ends with $want" || diag "$(cat run.err)"
        is "$(field verdict.exit_status)" $want 'which its status knows' || diag "$("$MUSTER" status run)"
        like "$("$MUSTER" status run)" 'No space left on device' 'with what it lacks'
        is "$(ls -A run | grep -c spare)" 0 'and the room kept for it is given back'
        rm "$TRASH/go"
        off_disk
    done
}

run_cases
