#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the tree promises about itself, read from the sources: who may include
# whom, where MPI and GPU headers may appear, the first lines of files, calls
# that are not made, and headers that stand alone.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
cd "$MUSTER_SRCDIR" || bail_out "no $MUSTER_SRCDIR"

if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    mapfile -t files < <(git ls-files --cached --others --exclude-standard | sort)
else
    mapfile -t files < <(find . -type f -not -path './build*' | sed 's|^\./||' | sort)
fi
sources=() headers=() code=()
for f in "${files[@]}"; do
    [ -f "$f" ] || continue
    case $f in
    examples/*) ;;
    *.c) sources+=("$f") code+=("$f") ;;
    *.h) headers+=("$f") code+=("$f") ;;
    esac
done

# none WHAT: passes if nothing comes on stdin; each line of it is a finding.
none() {
    local found
    found=$(cat "$TRASH/found")
    [ -z "$found" ] && { pass "$1"; return; }
    fail "$1"
    diag "$found"
}

# The text of C files with comments and strings blanked: file:line:text.
bare_code() {
    python3 - "$@" <<'END'
import re, sys
token = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
def blank(m):
    s = m.group(0)
    return re.sub(r'[^\n]', ' ', s) if s.startswith('/*') else s[0] + ' ' * (len(s) - 2) + s[-1]
for name in sys.argv[1:]:
    text = open(name, encoding='utf-8').read()
    for n, line in enumerate(token.sub(blank, text).split('\n'), 1):
        if line.strip():
            print(f'{name}:{n}:{line}')
END
}

test_includes() {
    cd "$MUSTER_SRCDIR" || return
    python3 - "${code[@]}" >"$TRASH/found" 2>&1 <<'END'
import os, re, sys
order = ['base', 'rendezvous', 'comm', 'ckpt', 'hpo', 'launcher']
include = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')
def allowed(own, other):
    if own == other or own == 'tests':
        return True
    if other == 'spec':
        return own in ('launcher', 'hpo')
    if own == 'spec':
        return other == 'base'
    return own in order and other in order and order.index(other) <= order.index(own)
for name in sys.argv[1:]:
    own = name.split('/')[0]
    for n, line in enumerate(open(name), 1):
        m = include.match(line)
        if not m:
            continue
        kind, path = m.groups()
        top = path.split('/')[0]
        where = f'{name}:{n}: {path}'
        if re.match(r'mpi(-ext)?\.h$', path) and not name.startswith(('comm/mpi/', 'tests/')) and name != 'include/muster_mpi.h':
            print(where, '(only under comm/mpi)')
        if re.match(r'(nccl|cuda.*|nvml|infiniband/.*)\.h$', path) and own not in ('comm', 'tests'):
            print(where, '(only under comm)')
        if kind == '<' or path.startswith('muster'):
            continue
        if not os.path.exists(path):
            if '/' not in path or not os.path.exists(os.path.join(os.environ.get('MUSTER_BUILDDIR', 'build'), path)):
                print(where, '(no such file from the top of the tree)')
        elif top == 'tests':
            if not name.endswith(('_test.c', '_bed.c', '_fuzz.c', 'sim_main.c',
                                     'split_main.c', 'replay_main.c')) and own != 'tests':
                print(where, '(tests only)')
        elif own == 'include' or not allowed(own, top):
            print(where, f'({own} does not know {top})')
END
    none 'a folder includes only itself and what is below it'
}

test_config_first() {
    cd "$MUSTER_SRCDIR" || return
    for f in "${sources[@]}"; do
        [ "$(grep -m 1 '^ *# *include' "$f")" = '#include <config.h>' ] || echo "$f"
    done >"$TRASH/found" 2>&1
    none 'config.h is the first include of every .c'
}

test_spdx() {
    cd "$MUSTER_SRCDIR" || return
    for f in "${files[@]}"; do
        case $f in
        *.c | *.h | *.am | *.inc | *.ac | *.m4 | *.py | *.t | *.sh) ;;
        *) head -c 2 "$f" | grep -q '^#!' || continue ;;
        esac
        [ -s "$f" ] || continue
        head -n 2 "$f" | grep -q 'SPDX-License-Identifier: Apache-2\.0' || echo "$f"
    done >"$TRASH/found" 2>&1
    none 'every source begins with its licence'
}

test_no_machine() {
    cd "$MUSTER_SRCDIR" || return
    # Written so that this file does not find itself.
    grep -nIE '(^|[^a-z.])/wor[k]/|/tm[p]/w/|deb\.debia[n]\.org|pyp[i]\.org|pythonhoste[d]|pytorc[h]\.org|npmj[s]\.|/op[t]/(wheels|pypi)' \
        -- "${files[@]}" >"$TRASH/found" 2>&1
    none 'no path of one machine, no registry host'
}

test_banned() {
    cd "$MUSTER_SRCDIR" || return
    bare_code "${code[@]}" >"$TRASH/bare"
    grep -E '[^a-zA-Z0-9_](strcpy|strcat|sprintf|vsprintf|gets|strtok|system|popen|alloca)[ ]*\(' "$TRASH/bare" >"$TRASH/found" 2>&1
    none 'banned calls are not made'
    grep -E '[^a-zA-Z0-9_]goto[^a-zA-Z0-9_]' "$TRASH/bare" >"$TRASH/found" 2>&1
    none 'no goto'
    grep -E ':[0-9]+:.*//' "$TRASH/bare" >"$TRASH/found" 2>&1
    none 'comments are /* */'
    grep -nP '\t| +$' -- "${code[@]}" >"$TRASH/found" 2>&1
    none 'no tabs, no blanks at the end of a line'
    LC_ALL=C.UTF-8 grep -nE '^.{101,}' -- "${code[@]}" >"$TRASH/found" 2>&1
    none 'no line is longer than 100 columns'
}

