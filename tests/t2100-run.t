#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster run on one machine: workers run, fail, are restarted, are stopped; the
# exit status is right, the records are there, and nobody is left.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

# mrun OPTION...: a run in a directory of its own, ./run.
mrun() {
    rm -rf run
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run "$@"
}
field() { "$MUSTER" status run -o json | json "$1"; }
event() { grep -q "\"event\":\"$1\"" run/events.jsonl; }
nobody_left() { run_gone "$(json id run/run.json)"; }

test_plain() {
    mrun --nproc-per-node 4 -- sh -c 'echo hello $RANK of $WORLD_SIZE; echo oops $LOCAL_RANK >&2'
    is "$status" 0 'four workers succeed' || show
    is "$(grep -c '^\[[0-3]\] hello [0-3] of 4$' out)" 4 'their output is labelled' || show
    is "$(grep -c '^\[[0-3]\] oops' err)" 4 'so is what they say on stderr' || show
    is "$(cat run/logs/1/2/stdout)" 'hello 2 of 4' 'and each has files of its own'
    is "$(field state)" Succeeded 'the status says so'
    is "$(field verdict.exit_status)" 0 'with the exit status'
    ok 'the lead wrote down what happened' event generation_started
    is "$(stat -c %a run)" 700 'the run directory is private'
    is "$(find run -type f -perm /077 | grep -v '/logs/' | tr '\n' ' ')" '' 'and so are its files'
    ok 'nobody is left' wait_for 60 nobody_left
}

test_exit_status() {
    local case want
    for case in 'exit 7:7' 'exit 1:1' 'exit 255:255' 'kill -KILL $$:137' 'kill -SEGV $$:139' \
        'exit 2:1' 'exit 75:1' 'exit 130:1'; do
        want=${case##*:}
        mrun --nproc-per-node 2 --max-restarts 0 -- sh -c "echo last words; [ \$RANK = 0 ] || { ${case%:*}; }; sleep 30"
        is "$status" "$want" "a worker that does '${case%:*}' ends the run with $want" || show
    done
    like "$(cat err)" 'rank 1' 'the rank is named'
    like "$(cat err)" 'last words' 'and its last lines are shown'
    is "$(field failure.rank)" 1 'the status has the rank'
    ok 'nobody is left' wait_for 60 nobody_left
}

test_cannot_start() {
    mrun -- ./no-such-program
    is "$status" 127 'an absent program is 127' || show
    like "$(cat err)" 'no-such-program' 'and is named'
    echo data >not-executable
    mrun -- ./not-executable
    is "$status" 126 'one that is not executable is 126' || show
    printf '#!/no/such/interpreter\n' >bad-interpreter
    chmod +x bad-interpreter
    mrun -- ./bad-interpreter
    like "$(cat err)" '/no/such/interpreter' 'a bad interpreter is named' || show
    num "$status" -ge 126 'with its status'
    num "$(find run/logs -maxdepth 1 -mindepth 1 | wc -l)" -le 1 'none of this is tried again'
}

test_restart() {
    cat >crash <<'END'
#!/bin/sh
echo generation $MUSTER_GENERATION restart $TORCHELASTIC_RESTART_COUNT rank $RANK
[ $MUSTER_GENERATION -lt 3 ] && [ $RANK = 1 ] && exit 5
[ $MUSTER_GENERATION -ge 3 ] && exit 0
sleep 60
END
    chmod +x crash
    mrun --nproc-per-node 3 --max-restarts 3 --set restart.backoff=10ms..20ms -- ./crash
    is "$status" 0 'a run that fails twice succeeds the third time' || show
    is "$(field restarts)" 2 'after two restarts'
    is "$(cat run/logs/3/2/stdout)" 'generation 3 restart 2 rank 2' 'workers know the generation'
    like "$(cat err)" 'exit' 'the user saw why' || show
    mrun --nproc-per-node 3 --max-restarts 1 --set restart.backoff=10ms..20ms -- ./crash
    is "$status" 5 'the budget is kept' || show
    is "$(field restarts)" 1 'to the last restart'
    mrun --nproc-per-node 3 --max-restarts 3 --set restart.policy=Never -- ./crash
    is "$status" 5 'policy Never restarts nothing' || show
    is "$(field restarts)" 0 'at all'
    ok 'nobody is left' wait_for 60 nobody_left
}

# start_run OPTION...: in the background; waits until its workers run.
start_run() {
    rm -rf run
    runner=0
    spawn run "$MUSTER" run --allow-run-as-root --run-dir run "$@"
    runner=$spawned
    wait_for 60 running || { diag "$(cat run.err)"; return 1; }
}
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.0.state)" = Running ]; }

