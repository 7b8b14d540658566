#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Completion in bash and zsh offers what muster has.
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
done_testing
