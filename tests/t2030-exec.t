#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster-exec from a shell: what it sets up, and how its failures read.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"

EXEC=$MUSTER_BUILDDIR/muster-exec
[ -x "$EXEC" ] || skip_all 'muster-exec is not built'
command -v python3 >/dev/null || skip_all 'no python3'

# script NAME FIRST-LINE [MODE]
script() { printf '%s\necho ran\n' "$2" >"$1"; chmod "${3:-755}" "$1"; }

# fails STATUS TEXT NAME ARG...: what muster-exec says, and its status.
fails() {
    local want=$1 text=$2 name=$3
    shift 3
    run "$EXEC" "$@"
    is "$status" "$want" "$name: status $want"
    is "$(cat err)" "muster-exec: $text" "$name: words"
    is "$(cat out)" '' "$name: nothing on stdout"
}

test_runs() {
    script ok.sh '#!/bin/sh'
    run "$EXEC" -- ./ok.sh
    is "$status" 0 'a script runs'
    is "$(cat out)" ran 'and prints'
    run "$EXEC" -- sh -c 'exit 37'
    is "$status" 37 'its status is its own'
    run "$EXEC" -- printf '%s|' a 'b  c' '' '*'
    is "$(cat out)" 'a|b  c||*|' 'arguments arrive as they are'
    run "$EXEC" sh -c 'kill -SEGV $$'
    is "$status" 139 'a signal, too'
}

test_not_found() {
    local path=$PATH
    fails 127 "cannot run ./none.sh: no such file in $PWD" 'relative' \
        -- ./none.sh
    fails 127 'cannot run /none/x: no such file' 'absolute' -- /none/x
    fails 127 "cannot run pyton: not found in PATH ($path)" 'by name' -- pyton
    touch here.sh
    fails 127 "cannot run here.sh: not found in PATH, only as ./here.sh in the working directory ($path)" 'one that is here' -- here.sh
    run env -u PATH "$EXEC" -- pyton
    is "$(cat err)" \
        'muster-exec: cannot run pyton: not found in PATH (which is not set)' \
        'no PATH'
    run env PATH=/none1:/none2 "$EXEC" -- sh
    is "$status $(cat err)" \
        '127 muster-exec: cannot run sh: not found in PATH (/none1:/none2)' \
        "the worker's PATH counts"
}

test_not_executable() {
    script plain.sh '#!/bin/sh' 644
    mkdir -p dir bin
    fails 126 'cannot run ./dir: it is a directory' 'directory' -- ./dir
    fails 126 'cannot run ./plain.sh: ./plain.sh is not executable (chmod +x makes it so, unless its filesystem is mounted noexec)' \
        'mode 644' -- ./plain.sh
    script bin/tool '#!/bin/sh' 644
    run env PATH="$PWD/bin" "$EXEC" -- tool
    like "$(cat err)" "cannot run tool: $PWD/bin/tool is not executable" \
        'mode 644 in PATH'
    printf 'hello\n' >text
    chmod 755 text
    fails 126 'cannot run ./text: neither a program for this machine nor a script that begins with #! and an interpreter' \
        'text without #!' -- ./text
    : >empty
    chmod 755 empty
    fails 126 'cannot run ./empty: neither a program for this machine nor a script that begins with #! and an interpreter' \
        'empty file' -- ./empty
}