test_stop() {
    local case
    for case in INT:130 TERM:75 QUIT:130; do
        start_run --nproc-per-node 2 -- sh -c 'sleep 1000 & wait'
        is $? 0 'a run that would go on'
        kill -"${case%:*}" "$runner"
        wait_exit 30 "$runner"
        is $? 0 "ends on SIG${case%:*}"
        is "$status" "${case#*:}" "with ${case#*:}" || diag "$(cat run.err)"
        ok 'and nobody is left' wait_for 60 nobody_left
    done
    start_run --nproc-per-node 2 --set limits.grace=600s -- sh -c 'trap "" TERM; while :; do sleep 1; done'
    is $? 0 'a run whose workers ignore SIGTERM'
    ok 'is cancelled by a command' "$MUSTER" cancel run
    not_ok 'but takes its grace time' wait_for 2 gone "$runner"
    ok 'is cancelled by force' "$MUSTER" cancel run --force
    wait_exit 30 "$runner"
    is $? 0 'and then ends'
    is "$status" 130 'as cancelled' || diag "$(cat run.err)"
    is "$(field state)" Stopped 'the status says so'
    ok 'and nobody is left' wait_for 60 nobody_left
    start_run --nproc-per-node 2 --set limits.grace=600s -- sh -c 'trap "" TERM; while :; do sleep 1; done'
    is $? 0 'another one'
    kill -INT "$runner"
    ok 'is asked by the first Ctrl-C' wait_for 60 grep -q 'asking the workers' run.err
    not_ok 'and goes on' wait_for 2 gone "$runner"
    kill -INT "$runner"
    wait_exit 60 "$runner"
    is "$status" 130 'and killed by the second' || diag "$(cat run.err)"
    ok 'and nobody is left' wait_for 60 nobody_left
}

# The front end, muster-mpi and the agents have to read the same one.
test_key_file() {
    head -c 32 /dev/urandom >mine
    chmod 600 mine
    rm -rf run
    run env MUSTER_KEY_FILE="$PWD/mine" timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run \
        --nproc-per-node 2 -- sh -c 'echo key ${MUSTER_KEY_FILE:-none}'
    is "$status" 0 'a run with a key of its own, by the environment' || show
    like "$(cat out)" '[1] key none' 'of which workers are told nothing'
    run env MUSTER_KEY_FILE=/no/key "$MUSTER" run --allow-run-as-root --run-dir run1 -- true
    is "$status" 2 'one that is not there is a mistake'
    like "$(cat err)" 'open job key /no/key' 'and named' || show
    run env MUSTER_KEY_FILE= timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run1 -- true
    is "$status" 0 'an empty word names none' || show
    rm -rf run
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run --key-file mine --nproc-per-node 1 -- \
        true
    is "$(json key_file run/front.json)" "$PWD/mine" 'who attaches elsewhere finds it, too' || show
}

