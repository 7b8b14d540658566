#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# restart.preload: workers that are forked from a warm interpreter are as those
# of a plain start; where they could not be, they start plainly, and it is said.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
python=/usr/bin/python3
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || skip_all "no Python 3.10 as $python"
export PATH=/usr/bin:/bin:$PATH XDG_STATE_HOME=$TRASH/state
unset PYTHONPATH PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE
PY=$MUSTER_SRCDIR/tests/py

# begin DIR OPTION...: a run in the background; by the command "within", if there is one.
within=()
begin() {
    local dir=$1
    shift
    rm -rf "$dir"
    spawn "$dir" "${within[@]}" timeout 300 "$MUSTER" run --allow-run-as-root --run-dir "$PWD/$dir" \
        --max-restarts 1 --set restart.backoff=0s "$@"
}
said() { grep -q -- "$2" "$1/events.jsonl"; }
is_warm() { said "$1" 'has imported'; }
cat >compare.py <<'E3'
import json, sys
name, world = sys.argv[1], int(sys.argv[2])
OWN = ("MASTER_PORT", "MUSTER_", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "PET_", "JAX_COORD", "OMPI_MCA_orte_hnp_uri", "DUMP")
seen = set()
for rank in range(world):
    plain, warm = (json.load(open("%s.%s/%d.json" % (name, kind, rank))) for kind in ("plain", "warm"))
    if plain.pop("warm") or not warm.pop("warm"):
        print("rank", rank, "did not start as it should")
    plain.pop("random"), seen.add(warm.pop("random"))
    for d in (plain, warm):
        d["environ"] = {k: "..." if k.startswith(OWN) else v for k, v in d["environ"].items()}
    for key in plain:
        if key == "environ":
            for k in set(plain[key]) | set(warm[key]):
                if plain[key].get(k) != warm[key].get(k):
                    print("rank", rank, k, "plain", plain[key].get(k), "warm", warm[key].get(k))
        elif plain[key] != warm[key]:
            print("rank", rank, key, "plain", plain[key], "warm", warm[key])
if len(seen) != world:
    print("all have drawn the same number")
E3

# compare NAME WORLD OPTION... -- COMMAND...: the second generation of a job with
# and without restart.preload, by what the workers dump.
compare() {
    local name=$1 world=$2 kind
    shift 2
    for kind in plain warm; do
        export DUMP=$PWD/$name.$kind
        rm -rf "$DUMP" && mkdir "$DUMP"
        local preload=[]
        [ $kind = plain ] || preload='[json,decimal]'
        begin "$name-$kind" --nproc-per-node "$world" --set "restart.preload=$preload" "$@"
        [ $kind = plain ] || ok "$name: the interpreter is warm" wait_for 60 is_warm "$name-warm" || show
        touch "$DUMP/go"
        wait_exit 60 "$spawned"
        is "$status" 0 "$name: $kind workers end well" || diag "$(cat "$name-$kind.err")"
    done
    unset DUMP
    run python3 "$TRASH/compare.py" "$PWD/$name" "$world"
    is "$(cat out err)" '' "$name: all that a program can see is as in a plain start"
}

test_same() {
    mkdir -p same/sub && cp "$PY/start_dump.py" same/sub/dump.py
    touch same/sub/__init__.py
    chmod +x same/sub/dump.py
    cd same || return
    compare script 2 -- python3 sub/dump.py a 'b c' ''
    compare module 1 --set 'env.GREETING=hello' -- python3 -u -Xdev -W ignore -m sub.dump x
    compare shebang 1 -- ./sub/dump.py -v
    ln -sf sub/dump.py link.py
    compare link 1 -- env python3 -OO link.py
    cd ..
}

# warm_end DIR COMMAND...: its second generation, which is warm; the status.
warm_end() {
    local dir=$1
    shift
    rm -f go
    begin "$dir" --nproc-per-node 1 --set "restart.preload=${MODULES:-[decimal]}" -- "$@"
    wait_for 60 is_warm "$dir" || diag "$(cat "$dir.err")"
    touch go
    wait_exit 60 "$spawned"
}

