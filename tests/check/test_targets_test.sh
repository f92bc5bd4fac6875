#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# ./dev test NAME builds what the tests of that name need: the names that it knows without a build are those of ctest, and their targets exist.
set -euo pipefail
build="${WEFT_BUILD:?}"
source_dir="${WEFT_SOURCE:?}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
targets() { python3 "$source_dir/scripts/test_targets.py" --targets "$1" 2>/dev/null; }
[[ "$(targets '^tool: Timeline')" == weft_tool_test ]] || fail "a unit test"
[[ "$(targets '^shm: Order')" == weft_conformance ]] || fail "a conformance test"
[[ -z "$(targets '^check: layers')" ]] || fail "a rule of the source needs nothing"
! targets 'no such test' || fail "a name that no test has"
! targets '(' || fail "no regular expression"
cmake --build "$build" --target help | sed 's/: .*//' | sort -u >"$work/there"
for target in $(targets '^(tool|base|shm|system: [a-f]|check)'); do
  [[ "$target" == all ]] || grep -qx "$target" "$work/there" || fail "no target $target"
done
# Every script and rule that ctest runs.
ctest --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: \(\(system\|verbs\|check\): [^.]*\)$/\1/p' | sort >"$work/ctest"
python3 "$source_dir/scripts/test_targets.py" --list '^(system|verbs|check): ' | sort >"$work/listed"
[[ -z "$(comm -23 "$work/ctest" "$work/listed")" ]] || { comm -23 "$work/ctest" "$work/listed"; fail "tests that are not listed"; }
echo "test_targets_test: ok"