test_interpreter() {
    script bad.sh '#!/usr/bin/pyton'
    fails 126 'cannot run ./bad.sh: interpreter /usr/bin/pyton (line 1) not found' \
        'missing interpreter' -- ./bad.sh
    script bad.sh '#! /usr/bin/env  pyton -u'
    fails 126 'cannot run ./bad.sh: interpreter pyton (line 1, by env) not found in PATH' \
        'missing behind env' -- ./bad.sh
    script bad.sh $'#!/bin/sh\r'
    fails 126 'cannot run ./bad.sh: line 1 ends in a carriage return: the file has DOS line ends, save it with Unix ones' \
        'DOS file' -- ./bad.sh
    script bad.sh '#!'
    fails 126 'cannot run ./bad.sh: no interpreter after #! (line 1)' \
        'empty #!' -- ./bad.sh
    script plain.sh '#!/bin/sh' 644
    script bad.sh "#!$PWD/plain.sh"
    fails 126 "cannot run ./bad.sh: interpreter $PWD/plain.sh (line 1) is not executable" \
        'interpreter without x' -- ./bad.sh
    script good.sh '#!/usr/bin/env sh'
    run "$EXEC" -- ./good.sh
    is "$status $(cat out)" '0 ran' 'env that finds it'
    # A program whose loader is not there: the right one, with one byte changed.
    python3 - /bin/true alien <<'END'
import sys
data = open(sys.argv[1], "rb").read()
i = data.find(b"/lib64/ld-linux")
open(sys.argv[2], "wb").write(data[:i] + b"/lib63" + data[i + 6:] if i > 0 else data)
END
    chmod 755 alien
    if grep -q lib63 alien; then
        run "$EXEC" -- ./alien
        is "$status" 126 'a program for another system'
        like "$(cat err)" 'its loader /lib63/ld-linux' 'its loader is named'
    else
        skip 'no usual loader in /bin/true' 2
    fi
}

# python WANT ARG...: what --python-only makes of a command.
python() {
    local want=$1
    shift
    run strace -qq -e trace=execve -s 200 -o trace "$EXEC" --python-only -- "$@"
    is "$(sed -n '$s/^execve(\(".*"\), \[\(.*\)\], .*/\2/p' trace)" "$want" "$*: the same Python, with an empty program"
}

test_python_only() {
    local py=/usr/bin/python3 path=$PATH
    [ -x $py ] || { skip "no $py"; return; }
    PATH=/usr/bin:/bin
    script wrap.sh '#!/bin/sh'
    script env.py '#!/usr/bin/env -S python3 -u -X dev'
    script direct.py "#! $py -I"
    fails 126 "the command starts $(command -v sh), not Python itself" 'a shell' --python-only -- sh x
    fails 126 'the command starts /bin/sh, not Python itself' 'a script' --python-only -- ./wrap.sh
    fails 126 "Python's option -I keeps PYTHONPATH or site out" 'isolated' --python-only -- ./direct.py
    fails 126 "Python's option -E keeps PYTHONPATH or site out" 'in a cluster' --python-only -- python3 -uEm x
    fails 126 "Python's option -i" 'interactive' --python-only -- python3 -i x
    fails 126 'Python is given no program' 'no program' --python-only -- python3 -u
    fails 126 'Python reads its program from stdin' 'stdin' --python-only -- python3 - x
    fails 126 'env changes the environment (A=b)' 'env that sets' --python-only -- env A=b python3 x
    fails 127 "cannot run nopython: not found in PATH ($PATH)" 'none' --python-only -- nopython x
    if can_trace; then
        python '"python3", "-c", "pass"' python3 x.py a b
        python '"python3", "-u", "-Wignore", "-X", "dev", "-c", "pass"' python3 -u -Wignore -X dev -m mod -E
        python '"python3", "-u", "-c", "pass"' python3 -um mod
        python '"python3", "-c", "pass"' env python3 -c 'import x'
        python '"python3", "-u", "-X", "dev", "-c", "pass"' ./env.py -v
    else
        skip 'no strace: see scripts/install-deps' 5
    fi
    PATH=$path
}

test_session_and_fds() {
    local said
    exec 9>leak 8>kept
    run "$EXEC" --keep=8 -- python3 -c '
import os
print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())
print([int(f) for f in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + f)])
print(os.readlink("/proc/self/fd/0"))'
    exec 9>&- 8>&-
    said=$(cat out)
    like "$said" 'True True' 'a session and a group of its own'
    like "$said" '[0, 1, 2, 8]' 'only stdio and what is kept'
    like "$said" '/dev/null' 'an empty stdin'
    is "$(echo secret words | "$EXEC" -- cat)" '' 'whatever ours is'
    run "$EXEC" --same-session -- python3 -c '
import os
print(os.getsid(0) == os.getsid(os.getppid()), os.getpgrp() == os.getpgid(os.getppid()))'
    is "$(cat out)" 'True True' 'or the session and the group of its parent, if told so'
    fails 126 'cannot run true: pass descriptor 77: Bad file descriptor' \
        'keep one that is not there' --keep=77 -- true
}

