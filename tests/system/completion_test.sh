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
for command in run info perf mux check top trace nic kofi; do
  offered weft "" | grep -qx "$command" || fail "no $command"
  [[ "$command" == run ]] || offered weft "$command" --h | grep -qx -- --help || fail "no --help of $command"
done
offered weft info --s | grep -qx -- --settings || fail "weft info --settings"
offered weft perf -p lo | grep -qx loopback || fail "providers"
offered weft kofi c | grep -qx connect || fail "weft kofi connect"
offered weft run l | grep -qx ls || fail "commands behind weft run"
[[ -z "$(offered weft info --nonsense)" ]] || fail "something for nonsense"
if command -v zsh >/dev/null; then zsh -n "$folder/_weft" || fail "zsh does not read it"; fi
echo "completion_test: ok"
