#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster_ckpt(3) says what include/muster_ckpt.h says, no more and no less, and its
# example does what the page says of it.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
page=$MUSTER_SRCDIR/doc/man/muster_ckpt.3.scd
header=$MUSTER_SRCDIR/include/muster_ckpt.h

# differ PAGE: what the header and that page do not have in common.
differ() {
    python3 - "$1" "$header" <<'END'
import re, sys

page, header = (open(path, encoding="utf-8").read() for path in sys.argv[1:])
header = re.sub(r"/\*.*?\*/", " ", header, flags=re.S)
blocks = "\n".join(re.findall(r"^```\n(.*?)^```", page, flags=re.S | re.M))


def plain(text):
    return re.sub(r"\s+", " ", text).strip()


def told(name, here, there):
    for one in sorted(here - there):
        print(f"{name}: {one}")


call = re.compile(r"^(?:int|void|const char \*) ?\*?muster_ckpt_\w+\([^;{]*\);", re.M)
struct = re.compile(r"^struct muster_ckpt_\w+ \{.*?^\};", re.M | re.S)
word = re.compile(r"\b(?:MUSTER_[A-Z0-9_]+|muster_ckpt_\w+)\b")
for pattern in (call, struct):
    ours, theirs = ({plain(x) for x in pattern.findall(text)} for text in (header, blocks))
    assert ours, pattern
    told("not in the page", ours, theirs)
    told("not in the header", theirs, ours)
ours, theirs = (set(word.findall(text)) for text in (header, page))
elsewhere = {"MUSTER_CKPT_H", "MUSTER_CHECKPOINT_DIR", "MUSTER_CKPT_CHECK"}
told("not in the page", ours, theirs | elsewhere)
told("not in the header", theirs, ours | elsewhere)
END
}

test_page() {
    is "$(differ "$page" 2>&1)" '' 'page and header have the same calls, structures and names'
    sed 's/int64_t below, //' "$page" >page.scd
    like "$(differ page.scd 2>&1)" 'not in the page: int muster_ckpt_latest' 'a parameter that is missing is seen'
    sed 's/^    int keep;$//' "$page" >page.scd
    like "$(differ page.scd 2>&1)" 'not in the page: struct muster_ckpt_options' 'so is a member'
    sed 's/MUSTER_CKPT_AUTO/MUSTER_CKPT_OTTO/' "$page" >page.scd
    is "$(differ page.scd 2>&1)" 'not in the page: MUSTER_CKPT_AUTO
not in the header: MUSTER_CKPT_OTTO' 'and a name'
}

# As readers see it, where there is what shows it to them.
example() {
    if command -v scdoc >/dev/null && command -v man >/dev/null; then
        scdoc <"$page" >page.3
        MANWIDTH=100 man -l page.3 | col -bx | sed -n '/^EXAMPLE/,/^SEE/p' | sed -n '/#include/,/^ \{11\}}$/p' | sed 's/^ \{11\}//'
    else
        sed -n '/^# EXAMPLE/,/^# SEE/p' "$page" | sed -n '/^```/,/^```/p' | sed '/^```/d; s/\\\\/\\/g'
    fi
}

test_example() {
    sanitized && { skip 'libmuster wants the sanitizer in the program' 8; return; }
    example >count.c
    run cc -std=c11 -Wall -Wextra -Werror -I"$MUSTER_SRCDIR/include" -o count count.c \
        -L"$MUSTER_BUILDDIR/.libs" -lmuster -Wl,-rpath,"$MUSTER_BUILDDIR/.libs"
    is "$status" 0 'the example compiles' || show
    run ./count
    is "$status $(tr '\n' ' ' <out)" '0 from step 0 weights 10 at step 10 ' 'runs' || show
    is "$(find checkpoints -mindepth 1 -maxdepth 1 -name 'step-*' | wc -l)" 3 'keeps three'
    run ./count
    is "$status $(tr '\n' ' ' <out)" '0 from step 10 weights 10 at step 10 ' 'starts where it stopped' || show
    rm -r "$(find checkpoints -name 'step-*' | sort | tail -n 1)"
    run ./count
    is "$status $(tr '\n' ' ' <out)" '0 from step 8 weights 10 at step 10 ' 'or before' || show
    rm -r checkpoints
    local root=
    [ "$(id -u)" != 0 ] || root=--allow-run-as-root
    run env XDG_STATE_HOME="$TRASH/state" timeout 120 "$MUSTER" run $root --quiet --run-dir run --nproc-per-node 2 -- "$TRASH/count"
    is "$status" 0 'two workers' || show
    is "$(grep -c 'weights 10 at step 10' out)" 2 'run it, too'
    run ./count
    like "$(cat out)" 'from step 10' 'and one starts where they stopped'
}

run_cases
