#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Runs every check of the source. usage: run.sh [--fast] [--changed] [--fix] | --abi-renew
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
fast=0 changed="" fix=0
for option in "$@"; do
  case "$option" in
    --fast) fast=1 ;;
    --changed) changed=--changed ;;
    --fix) fix=1 ;;
    --abi-renew) exec python3 scripts/check/abi.py --renew ;;
    *) echo "check: unknown option $option (--fast, --changed, --fix, --abi-renew)" >&2; exit 2 ;;
  esac
done

bad=()
check() {  # check NAME COMMAND...: runs it, says how it went and how long it took
  local name="$1"; shift
  printf 'check: %-9s ' "$name"
  local output status=0 began="${EPOCHREALTIME//[.,]/}" took
  output="$("$@" 2>&1)" || status=$?
  took=$(((${EPOCHREALTIME//[.,]/} - began) / 100000))
  printf "%4d.%d s  " $((took / 10)) $((took % 10))
  if [[ $status -eq 0 ]]; then
    echo "ok${output:+: $(tail -n 1 <<<"$output")}"
  else
    echo "FAILED"
    sed 's/^/  /' <<<"$output"
    bad+=("$name")
  fi
}

format() {
  local files
  mapfile -t files < <(python3 scripts/check/files.py cpp)
  [[ ${#files[@]} -gt 0 ]] || return 0
  if [[ $fix -eq 1 ]]; then
    clang-format -i "${files[@]}" || return
  else
    local bad_files
    bad_files="$(clang-format --dry-run "${files[@]}" 2>&1 | sed -n 's/^\([^: ]*\):[0-9]*:[0-9]*: warning: .*/\1/p' | sort | uniq -c)"
    if [[ -n "$bad_files" ]]; then
      echo "lines that are not as clang-format has them, by file (./dev check --fix writes them):"
      echo "$bad_files"
      return 1
    fi
  fi
  echo "${#files[@]} files"
}

check format format
check layers python3 scripts/check/layers.py
check walks python3 scripts/check/walks.py
check paths python3 scripts/check/paths.py
check licences python3 scripts/check/licences.py
check constants python3 scripts/check/constants.py
check requires python3 scripts/check/requires.py
check streams python3 scripts/check/streams.py
check kernel bash scripts/check/kernel_style.sh
check versions python3 scripts/check/kernel_versions.py
check abi python3 scripts/check/abi.py
if [[ $fast -eq 1 ]]; then
  check headers python3 scripts/check/headers.py g++
else
  check headers python3 scripts/check/headers.py g++ clang++
fi
check clang python3 scripts/check/clang.py
check sans-io python3 scripts/check/sans_io.py
if [[ $fast -eq 0 ]]; then
  # Not through check(): their progress is worth seeing.
  for step in lint analysis; do
    python3 scripts/check/tidy.py "$step" ${changed:+"$changed"} || bad+=("$step")
  done
fi

if [[ ${#bad[@]} -gt 0 ]]; then
  echo "check: FAILED: ${bad[*]}"
  exit 1
fi
echo "check: all is well"
