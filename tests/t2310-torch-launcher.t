#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What torchrun promises of a launch, held against muster torchrun and muster run:
# how many processes there are, what each of them is started with and told, and who
# says so where several do.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
export XDG_RUNTIME_DIR=$TRASH/rt
mkdir -m 700 rt
# Where there is one worker, nobody sets it.
export OMP_NUM_THREADS=1
PY=$MUSTER_SRCDIR/tests/py

# torchrun OPTION...: with an empty directory ./seen for what the workers leave.
torchrun() {
    rm -rf run seen && mkdir seen
    run timeout 120 "$MUSTER" torchrun --allow-run-as-root --run-dir=run "$@"
}
# The ranks that have been there.
seen() { find seen -type f -printf '%f\n' | sort -n | tr '\n' ' '; }
# env_check.py as a script of a job of that many workers on one node.
checked() { echo "$PY/env_check.py" seen "WORLD_SIZE=$1" "LOCAL_WORLD_SIZE=$1" GROUP_WORLD_SIZE=1 GROUP_RANK=0; }

test_script() {
    export OF_THE_PARENT=inherited
    torchrun --nnodes=1 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=localhost:29400 --rdzv-id=job-17 \
        --monitor-interval=1 --start-method=spawn --max-restarts=2 --role=trainer $(checked 4) \
        TORCHELASTIC_RUN_ID=job-17 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=2 ROLE_NAME=trainer \
        ROLE_WORLD_SIZE=4 TORCH_NCCL_ASYNC_ERROR_HANDLING=1 OMP_NUM_THREADS=1 OF_THE_PARENT=inherited
    is "$status,$(seen)" '0,0 1 2 3 ' 'four workers, each told who it is' || show
    torchrun --nnodes 1 --nproc_per_node 4 --monitor_interval 1 --start_method spawn --master_addr localhost \
        --master_port 29511 --node_rank 0 $(checked 4)
    is "$status,$(seen)" '0,0 1 2 3 ' 'likewise in the words of the older launcher, with underscores' || show
    torchrun --standalone --nproc-per-node=4 $(checked 4)
    is "$status,$(seen)" '0,0 1 2 3 ' 'and alone'
    torchrun $(checked 1) ROLE_NAME=default TORCHELASTIC_MAX_RESTARTS=0
    is "$status,$(seen)" '0,0 ' 'one where nobody says how many' || show
    rm -f seen/*
    run env TORCH_NCCL_ASYNC_ERROR_HANDLING=0 OMP_NUM_THREADS=7 "$MUSTER" torchrun --allow-run-as-root \
        --nproc-per-node=2 $(checked 2) TORCH_NCCL_ASYNC_ERROR_HANDLING=0 OMP_NUM_THREADS=7
    is "$status,$(seen)" '0,0 1 ' 'what the user sets of the defaults is kept' || show
    rm -f seen/*
    run env -u OMP_NUM_THREADS "$MUSTER" torchrun --allow-run-as-root --nproc-per-node=2 $(checked 2) \
        TORCH_NCCL_ASYNC_ERROR_HANDLING=1 OMP_NUM_THREADS=1
    is "$status,$(seen)" '0,0 1 ' 'and set where it is not' || show
}

test_program() {
    cat >touch.sh <<'END'
#!/bin/sh
: >"seen/$RANK"
END
    chmod +x touch.sh
    torchrun --nproc-per-node=4 --no-python ./touch.sh
    is "$status,$(seen)" '0,0 1 2 3 ' 'any program' || show
    torchrun --nproc-per-node=4 --no-python --module ./touch.sh
    is "$status,$(seen)" '2,' 'is no module as well'
    like "$(cat err)" 'both --module and --no-python of torchrun' 'which is told'
    printf 'import os\nopen("seen/" + os.environ["RANK"], "x")\nassert __name__ == "__main__"\n' >mod.py
    torchrun --nproc-per-node=2 -m mod
    is "$status,$(seen)" '0,0 1 ' 'a module' || show
    torchrun --nproc-per-node=2 --run-path --no-python "$PWD/mod.py"
    is "$status,$(seen)" '0,0 1 ' 'a script by its path, whatever else is said' || show
    torchrun --no-python sh -c 'printf "%s;" "$@" >seen/0' _ --nnodes=7 -r3 --standalone '' 'a b'
    is "$(cat seen/0)" '--nnodes=7;-r3;--standalone;;a b;' 'words behind the program are its own' || show
    torchrun --no-python -- ./touch.sh
    is "$status,$(seen)" '0,0 ' 'also behind --'
    printf '#!/bin/sh\n[ "$1" = -u ] && : >"seen/told-$RANK"\n' >python-told
    chmod +x python-told
    run env PYTHON_EXEC="$PWD/python-told" "$MUSTER" torchrun --allow-run-as-root --nproc-per-node=2 train.py
    is "$status,$(find seen -name 'told-*' | wc -l)" 0,2 'PYTHON_EXEC is the interpreter' || show
}

# pet NAME=VALUE... -- WORD...
pet() {
    local env=()
    while [ "$1" != -- ]; do env+=("$1"); shift; done
    shift
    rm -rf run seen && mkdir seen
    run timeout 120 env "${env[@]}" "$MUSTER" torchrun --allow-run-as-root --run-dir=run "$@"
}

test_environment() {
    pet PET_NNODES=1 PET_NPROC_PER_NODE=4 PET_RDZV_ID=job-18 PET_MONITOR_INTERVAL=1 PET_START_METHOD=spawn \
        PET_ROLE=of-env PET_MAX_RESTARTS=3 PET_STANDALONE=0 -- $(checked 4) TORCHELASTIC_RUN_ID=job-18 \
        ROLE_NAME=of-env TORCHELASTIC_MAX_RESTARTS=3
    is "$status,$(seen)" '0,0 1 2 3 ' 'all of it can come from the environment' || show
    pet PET_NPROC_PER_NODE=4 PET_ROLE=of-env -- --nproc-per-node 2 --role=mine $(checked 2) ROLE_NAME=mine
    is "$status,$(seen)" '0,0 1 ' 'an option is stronger' || show
    pet PET_NO_PYTHON=1 PET_NPROC_PER_NODE=2 -- ./touch.sh
    is "$status,$(seen)" '0,0 1 ' 'a flag is 1' || show
    pet PET_NO_PYTHON=1 PET_MODULE=1 -- ./touch.sh
    is "$status,$(seen)" '2,' 'two that do not go together are refused'
    pet PET_NO_PYTHON=yes -- ./touch.sh
    is "$status" 2 'so is a flag that is neither 0 nor 1'
    like "$(cat err)" 'PET_NO_PYTHON of torchrun is "yes"; expected 0 or 1' 'by its name' || show
    pet PET_REDIRECTS=7 -- ./touch.sh
    like "$(cat err)" 'PET_REDIRECTS of torchrun is "7"' 'and a value that means nothing' || show
    pet PET_LOG_DIR="$TRASH/below" PET_RUN_PATH=0 -- "$PY/env_check.py" seen
    is "$status" 0 'a run' || show
    # In a worker these are muster's word to that worker, and no wish.
    pet -- --no-python sh -c '"$0" torchrun --allow-run-as-root --quiet --no-python true' "$MUSTER"
    is "$status" 0 'a torchrun within a worker' || show
}

# Three devices that are none: by the list of those that are visible, and by /dev.
test_gpus() {
    rm -rf run seen && mkdir seen
    run env CUDA_VISIBLE_DEVICES=GPU-1,GPU-2,GPU-3 timeout 120 "$MUSTER" torchrun --allow-run-as-root --run-dir=run \
        --nproc-per-node=gpu --no-python ./touch.sh
    is "$status,$(seen)" '0,0 1 2 ' 'gpu is one for each of three that are visible' || show
    if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
        skip 'no mount namespace' 2
        return
    fi
    mkdir -p dev/shm dev/pts
    cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom dev
    ln -sf /proc/self/fd dev/fd
    ln -sf /dev/pts/ptmx dev/ptmx
    touch dev/nvidia0 dev/nvidia1 dev/nvidia2 dev/nvidiactl
    local word
    for word in gpu auto; do
        rm -rf run seen && mkdir seen
        run env -u CUDA_VISIBLE_DEVICES timeout 120 unshare -m sh -c \
            'mount --rbind /dev/pts dev/pts && mount --rbind /dev/shm dev/shm && mount --rbind dev /dev && exec "$@"' sh \
            "$MUSTER" torchrun --allow-run-as-root --run-dir=run --nproc-per-node=$word --no-python ./touch.sh
        is "$status,$(seen)" '0,0 1 2 ' "$word is one for each of three in /dev" || show
    done
}

test_processes() {
    local n
    n=$(env -u OMP_NUM_THREADS nproc)
    torchrun --nproc-per-node=cpu --no-python ./touch.sh
    is "$status,$(seen | wc -w)" "0,$n" 'cpu is one for each processor' || show
    # shellcheck disable=SC2012
    n=$(ls /dev/nvidia[0-9]* 2>/dev/null | wc -l)
    torchrun --nproc-per-node=auto --no-python ./touch.sh
    is "$status,$(seen | wc -w)" "0,$([ "$n" = 0 ] && env -u OMP_NUM_THREADS nproc || echo "$n")" 'auto is one for each GPU, or processor' || show
    if [ "$n" = 0 ]; then
        torchrun --nproc-per-node=gpu --no-python ./touch.sh
        isnt "$status" 0 'gpu is none where there is none'
        is "$(seen)" '' 'so nobody runs'
        is "$status" 1 'and the job fails' || show
        like "$(cat err)" 'procsPerNode is gpu, but there is no GPU' 'which is told'
    else
        skip 'this machine has GPUs' 4
    fi
    local word
    for word in unknown xpu 0 -1 1.5; do
        torchrun --nproc-per-node="$word" --no-python ./touch.sh
        is "$status,$(seen)" '2,' "'$word' is no number of processes"
        like "$(cat err)" "--nproc-per-node of torchrun is \"$word\"" 'which is told' || show
    done
}

test_nodes() {
    local word
    torchrun --agent-is-node --nnodes=2 --nproc-per-node=4 "$PY/env_check.py" seen WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 \
        GROUP_WORLD_SIZE=2
    is "$status,$(seen)" '0,0 1 2 3 4 5 6 7 ' 'two agents, four workers each' || show
    # Torchrun waits for the second one for its last call; nobody else is named here.
    torchrun --nnodes=1:2 --nproc-per-node=4 --rdzv-conf=join_timeout=60,last_call_timeout=1 $(checked 4)
    is "$status,$(seen)" '0,0 1 2 3 ' 'one of one to two nodes is enough' || show
    torchrun --agent-is-node --nnodes=1:2 --nproc-per-node=2 "$PY/env_check.py" seen GROUP_WORLD_SIZE=2
    is "$status,$(seen)" '0,0 1 2 3 ' 'two are better' || show
    for word in 2:20:30 '' 0 x 3:2 -1; do
        torchrun --nnodes="$word" --no-python ./touch.sh
        is "$status,$(seen)" '2,' "'$word' is no number of nodes"
    done
    torchrun --nnodes=2 --no-python ./touch.sh
    is "$status" 2 'two nodes are more than one host' || show
}

test_failing() {
    torchrun --nproc-per-node=4 --max-restarts=0 --no-python sh -c 'exit 1'
    is "$status" 1 'workers that fail' || show
    is "$(grep -c '"event":"ended"' run/events.jsonl),$(json state <run/status.json)" '1,Failed' \
        'end the run once, as failed' || diag "$(cat run/events.jsonl)"
    # The status of the worker that failed first, where torchrun says 1.
    torchrun --nproc-per-node=2 --no-python sh -c '[ $RANK = 0 ] || exit 85; sleep 1000'
    is "$status" 85 'with the status of the first one' || show
    torchrun --nproc-per-node=2 no-such-script.py
    is "$status" 1 "one of python's that would read as one of muster's is 1"
    like "$(cat err)" 'no-such-script.py' 'which is told'
}

test_options() {
    local o
    # Short forms, however they are joined to their value.
    for o in -r3 '-r 3' -r=3 --redirects=3 '--redirects 3'; do
        torchrun $o --no-python echo shown
        is "$status,$(cat out)" '0,' "$o"
    done
    # None is guessed: what is short for one option today may be for two tomorrow.
    for o in --nproc=2 --redir=3 --stand --max=1 --rdzv=x; do
        torchrun $o --no-python ./touch.sh
        is "$status,$(seen)" '2,' "$o is no option"
        like "$(cat err)" "${o%%=*}" 'which is told'
    done
    # muster run takes them, too, over what a spec says.
    cat >job.yaml <<END
apiVersion: muster/v1
kind: Job
name: own
nodes: 1
procsPerNode: 2
torch: {role: of-the-spec}
command: [python3, $PY/env_check.py, seen, ROLE_NAME=of-the-line, TORCHELASTIC_RUN_ID=job-19]
END
    rm -rf run seen && mkdir seen
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run --role of-the-line --rdzv_id=job-19 -r 1 \
        --rdzv-backend c10d --rdzv-endpoint=h:1 --standalone --max-restarts=0 job.yaml
    is "$status" 1 'with --standalone, --rdzv-id does not count'
    matches "$(cat err)" "TORCHELASTIC_RUN_ID is '[0-9]+-[0-9]+-.*', expected 'job-19'" 'and the run has an id of its own' || show
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run2 --role of-the-line --rdzv_id=job-19 -r 1 \
        --rdzv-backend c10d --rdzv-endpoint=h:1 job.yaml
    is "$status,$(seen)" '0,0 1 ' 'muster run takes options of torchrun' || show
    like "$(cat err)" '--rdzv-endpoint=h:1 of torchrun has no effect' 'and tells which have no effect'
    run timeout 60 "$MUSTER" run --allow-run-as-root --quiet --run-dir run3 --nproc-per-node 2 -r1 -- sh -c 'echo out; echo err >&2'
    is "$status,$(cat out)" '0,' 'also short ones' || show
    run "$MUSTER" explain --key limits.grace --shutdown-timeout 7 -- true
    like "$(cat out)" '7s' 'as muster explain does'
    for o in --virtual-local-rank --numa-binding=node --redirects=7 --no-python -m --duplicate-stdout-filters=a; do
        run "$MUSTER" run --allow-run-as-root $o -- true
        is "$status" 2 "but not $o"
        like "$(cat err)" "${o%%=*}" 'which is named' || show
    done
    run "$MUSTER" run --allow-run-as-root --no-such-option -- true
    like "$(cat err)" 'unknown option --no-such-option' 'nor what is of neither'
}

run_cases
