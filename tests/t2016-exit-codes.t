#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each row of muster-exit-codes(7) is true: a run or a command that ends so. A row
# without a case here, or a case without a row, is a failure.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
page=$MUSTER_SRCDIR/doc/man/muster-exit-codes.7.scd

# rows SECTION: its table, a line a row, cells behind tabs.
rows() {
    awk -v section="# $1" '
        /^# / { on = $0 == section }
        on && /^\|  / { if (row != "") print row; row = substr($0, 4) }
        on && /^:  / && row != "" { row = row "\t" substr($0, 4) }
        END { if (row != "") print row }' "$page"
}

field() { "$MUSTER" status run -o json 2>/dev/null | json "$1"; }
running() { [ "$(field state)" = Running ] && [ "$(field workers.0.state)" = Running ]; }
mrun() {
    rm -rf run
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --max-restarts 0 "$@"
}
start_run() {
    rm -rf run
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run "$@"
    runner=$spawned
    wait_for 60 running || diag "$(cat run.err)"
}
ends() { wait_exit 60 "$runner"; mv run.err err; mv run.out out; }

# --- one function a row: it leaves $status ---

worker() { mrun --nproc-per-node 1 -- sh -c "$1"; }
codes() { # CODE WANT: all must end with WANT
    local code
    for code in $1; do
        worker "exit $code"
        [ "$status" = "${2:-$code}" ] || { status="$status of $code"; return; }
    done
    status=${3:-$status}
}
signalled() {
    local n
    for n in 6 9 11 15; do
        worker "kill -$n \$\$"
        [ "$status" = $((128 + n)) ] || { status="$status of signal $n"; return; }
    done
    status=128+N
}
front() { start_run -- sleep 1000; kill -"$1" "$runner"; ends; }
asked() { start_run -- sleep 1000; "$MUSTER" "$@" >/dev/null; ends; }
left() { # SIGNAL: the run goes on, which is then ended
    start_run -- sleep 1000
    kill -"$1" "$runner"
    ends
    wait_for 60 running && "$MUSTER" cancel run >/dev/null && wait_for 60 run_gone "$(json id run/run.json)" ||
        status="$status, and the run is gone"
}
# unit PROGRAM CHECK STATUS: no run does so at will, but that check says it.
unit() {
    local out
    out=$("$MUSTER_BUILDDIR/$1") || true
    grep -qE "^ok [0-9]+ - $2\$" <<<"$out" && ! grep -q '^not ok' <<<"$out" && status=$3 || status="no '$2' in $1"
}
# With cgroups that say that the kernel has killed.
out_of_memory() {
    if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
        unit rendezvous/restart_test 'kind 5, code 0, signal 9' 137
        return
    fi
    rm -rf run fake && mkdir fake
    printf 'oom 1\noom_kill 5\n' >fake/memory.events
    run unshare -m sh -c 'mount --bind fake /sys/fs/cgroup && exec "$@"' sh \
        timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- \
        sh -c 'printf "oom 2\noom_kill 6\n" >fake/memory.events; kill -KILL $$'
    grep -q 'killed by the kernel for lack of memory' err || status="$status without the kernel"
}
hung() { mrun --nproc-per-node 1 --hang-timeout 1s -- sleep 1000; }
bad_spec() { echo 'apiVersion: muster/v1' >bad.yaml; mrun bad.yaml; }
too_few() { # one of two nodes is lost, and two are needed
    start_run --nnodes 2 --agent-is-node --nproc-per-node 1 -- sleep 1000
    kill -KILL "$(field nodes.1.agent_pid)"
    ends
}
no_gang() { mrun --hosts localhost,nowhere.invalid --nnodes 2 --nproc-per-node 1 --set gang.timeout=5s -- true; }
# As much as muster run lets pass, so that what muster adds is too much; it is no use
# to start again.
too_long() {
    local word limit n
    word=$(printf '%0990d' 0) # with its zero byte and its pointer 999 bytes
    limit=$(env -i getconf ARG_MAX)
    n=$(((limit - 1500) / 999))
    { printf 'apiVersion: muster/v1\nkind: Job\nname: long\nprocsPerNode: 1\nnodes: 1\ncommand: ["true"'
      for _ in $(seq "$n"); do printf ', "%s"' "$word"; done
      printf ']\n'; } >long.yaml
    rm -rf run
    run env -i HOME="$HOME" PATH="$PATH" TMPDIR="$TRASH" timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run long.yaml
    grep -q 'cannot run true: its arguments and environment are too long together' err || status="$status without a word"
    grep -q '(0 restarts)' err || status="$status after restarts"
}
no_tmpdir() { : >file; TMPDIR=$PWD/file mrun -- true; }
no_program() { echo text >text; chmod 644 text; mrun -- ./text; }

