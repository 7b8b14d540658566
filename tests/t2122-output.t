#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What workers print: what of it is shown, in which form, and where it is kept.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
export XDG_RUNTIME_DIR=$TRASH/rt XDG_STATE_HOME=$TRASH/state
mkdir -m 700 rt
export PYTHONUTF8=1

# mrun OPTION...: a run in a directory of its own, ./run.
mrun() {
    rm -rf run
    run timeout 120 "$MUSTER" run --allow-run-as-root --quiet --run-dir run "$@"
}
lines() { sort out | tr '\n' ';'; }

test_shown_ranks() {
    local show want
    while read -r show want; do
        mrun --nproc-per-node 4 --logs "$show" -- sh -c 'echo it; echo err >&2'
        is "$status:$(lines)" "0:$want" "--logs $show"
        is "$(grep -c '^\[[0-9]\] err$' err)" "$(grep -c it out)" 'standard error likewise'
        is "$(cat run/logs/1/*/stdout | grep -c it)" 4 'files have all' || show
    done <<'END'
all [0] it;[1] it;[2] it;[3] it;
lead [0] it;
none
1,2-3 [1] it;[2] it;[3] it;
9
END
    mrun --nproc-per-node 2 --logs 5 -- echo it
    is "$status:$(lines)" 0: 'ranks that are not there'
    is "$(grep -c "no worker has a rank of '5', there are ranks 0 to 1" err)" 1 'which is told, once' || show
    mrun --nproc-per-node 2 --set logs.show=1 -- echo it
    is "$(lines)" '[1] it;' 'as a key of the spec'
    mrun --nproc-per-node 2 --logs 3-1 -- true
    is "$status" 2 'no ranks'
    like "$(cat err)" 'expected all, lead, none, or ranks such as 0,3-5' 'what would be some is told' || show
    mrun --nproc-per-node 2 --logs none --max-restarts 0 -- sh -c 'echo the end >&2; exit 3'
    is "$status" 3 'a failure'
    like "$(cat err)" 'the end' 'is shown whoever is not' || show
}

test_prefix() {
    mrun --nnodes 2 --agent-is-node --nproc-per-node 2 --log-prefix "{run}'s {rank}={node}.{local_rank} {stream} {generation}: " \
        -- sh -c 'echo it; echo err >&2; printf end'
    is "$status" 0 'a run with a prefix of its own' || show
    id=$(json id run/status.json)
    for s in out err; do
        is "$(grep -a std$s $s | sed "s/^$id/ID/" | sort | grep -v end)" "$(for r in 0=0.0 1=0.1 2=1.0 3=1.1; do
            [ $s = out ] && echo "ID's $r stdout 1: it" || echo "ID's $r stderr 1: err"
        done)" "has it before each line of std$s" || show
    done
    is "$(grep -c ' stdout 1: end$' out)" 4 'also before one without a newline'
    is "$(cat run/logs/1/3/stdout)" $'it\nend' 'not in files'
    mrun --nproc-per-node 1 --log-prefix '[{time}] ' -- echo it
    matches "$(cat out)" '^\[20[0-9-]*T[0-9:]*\.[0-9]{3}Z\] it$' 'with the time'
    mrun --nproc-per-node 1 --set 'logs.prefix=[{rank}]{{}} ' -- echo it
    is "$(cat out)" '[0]{} it' 'as a key of the spec' || show
    run "$MUSTER" explain --log-prefix '{rank}: ' -- true
    like "$(grep logs.prefix out)" '"{rank}: "' 'explain tells it' || show
    mrun --nproc-per-node 1 --log-prefix '{hots}' -- true
    is "$status" 2 'a field that is none'
    like "$(cat err)" '--log-prefix: logs.prefix "{hots}" has the unknown field {hots}; did you mean {host}' 'is told with the next one' || show
    printf 'apiVersion: muster/v1\nkind: Job\ncommand: [x]\nlogs: {prefix: "{rank} {tim}"}\n' >job.yaml
    mrun job.yaml
    is "$status" 2 'in a spec'
    like "$(cat err)" 'job.yaml:4:16: logs.prefix "{rank} {tim}" has the unknown field {tim}; did you mean {time}' 'with its place' || show
}

