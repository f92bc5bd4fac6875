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
for command in run info perf mux check top trace nic kofi; do
  has "$command" weft "" || fail "no $command"
  [[ "$command" == run ]] || has --help weft "$command" --h || fail "no --help of $command"
done
has --settings weft info --s || fail "weft info --settings"
has loopback weft perf -p lo || fail "providers"
has connect weft kofi c || fail "weft kofi connect"
has ls weft run l || fail "commands behind weft run"
[[ -z "$(offered weft info --nonsense)" ]] || fail "something for nonsense"
if command -v zsh >/dev/null; then zsh -n "$folder/_weft" || fail "zsh does not read it"; fi
echo "completion_test: ok"