declare -A by=(
    ['all workers have ended with 0']='worker true'
    ['the first worker that failed has ended with it, and it is none of 2, 69, 75, 124, 126, 127 and 130']='codes "3 128 254 255" "" CODE'
    ['the first worker that failed has ended with one of these']='codes "2 69 75 124 126 127 130" 1'
    ['the first worker that failed was ended by signal N']=signalled
    ['the first worker that failed was ended by SIGINT, as 130 is taken']='worker "kill -INT \$\$"'
    ['the kernel has killed a worker for lack of memory']=out_of_memory
    ['a worker has hung for longer than hang.timeout, and was killed']=hung
    ['nodes that count their workers by themselves do not agree when the run starts']='unit rendezvous/lead_test misfit 1'
    ['the agent of a node could not do its part, and that failed the workers']='unit rendezvous/restart_test "kind 4, code 0, signal 0" 1'
    ['a worker has told why it failed, and had not ended when it was stopped']='unit rendezvous/restart_test "kind 6, code 1, signal 0" 1'
    ['the command line is wrong']='mrun --no-such-option -- true'
    ['the spec is wrong']=bad_spec
    ['the job needs more nodes than there are']='mrun --nnodes 2 -- true'
    ['mpirun cannot have its files in TMPDIR']=no_tmpdir
    ['the nodes have not gathered in gang.timeout, or do not answer']=no_gang
    ['SIGTERM to the front end']='front TERM'
    ['SIGUSR1 to the front end']='front USR1'
    ['SIGUSR2 to the front end']='front USR2'
    ['muster suspend']='asked suspend run'
    ['fewer nodes are left than the job needs']=too_few
    ['checkpoint.alarm.then is stop, and no checkpoint has come']='mrun --set checkpoint.alarm.after=1s --set checkpoint.alarm.then=stop -- sleep 1000'
    ['limits.deadline is over']='mrun --set limits.deadline=1s --set limits.grace=1s -- sleep 1000'
    ['the command of the job is no program']=no_program
    ['the command of the job is too long, with its environment, to be started']=too_long
    ['the command of the job is not found']='mrun -- ./no-such-program'
    ['SIGHUP to the front end: its terminal is gone, and the run goes on']='left HUP'
    ['SIGINT (Ctrl-C) to the front end']='front INT'
    ['SIGQUIT to the front end']='front QUIT'
    ['muster cancel']='asked cancel run'
    ['muster cancel --force']='asked cancel --force run'
    ['SIGKILL to the front end: this is what a shell says, and the run goes on']='left KILL'
)

test_runs() {
    local status_cell cause n=0
    while IFS=$'\t' read -r status_cell cause; do
        n=$((n + 1))
        if [ -z "${by[$cause]-}" ]; then
            fail "'$cause' has a case here"
            continue
        fi
        eval "${by[$cause]}" </dev/null
        is "$status" "$status_cell" "$status_cell: $cause" || show
        case $cause in muster\ * | SIG*USR* | SIGTERM* | fewer* | checkpoint.alarm*)
            is "$(field verdict.exit_status)" "$status_cell" '  and so says muster status' ;;
        esac
    done < <(rows RUNS)
    is "$n" "${#by[@]}" 'each case here has its row'
}

# The numbers are those of the code, no more and no fewer.
test_numbers() {
    local code page_has
    code=$(sed -nE 's/^ *RUN_[A-Z_]+ = ([0-9]+),.*/\1/p' "$MUSTER_SRCDIR/rendezvous/restart.h" | sort -un | tr '\n' ' ')
    page_has=$(rows RUNS | cut -f 1 | grep -vE 'CODE|N|137|129' | sort -un | tr '\n' ' ')
    is "$page_has" "$code" 'statuses of runs in the page are those of the code, with those of signals'
    is "$(sed -nE 's/^ *EXIT_[A-Z_]+ = ([0-9]+),.*/\1/p' "$MUSTER_SRCDIR/launcher/commands.h" | sort -un | tr '\n' ' ')" "$code" \
        'and so are those of commands'
    is "$(sed -nE 's/^\*([0-9, *]+)\*$/\1/p' "$MUSTER_SRCDIR/doc/man/muster.1.scd" | tr -d '*,' | tr ' ' '\n' | sort -un | tr '\n' ' ')" \
        "$(printf '%s\n' $code 129 | sort -un | tr '\n' ' ')" 'muster(1) has the same'
}

