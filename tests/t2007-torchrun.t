#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster torchrun takes the words of torchrun, and means the same.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
mkdir -m 700 rt

cat >show.py <<'E2'
import os, sys
print("I am", os.environ["RANK"], "of", os.environ["WORLD_SIZE"],
      "with", os.environ["TORCHELASTIC_MAX_RESTARTS"], *sys.argv[1:])
sys.exit(int(os.environ.get("FAIL", "0")))
E2

torchrun() { run "$MUSTER" torchrun --allow-run-as-root --quiet "$@"; }
lines() { sort out | tr '\n' ';'; }

test_defaults() {
    torchrun show.py --lr 3
    is "$status,$(lines)" '0,I am 0 of 1 with 0 --lr 3;' 'one process, no restarts'
    run env FAIL=9 "$MUSTER" torchrun --allow-run-as-root --quiet show.py
    is "$status" 9 'the status of a script that fails'
    is "$(grep -c 'I am' out)" 1 'which is not started again'
    run env PET_NPROC_PER_NODE=2 "$MUSTER" torchrun --allow-run-as-root --quiet show.py
    is "$(lines)" 'I am 0 of 2 with 0;I am 1 of 2 with 0;' 'PET_* are defaults'
}

test_options() {
    torchrun --standalone --nproc_per_node=2 --max-restarts 1 show.py --nnodes=7
    is "$(lines)" 'I am 0 of 2 with 1 --nnodes=7;I am 1 of 2 with 1 --nnodes=7;' 'options end at the script'
    torchrun --nnodes 1:1 --nproc-per-node 1 --rdzv_id=7 --rdzv-backend c10d --rdzv-endpoint h:1 -m show a
    is "$(lines)" 'I am 0 of 1 with 0 a;' 'a module may be named'
    like "$(cat err)" '--rdzv-endpoint of torchrun has no effect' 'what is muster'"'"'s own is noted'
    torchrun --no-python --nproc-per-node 1 -- sh -c 'echo $RANK'
    is "$(lines)" '0;' 'or any program'
    torchrun --agent-is-node --nnodes=2 --nproc-per-node=1 show.py
    is "$(lines)" 'I am 0 of 2 with 0;I am 1 of 2 with 0;' 'options of muster run may stand among them'
    torchrun --nproc-per-node 2 --set limits.grace=5s -s restart.max=3 --run-dir run show.py --run-dir x
    is "$(lines)" 'I am 0 of 2 with 3 --run-dir x;I am 1 of 2 with 3 --run-dir x;' 'with their values in words of their own' || cat err
    torchrun --show-env show.py
    is "$status" 2 'one that may have a value takes no word' || cat err
}

# A script from standard input is no option, and a launcher that Python starts is one.
test_script() {
    torchrun --nproc-per-node 1 - a </dev/null
    is "$status" 0 'the script may be standard input' || show
    mkdir -p bin && printf '#!/bin/sh\n' >bin/torchrun
    run "$MUSTER" run --allow-run-as-root --quiet -- python3 bin/torchrun --nproc-per-node 2 show.py
    is "$status,$(lines)" '0,[0] I am 0 of 2 with 3;[1] I am 1 of 2 with 3;' 'python3 bin/torchrun is torchrun' || show
}

