#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What torchrun promises of its workers' output and of what they died of: streams
# that are redirected, shown, or both, of some workers; error files; exit statuses and
# signals; programs that are not there.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3
export XDG_RUNTIME_DIR=$TRASH/rt
mkdir -m 700 rt

# torchrun OPTION... SCRIPT: a run in ./run.
torchrun() {
    rm -rf run
    run timeout 120 "$MUSTER" torchrun --allow-run-as-root --run-dir=run --quiet "$@"
}
field() { json "$1" <run/status.json; }
# What was shown of the workers, sorted, on one line.
shown() { { grep -E '^(\[|out|err)' out; grep -E '^(\[|out|err)' err; } | sort | tr '\n' ';'; }

cat >echo.sh <<'END'
#!/bin/sh
echo "out $RANK"
echo "err $RANK" >&2
exit "${1:-0}"
END
chmod +x echo.sh

# kept N: the files of N workers have all, whatever is shown.
kept() {
    local r
    for ((r = 0; r < $1; r++)); do
        [ "$(cat "run/logs/1/$r/stdout")" = "out $r" ] && [ "$(cat "run/logs/1/$r/stderr")" = "err $r" ] || return 1
    done
}

test_redirects() {
    local options want
    while IFS='|' read -r options want; do
        torchrun --nproc-per-node=2 $options --no-python ./echo.sh
        is "$status,$(shown)" "0,$want" "shown with '$options'" || show
        ok 'and the files have all of it' kept 2
    done <<'END'
|err 0;err 1;out 0;out 1;
-r 0|err 0;err 1;out 0;out 1;
-r 1|err 0;err 1;
-r 2|out 0;out 1;
-r 3|
-t 3|[default0]:err 0;[default0]:out 0;[default1]:err 1;[default1]:out 1;
-r 3 -t 1|[default0]:out 0;[default1]:out 1;
--redirects=0:1,1:2|err 0;out 1;
--redirects=0:3|err 1;out 1;
-r 3 --tee 1:3|[default1]:err 1;[default1]:out 1;
--local-ranks-filter=1|err 1;out 1;
--local_ranks_filter 0,1|err 0;err 1;out 0;out 1;
--local-ranks-filter=1 -r 2|out 1;
END
    # Ranks of a filter are those of each node.
    torchrun --agent-is-node --nnodes=2 --nproc-per-node=2 --local-ranks-filter=1 -r 2 --no-python ./echo.sh
    is "$status,$(shown)" '0,out 1;out 3;' 'by local rank, on all nodes' || show
    ok 'and the files have all of it' kept 4
    is "$("$MUSTER" logs run | sort | tr '\n' ';')" "$(for r in 0 1 2 3; do
        echo "[$r] err $r"; echo "[$r] out $r"; done | sort | tr '\n' ';')" 'as muster logs shows' || show
    rm -rf run
    run timeout 60 "$MUSTER" run --allow-run-as-root --quiet --run-dir run --nproc-per-node 2 \
        --set logs.streams=none,1:stderr -- ./echo.sh
    is "$status,$(shown)" '0,[1] err 1;' 'as a key of a job' || show
    run timeout 60 "$MUSTER" run --allow-run-as-root --set logs.streams=some -- ./echo.sh
    is "$status" 2 'which has to be one'
    like "$(cat err)" 'expected both, stdout, stderr, none, or such by local rank' 'as is told' || show
}

test_fold() {
    rm -rf run
    run timeout 60 "$MUSTER" run --allow-run-as-root --quiet --run-dir run --nproc-per-node 4 --log-fold \
        --set logs.streams=none,0:stdout,2:stdout -- sh -c 'echo same; until [ -e go ]; do sleep 0.05; done' &
    local pid=$!
    kill_at_exit "$pid"
    # Those that are not shown are not waited for.
    ok 'a line that all have printed who are shown' wait_for 60 grep -q '^\[0,2\] same$' out
    touch go
    wait "$pid"
}

test_log_dir() {
    rm -rf below
    run timeout 60 "$MUSTER" torchrun --allow-run-as-root --quiet --log-dir "$PWD/below" --nproc-per-node=2 --no-python ./echo.sh
    is "$status,$(find below -path '*/logs/1/[01]/std*' -type f -name 'std???' | wc -l)" 0,4 '--log-dir is where the logs go' || show
    run timeout 60 "$MUSTER" torchrun --allow-run-as-root --quiet --log-dir "$PWD/below" --nproc-per-node=2 --no-python ./echo.sh
    is "$status,$(find below -path '*/logs/1/[01]/std*' -type f -name 'std???' | wc -l)" 0,8 'each run in a directory of its own' || show
    is "$("$MUSTER" logs "$(basename "$(readlink -f below/*/latest)")" | wc -l)" 4 'found by its id'
    : >file
    run timeout 60 "$MUSTER" torchrun --allow-run-as-root --log-dir "$PWD/file" --no-python ./echo.sh
    is "$status" 1 'one that is none'
    like "$(cat err)" "$PWD/file" 'is named' || show
}