test_ends() {
    local how want
    cp "$PY/ends.py" .
    for how in well exit text raise chain hard segv abort term interrupt fork spawn forkserver pickle; do
        { run python3 ends.py go $how; } 2>/dev/null # what bash says of signals
        want=$status
        mv out want.out && mv err want.err
        warm_end $how python3 ends.py go $how
        case $want in 2 | 69 | 75 | 124 | 130) want=1 ;; esac
        is "$status" "$want" "$how: the status of a plain process" || diag "$(cat $how.err)"
        is "$(cat $how/logs/2/0/stdout 2>/dev/null)" "$(cat want.out)" "$how: its stdout"
        is "$(cat $how/logs/2/0/stderr 2>/dev/null)" "$(cat want.err)" "$how: its stderr, with the traceback"
        grep -q 'no warm' "$how/events.jsonl" && fail "$how: it was warm"
    done
    warm_end daemon python3 ends.py go daemon
    is "$status" 0 'one that leaves a process behind'
    ok 'leaves none behind' run_gone "$(json id daemon/run.json)"
}

# What an import prints is printed by each worker; what it changes in the
# environment, each has.
test_imports() {
    cat >loud.py <<'E3'
import os, sys
print("out of an import")
os.write(2, b"err of an import\n")
os.environ["LOUD"] = "yes"
os.environ.pop("QUIET", None)
E3
    cat >user.py <<'E3'
import os, sys, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    while not os.path.exists("go"): time.sleep(0.02)
    sys.exit(9)
import loud
print(os.environ["LOUD"], "QUIET" in os.environ, "MUSTER_WARM" in os.environ, os.environ.get("PYTHONPATH"))
sys.stdout.flush()
os.system("echo $LOUD $QUIET")
E3
    export QUIET=1
    MODULES='[loud]' warm_end imports python3 user.py
    unset QUIET
    is "$status" 0 'modules beside the program are found' || diag "$(cat imports.err)"
    is "$(cat imports/logs/2/0/stdout)" $'out of an import\nyes False False None\nyes' 'their words and changes are there'
    is "$(cat imports/logs/2/0/stderr)" 'err of an import' 'on stderr, too'
    mkdir -p site
    echo 'import builtins; builtins.SITE = __name__' >site/sitecustomize.py
    sed 's/^import loud/print(SITE)/; /LOUD/d' user.py >user2.py
    export PYTHONPATH=$PWD/site
    warm_end sited python3 user2.py
    unset PYTHONPATH
    is "$(cat sited/logs/2/0/stdout)" sitecustomize 'a sitecustomize of the user has run' || diag "$(cat sited.err)"
}

# refused NAME WORDS OPTION... -- COMMAND: it is said, and workers start plainly.
refused() {
    local name=$1 words=$2
    shift 2
    rm -f go
    begin refused "$@"
    wait_for 60 said refused 'no warm interpreter' || diag "$(cat refused.err)"
    touch go
    wait_exit 60 "$spawned"
    is "$status" 0 "$name: the run goes on" || diag "$(cat refused.err)"
    like "$(grep -c 'no warm interpreter' refused/events.jsonl) $(grep 'no warm interpreter' refused/events.jsonl)" \
        "1 " "$name: told once"
    like "$(grep 'restart.preload: ' refused/events.jsonl)" "$words" "$name: says why"
    ok "$name: nobody is left" run_gone "$(json id refused/run.json)"
}