# Each line of a rank is in what is shown, in its order, once: expand.py takes sets
# apart again.
test_fold() {
    cat >expand.py <<'END'
import re, sys
n = 0
for line in open(sys.argv[1]):
    m = re.match(r"\[([0-9,-]+)\] (.*)\n", line)
    assert m, line
    n += 1
    for part in m[1].split(","):
        first, _, last = part.partition("-")
        for rank in range(int(first), int(last or first) + 1):
            print(rank, m[2], file=open(f"rank-{rank}", "a"))
print(n, file=open("shown", "w"))
END
    mrun --nnodes 2 --agent-is-node --nproc-per-node 4 --log-fold -- sh -c '
        for i in $(seq 200); do echo step $i; [ $((i % 50)) != $RANK ] || echo "only $RANK"; done; echo err >&2; printf end'
    is "$status" 0 'a run whose output is folded' || show
    ok 'every line has its ranks' python3 expand.py out
    for r in 0 1 2 3 4 5 6 7; do
        for i in $(seq 200); do echo $r step $i; [ $((i % 50)) != $r ] || echo "$r only $r"; done >want
        echo "$r end" >>want
        ok "rank $r has all of its own, in order" cmp rank-$r want
    done
    num "$(cat shown)" -lt 1640 'and fewer are shown than were printed'
    is "$(grep -c step run/logs/1/7/stdout)" 200 'files have those of each rank'
    mrun --nproc-per-node 4 --set logs.fold=true --log-prefix none -- echo it
    is "$(sed -nE 's/^(\(x([234])\) )?it$/\2/p' out | awk '{ n += $1 ? $1 : 1 } END { print n }')" 4 \
        'without ranks they are counted' || show
    mrun --nproc-per-node 1 --log-fold -- echo it
    is "$(cat out)" '[0] it' 'one rank looks as ever'
    mrun --nproc-per-node 2 --log-fold --max-restarts 0 -- sh -c 'echo before; echo the end >&2; exit 3'
    is "$status" 3 'a failure'
    like "$(cat out)" '] before' 'loses nothing' || show
}

test_json() {
    cat >check.py <<'END'
import json, sys
seen = {}
for line in open(sys.argv[1], encoding="utf-8"):
    o = json.loads(line)
    assert o["v"] == 1 and o["t"] > 1.7e9 and o["generation"] == 1 and o["node"] == o["rank"] // 2, o
    seen.setdefault((o["rank"], o["stream"]), []).append(o["line"] + ("~" if o.get("part") else "\n"))
for key in sorted(seen):
    print(*key, repr("".join(seen[key])))
END
    mrun --nnodes 2 --agent-is-node --nproc-per-node 2 --set logs.format=json --logs 1,2 -- \
        sh -c 'echo "a \"b\""; printf "e\0\377\n\nend" >&2'
    is "$status" 0 'a run whose output is JSON' || show
    is "$(python3 check.py out 2>&1)" "1 stderr 'e\\x00�\\n\\nend\\n'
1 stdout 'a \"b\"\\n'
2 stderr 'e\\x00�\\n\\nend\\n'
2 stdout 'a \"b\"\\n'" 'has an object a line, for both streams' || show
    unlike "$(cat err)" 'end' 'and none of it on standard error'
    LOG_FORMAT=json mrun --nproc-per-node 1 -- sh -c 'head -c 300000 /dev/zero | tr "\0" x; echo; echo last'
    is "$(python3 check.py out | tr -d x~)" "0 stdout '\\nlast\n'" 'LOG_FORMAT asks for it, too'
    is "$(python3 check.py out | tr -cd x | wc -c)" 300000 'and a long line comes in parts'
    LOG_FORMAT=logfmt mrun --nproc-per-node 1 -- echo it
    is "$(cat out)" '[0] it' 'of other words in LOG_FORMAT nothing is made'
    LOG_FORMAT=json mrun --nproc-per-node 1 --set logs.format=text -- echo it
    is "$(cat out)" '[0] it' 'and the job has the last word'
}

