#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Programs of each generation of libfabric's interface under valgrind: nothing is read before it is written, or after it was freed.
set -euo pipefail
build="${WEFT_BUILD:?}"
program="$build/tests/system/generations_test"
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "valgrind runs no program with sanitizers: not tested here"; exit 77; }
command -v valgrind >/dev/null || { echo "valgrind is not installed"; exit 77; }
[[ -x "$program" ]] || { echo "not built"; exit 77; }
out="$(mktemp)"
trap 'rm -f "$out"' EXIT
status=0
LD_LIBRARY_PATH="$build/lib/weft/compat" timeout 300 valgrind -q --error-exitcode=9 "$program" >"$out" 2>&1 || status=$?
[[ $status -eq 0 ]] || { cat "$out"; echo "FAILED: status $status"; exit 1; }
[[ "$(grep -c '^FABRIC_.*an error entry$' "$out")" -eq 9 ]] || { cat "$out"; echo "FAILED: not all generations ran"; exit 1; }
echo "generations_valgrind_test: ok"