# Torchrun's own case: a status that looks like a signal's, and is none.
test_status() {
    torchrun --nproc-per-node=2 -r 3 --no-python ./echo.sh 138
    is "$status" 138 'a worker that exits with 138' || show
    is "$(field failure.exit_code),$(field failure.signal 2>/dev/null)" 138, 'was ended by no signal' || show
    like "$(field failure.reason)" 'exited with code 138' 'as its reason says'
    is "$(field failure.error_file 2>/dev/null)" '' 'and left no error file'
    like "$(field failure.lines)" "err $(field failure.rank)" 'its last lines are shown' || show
    is "$(cat "run/logs/1/$(field failure.rank)/stderr")" "err $(field failure.rank)" 'and are in its file, unlike those of others'
}

test_raises() {
    cat >raises.py <<'END'
import os
if os.environ["RANK"] == "1":
    raise RuntimeError("raised on purpose")
import time
time.sleep(1000)
END
    torchrun --nproc-per-node=2 --redirects=2 raises.py
    is "$status,$(field failure.rank)" 1,1 'a worker that raises' || show
    like "$(field failure.reason)" 'exited with code 1: RuntimeError: raised on purpose' 'is told by its exception'
    is "$(grep -c 'Traceback' run/logs/1/1/stderr)" 1 'which is in its file, too'
    unlike "$(grep '^\[' err)" Traceback 'and was not shown as output'
}

test_signals() {
    local sig n
    for sig in SEGV ABRT USR1 KILL; do
        n=$(kill -l $sig)
        torchrun --nproc-per-node=2 --no-python bash -c "ulimit -c 0; [ \$RANK = 0 ] || kill -$sig \$\$; sleep 1000"
        is "$status,$(field failure.rank),$(field failure.signal)" "$((128 + n)),1,$n" "a worker that SIG$sig ended" || show
        like "$(field failure.reason)" "was killed by signal $n (SIG$sig)" 'is told so by name'
    done
}

test_entrypoint() {
    torchrun --nproc-per-node=2 --no-python ./no-such-program
    is "$status" 127 'a program that is not there' || show
    like "$(field verdict.reason)" './no-such-program' 'is named'
    torchrun --nproc-per-node=2 --no-python ./run
    is "$status" 126 'so is one that is a directory' || show
    torchrun --nproc-per-node=2 -m no_such_module_of_ours
    is "$status" 1 'a module that is not there'
    like "$(cat err)" 'No module named no_such_module_of_ours' 'is named by Python' || show
}

# Who failed first is found by what the error files say, however the processes end.
test_first() {
    cat >first.py <<'END'
import json, os, signal, sys, time
rank = int(os.environ["RANK"])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)
def leave(name):
    os.close(os.open(name, os.O_CREAT))
if rank == 2:
    wait_for("started.0"), wait_for("started.1")
    path = os.environ["TORCHELASTIC_ERROR_FILE"]
    json.dump({"message": {"message": "OSError: rank 2 was it", "extraInfo": {"timestamp": "1"}}}, open(path + ".tmp", "w"))
    os.rename(path + ".tmp", path)
    time.sleep(0.05)
    leave("written")
    time.sleep(1000)
leave("started.%d" % rank)
wait_for("written")
sys.exit(10 + rank)
END
    rm -f started.* written
    torchrun --nproc-per-node=3 first.py
    is "$(field failure.rank)" 2 'the worker that wrote its error file first is the cause' || show
    like "$(field failure.reason)" 'OSError: rank 2 was it' 'in its own words'
}

# A line of output is whole, also where many are printed at once; and one of each
# worker comes after its one before.
test_lines() {
    torchrun --nproc-per-node=8 --no-python sh -c 'i=0; while [ $i -lt 500 ]; do echo "$RANK $i"; i=$((i + 1)); done; printf last'
    is "$status,$(grep -cE '^[0-7] [0-9]+$' out)" 0,4000 'all lines of eight workers are shown whole' || show
    local r
    for r in 0 7; do
        sed -n "s/^$r //p" out >order
        ok "those of rank $r in their order" sort -nc order
        is "$(wc -l <order)" 500 'every one'
    done
    is "$(grep -c '^last$' out)" 8 'and the end of each, without a newline'
}

run_cases
