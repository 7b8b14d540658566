#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What users get wrong: specs, options, programs, run directories. Each is told
# with its place, what was found and what is expected, before anything starts
# where that can be known, with the exit status of the manual.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun

# mrun OPTION...: a run in a directory of its own, ./run.
mrun() {
    rm -rf run
    run timeout 60 "$MUSTER" run --allow-run-as-root --run-dir run "$@"
}
spec() { { printf 'apiVersion: muster/v1\nkind: Job\n'; cat; } >job.yaml; }
# What an ordinary user can run: root may have built below a directory of its own.
for_everybody() {
    chmod 755 "$TRASH"
    mkdir -p -m 755 bin && cp "${MUSTER%/*}"/muster{,-mpi,-watch,-exec} bin/
    nobody="setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent"
}
nothing_started() { [ ! -e run/mpirun.log ] && [ ! -e muster-runs ]; }

# bad_spec FILE PART NAME: run and validate say PART of it, exit status 2. That is
# bounded by the CPU that they take, which a busy machine does not change.
bad_spec() {
    run bash -c 'ulimit -t 60; exec timeout 600 "$@"' - "$MUSTER" validate "$1"
    is "$status:$(cat out)" 2: "$3: validate refuses it" || show
    like "$(cat err)" "$2" "$3: and says where and what"
    mrun "$1"
    is "$status" 2 "$3: so does run" || show
    like "$(cat err)" "$2" "$3: in the same words"
    unlike "$(cat err)" 'muster: muster:' "$3: under one name"
    ok "$3: nothing was started" nothing_started
}

# --dry-run knows what the run would say.
test_dry_run() {
    local word way
    word=$(printf '%01000d' 0)
    { echo 'name: long'; echo 'nodes: 1'; printf 'command: ["true"'
      for _ in $(seq $(($(getconf ARG_MAX) / 1000))); do printf ', "%s"' "$word"; done
      echo ']'; } | spec
    for way in '' --dry-run; do
        mrun $way job.yaml
        is "$status" 2 "a command that no program can be started with ${way:-run}" || show
        matches "$(cat err)" 'the command has [0-9]+ bytes, and with the environment [0-9]+, but here no program' 'is told with its size' || show
        ok 'before anything starts' nothing_started
        mrun $way --hosts localhost,127.0.0.1 --nnodes 2 -- true
        is "$status" 2 "two names of this machine ${way:-run}" || show
        like "$(cat err)" '--hosts: localhost and 127.0.0.1 are both this machine' 'are named' || show
        ok 'and nothing is started' nothing_started
    done
    touch file
    mkdir -p other
    touch other/precious
    same 1 "make directory $PWD/file: Not a directory" --run-dir file/x
    same 1 "open $PWD/file/run.json: Not a directory" --run-dir file
    same 1 'other is no run directory' --run-dir other
    same 1 "make directory $PWD/file/true: Not a directory" --set logs.dir=file
    same 2 'open job key /no/key: No such file' --key-file /no/key
    same 69:0 'has no address for network.interface nosuch0; it has' --interface nosuch0
    CUDA_VISIBLE_DEVICES= same 1:0 "$(hostname): procsPerNode is gpu, but there is no GPU" --nproc-per-node gpu
    mrun --dry-run --run-dir file/x --interface nosuch0 -- true
    is "$(sed -n 's/^muster: \([a-z]* [a-z]*\) .*/\1/p' err | head -n 1):$(grep -c nosuch0 err)" 'make directory:1' 'all of it is said at once' || show
    like "$(cat out)" '# started by' 'beside what would be done'
    mkdir gone
    for way in '' --dry-run; do
        (cd gone && rmdir ../gone; exec "$MUSTER" run --allow-run-as-root $way --run-dir "$TRASH/homeless" -- true) >out 2>err
        is "$?" 1 "a directory that is gone ${way:-run}" || show
        like "$(cat err)" 'find the working directory: No such file' 'is told' || show
        ok 'before there is a run' [ ! -e homeless ]
        mkdir -p gone
    done
}