# Where each option goes.
test_meaning() {
    local words key want
    while read -r words key want; do
        run "$MUSTER" explain --key "$key" -- torchrun ${words//+/ } show.py
        like "$(sed 1d out)" "$want" "$words is $key" || show
    done <<'E2'
--rdzv-conf+read_timeout=9,join_timeout=42 gang.timeout 42s
--rdzv-conf=timeout=9,join_timeout=42,is_host=1 gang.timeout 42s
--shutdown-timeout+7 limits.grace 7s
--nproc-per-node=gpu procsPerNode gpu
--max_restarts=4 restart.max 4
--nnodes=2:5 nodes 2..5
--local-ranks-filter=0,2 logs.streams none,0:both,2:both
--local_ranks_filter+1+--nnodes=2 logs.streams none,1:both
-r+3 logs.streams none
-r1 logs.streams stderr
--redirects=3+--tee+0:1 logs.streams none,0:stdout
--role=x torch.role x
--local-addr=10.1.0.5 network.interface 10.1.0.5
--local_addr+fd00::5 network.interface fd00::5
--rdzv_id+7 torch.runId 7
--log_dir=/x logs.dir /x
--nnodes=7+--nnodes+2 nodes 2
--log-line-prefix-template=[${role_name}${local_rank}]: logs.prefix [default{local_rank}]:
E2
}

test_noted() {
    local o
    for o in --monitor-interval=1 --start-method=fork --tee=3 '-t 3' --log-line-prefix-template=a --standalone \
        --rdzv-backend=c10d --rdzv-endpoint=h:1 --signals-to-handle=SIGTERM --node-rank=1 --master-addr=h --master-port=1 --local-addr=h --local-addr=127.0.0.1 --local-addr=::1; do
        run "$MUSTER" validate -- torchrun $o show.py
        is "$status" 0 "$o is taken"
        like "$(cat out)" "${o%% *} of torchrun has no effect: " 'and its loss is told'
    done
    run "$MUSTER" validate -- torchrun --rdzv-conf=timeout=3,join_timeout=9,rank=1 show.py
    is "$status" 0 '--rdzv-conf is taken'
    for o in timeout rank; do
        like "$(cat out)" "$o in --rdzv-conf of torchrun has no effect: " "and the loss of its $o is told"
    done
    unlike "$(cat out)" 'join_timeout in' 'but not of what counts'
}

test_refused() {
    local o
    for o in --virtual-local-rank --print-completion=bash --numa-binding=exclusive --nnodes=2:20:30 \
        --nproc-per-node=many --max-restarts=-1 --shutdown-timeout=soon --local-ranks-filter=few --no-such-option \
        --duplicate-stdout-filters=a --duplicate-stderr-filters=a --logs-specs=a --redirects=4 --tee=x \
        --event-log-handler=console --signals-to-handle=SIGKILL --standalone=1 --nproc=2 ---nnodes=2; do
        run "$MUSTER" validate -- torchrun $o show.py
        is "$status" 2 "$o is refused"
        like "$(cat err)" "${o%%=*}" 'by its name' || show
    done
    run "$MUSTER" validate -- torchrun --no-python --module show
    is "$status" 2 'two that contradict each other are'
    torchrun --nproc-per-node 2
    is "$status" 2 'as is a line without a script'
    like "$(cat err)" 'torchrun without a program' 'which is told'
}

test_filter() {
    torchrun --nproc-per-node 3 --local-ranks-filter 0,2 show.py
    is "$status,$(lines)" '0,I am 0 of 3 with 0;I am 2 of 3 with 0;' 'ranks that were asked for are shown'
    is "$("$MUSTER" logs --rank 1)" '[1] I am 1 of 3 with 0' 'and all are kept'
}

# Bare lines, and what is teed with torchrun's own words in front.
test_lines() {
    torchrun --nproc-per-node 2 --tee 3 show.py
    is "$status,$(lines)" '0,[default0]:I am 0 of 2 with 0;[default1]:I am 1 of 2 with 0;' '--tee puts role and local rank before lines' || show
    unlike "$(cat err)" '--tee' 'which is no loss'
    torchrun --nproc-per-node 1 --tee 1 --role 'a{b' show.py
    is "$(lines)" '[a{b0]:I am 0 of 1 with 0;' 'with the role that there is' || show
    torchrun --nproc-per-node 1 --tee 0 show.py
    is "$(lines)" 'I am 0 of 1 with 0;' 'but not with none' || show
    torchrun --log-prefix rank --nproc-per-node 1 show.py
    is "$(lines)" '[0] I am 0 of 1 with 0;' 'muster'"'"'s own option counts'
    run "$MUSTER" run --allow-run-as-root --quiet -- torchrun --nproc-per-node 1 show.py
    is "$(lines)" '[0] I am 0 of 1 with 3;' 'and in a job lines have the rank' || show
}

# As torchrun is started on each node.
test_each_node() {
    torchrun --nnodes=2 --node-rank=1 --master-addr=n1 --nproc-per-node=2 show.py
    is "$status" 2 'one start for each node is refused'
    like "$(cat err)" 'muster torchrun is started once, and not on each node as torchrun with --node-rank is' 'with the reason' || show
    like "$(cat err)" 'muster torchrun --hosts A,B ...' 'and what to do'
    like "$(cat err)" 'mpirun --host A,B --map-by ppr:1:node muster torchrun ...' 'or else'
}

test_prefix() {
    torchrun --nproc-per-node 2 --log-line-prefix-template '<${rank}@${role_name}> ' show.py
    is "$status,$(lines)" '0,<0@default> I am 0 of 2 with 0;<1@default> I am 1 of 2 with 0;' 'lines begin as they should'
    run env TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='$local_rank|' \
        "$MUSTER" torchrun --allow-run-as-root --quiet show.py
    is "$(lines)" '0|I am 0 of 1 with 0;' 'also by the variable'
    run "$MUSTER" validate -- torchrun --log-line-prefix-template='${no}' show.py
    is "$status" 2 'a macro that there is not is refused'
    like "$(cat err)" 'expected macros as ${rank}' 'and those that there are named'
}

# The older module passes the rank on the node, unless told not to.
test_local_rank() {
    cat >args.py <<'E2'
import sys
print(*sys.argv[1:])
E2
    run "$MUSTER" run --allow-run-as-root --quiet -- python3 -m torch.distributed.launch --nproc_per_node=2 args.py a
    is "$(lines)" '[0] --local-rank=0 a;[1] --local-rank=1 a;' 'torch.distributed.launch passes --local-rank'
    run "$MUSTER" run --allow-run-as-root --quiet -- python3 -m torch.distributed.launch --use-env args.py a
    like "$(lines)" '[0] a;' 'unless it is given --use-env'
}

test_help() {
    run "$MUSTER" torchrun --help
    is "$status" 0 'help is there'
    like "$(cat out)" 'SCRIPT' 'and tells of scripts'
    run "$MUSTER" torchrun --nnodes 1 -h
    like "$(cat out)" 'usage: muster torchrun' 'also behind other options'
    torchrun show.py --help
    like "$(cat out)" 'with 0 --help' 'the script'"'"'s own is the script'"'"'s'
}

run_cases