test_refused() {
    cat >plain.py <<'E3'
import os, sys, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    while not os.path.exists("go"): time.sleep(0.02)
    sys.exit(9)
E3
    printf '#!/bin/sh\nexec /usr/bin/python3 "$@"\n' >wrapped && chmod +x wrapped
    printf 'import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n' >threaded.py
    printf 'import os\nRANK = os.getenv("RANK")\n' >ranked.py
    printf 'def f():\n    raise KeyError("no such key")\nf()\n' >broken.py
    printf 'import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n' >crash.py
    printf 'import sys\nsys.exit(3)\n' >leave.py
    local p='--nproc-per-node 2 --set restart.preload='
    refused 'no such module' "an import fails: ModuleNotFoundError: No module named 'nope'" ${p}[nope] -- python3 plain.py
    refused 'a module that fails' "an import fails: KeyError: 'no such key'" ${p}[broken] -- python3 plain.py
    like "$(grep 'restart.preload: |' refused/events.jsonl)" 'broken.py\", line 2, in f' 'with the traceback'
    refused 'a module that exits' 'an import fails: SystemExit: 3' ${p}[leave] -- python3 plain.py
    refused 'a module that crashes' 'killed by SIGSEGV while it imported crash' ${p}[crash] -- python3 plain.py
    refused 'a thread' 'the imports have started 1 thread (' ${p}[threaded] -- python3 plain.py
    refused 'a rank' 'the modules look at RANK while they are imported' ${p}[ranked] -- python3 plain.py
    refused 'a wrapper' 'the command starts' ${p}[json] -- ./wrapped plain.py
    refused 'a shell' 'not Python itself' ${p}[json] -- sh -c 'exec python3 plain.py'
    refused 'isolated' "Python's option -I" ${p}[json] -- python3 -I plain.py
    refused 'what differs by rank' 'workers differ: CUDA_VISIBLE_DEVICES is not as it was' \
        ${p}[json] --set 'env.CUDA_VISIBLE_DEVICES=$(LOCAL_RANK)' -- python3 plain.py
    cat >spec.yaml <<'E3'
apiVersion: muster/v1
kind: Job
name: differs
procsPerNode: 2
command: [python3, -W, "ignore::UserWarning:m:$(LOCAL_RANK)", plain.py]
restart: {preload: [json], max: 1, backoff: 0s..0s}
E3
    refused 'what differs by rank in the command' 'workers differ: the command has' \
        spec.yaml
}

# What a GPU's driver has in a process does not go along with fork(). A torch of our own
# says what the real one would, and a file is where the driver's would be.
test_refused_gpu() {
    cat >plain.py <<'E3'
import os, sys, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    while not os.path.exists("go"): time.sleep(0.02)
    sys.exit(9)
E3
    local p='--nproc-per-node 2 --set restart.preload=' name
    for name in initialised forked; do
        cat >$name.py <<E3
import sys, types
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(is_initialized=lambda: "$name" == "initialised", _is_in_bad_fork=lambda: "$name" == "forked")
E3
    done
    refused 'CUDA that is initialised' 'the imports have initialised CUDA, which does not work in a forked process' ${p}[initialised] -- python3 plain.py
    refused 'CUDA that does not fork' 'after the imports CUDA does not work in a forked process' ${p}[forked] -- python3 plain.py
    unshare -m true 2>/dev/null || { skip 'no mounts of our own here' 5; return; }
    printf 'import os\nos.open("/dev/nvidia0", os.O_RDONLY)\n' >device.py
    cat >own-dev <<'E3'
#!/bin/sh -e
mkdir -p dev/shm dev/pts
for n in null zero full random urandom tty ptmx; do : >dev/$n; mount --bind /dev/$n dev/$n; done
for n in shm pts; do mount --rbind /dev/$n dev/$n; done
[ -e dev/fd ] || ln -s /proc/self/fd dev/fd
: >dev/nvidia0
mount --rbind dev /dev
exec "$@"
E3
    chmod +x own-dev
    within=(unshare -m ./own-dev)
    refused 'a device that is open' 'the imports have opened /dev/nvidia0, which does not work in a forked process' ${p}[device] -- python3 plain.py
    within=()
}

# warm AGENT: those that wait for work, and before them the interpreter that they are of.
# The eldest come first: numbers begin anew at some time.
warm() {
    local p
    for p in $(ps --sort=start_time -o pid= --ppid "$1"); do
        tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -q ^MUSTER_WARM= && echo "$p"
    done
}
interpreter() { warm "$1" | head -n 1; }
blank() { warm "$1" | tail -n 1; }
n_warm() { warm "$1" | wc -l; }
# agent_of DIR: in $agent, once its workers are known.
agent_of() {
    wait_for 60 first_pid "$1"
    agent=$(ps -o ppid= -p "$(first_pid "$1")" | tr -d ' ')
}
first_pid() {
    local pid
    pid=$("$MUSTER" status "$1" -o json | json workers.0.pid) && [ "$pid" -gt 0 ] && echo "$pid"
}