# A run whose nodes never came has no status.
test_not_started() {
    mrun --interface nosuch0 -- true
    is "$status" 69 'a run that does not start' || show
    run "$MUSTER" logs run
    like "$status:$(cat err)" 'has no logs: none of its workers was started' 'has no logs, nor will have' || show
    rm -rf run
}

# same STATUS[:STATUS] PART OPTION...: a run and its dry run say the same, and end with
# that, or each with its own: what devices are lacking here another machine may have.
same() {
    local want=$1 part=$2 way
    shift 2
    for way in '' --dry-run; do
        rm -rf muster-runs
        run timeout 60 "$MUSTER" run --allow-run-as-root $way "$@" -- true
        is "$status" "$([ "$way" ] && echo "${want#*:}" || echo "${want%:*}")" "$* ${way:-run}" || show
        like "$(cat err)" "$part" 'and why' || show
    done
    rm -rf muster-runs
}

# Options that users of other launchers type.
test_habits() {
    local want words
    while IFS='|' read -r words want; do
        run "$MUSTER" run --allow-run-as-root $words
        is "$status" 2 "$words" || show
        like "$(cat err)" "$want" 'is told what it is here' || show
    done <<'END'
-np 4 -- true|unknown option -np (here it is --nproc-per-node on each of --nnodes)
-nnodes=2 -- true|unknown option -nnodes=2 (did you mean --nnodes?)
-N 2 -- true|unknown option -N (here it is --nnodes, or --nproc-per-node for that of mpirun)
--ntasks-per-node=4 -- true|unknown option --ntasks-per-node (here it is --nproc-per-node)
--num_gpus 2 -- true|unknown option --num_gpus (here it is --nproc-per-node)
--host a,b -- true|unknown option --host (here it is --hosts)
-x A=1 -- true|unknown option -x (here it is --set env.NAME=VALUE
--bind-to core -- true|unknown option --bind-to (here it is for MPI programs: -- mpirun --bind-to ... PROGRAM)
-n 4 -- true|expected either a SPEC or -- PROGRAM, found both: '4' and -- true
python3 train.py|unexpected argument 'train.py' (a program and its words stand behind --)
END
    ok 'and nothing was started' nothing_started
}

test_specs() {
    bad_spec missing.yaml 'open missing.yaml: No such file' 'a missing file'
    bad_spec '' 'a spec without a name; expected a file, or - for standard input' 'no name'
    mkdir -p dir
    bad_spec dir 'read dir: Is a directory' 'a directory'
    bad_spec /dev/null 'no job in it' 'an empty file'
    echo 'import sys' >train.py
    bad_spec train.py 'train.py is a program; expected a file that describes a job (-- python train.py runs the program)' 'a script of Python'
    printf '#!/bin/sh\n' >train
    bad_spec train '(-- ./train runs the program)' 'any script'
    bad_spec /bin/true '(-- /bin/true runs the program)' 'a program'
    spec <<<'name: [a'
    bad_spec job.yaml 'job.yaml:4:1: ' 'a syntax error'
    spec <<<$'name: x\n\tcommand: [x]'
    bad_spec job.yaml 'job.yaml:4:1: found a tab' 'a tab'
    spec <<<$'name: x\ncommand: {a: b}'
    bad_spec job.yaml 'job.yaml:4:10: command is a map; expected a list' 'a wrong type'
    spec <<<$'name: x\ncommand: [x]\nlimts: {grace: 5s}'
    bad_spec job.yaml 'job.yaml:5:1: unknown key "limts"; did you mean limits' 'an unknown key'
    spec <<<$'name: x\ncommand: [x]\nrestart: {backof: 1s}'
    bad_spec job.yaml 'unknown key "backof" in restart; did you mean backoff' 'one further down'
    spec <<<$'name: x\ncommand: [x]\nnodes: -3'
    bad_spec job.yaml 'job.yaml:5:8: nodes is "-3"; expected a whole number from 1' 'a negative count'
    spec <<<$'name: x\ncommand: [x]\nname: y'
    bad_spec job.yaml 'job.yaml:5:1: key "name" again, first on line 3' 'a key twice'
    spec <<<$'name: ../../x\ncommand: [x]'
    bad_spec job.yaml 'name is "../../x"; expected a name of a-z' 'a name that leads elsewhere'
    spec <<<$'name: x\ncommand: [x]\nenv: {"A=B": c}'
    bad_spec job.yaml 'env has the name "A=B"' 'a variable that cannot be'
    spec <<<$'name: x\ncommand: [x]\nsuspend: maybe'
    bad_spec job.yaml 'job.yaml:5:10: suspend is "maybe"; expected true or false' 'neither suspended nor not'
    if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
        for_everybody
        chmod 000 job.yaml
        run $nobody bin/muster validate job.yaml
        is "$status" 2 'a file that this user may not read' || show
        like "$(cat err)" 'Permission denied' 'and why'
    else
        skip 'not root' 2
    fi
}

test_hostile_specs() {
    python3 - <<'END'
head = 'apiVersion: muster/v1\nkind: Job\nname: a\ncommand: [x]\n'
with open('bomb.yaml', 'w') as f:
    f.write(head + 'env:\n  a0: &a0 [%s]\n' % ','.join(['lol'] * 10))
    for i in range(1, 12):
        f.write('  a%d: &a%d [%s]\n' % (i, i, ','.join(['*a%d' % (i - 1)] * 10)))
with open('big.yaml', 'w') as f:
    f.write(head + 'env:\n')
    for i in range(100):
        f.write(''.join('  A%06d: "%s"\n' % (i * 10000 + k, 'b' * 86) for k in range(10000)))
with open('merges.yaml', 'w') as f:
    f.write('x: &x {%s}\n' % ', '.join('k%d: 1' % i for i in range(4000)))
    f.write('y: [%s]\n' % ', '.join(['{<<: [*x, *x]}'] * 20))
open('deep.yaml', 'w').write('[' * 100000)
open('self.yaml', 'w').write('a: &a [*a]\n')
open('zero.yaml', 'wb').write(head.encode() + b'env: {A: "a\0b"}\n')
open('bytes.yaml', 'wb').write(bytes(range(256)) * 100)
END
    num "$(stat -c %s big.yaml)" -ge 100000000 'a file of 100 MB'
    bad_spec bomb.yaml 'more than 100000 values' 'an alias bomb'
    bad_spec big.yaml 'big.yaml is larger than' '100 MB'
    bad_spec deep.yaml 'nested deeper than' 'a deep nest'
    bad_spec self.yaml 'alias *a' 'an alias of itself'
    bad_spec zero.yaml 'zero.yaml:5:' 'a zero byte'
    bad_spec bytes.yaml 'bytes.yaml:1:1: byte 0x00' 'anything but text'
    bad_spec merges.yaml 'more aliases and `<<` than can be followed' 'merge keys'
    rm -f big.yaml
    (sanitized || ulimit -v 400000; ulimit -t 60; exec timeout 600 "$MUSTER" validate /dev/zero) >out 2>err
    is $? 2 'a file without an end' || show
}

# What a file or an argument has in it is shown, and drives no terminal.
hidden_free() {
    python3 -c 'import sys
text = open(sys.argv[1], encoding="utf-8").read()
sys.exit(any(ord(c) < 32 and c != "\n" or 0x7f <= ord(c) < 0xa0 or 0x202a <= ord(c) < 0x202f for c in text))' "$1"
}
test_hostile_words() {
    local esc=$'\e[2J\e]0;x\a' c1=$'\302\233' c
    spec <<<$'name: x\ncommand: [x]\n"key\\e[31m\\u009b\\u202e": 1'
    bad_spec job.yaml 'job.yaml:5:1: unknown key "key\x1b[31m\u009b\u202e"; expected' 'a key'
    ok 'a key: nothing hidden is printed' hidden_free err
    spec <<<$'name: x\ncommand: [x]\nnodes: "\\e[31m"'
    bad_spec job.yaml 'nodes is "\x1b[31m"; expected' 'a value'
    ok 'a value: nothing hidden is printed' hidden_free err
    bad_spec "no$esc$c1.yaml" 'open no\x1b[2J\x1b]0;x\x07\u009b.yaml: No such file' 'a file name'
    ok 'a file name: nothing hidden is printed' hidden_free err
    spec <<<$'name: x\ncommand: [echo, "\\e[31m\'", "\\u202e"]\nlabels: {a: "\\u202e"}'
    run "$MUSTER" validate job.yaml
    like "$status:$(cat out)" "0:ok: job x, 1 node x one process for each GPU, else each CPU: echo \$'\\033[31m\\'' \$'\\342\\200\\256'" \
        'a command is shown as a shell reads it' || show
    ok 'a command: nothing hidden is printed' hidden_free out
    mrun --dry-run job.yaml
    is "$status" 0 'a dry run of it' || show
    ok 'a dry run: nothing hidden is printed' hidden_free out
    for c in "run --$esc" "run --nnodes $esc -- true" "run --set $esc -- true" "validate --$c1" "run --hosts $esc -- true"; do
        run "$MUSTER" $c
        is "$status" 2 "muster ${c%% *} with an odd option" || show
        ok 'nothing hidden is printed' hidden_free err
    done
}

# bad_option STATUS PART OPTION...: before "-- true".
bad_option() {
    local want=$1 part=$2
    shift 2
    mrun "$@" -- true
    is "$status" "$want" "'$*' is refused with $want" || show
    like "$(cat err)" "$part" "'$*': the reason is given"
    ok "'$*': nothing was started" nothing_started
}

test_options() {
    bad_option 2 '--nnodes: nodes is "-1"' --nnodes -1
    bad_option 2 'nodes is "3..1"' --nnodes 3:1
    bad_option 2 '--nproc-per-node: procsPerNode is "0"' --nproc-per-node 0
    bad_option 2 'procsPerNode is "99999999999"' --nproc-per-node 99999999999
    bad_option 2 '--max-restarts: restart.max is "-1"' --max-restarts -1
    bad_option 2 'found -1' --agents-per-node -1
    bad_option 2 '--agents-per-node: expected 1 to 1024 agents on a host, found 0' --agents-per-node 0
    bad_option 2 'found 2x' --agents-per-node 2x
    bad_option 2 '1 to 1024 agents' --agents-per-node 99999999
    bad_option 2 '1 to 1024 agents' --agent-is-node --nnodes 60000
    bad_option 2 '--name: name is "../../x"' --name ../../x
    bad_option 2 "option --name: expected NAME, found ''" --name ''
    bad_option 2 "option --ssh: expected COMMAND, found ''" --ssh ''
    bad_option 2 'unknown key "foo"' --set foo=1
    bad_option 2 "expected PATH=VALUE, found 'nodes'" --set nodes
    bad_option 2 'unknown option --bogus' --bogus
    bad_option 2 "'a;b' is not a host name" --hosts 'a;b'
    bad_option 2 "is not a host name" --hosts '-oProxyCommand=touch pwned'
    bad_option 2 "'n[1-' lacks a ]" --hosts 'n[1-'
    bad_option 2 'is not a range of hosts' --hosts 'n[1-999999999]'
    bad_option 2 'open nofile: No such file' --hostfile nofile
    bad_option 2 '/no/mpirun' --mpirun /no/mpirun
    bad_option 2 '/no/key' --key-file /no/key
    bad_option 2 'the job needs 2 nodes' --nnodes 2
    ok 'no command of a host name was run' test ! -e pwned
    run "$MUSTER" run --allow-run-as-root
    is "$status" 2 'neither a spec nor a program'
    run "$MUSTER" run --allow-run-as-root a b
    is "$status" 2 'two specs'
    mrun -- ''
    is "$status" 2 'a program without a name' || show
    if [ "$(id -u)" = 0 ]; then
        run env -u OMPI_ALLOW_RUN_AS_ROOT "$MUSTER" run --run-dir run -- true
        is "$status" 2 'root has to say so'
        like "$(cat err)" '--allow-run-as-root' 'and is told how'
    else
        skip 'not root' 2
    fi
}

test_bad_host() {
    mrun --hosts no-such-host.invalid --ssh /bin/false -- true
    is "$status" 69 'a host that cannot be reached' || show
    like "$(cat err)" 'host no-such-host.invalid' 'is named'
    mrun --hosts no-such-host.invalid --ssh ' ' -- true
    is "$status" 69 'a blank remote shell is ssh' || show
}

# cannot_start STATUS PART PROGRAM OPTION...
cannot_start() {
    local want=$1 part=$2 program=$3
    shift 3
    mrun "$@" --nproc-per-node 2 -- "$program"
    is "$status" "$want" "$program ($part) ends the run with $want" || show
    like "$(cat err)" "cannot run $program: $part" "$program: the reason is given" || show
    like "$(cat err)" "rank " "$program: and who"
    is "$(grep -c "cannot run .*cannot run\|could not start" err)" 0 "$program: once a line"
    unlike "$(cat err)" 'last lines' "$program: it has not printed anything"
    num "$(find run/logs -maxdepth 1 -mindepth 1 2>/dev/null | wc -l)" -le 1 "$program: it is not tried again"
}

test_programs() {
    cannot_start 127 'no such file' ./absent
    cannot_start 127 'not found in PATH' absent-in-path
    echo data >not-executable
    cannot_start 126 './not-executable is not executable' ./not-executable
    printf '#!/no/such/interpreter\n' >bad-interpreter
    chmod +x bad-interpreter
    cannot_start 126 'interpreter /no/such/interpreter' ./bad-interpreter
    mkdir -p directory
    cannot_start 126 'it is a directory' ./directory
    mkfifo -m 700 pipe
    cannot_start 126 './pipe is a pipe' ./pipe
    echo 'echo hello' >no-interpreter
    chmod +x no-interpreter
    cannot_start 126 'neither a program' ./no-interpreter
    cannot_start 126 'working directory /no/such/dir: No such file' true --set workdir=/no/such/dir
    cannot_start 126 "working directory $PWD/not-executable: Not a directory" true \
        --set "workdir=$PWD/not-executable"
}

test_run_dirs() {
    local c
    touch file
    bad_run_dir() {
        run timeout 20 "$MUSTER" run --allow-run-as-root --run-dir "$1" -- true
        is "$status" "$2" "$3" || show
        like "$(cat err)" "$4" "$3: the reason is given"
    }
    bad_run_dir '' 2 'no run directory' "expected DIR, found ''"
    bad_run_dir file 1 'a file' 'Not a directory'
    bad_run_dir file/x 1 'one below a file' 'Not a directory'
    bad_run_dir /proc/x 1 'one that cannot be made' 'make run directory /proc/x'
    mkdir -p other
    touch other/precious
    bad_run_dir other 1 'a directory of something else' 'is no run directory'
    is "$(ls other)" precious 'which is left alone'
    bad_run_dir "$(printf 'x%.0s' {1..300})" 1 'a name that is too long' 'File name too long'
    bad_run_dir "$(printf 'xxxxxxx/%.0s' {1..600})" 1 'a path that is too long' 'oo long'
    mkdir -p newer
    echo '{"v":99,"id":"x1","name":"x"}' >newer/run.json
    for c in 'run --allow-run-as-root --run-dir newer -- true' 'status newer' 'logs newer' 'cancel newer'; do
        run timeout 20 "$MUSTER" $c
        is "$status" 1 "a newer muster's run directory: ${c%% *}" || show
        like "$(cat err)" 'newer muster (format 99, this one knows 1)' 'is told'
    done
    is "$(ls newer)" run.json 'and left alone'
    mrun --run-dir $'a b\n"c"' --nproc-per-node 1 -- sh -c 'cat "$MUSTER_RUN_DIR/run.json"'
    is "$status" 0 'a name with blanks, newlines and quotes is one' || show
    like "$(cat out)" '"id":' 'for workers too'
}

test_not_writable() {
    [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || { skip 'not root' 11; return; }
    for_everybody
    mkdir -p -m 755 closed && mkdir -p -m 777 open
    run $nobody timeout 20 "$TRASH/bin/muster" run --run-dir closed/run -- true
    is "$status" 1 'a directory that cannot be written' || show
    like "$(cat err)" "closed/run: Permission denied" 'is named, with the reason'
    (cd closed && exec $nobody timeout 20 "$TRASH/bin/muster" run -- true) >out 2>err
    is "$?" 1 'nor here' || show
    like "$(cat err)" "closed/muster-runs: Permission denied" 'and is named'
    run $nobody "$TRASH/bin/muster" run --dry-run --run-dir closed/run -- true
    like "$status:$(cat err)" "1:muster: make run directory $TRASH/closed/run: Permission denied" 'as --dry-run says' || show
    (cd closed && exec $nobody "$TRASH/bin/muster" run --dry-run -- true) >out 2>err
    like "$?:$(cat err)" "1:muster: make directory $TRASH/closed/muster-runs: Permission denied" 'in both' || show
    run $nobody env XDG_STATE_HOME="$TRASH/open/state" timeout 60 \
        "$TRASH/bin/muster" run --run-dir open/run --nproc-per-node 2 -- id -u
    is "$status" 0 'an ordinary user runs a job' || show
    is "$(sort -u <<<"$(sed 's/.*] //' out)")" 65534 'as that user'
    is "$(find open/run \( -type f -perm /077 \) -o \( -type d -perm /077 \) | tr '\n' ' ')" '' 'in private'
    mrun -- true
    chmod 777 run
    run $nobody timeout 20 "$TRASH/bin/muster" run --run-dir run -- true
    is "$status" 1 "somebody else's run directory is refused" || show
    chmod 700 run
    run $nobody "$TRASH/bin/muster" status "$TRASH/run"
    like "$status:$(cat err)" "1:muster: open run directory $TRASH/run: Permission denied" 'nor looked at' || show
}

test_environment() {
    spec <<'END'
name: env
procsPerNode: 1
command: [python3, -c, "import os; print({k: os.environ[k] for k in sorted(os.environ) if k.startswith('Q_')})"]
env:
  Q_EMPTY: ""
  Q_EQUALS: "a=b=c"
  Q_NEWLINE: "a\nb"
  Q_QUOTES: 'it''s "q" $HOME `x` \'
  Q_TEXT: "é✓"
END
    mrun job.yaml
    is "$status" 0 'odd values' || show
    is "$(cat out)" "[0] {'Q_EMPTY': '', 'Q_EQUALS': 'a=b=c', 'Q_NEWLINE': 'a\\nb', 'Q_QUOTES': 'it\\'s \"q\" \$HOME \`x\` \\\\', 'Q_TEXT': 'é✓'}" \
        'reach the worker as they are'
    mrun --nproc-per-node 1 -- sh -c 'echo "$#:$1:$2:$3"' x '' 'a "b" $c' $'n\nl'
    is "$(cat run/logs/1/0/stdout)" $'3::a "b" $c:n\nl' 'and so do arguments' || show
}

run_cases