# One file a node, from which all that a rank printed can be taken out again.
test_node_files() {
    mrun --nnodes 2 --agent-is-node --nproc-per-node 2 --set logs.files=node -- \
        sh -c 'for i in 1 2 3; do echo line $i; echo error $i >&2; done; printf "\377\n\n[9 out] \0 end"'
    is "$status" 0 'a run' || show
    is "$(find run/logs -type f ! -name '*.times' | sort | tr '\n' ' ')" 'run/logs/1/node-0 run/logs/1/node-1 ' 'has a file a node'
    is "$(sed -n 's/^\[1 out\] line //p' run/logs/1/node-0 | tr '\n' ' ')" '1 2 3 ' 'with labelled lines'
    is "$(LC_ALL=C sed 's/\] .*/]/' run/logs/1/node-1 | LC_ALL=C sort | uniq -c | tr -s ' \n' ' ')" \
        ' 3 [2 err] 1 [2 out+] 5 [2 out] 3 [3 err] 1 [3 out+] 5 [3 out] ' 'of its ranks and both streams'
    "$MUSTER" logs run --rank 3 --stdout --no-label >got
    printf 'line 1\nline 2\nline 3\n\377\n\n[9 out] \0 end\n' >want
    ok 'muster logs gives back every byte' cmp got want
    run "$MUSTER" logs run --stderr -r 0,2-3
    is "$(sort out | tr '\n' ';')" '[0] error 1;[0] error 2;[0] error 3;[2] error 1;[2] error 2;[2] error 3;[3] error 1;[3] error 2;[3] error 3;' 'and picks ranks and streams'
    is "$(cat err)" '' 'without a word about what is missing'
    mrun --nproc-per-node 1 --set logs.files=node -- sh -c 'head -c 1000000 /dev/zero | tr "\0" x; echo; echo last'
    is "$("$MUSTER" logs run --no-label --stdout | tr -d '\n' | wc -c)" 1000004 'a line of a megabyte is kept' || show
    is "$("$MUSTER" logs run | tail -n 1)" '[0] last' 'as is what follows it'
}

test_no_files() {
    mrun --nproc-per-node 1 --set logs.files=none -- echo shown
    is "$(cat out)" '[0] shown' 'without files output is shown'
    ok 'and kept nowhere' test ! -e run/logs/1
    for o in '' -f '-g 1' --previous; do
        run "$MUSTER" logs run $o
        is "$status:$(cat out)" 0: "logs $o has nothing"
        like "$(cat err)" 'keeps no files of what its workers print (logs.files is none)' 'and says why'
    done
}

# A run that is started again often keeps the logs of the first generation and of the
# last ones.
test_generations() {
    mrun --nproc-per-node 2 --max-restarts 6 --set logs.generations=2 --set restart.backoff=1ms..1ms -- \
        sh -c 'echo generation $MUSTER_GENERATION; [ $MUSTER_GENERATION = 7 ] || [ $RANK = 1 ] || exit 1'
    is "$status" 0 'a run with six restarts' || show
    pruned() { [ "$(ls run/logs | sort -n | tr '\n' ' ')" = '1 5 6 7 ' ]; }
    ok 'keeps the logs of four generations' wait_for 60 pruned || diag "$(ls run/logs)"
    run "$MUSTER" logs run -r 0 --previous
    is "$(cat out)" '[0] generation 6' 'of the one before the newest' || show
    run "$MUSTER" logs run -r 0 -g 1
    is "$(cat out)" '[0] generation 1' 'and of the first' || show
    run "$MUSTER" logs run -g 3
    is "$status:$(cat out)" 0: 'one has none any more'
    like "$(cat err)" 'no logs of generation 3 here; of older ones logs.generations says' 'which is said' || show
    mrun --nproc-per-node 1 --max-restarts 3 --set logs.generations=0 --set restart.backoff=1ms..1ms -- \
        sh -c 'echo $MUSTER_GENERATION; exit $((MUSTER_GENERATION < 4))'
    is "$(ls run/logs | tr '\n' ' ')" '1 2 3 4 ' 'none is removed where all are to be kept' || show
}

test_previous() {
    mrun --nproc-per-node 2 --max-restarts 2 --set restart.backoff=10ms..20ms -- \
        sh -c 'echo generation $MUSTER_GENERATION; [ $MUSTER_GENERATION = 3 ] || [ $RANK = 1 ] || exit 1'
    is "$status" 0 'a run with two restarts' || show
    run "$MUSTER" logs run -r 0
    is "$(cat out)" '[0] generation 3' 'logs shows the newest generation'
    run "$MUSTER" logs run -r 0 --previous
    is "$(cat out)" '[0] generation 2' 'or the one before'
    run "$MUSTER" logs run --previous -g 1
    is "$status" 2 'not that and another one'
    mrun --nproc-per-node 1 -- echo hello
    run "$MUSTER" logs run --previous
    is "$status:$(cat out)" 0: 'where there is none'
    like "$(cat err)" 'has no logs of an earlier generation' 'that is said'
    run "$MUSTER" logs run -g 2
    like "$(cat err)" 'has no generation 2: 1 is the newest' 'as is a generation that there was not'
    run "$MUSTER" logs run -r 1,3
    like "$(cat err)" 'has no such rank: it has 1 worker, from rank 0 on' 'and ranks that nobody has'
    run "$MUSTER" logs run -r 0-3
    is "$(cat err)" '' 'but not where one is there'
}

