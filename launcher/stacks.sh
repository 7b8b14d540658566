#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# muster-stacks PREFIX PID...: where the threads of these processes are, on
# standard output. PREFIX.PID is where a Python process writes its traceback when
# it gets SIGURG (launcher/python/sitecustomize.py); a process that does not
# catch that signal is not sent it. Native stacks by eu-stack or gdb, of the first
# processes, where one of them is here. All of it reads; nothing ends a process.
prefix=$1
shift
urg=$((1 << 22)) # SIGURG, in a mask of signals
natives=2
seconds=12

field() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status" 2>/dev/null; }

# The low 32 bits are enough, and all that every shell can count.
catches_urg() {
    caught=$(field "$1" SigCgt)
    caught=${caught#????????}
    [ -n "$caught" ] && [ $((0x$caught & urg)) -ne 0 ]
}

# The signal handler writes at once, but a process that is stopped or stuck in the
# kernel never does: until the file has had the same size twice.
python_stack() {
    [ -e "$prefix.$1" ] && catches_urg "$1" || return
    : >"$prefix.$1"
    kill -URG "$1" 2>/dev/null || return
    last=0
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        sleep 0.1
        size=$(wc -c <"$prefix.$1")
        [ "$size" -gt 0 ] && [ "$size" -eq "$last" ] && break
        last=$size
    done
    [ "$last" -gt 0 ] || return
    echo '-- Python'
    cat "$prefix.$1"
    echo
}

kernel_stack() {
    for file in wchan syscall; do
        text=$(cat "/proc/$1/$file" 2>/dev/null) && [ -n "$text" ] && echo "$file: $text"
    done
    text=$(cat "/proc/$1/stack" 2>/dev/null) && [ -n "$text" ] && printf '%s\n%s\n' '-- kernel' "$text"
}

native_stack() {
    if command -v eu-stack >/dev/null; then
        set -- eu-stack -n 64 -p "$1"
    elif command -v gdb >/dev/null; then
        set -- gdb -nx -batch -iex 'set auto-load off' -p "$1" -ex 'set pagination off' \
            -ex 'thread apply all bt 64'
    else
        return
    fi
    command -v timeout >/dev/null || return
    echo "-- native, by $1"
    DEBUGINFOD_URLS='' timeout -s KILL $seconds "$@" 2>/dev/null </dev/null
}

for pid; do
    [ -d "/proc/$pid" ] || continue
    echo "== process $pid ($(field "$pid" Name)), state $(field "$pid" State), $(field "$pid" Threads) threads"
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c 1-400
    echo
    python_stack "$pid"
    kernel_stack "$pid"
done
for pid; do
    [ $natives -gt 0 ] || break
    natives=$((natives - 1))
    echo "== process $pid"
    native_stack "$pid"
done
echo '== end'
