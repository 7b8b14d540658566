#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every command has a man page, and page and --help name the same options.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
pages=$MUSTER_SRCDIR/doc/man

# Options as "-x --name VALUE", one a line, sorted.
options_of_help() {
    "$MUSTER" "$1" --help | sed -nE 's/\[=([A-Z]+)\]/ \1/; s/^  (-[a-zA-Z0-9])?,? +(--[a-z0-9-]+)( ([^ ]+))?( .*)?$/\1 \2 \4/p' |
        sed 's/^ *//; s/ *$//' | sort
}

options_of_page() {
    sed -nE '/^# OPTIONS/,/^# [^O]/{
        /^\*-/{
            s/\[=_([A-Z]+)_\]/ _\1_/
            s/\*(-[a-zA-Z0-9])\*, /\1 /
            s/\*(--[a-z0-9-]+)\*/\1/
            s/ _([^_]+)_$/ \1/
            p
        }
    }' "$1" | sort
}

commands=$("$MUSTER" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\)  .*/\1/p' | grep -vx help)

for c in $commands; do
    page=$pages/muster-$c.1.scd
    if ! [ -f "$page" ]; then
        fail "$c has a man page"
        continue
    fi
    is "$(options_of_page "$page")" "$(options_of_help "$c")" "$c: page and --help agree on options"
    isnt "$(options_of_help "$c")" '' "$c: there are some"
    is "$(head -n 1 "$page")" "muster-$c(1)" "$c: title of the page"
    like "$(sed -n '/^# NAME/,/^# SYN/p' "$page")" "muster-$c - " "$c: name line"
    like "$(cat "$pages/muster.1.scd")" "*muster-$c*(1)" "$c: muster(1) refers to it"
done

# References lead somewhere.
for page in "$pages"/*.scd; do
    for ref in $(grep -oE '\*muster[a-z_-]*\*\([0-9]\)' "$page" | tr -d '*' | sort -u); do
        name=${ref%(*}.${ref: -2:1}
        ok "$(basename "$page"): $ref exists" \
            compgen -G "$pages/$name.*"
    done
done

# What workers are given is told, each name in bold; and nothing else is.
page=$(cat "$pages/muster-environment.7.scd")
names=$(sed -nE 's/^    \{"([A-Za-z0-9_]+)", (OWNED|QUIET|DEFAULTED),.*/\1/p' "$MUSTER_SRCDIR/launcher/contract.c")
num "$(echo "$names" | wc -l)" -gt 50 'the contract has its names'
lacking=$(for name in $names; do case $page in *"*$name*"*) ;; *) echo "$name" ;; esac; done)
is "$lacking" '' 'muster-environment(7) tells of each'
extra=$(grep -oE '^\*[A-Z].*\*,?$' "$pages/muster-environment.7.scd" | grep -oE '[A-Za-z0-9_]+' | grep -vxF "$names")
is "$extra" '' 'and of no others'

if command -v scdoc >/dev/null; then
    for page in "$pages"/*.scd; do
        ok "$(basename "$page") is scdoc" bash -c "scdoc <'$page' >page"
        if command -v man >/dev/null; then
            is "$(MANWIDTH=80 man -l --warnings page 2>&1 >/dev/null)" '' "$(basename "$page") is a man page"
        fi
    done
    page=$MUSTER_BUILDDIR/doc/man/muster-job.5
    if [ -f "$page" ]; then
        text=$(MANWIDTH=80 man -l --warnings "$page" 2>job.err | col -b)
        is "$(cat job.err)" '' 'muster-job.5 is a man page'
        like "$text" 'restart.max' 'with keys'
    fi
else
    skip 'no scdoc: see scripts/install-deps'
fi
done_testing
