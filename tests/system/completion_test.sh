#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The completions of the shells offer what the command has.
set -euo pipefail
weft="${WEFT_BUILD:?}/bin/weft"
folder="${WEFT_SOURCE:?}/tools/completions"
[[ -x "$weft" ]] || { echo "no $weft"; exit 77; }
fail() { echo "FAILED: $*"; exit 1; }
PATH="$(dirname "$weft"):$PATH"
# offered WORD...: what bash offers for the last word
offered() {
  bash -c 'source "$1/weft.bash"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft; printf "%s\n" "${COMPREPLY[@]}"' bash "$folder" "$@"
}
# has WORD COMMAND...: the word is among what is offered. Not by a pipe: `grep -q` ends it early, and the writer fails.
has() { grep -qx -- "$1" <<<"$(offered "${@:2}")"; }
commands="$("$weft" --help | awk '/^DESCRIPTION/ { on = 1; next } /^[A-Z]/ { on = 0 } on && /^  [a-z]+  / { print $1 }')"
[[ "$(wc -w <<<"$commands")" -ge 9 ]] || fail "the help names: $commands"
for command in $commands; do
  has "$command" weft "" || fail "no $command"
  [[ "$command" == run ]] || has --help weft "$command" --h || fail "no --help of $command"
done
has --settings weft info --s || fail "weft info --settings"
has loopback weft perf -p lo || fail "providers"
has connect weft kofi c || fail "weft kofi connect"
has bind weft nic b || fail "weft nic bind"
has ls weft run l || fail "commands behind weft run"
[[ -z "$(offered weft info --nonsense)" ]] || fail "something for nonsense"
# zsh in a terminal of its own: what it shows for a word and a tab.
if command -v zsh >/dev/null; then
  zsh -n "$folder/_weft" || fail "zsh does not read it"
  shown() {
    TERM=dumb timeout 60 zsh -f -c 'zmodload zsh/zpty
      zpty shell "PS1= zsh -f -i"
      zpty -w shell "unsetopt prompt_sp; fpath=($1 \$fpath); autoload -Uz compinit; compinit -D -u; print ready"
      zpty -r -m shell text "*ready*"; zpty -r -m shell text "*ready*"
      zpty -w -n shell "weft $2"$'"'\t\t'"'
      sleep 3; zpty -r -t shell text && print -r -- "$text"; while zpty -r -t shell text; do print -r -- "$text"; done' zsh "$folder" "$1" 2>/dev/null
  }
  grep -q kofi <<<"$(shown "")" || fail "zsh: weft kofi"
  grep -q disconnect <<<"$(shown "kofi ")" || fail "zsh: weft kofi disconnect"
  grep -q -- --settings <<<"$(shown "info --s")" || fail "zsh: weft info --settings"
fi
echo "completion_test: ok"
