#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What libibverbs promises of its calls: tests/verbs/calls.c over the drop-in libibverbs.so.1 and its built-in device.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
library="$build/lib/weft/compat"
[[ -e "$library/libibverbs.so.1" ]] || { echo "no libibverbs.so.1 in $library"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
gcc -std=c11 -D_GNU_SOURCE -O1 ${WEFT_SANITIZE:+-g1 "-fsanitize=$WEFT_SANITIZE"} -Wall -Wextra -Werror "$source/tests/verbs/calls.c" -o "$work/calls" -L"$library" -l:libibverbs.so.1 ||
  { echo "the program is not compiled"; exit 1; }
export LD_LIBRARY_PATH="$library" WEFT_VERBS_DEVICES=weft=127.0.0.1

failed=0 patience_s=100
[[ -z "${WEFT_SANITIZE:-}" ]] || patience_s=400
for what in times errno limits shared never_empty; do
  status=0
  # The progress thread would take what the polls leave.
  [[ "$what" != never_empty ]] || export WEFT_PROGRESS=manual
  timeout "$patience_s" "$work/calls" "$what" >"$work/out" 2>&1 || status=$?
  if [[ $status -ne 0 ]] || ! grep -qx ok "$work/out"; then
    failed=1
    echo "FAILED ($status): $what"
  fi
  cat "$work/out"
done
exit $failed
