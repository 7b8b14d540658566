#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the manual pages show as examples does what it says: every line of every
# EXAMPLES section, which each page of a command has, is run, on runs of the names that
# it has, and what muster-job(5) shows of a file is held to be one. Only what one machine
# lacks is put in another way (as_here).
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
mkdir -m 700 rt
mkdir bin
ln -s "$MUSTER" bin/muster
ln -s "$(command -v python3)" bin/python
export PATH=$TRASH/bin:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# Programs of others that examples call: it is not their work that is tested.
printf '#!/bin/sh\necho "$0 $*"\n' >bin/nvidia-smi
cat >bin/ssh <<'END'
#!/bin/sh
while :; do
    case $1 in
    -o) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
shift
exec sh -c "$*"
END
printf '#!/bin/sh\nexec python train.py\n' >simulate
chmod +x bin/nvidia-smi bin/ssh simulate
cp bin/nvidia-smi bin/py-spy
command -v jq >/dev/null || { printf '#!/bin/sh\nexec python3 -c "import json, sys; json.load(sys.stdin)"\n' >bin/jq; chmod +x bin/jq; }

cat >train.py <<'END'
import os, sys, time
print(os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
print("a word of", os.environ["RANK"], file=sys.stderr, flush=True)
if os.path.exists("fail") and os.environ["MUSTER_GENERATION"] == "1":
    sys.exit(3)
while os.path.exists("hold"):
    time.sleep(0.05)
END
cat >job.yaml <<'END'
apiVersion: muster/v1
kind: Job
name: train
procsPerNode: 2
command: [python, train.py]
END

# A checkpoint: an empty one of safetensors.
mkdir checkpoints
printf '\002\0\0\0\0\0\0\0{}' >checkpoints/model-100.safetensors

# The command lines of a page, one a line.
examples() {
    sed -n '/^# EXAMPLES/,/^# [^E]/p' "$1" | awk '
        /^```/ { inside = !inside; next }
        inside { print }
        /^\t/ { sub(/^\t/, ""); print }'
}

# as_here COMMAND: two hosts are two agents, a step of Slurm is an mpirun.
as_here() {
    sed -e 's/--hosts[= ]n1,n2/--agent-is-node --hosts localhost/; s/--nproc-per-node gpu/--nproc-per-node 2/' \
        -e 's/--host a:4,b:4 //; s/--interface ib0 //' \
        -e 's/^srun --mpi=pmix -N 2 --ntasks-per-node 4/mpirun -n 2/' <<<"$1"
}

state() { json state muster-runs/train/latest/status.json 2>/dev/null; }
state_is() { [ "$(state)" = "$1" ]; }

# hold [OPTION...]: a run named train with 4 workers, which goes on until it is told.
hold() {
    touch hold
    spawn train muster run --name train --nproc-per-node 4 --set detach.timeout=10m "$@" -- python train.py
    front=$spawned
    ok 'a run to try it on' wait_for 60 eval 'state_is Running' || diag "$(cat train.err)"
}

let_go() {
    rm -f hold
    wait_exit 60 "$front"
}

tried=0
# works STATUS COMMAND
works() {
    run timeout 120 bash -c "$2"
    is "$status" "$1" "$2" || show
    tried=$((tried + 1))
}

# on_run COMMAND: one that ends with the run.
on_run() {
    spawn taken bash -c "exec $1"
    front=$spawned
    ok "$1" wait_for 60 eval 'state_is Running && muster status train >/dev/null && grep -q "muster: " taken.err' || diag "$(cat taken.err)"
    ok 'and it is the front end' wait_for 60 eval 'muster cancel train >/dev/null 2>&1'
    wait_exit 60 "$front"
    is "$status" 130 'which ends with the run' || diag "$(cat taken.err)"
    tried=$((tried + 1))
}

try() {
    case $1 in
    'muster attach '*)
        hold
        kill -KILL "$front"
        wait "$front" 2>/dev/null
        on_run "$1"
        ;;
    'muster cancel '*)
        hold
        works 0 "$1"
        wait_exit 60 "$front"
        is "$status" 130 'the run is cancelled' || diag "$(cat train.err)"
        rm -f hold
        ;;
    'muster checkpoint '*--wait*) # the program saves nothing
        hold
        works 124 "${1/20m/2s}"
        let_go
        ;;
    'muster checkpoint '*)
        hold
        works 0 "$1"
        let_go
        ;;
    'muster scale '*)
        hold --agent-is-node --nnodes 2:4 --hosts localhost
        works 0 "$1"
        let_go
        ;;
    'muster shell '*)
        hold
        works 0 "$1 </dev/null"
        let_go
        ;;
    'muster suspend '*)
        hold
        works 0 "$1"
        wait_exit 60 "$front"
        is "$status" 75 'the run can be resumed' || diag "$(cat train.err)"
        ;;
    'muster resume '*--dry-run*) works 0 "$1" ;;
    'muster resume '*)
        [ "$(state)" = Suspended ] || try 'muster suspend train'
        touch hold
        on_run "$1"
        try 'muster suspend train' # for the next one
        ;;
    *)
        rm -f hold
        works 0 "$(as_here "$1")"
        ;;
    esac
}

# A run that has failed once, and is over.
touch fail
run muster run --name tiny --nproc-per-node 4 --max-restarts 1 -- python train.py
is "$status" 0 'a run that is over' || show
rm fail

for page in "$MUSTER_SRCDIR"/doc/man/*.scd; do
    if ! grep -q '^# EXAMPLES' "$page"; then
        case $page in *.1.scd) fail "$(basename "$page") has no examples" ;; esac
        continue
    fi
    isnt "$(examples "$page")" '' "$(basename "$page") has examples"
    while IFS= read -r line <&9; do
        [ -z "$line" ] || try "$line"
    done 9< <(examples "$page")
done
num "$tried" -ge 30 "$tried examples were run"

# The page of the file: the whole one that it begins with, and what it shows of others.
page=$MUSTER_SRCDIR/doc/man/muster-job.5.in
sed -n '/^```/,/^```/{/^```/!p}' "$page" >whole.yaml
works 0 'muster validate whole.yaml'
n=0
while IFS= read -r line <&9; do
    printf '%s\n' 'apiVersion: muster/v1' 'kind: Job' 'command: [python, train.py]' "$line" >part.yaml
    run muster validate part.yaml
    is "$status" 0 "$line" || show
    n=$((n + 1))
done 9< <(sed -n 's/^\t\([a-zA-Z]*: .*\)/\1/p' "$page")
num "$n" -ge 5 "$n parts of a file are right"
done_testing