# What a header needs to be found, in $flags; MPI alone under comm/mpi.
usual_flags="-I$MUSTER_BUILDDIR -I. -Iinclude $(pkg-config --cflags libuv libsodium jansson yaml-0.1 hwloc 2>/dev/null)"
# The bindings of MPI for C++ have warnings of their own.
mpi_flags="$(mpicc --showme:compile 2>/dev/null) -DOMPI_SKIP_MPICXX"
set_flags() {
    flags=$usual_flags
    case $1 in comm/mpi/* | include/muster_mpi.h) flags="$flags $mpi_flags" ;; esac
}

# Those that the file beside them includes before all others but config.h: that it was
# compiled has shown it.
shown_by_their_own() {
    awk 'FNR == 1 { n = 0; own = FILENAME; sub(/\.c$/, ".h", own) }
        /^ *# *include/ && ++n == 2 && $2 == "\"" own "\"" { print own }' "${sources[@]}"
}

test_headers_alone() {
    cd "$MUSTER_SRCDIR" || return
    local f std
    local -A shown=()
    while read -r f; do shown[$f]=yes; done < <(shown_by_their_own)
    for f in "${headers[@]}"; do
        [ -z "${shown[$f]:-}" ] || continue
        set_flags "$f"
        case $f in
        include/*) for std in c99 c11; do
            echo "#include \"$f\"" | cc -std=$std -Wall -Wextra -Wpedantic -Werror $flags -fsyntax-only -x c - 2>&1
        done
            echo "#include \"$f\"" | c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror $flags -fsyntax-only -x c++ - 2>&1 ;;
        *) echo "#include \"$f\"" | cc -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror $flags -fsyntax-only -x c - 2>&1 ;;
        esac
    done >"$TRASH/found" 2>&1
    none 'every header compiles alone, or has; the public ones as C99, C11 and C++'
}

test_linkage() {
    cd "$MUSTER_SRCDIR" || return
    local f
    for f in "$MUSTER_BUILDDIR"/{,.libs/}{muster,muster-exec,muster-watch,libmuster.so}; do
        [ -f "$f" ] && readelf -d "$f" 2>/dev/null | grep -E 'NEEDED.*lib(mpi|open-rte|open-pal|pmix|nccl|cuda|ibverbs)' | sed "s|^|$f: |"
    done >"$TRASH/found" 2>&1
    none 'only muster-mpi is linked to MPI, nothing to GPU or RDMA libraries'
}

# Objects of the library code hold no data that can change.
test_no_state() {
    cd "$MUSTER_SRCDIR" || return
    local o src
    if grep -qE '^#define SANITIZER' "$MUSTER_BUILDDIR/config.h" 2>/dev/null || [ -f "$MUSTER_BUILDDIR/base/error.gcno" ]; then
        skip 'objects of an instrumented build'
        return
    fi
    # Other builds may lie inside this one.
    find "$MUSTER_BUILDDIR" -mindepth 1 -type d -exec test -e {}/config.status \; -prune -o -name '*.o' -print | sort |
        while read -r o; do
            src=${o#"$MUSTER_BUILDDIR"/}
            src=${src/.libs\//}
            case $src in tests/* | examples/* | *_test.o | *_fuzz.o) continue ;; esac
            case $src in base/mapguard.o | launcher/*-ckpt_stop.o) continue ;; esac # a signal's handler is told nothing else
            objdump -t "$o" 2>/dev/null | grep -qE ' F \.text[^ ]*\s.* main$' && continue
            objdump -t "$o" 2>/dev/null | awk -v o="$src" '$0 ~ / O \.(bss|data|tbss|tdata)(\.[^r ][^ ]*)?[ \t]/ { print o ": " $NF }'
        done >"$TRASH/found" 2>&1
    none 'no mutable state at file scope outside main files, and but for a handler of signals'
}

# The tables of tests/README.md name tests that there are.
test_tables() {
    cd "$MUSTER_SRCDIR" || return
    python3 - >"$TRASH/found" 2>&1 <<'END'
import glob, os, re
for line in open('tests/README.md', encoding='utf-8'):
    cells = line.split('|')
    if len(cells) < 4:
        continue
    text = ''
    for unit, script, case in re.findall(r'`([\w/]+_test)`|\b(t\d{4})\b|\b(test_\w+)', cells[-2]):
        if case:
            if text and not re.search(rf'\b{case}\b', text):
                print(f'{name}: no {case}')
            continue
        name = unit + '.c' if unit else next(iter(glob.glob(f'tests/{script}-*.t')), script)
        text = open(name, encoding='utf-8').read() if os.path.exists(name) else ''
        for lib in re.findall(r'tests/lib/[\w-]+\.sh', text):  # cases that scripts share
            text += open(lib, encoding='utf-8').read()
        if not text:
            print(f'no {name}')
END
    none 'tables of tests name those that there are'
}

# A second one of a name takes the place of the first, without a word.
test_once() {
    local f
    for f in "$MUSTER_SRCDIR"/tests/*.t; do
        grep -o '^[a-z_0-9]*()' "$f" | sort | uniq -d | sed "s,^,${f##*/}: two of ,"
    done >"$TRASH/found"
    none 'no script defines a function twice'
}

run_cases
