#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Completion in bash and zsh offers what muster has. For zsh that is looked at twice: in
# the function alone, and with all of zsh around it.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command zsh
export XDG_STATE_HOME=$TRASH/state XDG_RUNTIME_DIR=$TRASH
PATH=$(dirname "$MUSTER"):$PATH
cp "$MUSTER_SRCDIR/launcher/completion/zsh/_muster" .

# in_bash WORD...: what bash offers for the last word, on one line.
in_bash() {
    bash -c '. "$0/launcher/completion/bash/muster"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _muster muster "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        echo "${COMPREPLY[@]}"' "$MUSTER_SRCDIR" "$@"
}

# in_zsh WORD...: the same; zsh itself picks those that begin so.
in_zsh() {
    zsh -fc 'compadd() { [[ $1 = -- ]] && shift; print -r -- $*; }
        _files() { print -r -- FILES; }
        _normal() { print -r -- NORMAL $CURRENT $words; }
        words=("$@") CURRENT=$#
        complete_it() { . ./_muster; }
        complete_it' zsh "$@"
}

for shell in bash zsh; do
    offer=in_$shell
    like " $($offer muster '') " ' status ' "$shell: commands"
    like " $($offer muster '') " ' run ' "$shell: all of them"
    unlike " $($offer muster '') " ' agent ' "$shell: but those for muster itself"
    like " $($offer muster run --n) " ' --nproc-per-node ' "$shell: options of a command"
    unlike " $($offer muster status --n) " ' --nproc-per-node ' "$shell: of that command"
    is "$($offer muster status -o '')" 'json yaml wide' "$shell: values of an option"
    like " $($offer muster ckpt '') " ' last-valid ' "$shell: what ckpt can do"
    like " $($offer muster help l) " ' logs ' "$shell: commands to help with"
    is "$($offer muster status '' | tr -d ' ')" '' "$shell: no runs where there are none"
done
run "$MUSTER" run --allow-run-as-root --quiet --name shown --nproc-per-node 1 -- true
for shell in bash zsh; do
    like " $(in_$shell muster status '') " ' shown ' "$shell: runs by name"
    like " $(in_$shell muster run --resume '') " ' shown ' "$shell: also as values"
    matches "$(in_$shell muster logs '')" '[0-9]{8}-[0-9]{6}-' "$shell: and by id"
done
is "$(in_bash muster stat)" status 'bash: only what begins so'
touch job.yaml
like " $(in_bash muster run job) " ' job.yaml ' 'bash: files for specs'
is "$(in_zsh muster run '')" FILES 'zsh: files for specs'
like " $(in_bash muster ckpt verify job) " ' job.yaml ' 'bash: files for checkpoints'
is "$(in_zsh muster ckpt verify '')" FILES 'zsh: files for checkpoints'
like " $(in_bash muster torchrun job) " ' job.yaml ' 'bash: files for scripts'
is "$(in_zsh muster torchrun '')" FILES 'zsh: files for scripts'
like " $(in_bash muster run -- tru) " ' true ' 'bash: programs behind --'
is "$(in_zsh muster run -- prog --n)" 'NORMAL 2 prog --n' 'zsh: a program has its own completion'
is "$(in_bash muster status --output = y)" yaml 'bash: a value behind =, as bash splits it'
is "$(in_bash muster status --output =)" 'json yaml wide' 'bash: all that there may be'

# The whole of it, as at a terminal: what compsys, zsh's own machinery, makes of a line
# and a Tab.
at_tab() { zsh -f "$MUSTER_SRCDIR/tests/lib/complete.zsh" "$MUSTER_SRCDIR/launcher/completion/zsh" "$1"; }
list() { at_tab "$1" | grep -vF -- "$1" | tr -s ' \n' '\n' | grep . | sort | tr '\n' ' '; }
line() { at_tab "$1" | sed -n 's/^.*<\(.*\)>$/\1/p'; }

all=$("$MUSTER" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\)  .*/\1/p' | sort | tr '\n' ' ')
is "$(list 'muster ')" "$all" 'a Tab in zsh: all commands'
while IFS='|' read -r typed want what; do
    is "$(line "$typed")" "$want" "a Tab in zsh: $what" || diag "$(at_tab "$typed" | cat -v)"
done <<'END'
muster stat|muster status |a command
muster status --ou|muster status --output |an option
muster run --nproc|muster run --nproc-per-node |of run
muster run --nproc-per-node g|muster run --nproc-per-node gpu |its value
muster run --nproc-per-node=g|muster run --nproc-per-node=gpu |also behind =
muster status --output=y|muster status --output=yaml |that of another
muster run --hostfile=job|muster run --hostfile=job.yaml |a file there
muster status -o y|muster status -o yaml |behind a short one
muster status sho|muster status shown |a run
muster run --resume sho|muster run --resume shown |that is gone on with
muster run job|muster run job.yaml |a spec
muster torchrun job|muster torchrun job.yaml |a script
muster run -- mkfif|muster run -- mkfifo |a program
muster run -- muster stat|muster run -- muster status |which completes its own words
muster exec mkfif|muster exec mkfifo |also of exec
muster ckpt last|muster ckpt last-valid |what ckpt can do
muster ckpt verify job|muster ckpt verify job.yaml |a directory
muster help lo|muster help logs |help
muster nodes --ho|muster nodes --host|what several options have in common
muster version x|muster version x|nothing where there is nothing
END
for c in run torchrun status logs cancel nodes ckpt describe; do
    options=$("$MUSTER" "$c" --help | sed -nE 's/^  (-[a-zA-Z0-9],)? *(--[a-z0-9-]+).*/\2/p' | sort | tr '\n' ' ')
    is "$(list "muster $c --")" "${options:-none}" "a Tab in zsh: options of $c" || diag "$(at_tab "muster $c --" | cat -v)"
done
done_testing