# What the front end listens to is in the table, and nothing else is.
test_front_signals() {
    local table signal
    table=$(rows 'SIGNALS TO A FRONT END' | cut -f 1 | tr -d ',' | tr ' ' '\n' | sort)
    for signal in $(sed -n '/sigs\[\] = {/,/};/p' "$MUSTER_SRCDIR/launcher/front.c" | grep -o 'SIG[A-Z0-9]*'); do
        like "$table" "$signal" "$signal to a front end is in the page"
    done
    start_run -- sh -c 'while [ ! -e go ]; do sleep 0.1; done'
    for signal in $(rows 'SIGNALS TO A FRONT END' | sed -n 's/\tmean nothing//p' | tr -d ,); do
        kill "-$signal" "$runner"
    done
    touch go
    ends
    is "$status" 0 'those that mean nothing stop nothing' || show
}

test_worker_signals() {
    is "$(rows 'SIGNALS TO A WORKER' | cut -f 1 | tr '\n' ' ')" 'SIGTERM SIGCONT SIGKILL ' 'signals to a worker'
    cat >hear.py <<'END'
import signal, sys, time
def heard(n, frame):
    print(signal.Signals(n).name, flush=True)
for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(s, heard)
open('ready', 'w').close()
while True: time.sleep(1000)
END
    rm -f ready
    start_run --nproc-per-node 1 --set limits.grace=1s -- python3 hear.py
    wait_for 60 test -e ready
    "$MUSTER" cancel run >/dev/null
    ends
    is "$(sed 's/.*\] //' out | sort -u | tr '\n' ' ')" 'SIGCONT SIGTERM ' 'are all that one hears' || show
    is "$(field workers.0.signal)" 9 'before it is killed'
}

declare -A commands=(
    ['validate: the spec is wrong']='validate bad.yaml'
    ['explain: the job could not run, or there is no such key']='explain --key no.such -- true'
    ['status: there is no such run']='status nowhere'
    ['describe: there is no such run']='describe nowhere'
    ['logs: there is no such run']='logs nowhere'
    ['cancel: there is no such run, or nobody of it is alive']='cancel nowhere'
    ['checkpoint: there is no such run, or it is over; with --wait the save failed as well']='checkpoint over'
    ['checkpoint: --timeout is over, and no checkpoint is on the disk']='checkpoint lives --wait --timeout 1s'
    ['suspend: there is no such run, or it is over']='suspend over'
    ['scale: there is no such run, or it is over']='scale over 1'
    ['resume: it cannot be resumed']='resume --allow-run-as-root nowhere'
    ['attach: there is no such run, or it cannot be taken over']='attach nowhere'
    ['attach: the run is over, and ended with it']='attach failed'
    ['nodes: a host did not answer']='nodes --hosts nowhere.invalid --timeout 5'
    ['shell: the worker is not alive']='shell over'
    ['shell: the shell or program ended with it']='shell lives 0 -- sh -c "exit 47"'
    ['shell: the program is not found']='shell lives 0 -- ./no-such-program'
    ['exec: it is not in an MPI launch']='exec -- true'
    ['exec: the program ended with it']='mpi exec -- sh -c "exit 47"'
    ['exec: the program is not found']='mpi exec -- ./no-such-program'
    ['ckpt verify: a checkpoint is not whole']='ckpt verify broken'
    ['ckpt verify: none is damaged or unfinished, and one is of no format that muster knows']='ckpt verify strange'
    ['ckpt last-valid: no checkpoint is whole']='ckpt last-valid broken'
    ['ckpt show: it cannot be read']='ckpt show nowhere'
    ['ckpt ls: the directory is not there, or cannot be read']='ckpt ls nowhere'
    ['ckpt verify: there is no checkpoint']='ckpt verify nothing'
    ['ckpt verify: the path is that of a file that is no checkpoint']='ckpt verify bad.yaml'
    ['ckpt convert: it cannot be read, or the result is there already or cannot be written']='ckpt convert whole/one-1.safetensors broken'
    ['ckpt push: it is not whole, or the store refuses it']='ckpt push broken/checkpoint-5 s3://bucket/x'
    ['ckpt pull: none is whole, or another one of its name is there, or it cannot be written']='ckpt pull s3://bucket/x bad.yaml'
    ['ckpt cp: it is not whole, or another one of its name is there, or it cannot be written']='ckpt cp broken/checkpoint-5 to'
    ['ckpt prune: a run watches the directory, or somebody prunes it or copies into it']='ckpt prune watched --keep 1'
    ['ckpt prune: none has the metric of --best']='ckpt prune whole --keep 1 --best loss'
    ['ckpt bench: it could not measure']='ckpt bench bad.yaml'
    ['ckpt, with a store: the store did not answer, or was too busy, in all tries: later again']='do no_store'
    ['ckpt bench: a signal has ended it']='do bench_signalled'
    ['ckpt, but bench: signal N has ended it']='do ckpt_signalled'
)