test_faults() {
    local agent first
    cat >loop.py <<'E3'
import os, sys, time
while not os.path.exists("go%s" % os.environ["TORCHELASTIC_RESTART_COUNT"]): time.sleep(0.02)
with open("/proc/self/environ", "rb") as f:
    print("warm" if b"MUSTER_WARM=" in f.read() else "plain")
sys.exit(9 if os.environ["RANK"] == "0" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 0)
E3
    rm -f go*
    begin killed --nproc-per-node 2 --set 'restart.preload=[decimal]' -- python3 loop.py
    wait_for 60 is_warm killed
    agent_of killed
    first=$(interpreter "$agent")
    is "$(n_warm "$agent")" 3 'one interpreter, and one for each worker'
    kill -KILL "$first"
    ok 'an interpreter that is killed is missed' wait_for 60 said killed 'was killed by SIGKILL: another one is started'
    touch go0 go1
    wait_exit 60 "$spawned"
    is "$status" 0 'the run goes on' || diag "$(cat killed.err)"
    is "$(cat killed/logs/2/*/stdout | sort | uniq -c | tr -s ' ')" ' 2 warm' 'with what it had left behind'
    ok 'nobody is left' run_gone "$(json id killed/run.json)"

    rm -f go*
    begin blank --nproc-per-node 2 --set 'restart.preload=[decimal]' -- python3 loop.py
    wait_for 60 is_warm blank
    agent_of blank
    kill -KILL "$(blank "$agent")"
    wait_for 60 eval "[ \$(n_warm $agent) = 2 ]"
    touch go0 go1
    wait_exit 60 "$spawned"
    is "$status" 0 'one that waits is killed: the run goes on' || diag "$(cat blank.err)"
    is "$(cat blank/logs/2/*/stdout | sort | uniq -c | tr -s ' ' | tr '\n' ',')" ' 1 plain, 1 warm,' \
        'for it a worker starts plainly'

    rm -f go*
    begin orphans --nproc-per-node 2 --set 'restart.preload=[decimal]' -- python3 loop.py
    wait_for 60 is_warm orphans
    agent_of orphans
    kill -KILL "$agent"
    ok 'an agent that is killed leaves nobody' wait_for 60 run_gone "$(json id orphans/run.json)" || \
        diag "$(run_alive "$(json id orphans/run.json)")"
    wait_exit 60 "$spawned"

    rm -f go*
    printf 'import time\ntime.sleep(1000)\n' >endless.py
    begin endless --nproc-per-node 2 --set 'restart.preload=[endless]' -- python3 loop.py
    agent_of endless
    ok 'it imports' wait_for 60 interpreter "$agent"
    touch go0 go1
    wait_exit 60 "$spawned"
    is "$status" 0 'an import that does not end does not matter' || diag "$(cat endless.err)"
    is "$(cat endless/logs/2/*/stdout | sort | uniq -c | tr -s ' ')" ' 2 plain' 'workers start plainly'
    ok 'nobody is left' run_gone "$(json id endless/run.json)"
}

# With each PyTorch that is here.
test_torch() {
    local with n=0 dir
    for with in "$MUSTER_CACHE/venv/bin/python3" /usr/bin/python3; do
        has_torch "$with" || { skip "no PyTorch in $with: see scripts/install-deps" 3; continue; }
        dir=torch$((++n))
        rm -f go
        begin $dir --nproc-per-node 2 --set 'restart.preload=[torch]' -- "$with" "$PY/warm_torch.py" "$PWD/go"
        wait_for 100 is_warm $dir || diag "$(cat $dir.err)"
        touch go
        wait_exit 100 "$spawned"
        is "$status" 0 "$with: workers with PyTorch are restarted" || diag "$(cat $dir.err)"
        is "$(cat $dir/logs/2/0/stdout)" $'warm\ndrawn 2\nfork 56.0\nspawn 56.0\nsum 2' 'warm, with their own random numbers, and loaders'
        ok 'nobody is left' run_gone "$(json id $dir/run.json)"
    done
}

run_cases
