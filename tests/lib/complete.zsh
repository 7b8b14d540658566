# SPDX-License-Identifier: Apache-2.0
# complete.zsh DIR LINE: what an interactive zsh with its own completion (compsys, in a
# terminal of its own) makes of LINE and a Tab, with the functions in DIR: the list that
# it shows, if any, then the line as "<LINE>".
emulate -R zsh
zmodload zsh/zpty || exit 77

typeset -F SECONDS
integer limit=60
said=

# Reads until `said` has the pattern, in vain for a minute.
await() {
    local some
    while [[ $said != *$~1* ]]; do
        ((SECONDS < limit)) || { print -ru2 -- "no answer: $said"; exit 1 }
        zpty -r -t child some && said+=$some || sleep 0.02
    done
}

zpty -b child "TERM=dumb COLUMNS=200 LINES=400 ZDOTDIR=/nowhere zsh -f -i"
zpty -w child "PS1= PS2= RPS1= PROMPT_EOL_MARK=; unset zle_bracketed_paste; stty -echo cols 200 rows 400; \
fpath=(${(q)1} \$fpath); autoload -Uz compinit; compinit -u -D; \
show-line() { print -r -- \"<\$BUFFER>\"; BUFFER=; zle -I }; zle -N show-line; bindkey '^X' show-line; \
setopt no_prompt_sp no_prompt_cr no_beep no_list_beep; LISTMAX=100000; zstyle ':completion:*' menu no; print READ''Y"
await 'READY'
said=
zpty -w -n child "$2"$'\t\x18'
await '<*>'
print -r -- "${said//$'\r'/}"
zpty -d child