# Without libcurl there is nothing that could ask one.
need_store() { [ -x "$MUSTER_BUILDDIR/muster-store" ]; }
no_store() { # each verb that may have to do with one, and nobody is there
    local line
    need_store || { status=75; return; }
    for line in 'ls s3://bucket/p' 'verify s3://bucket/p' 'last-valid s3://bucket/p' 'show s3://bucket/p/x' 'convert s3://bucket/p/x made' \
        'push whole/one-1.safetensors s3://bucket/p' 'pull s3://bucket/p made' 'cp s3://bucket/p/x made' 'prune s3://bucket/p --keep 1'; do
        run timeout 60 env AWS_MAX_ATTEMPTS=1 AWS_ENDPOINT_URL=http://127.0.0.1:1 "$MUSTER" ckpt $line
        [ "$status" = 75 ] || { status="$status of ckpt $line"; return; }
    done
}
bench_signalled() {
    spawn bench "$MUSTER" ckpt bench whole --size 4Mi --rounds 100
    wait_for 60 eval 'grep -q "^# [1-9]" whole/.muster-bench-*/figures'
    kill -TERM "$spawned"
    wait_exit 60 "$spawned"
}
# While it waits for a store that says nothing.
ckpt_signalled() {
    need_store || { status=128+N; return; }
    status=$(python3 - "$MUSTER" 2>&1 <<'END'
import os, signal, socket, subprocess, sys
listener = socket.create_server(("127.0.0.1", 0))
os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:%d" % listener.getsockname()[1]
for n in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
    child = subprocess.Popen([sys.argv[1], "ckpt", "ls", "s3://bucket/x"], preexec_fn=lambda: signal.signal(n, signal.SIG_DFL))
    held = listener.accept()
    child.send_signal(n)
    if child.wait() != -n:
        sys.exit("%d of signal %d" % (child.returncode, n))
END
    )
    status=${status:-128+N}
}

test_commands() {
    local command want when n=0 line
    mkdir -p broken/checkpoint-5
    echo '{' >broken/checkpoint-5/trainer_state.json
    mkdir strange && echo 'of its own' >strange/step-5.ckpt
    mkdir nothing whole watched
    printf '\002\0\0\0\0\0\0\0{}' >whole/one-1.safetensors
    exec {held}<watched
    flock -n "$held" || bail_out 'no lock'
    export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testing AWS_EC2_METADATA_DISABLED=true no_proxy=127.0.0.1
    echo 'apiVersion: muster/v1' >bad.yaml
    run "$MUSTER" run --allow-run-as-root --run-dir over -- true
    run "$MUSTER" run --allow-run-as-root --run-dir failed --nproc-per-node 1 --max-restarts 0 -- sh -c 'exit 47'
    spawn run "$MUSTER" run --allow-run-as-root --run-dir lives -- sleep 1000
    runner=$spawned
    wait_for 60 eval '[ "$("$MUSTER" status lives -o json 2>/dev/null | json workers.0.state)" = Running ]'
    while IFS=$'\t' read -r command want when; do
        n=$((n + 1))
        line=${commands["$command: $when"]-}
        if [ -z "$line" ]; then
            fail "'$command: $when' has a case here"
            continue
        fi
        if [ "${line%% *}" = do ]; then
            ${line#do }
        elif [ "${line%% *}" = mpi ]; then
            eval "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 run timeout 60 mpirun -n 1 '$MUSTER' ${line#mpi }" </dev/null
        else
            eval "run timeout 60 '$MUSTER' $line" </dev/null
        fi
        is "$status" "${want/CODE/47}" "$command: $want, $when" || show
    done < <(rows 'OTHER COMMANDS')
    is "$n" "${#commands[@]}" 'each case here has its row'
    exec {held}<&-
    run "$MUSTER" status --no-such-option
    is "$status" 2 'a wrong option of any command'
    run "$MUSTER" no-such-command
    is "$status" 2 'and a wrong command'
    "$MUSTER" cancel lives >/dev/null
    wait_exit 60 "$runner"
}

run_cases