# Workers that print nothing leave no files, which is not the same as lost ones.
test_silent() {
    mrun --nproc-per-node 2 --max-restarts 1 --set restart.backoff=1ms..1ms -- \
        sh -c '[ $MUSTER_GENERATION = 2 ] && exit; [ $RANK = 0 ] || exec sleep 1000; echo one; exit 1'
    is "$status" 0 'a run whose second generation prints nothing' || show
    run "$MUSTER" logs run -r 0
    is "$(cat out)" '[0] one' 'what the first one printed is shown'
    like "$(cat err)" 'generation 2 has printed nothing here: this is generation 1' 'as such' || show
    run "$MUSTER" logs run -r 0 --previous
    is "$(cat out):$(cat err)" '[0] one:' 'and is that of the one before the newest' || show
    run "$MUSTER" logs run -r 1 --previous
    is "$(cat out):$(cat err)" : 'of which a rank may have been silent' || show
    run "$MUSTER" logs run -g 2
    is "$status:$(cat out)" 0: 'the second one has nothing'
    like "$(cat err)" ': generation 2 has printed nothing here' 'which is told' || show
    unlike "$(cat err)" 'not shared' 'and not sought on other hosts'
    mrun --nproc-per-node 2 -- true
    run "$MUSTER" logs run
    is "$status:$(cat out)" 0: 'a run that printed nothing'
    is "$(sed 's/run [^ ]*:/run:/' err)" 'muster: run: generation 1 has printed nothing here' 'is said to be one' || show
    run "$MUSTER" logs run -r 5
    like "$(cat err)" 'has no such rank: it has 2 workers' 'of ranks, too' || show
    run "$MUSTER" logs run --previous
    like "$(cat err)" 'has no logs of an earlier generation' 'and there is no other'
    run timeout 60 "$MUSTER" logs -f run
    is "$status:$(cat out)" 0: 'nor is one waited for'
    mrun --set logs.files=none --nproc-per-node 1 -- echo hi
    run "$MUSTER" logs run
    like "$(cat err)" 'keeps no files' 'one that keeps no files says so' || show
}

# Somebody removes the run directory while the run goes on.
test_removed() {
    cat >worker <<'END'
#!/bin/sh
echo generation $((TORCHELASTIC_RESTART_COUNT + 1))
[ "$TORCHELASTIC_RESTART_COUNT" = 2 ] && exit 0
until [ ! -e "$MUSTER_RUN_DIR" ]; do sleep 0.1; done
exit 1
END
    chmod +x worker
    rm -rf run
    spawn removed timeout 120 "$MUSTER" run --allow-run-as-root --quiet --run-dir run --max-restarts 2 \
        --nproc-per-node 2 -- ./worker
    ok 'workers that print' wait_for 60 grep -q generation run/logs/1/0/stdout run/logs/1/1/stdout
    mv run away
    wait_exit 120 "$spawned"
    is "$status:$(sort removed.out | grep -c 'generation 3')" 0:2 'go on without their run directory' ||
        diag "$(cat removed.out removed.err)"
    ok 'which stays removed' test ! -e run
    is "$(grep -c "log files on .*/run was removed" removed.err)" 1 'as is said, once' || diag "$(cat removed.err)"
}

# Files that are put aside at a size, read through in order, and followed.
test_sizes() {
    local f
    for f in rank node; do
        mrun --nproc-per-node 2 --log-max-size 64Ki --log-keep 20 --logs none --set logs.files=$f -- \
            sh -c 'seq -f "this is line %g of $RANK" 15000; echo last >&2'
        is "$status" 0 "a run whose logs are put aside ($f)" || show
        is "$(find run/logs -type f -size +64k)" '' 'no file is larger than asked'
        num "$(find run/logs -type f -name '*.[0-9]*' ! -name '*.times' | wc -l)" -ge 10 'many are full'
        for r in 0 1; do
            "$MUSTER" logs run -r $r --stdout --no-label >got 2>err
            seq -f "this is line %g of $r" 15000 >want
            ok "all lines of rank $r are shown in order" cmp got want
            is "$(cat err)" '' 'without complaint'
        done
    done
    mrun --nproc-per-node 1 --set logs.maxSize=64Ki --set logs.keep=2 -- seq -f 'this is line %g' 30000
    is "$(ls run/logs/1/0 | grep -vc times)" 3 'no more than asked are kept' || diag "$(ls -l run/logs/1/0)"
    num "$(cat run/logs/1/0/stdout* | wc -c)" -le 220000 'which bounds all of them'
    "$MUSTER" logs run --no-label >got
    is "$(tail -n 1 got)" 'this is line 30000' 'the end is there'
    is "$(seq -f 'this is line %g' 30000 | tail -n "$(wc -l <got)" | cmp - got 2>&1)" '' 'in whole lines'
    for o in --log-max-size=1000 --log-max-size=x --log-keep=0 --set=logs.maxSize=63Ki; do
        mrun $o -- true
        is "$status" 2 "not $o"
    done
    like "$(cat err)" 'logs.maxSize is "63Ki"; expected a size such as 64Mi of at least 64Ki, or off' 'and it is told why' || show
}