test_two_front_ends() {
    start_run -- sleep 1000
    is $? 0 'a run'
    run "$MUSTER" run --allow-run-as-root --run-dir run -- true
    isnt "$status" 0 'no second front end takes its directory'
    like "$(cat err)" 'is alive: pid' 'but is told who has it' || show
    kill -INT "$runner"
    wait_exit 30 "$runner"
    is "$status" 130 'the first one was not disturbed'
}

# Whoever removes status.json loses what it told, and no log.
test_no_status() {
    mrun --nproc-per-node 1 --max-restarts 1 --set restart.backoff=10ms..20ms -- sh -c 'echo in $MUSTER_GENERATION; exit 7'
    is "$status" 7 'a run that has had two generations' || show
    rm run/status.json
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 -- sh -c 'echo then $MUSTER_GENERATION'
    is "$status" 0 'is gone on with, without its status' || show
    like "$(cat err)" 'status.json is gone: generations go on from 3' 'which is said' || show
    is "$(cat run/logs/1/0/stdout run/logs/2/0/stdout run/logs/3/0/stdout | tr '\n' ';')" 'in 1;in 2;then 3;' 'no log is written over'
    is "$(field generation)" 3 'the new status has the generation'
    rm run/status.json
    run timeout 120 "$MUSTER" resume --allow-run-as-root run
    is "$status:$(cat run/logs/4/0/stdout)" '0:then 4' 'so does muster resume' || show
    start_run --set detach.timeout=10m -- sleep 1000
    is $? 0 'a run'
    kill -KILL "$runner"
    wait_exit 30 "$runner"
    rm run/status.json
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run -- true
    like "$status:$(cat err)" 'is alive' 'that lives is left alone' || show
    ok 'it is still there' test ! -e run/logs/2
    ok 'and cancelled' wait_for 60 eval '"$MUSTER" cancel run >cancel.out 2>&1' || diag "$(cat cancel.out)"
    ok 'nobody is left' wait_for 60 nobody_left
}

test_agents() {
    mrun --nnodes 4 --agent-is-node --nproc-per-node 2 -- sh -c 'echo $GROUP_RANK $GROUP_WORLD_SIZE $LOCAL_RANK $RANK'
    is "$status" 0 'one machine stands for four' || show
    is "$(sed 's/^\[.*\] //' out | sort | tr '\n' ';')" \
        '0 4 0 0;0 4 1 1;1 4 0 2;1 4 1 3;2 4 0 4;2 4 1 5;3 4 0 6;3 4 1 7;' 'as four nodes' || show
    is "$(json nodes <run/status.json | grep -o '"host"' | wc -l)" 4 'the status has four'
    mrun --agents-per-node 2 --nproc-per-node 3 -- sh -c 'echo $RANK $WORLD_SIZE'
    is "$status" 0 'two agents share a node' || show
    is "$(sed 's/^\[.*\] //' out | sort | tr '\n' ';')" '0 3;1 3;2 3;' 'and its processes' || show
    run "$MUSTER" run --allow-run-as-root --run-dir run2 --nnodes 2 -- true
    is "$status" 2 'two nodes need two hosts'
    like "$(cat err)" 'needs 2 nodes' 'and that is said' || show
}