test_settings() {
    run "$EXEC" --cwd=/usr --umask=027 -- sh -c 'pwd; umask'
    is "$(cat out)" $'/usr\n0027' 'working directory and umask'
    mkdir -p d
    script d/here.sh '#!/bin/sh'
    run "$EXEC" --cwd="$PWD/d" -- ./here.sh
    is "$(cat out)" ran 'the program is looked for in the working directory'
    fails 126 'cannot run true: working directory /none: No such file or directory' \
        'no such directory' --cwd=/none -- true
    run "$EXEC" --cpus=0 -- sh -c 'grep Cpus_allowed_list /proc/self/status'
    is "$(cat out)" $'Cpus_allowed_list:\t0' 'bound to a CPU'
    run "$EXEC" --cpus=0-0,0-65535 -- true
    is "$status" 0 'more of them than there are do no harm'
    if grep -q $'^Cpus_allowed_list:\t0-' /proc/self/status; then
        run "$EXEC" --cpus=0-1 -- grep Cpus_allowed_list /proc/self/status
        is "$(cat out)" $'Cpus_allowed_list:\t0-1' 'bound to both ends of a range'
        run "$EXEC" --cpus=1,1 -- grep Cpus_allowed_list /proc/self/status
        is "$(cat out)" $'Cpus_allowed_list:\t1' 'and to each of a list'
    else
        skip 'one CPU' 2
    fi
    local bad
    for bad in '' x 1- 3-1 '0,' ',0' '0 1' 0,, 0x1 0-1- 0-1x -1 0,65536 0-65536 0-99999999999999999999; do
        run timeout 60 "$EXEC" --cpus="$bad" -- true
        is "$status" 126 "CPU list '$bad' is refused"
    done
    run timeout 60 "$EXEC" --cpus=99999999999999999999 -- true
    is "$status $(cat err)" '126 muster-exec: cannot run true: bind to CPUs 99999999999999999999: Invalid argument' 'so is a number that is none'
    run "$EXEC" --umask=777 -- sh -c umask
    is "$(cat out)" 0777 'the largest umask'
    run "$EXEC" --umask=0 -- sh -c umask
    is "$(cat out)" 0000 'the smallest'
    for bad in '' x 8 08 27x 1000 -1 0x1 99999999999999999999999; do
        fails 126 "cannot run true: bad option --umask=$bad" "umask '$bad'" --umask="$bad" -- true
    done
    fails 126 'cannot run true: bind to CPUs 60000: Invalid argument' \
        'a CPU that is not there' --cpus=60000 -- true
    (ulimit -S -n 64 2>/dev/null && exec "$EXEC" -- sh -c 'ulimit -Sn; ulimit -Hn') >out
    is "$(sed -n 1p out)" "$(awk 'NR == 2 && ($1 == "unlimited" || $1 > 1048576) { $1 = 1048576 } NR == 2 { print $1 }' out)" \
        'open files are raised to what is allowed'
    (ulimit -S -l 16 && exec "$EXEC" -- sh -c 'ulimit -Sl; ulimit -Hl') >out
    is "$(sed -n 1p out)" "$(sed -n 2p out)" 'and so is locked memory'
    (ulimit -S -s 256 && exec "$EXEC" -- sh -c 'ulimit -Ss; ulimit -Hs') >out
    is "$(sed -n 1p out)" "$(awk 'NR == 2 && ($1 == "unlimited" || $1 > 8192) { $1 = 8192 } NR == 2 { print $1 }' out)" \
        'the stack is as large as programs expect'
    (ulimit -S -c "$(ulimit -H -c)" && exec "$EXEC" --core=0 -- sh -c 'ulimit -c') >out
    is "$(cat out)" 0 'no core files'
    (ulimit -S -c 0 && exec "$EXEC" --core=unlimited -- sh -c 'ulimit -Sc; ulimit -Hc') >out
    is "$(sed -n 1p out)" "$(sed -n 2p out)" 'or all that may be'
    (ulimit -S -c 0 && exec "$EXEC" -- sh -c 'ulimit -Sc') >out
    is "$(cat out)" 0 'or as it was'
    core() { "$EXEC" --core="$1" -- sed -n 's/^Max core file size *\([^ ]*\) *\([^ ]*\) .*/\1 \2/p' /proc/self/limits; }
    is "$(ulimit -H -c 4; core 1024)" '1024 4096' 'or a number of bytes'
    is "$(ulimit -H -c 4; core 8192)" '4096 4096' 'or less, where the hard limit is lower'
    is "$(ulimit -H -c 4; core unlimited)" '4096 4096' 'which stays as it is'
    fails 126 'cannot run true: bad option --core=x' 'core=x' --core=x -- true
    run "$EXEC" --oom=500 -- cat /proc/self/oom_score_adj
    is "$(cat out)" 500 'preferred when memory runs out'
}