test_follow_sizes() {
    spawn job timeout 120 "$MUSTER" run --allow-run-as-root --quiet --run-dir run --nproc-per-node 1 \
        --log-max-size 64Ki --log-keep 100 --logs none -- \
        sh -c 'for i in $(seq 40); do seq -f "$i: this is line %g" 500; sleep 0.02; done; until [ -e '"$PWD"'/go ]; do sleep 0.1; done; echo end'
    job=$spawned
    ok 'a run' wait_for 60 test -e run/logs/1/0/stdout
    spawn follow "$MUSTER" logs run -f --no-label
    follow=$spawned
    ok 'is followed' wait_for 60 grep -qx '40: this is line 500' follow.out
    touch go
    ok 'it ends' wait_exit 60 $job
    ok 'and so does what follows it' wait_exit 60 $follow
    for i in $(seq 40); do seq -f "$i: this is line %g" 500; done >want
    echo end >>want
    num "$(ls run/logs/1/0 | grep -vc times)" -gt 3 'over many files'
    ok 'every line comes once, in order' cmp follow.out want
}

# Two lines, each rank's second one more than two seconds after both first ones
# were written; $at is between.
two_lines() {
    mrun --nproc-per-node 2 --logs none "$@" -- sh -c "echo early
        until [ \$(cat $PWD/run/logs/1/* $PWD/run/logs/1/*/stdout 2>/dev/null | grep -c early) = 2 ]; do sleep 0.1; done
        sleep 2.5; date -u +%s >$PWD/at.\$RANK; echo late"
    is "$status" 0 'a run' || show
    at=$(sort -n at.* | head -n 1)
}

test_since() {
    two_lines
    "$MUSTER" logs run --no-label --since "@$at" >got 2>err
    is "$(cat got)$(cat err)" $'late\nlate' '--since leaves out what is older'
    is "$("$MUSTER" logs run --no-label -r 0 --since "$(date -u -d "@$at" +%Y-%m-%dT%H:%M:%SZ)")" late 'also by a date'
    is "$("$MUSTER" logs run --no-label -r 0 --since 1d | tr '\n' ' ')" 'early late ' 'or a span'
    is "$("$MUSTER" logs run --since "@$((at + 100))" 2>&1)" '' 'nothing is newer than all'
    is "$("$MUSTER" logs run -f --no-label -r 0 --since "@$at" 2>&1)" late 'with -f, too'
    rm run/logs/1/0/stdout.times
    run "$MUSTER" logs run --no-label -r 0 --since "@$at"
    is "$(tr '\n' ' ' <out)" 'early late ' 'a log without times is shown whole'
    like "$(cat err)" '1 log has no times' 'which is told' || show
    run "$MUSTER" logs run --since yesterday
    is "$status" 2 'no time'
    like "$(cat err)" "option --since: expected a time that has passed since, such as 90s" 'what is one is told' || show
    two_lines --set logs.files=node
    is "$("$MUSTER" logs run --since "@$at" | sort | tr '\n' ' ')" '[0] late [1] late ' 'likewise in the file of a node'
}

# Workers that print much just before they end, and a reader that is slow: what is
# on its way at the end still arrives, wherever it waits (pipe, front end, window
# and queue of the tree, pipes of the workers), also from nodes below.
test_end() {
    local n k
    while read -r n k; do
        rm -rf run
        timeout 120 "$MUSTER" run --allow-run-as-root --quiet --run-dir run --nnodes $n --agent-is-node \
            --nproc-per-node 1 --set logs.prefix=none -- \
            sh -c "head -c ${k}000 /dev/zero | tr '\\0' x | fold -w 99; echo last" 2>err | { sleep 2; cat; } >out
        is "$(tr -cd x <out | wc -c)" $((n * k * 1000)) "$k kB of $n node(s) arrive" || diag "$(cat err)"
        is "$(grep -c 'last$' out)" $n 'to the last line'
    done <<'END'
1 1150
1 1250
1 1350
1 1400
1 1450
1 1500
3 450
3 2000
END
}

run_cases