test_by_hand() {
    rm -rf run
    run env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 \
        mpirun -n 3 --oversubscribe "$MUSTER" run --agent-is-node --nnodes 3 --nproc-per-node 1 \
        --run-dir run -- sh -c 'echo by hand $RANK of $WORLD_SIZE'
    is "$status" 0 'mpirun ... muster run works' || show
    is "$(grep -c 'by hand [0-2] of 3' out)" 3 'and shows what workers say' || show
    is "$(field state)" Succeeded 'the records are there'
    rm -rf run
    run env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 \
        mpirun -n 2 --oversubscribe "$MUSTER" run --agent-is-node --nnodes 2 --nproc-per-node 1 \
        --max-restarts 0 --run-dir run -- sh -c 'exit 9'
    is "$status" 9 'a failure is the exit status of mpirun' || show
    # by_hand N NODES: N agents, and a job for so many nodes.
    by_hand() {
        rm -rf run
        run env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 \
            mpirun -n "$1" --oversubscribe "$MUSTER" run --agent-is-node --nnodes "$2" --nproc-per-node 1 \
            --run-dir run -- sh -c 'echo $RANK of $WORLD_SIZE'
    }
    by_hand 1 2
    is "$status" 1 'a job for more nodes than mpirun gave does not run' || show
    like "$(cat err)" 'the job needs 2 nodes, and mpirun started muster on 1' 'which is told'
    is "$(grep -c of out)" 0 'no worker does'
    by_hand 3 1:2
    is "$status,$(grep -c 'of 2' out)" 0,2 'one for fewer runs on those' || show
    like "$(cat err)" 'waits as a spare' 'and the others wait'
    is "$(grep -c node_spare run/events.jsonl)" 1 'as the records say'
    by_hand 2 2:4
    is "$status,$(grep -c 'of 2' out)" 0,2 'what is between is right' || show
    ok 'nobody is left' wait_for 60 nobody_left
}

# Workers have nothing to read, which whoever gives them something is told.
test_stdin() {
    local of=(timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run)
    echo some >in
    rm -rf run
    "${of[@]}" --nproc-per-node 1 -- sh -c 'cat; echo end' <in >out 2>err
    is "$?:$(cat out)" '0:[0] end' 'workers read nothing' || show
    like "$(cat err)" 'standard input is not passed on' 'a file that is given is told of'
    unlike "$(cat err)" 'muster exec' 'without a word of MPI'
    mkfifo pipe
    exec 7<>pipe
    echo some >&7
    rm -rf run
    "${of[@]}" -- mpirun -n 1 true <pipe >out 2>err
    like "$(cat err)" 'mpirun -n N muster exec -- PROGRAM <FILE' 'so is a pipe, with what an MPI program can do' || show
    exec 7>&-
    mrun --nproc-per-node 1 -- true
    unlike "$(cat err)" 'standard input' 'nothing is no loss'
    rm -rf run
    "${of[@]}" - <<<'{apiVersion: muster/v1, kind: Job, command: ["true"], procsPerNode: 1}' >out 2>err
    is "$?:$(grep -c 'standard input' err)" 0:0 'nor is a spec that came that way' || show
    mrun --nproc-per-node 2 -- sh -c '[ $RANK = 0 ] && exec cat <in; exec cat'
    is "$status:$(cat out)" '0:[0] some' 'rank 0 alone can open a file itself' || show
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        timeout 120 mpirun -n 2 --oversubscribe "$MUSTER" exec -- sh -c 'sed "s/^/$RANK /"' <in >out 2>err
    is "$?:$(cat out)" '0:0 some' 'or gets what mpirun was given, under muster exec' || show
}

# As mpirun reads them.
test_slots() {
    echo 'localhost slots=3' >hosts.txt
    mrun --hostfile hosts.txt -- sh -c 'echo $RANK/$WORLD_SIZE'
    is "$status:$(sort out | tr '\n' ' ')" '0:[0] 0/3 [1] 1/3 [2] 2/3 ' 'so many workers as the host has slots' || show
    like "$(cat err)" 'procsPerNode is 3: the slots that the list of hosts gives' 'which is said'
    mrun --hosts localhost:3 --nproc-per-node 1 -- sh -c 'echo $RANK/$WORLD_SIZE'
    is "$(cat out)" '[0] 0/1' 'but what is asked for counts' || show
    run "$MUSTER" run --allow-run-as-root --dry-run -- mpirun -H a:2,b:2 -np 3 prog
    is "$status:$(grep -x '[ab]' out | tr '\n' ' ')" '0:a b ' 'hosts of an mpirun are those of the run' || show
    like "$(cat err)" 'procsPerNode is 2 on a, 1 on b' 'filled as mpirun does'
    run "$MUSTER" run --allow-run-as-root --dry-run --hosts c -- mpirun -H a:2 prog
    is "$status:$(grep -x '[a-d]' out | tr '\n' ' ')" '0:c ' 'unless there are others' || show
    like "$(cat err)" 'hosts are those of --hosts, and not those in the command, a:2' 'which is said'
}