test_signals() {
    run python3 -c '
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM, 40])
os.execv(sys.argv[1], sys.argv[1:])' "$EXEC" -- \
        grep -E '^Sig(Blk|Ign)' /proc/self/status
    # 32 and 33 are the C library's own, which nobody else can set.
    matches "$(cat out)" $'^SigBlk:\t0{16}\nSigIgn:\t0{7}[01][08]0{7}$' \
        'nothing blocked, nothing ignored'
}

test_options() {
    fails 126 'cannot run muster-exec: bad option : no program given' \
        'no program' --
    fails 126 'cannot run muster-exec: bad option --nonsense' \
        'unknown option' --nonsense -- true
    fails 126 'cannot run muster-exec: bad option value x' \
        'a number that is none' --keep=x -- true
    fails 126 'cannot run muster-exec: bad option value 2' \
        'a status descriptor among stdio' --status=2 -- true
    run "$EXEC" -- echo --cwd=/none
    is "$(cat out)" --cwd=/none "the program's own options are left alone"
}

# The parent that is named must be the parent.
test_parent() {
    fails 126 'cannot run true: its agent is gone (process 1)' \
        'another parent' --parent=1 -- true
    # The program dies with the process that started it.
    python3 - "$EXEC" >pid <<'END'
import os, subprocess, sys
p = subprocess.Popen([sys.argv[1], f"--parent={os.getpid()}", "--",
                      "sh", "-c", "echo up; exec sleep 1000"],
                     stdout=subprocess.PIPE)
p.stdout.readline()
print(p.pid, flush=True)
os.kill(os.getpid(), 9)
END
    ok 'and it ends when that parent does' wait_for 60 not kill -0 "$(cat pid)"
}

test_gate() {
    mkfifo gate
    exec 7<>gate
    rm -f gated.out
    "$EXEC" --gate=7 -- sh -c 'echo through' >gated.out 2>gated.err &
    local pid=$!
    wait_for 5 grep -q pipe_ /proc/$pid/wchan /proc/$pid/stack ||
        wait_for 5 grep -q 'State:.S' /proc/$pid/status
    is "$(cat gated.out)" '' 'it waits at the gate'
    printf x >&7
    wait $pid
    is "$? $(cat gated.out)" '0 through' 'one byte lets it through'
    exec 7>&-
    fails 126 'cannot run true: it was called off before it began' \
        'end of file at the gate' --gate=5 -- true 5</dev/null
    fails 127 "cannot run ./none: no such file in $PWD" \
        'what is missing is told before the gate' --gate=5 -- ./none \
        5< <(sleep 1000)
    kill $! 2>/dev/null
}

test_report() {
    exec 6>report
    run "$EXEC" --id=513 --status=6 -- ./none.sh
    exec 6>&-
    is "$status $(cat err)" '127 ' 'with a status descriptor nothing is printed'
    is "$(od -An -tx1 -N16 report | tr -d ' \n')" \
        "$(printf '%08x%08x%08x%08x' $(($(stat -c %s report) - 4)) 513 9 2)" \
        'the record: length, id, stage, errno'
    like "$(tr -d '\0' <report)" 'no such file in' 'and the words'
    exec 6>report
    run "$EXEC" --status=6 -- sh -c 'test ! -e /proc/self/fd/6'
    exec 6>&-
    is "$status $(stat -c %s report)" '0 0' 'nothing is reported on success'
}

run_cases
