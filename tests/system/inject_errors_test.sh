#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What a program hears of injects to a process that was killed, over every provider of reliable endpoints: a warning, a count for weft top, and its next
# operation; with WEFT_INJECT_ERRORS=yes completion entries instead.
set -uo pipefail
build="${WEFT_BUILD:?}"
program="$build/tests/system/inject_errors"
[[ -x "$program" ]] || { echo "not built"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH="$build/lib/weft/compat" WEFT_RELIABLE_TIMEOUT_S=3
unset FI_LOG_LEVEL WEFT_CONFIG WEFT_INJECT_ERRORS
failures=0
complain() { echo "FAILED: $*"; cat "$work/errors"; failures=$((failures + 1)); }
# over PROVIDER [--untagged]
over() {
  local lines
  rm -f "$work"/*
  WEFT_STATS="$work/stats.prom" timeout -k 2 60 "$program" --provider "$@" 2>"$work/errors" || complain "$*"
  lines="$(grep -c 'may not have reached it' "$work/errors")"
  [[ "$lines" == 1 ]] || complain "$*: $lines warnings"
  grep -hE '^weft_unreported_errors_total\{.*kind="endpoint"' "$work"/stats.prom* | grep -qvE ' 0$' || complain "$*: not counted"
  WEFT_INJECT_ERRORS=yes timeout -k 2 60 "$program" --entries --provider "$@" 2>"$work/errors" || complain "entries: $*"
  ! grep -q 'may not have reached it' "$work/errors" || complain "entries, and a warning: $*"
}
for provider in shm tcp weft 'tcp;ofi_rxm' 'udp;ofi_rxd' 'verbs;ofi_rxm'; do
  over "$provider"
  over "$provider" --untagged
done
[[ $failures -eq 0 ]] && echo "inject_errors_test: ok"
exit "$((failures != 0))"