# An mpiexec that muster does not know starts it several times.
test_other_mpiexec() {
    rm -rf run
    PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 run "$MUSTER" run --allow-run-as-root --run-dir run -- touch started
    is "$status" 2 'one of several processes of MPICH'"'"'s mpiexec is refused' || show
    like "$(cat err)" 'this is one of 2 processes of an mpiexec that is not Open MPI'"'"'s' 'with the reason'
    ok 'and starts nothing' [ ! -e run -a ! -e started ]
    PMI_RANK=0 PMI_SIZE=1 mrun --nproc-per-node 1 -- sh -c 'echo ${PMI_SIZE-none}'
    is "$status:$(cat out)" '0:[0] none' 'one alone is a run, whose workers know nothing of it' || show
}

test_output() {
    mrun --nproc-per-node 2 -- sh -c 'i=0; while [ $i -lt 20000 ]; do echo line $i of rank $RANK; i=$((i+1)); done; printf "no newline at the end"'
    is "$status" 0 'workers that print a lot' || show
    is "$(grep -c 'line [0-9]* of rank [01]$' out)" 40000 'lose no line'
    is "$(grep -c 'no newline at the end$' out)" 2 'nor the part of one'
    is "$(grep -c '' run/logs/1/1/stdout)" 20001 'nor in the files'
}

test_many_hosts() {
    run "$MUSTER" run --allow-run-as-root --dry-run --hosts "a-rather-long-host-name[1-6000]" --nnodes 6000 -- true
    is "$status" 0 '--dry-run over 6,000 hosts' || show
    is "$(grep -c '^a-rather-long-host-name[0-9]*$' out)" 6000 'shows the file that has them'
    num "$(tail -n 1 out | wc -c)" -lt 2000 'and a command that can be run'
}

# As pods write it: one launcher a node there, which is no program to start twice.
test_shell_line() {
    mkdir -p app
    echo 'import os, sys; print(os.environ["RANK"], os.environ["WORLD_SIZE"], os.getcwd(), *sys.argv[1:])' >app/t.py
    mrun -- bash -c "cd app && LR=3 && torchrun --nproc_per_node=2 t.py --lr \$LR"
    is "$status" 0 'a line of shell with a launcher in it' || show
    is "$(sort out | tr '\n' ';')" "[0] 0 2 $PWD/app --lr 3;[1] 1 2 $PWD/app --lr 3;" 'starts two workers, as the launcher would' || show
    like "$(cat err)" 'torchrun is not run: muster starts t.py itself' 'which is said'
    mrun -- env A=5 nice -n 3 bash -c 'torchrun --no-python --nproc-per-node 2 sh -c "echo \$RANK \$WORLD_SIZE \$A; nice"'
    is "$(sort out)" "$(printf '[%d] %s\n' 0 '0 2 5' 0 $(($(nice) + 3)) 1 '1 2 5' 1 $(($(nice) + 3)) | sort)" 'behind env and nice' || show
    mrun --nproc-per-node 1 -- bash -c 'mpirun --version >/dev/null; true'
    unlike "$(cat err)" 'starts processes' 'and what is not the last command is no launcher of the job' || show
}

test_dry_run() {
    run "$MUSTER" run --allow-run-as-root --dry-run --nproc-per-node 2 -- python3 'a b.py'
    is "$status" 0 '--dry-run'
    like "$(cat out)" 'mpirun' 'shows the mpirun command'
    like "$(cat out)" 'procsPerNode: 2' 'and the job' || show
    ok 'and makes nothing' test ! -e muster-runs
}

run_cases
