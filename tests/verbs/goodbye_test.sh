#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A message that its receiver has consumed is not flushed at its sender (goodbye.c): over shared memory and over UDP, receivers that poll, sleep on a
# channel, or exit; and a peer that acknowledges nothing does not hold up the sender for long.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
library="$build/lib/weft/compat"
[[ -e "$library/libibverbs.so.1" ]] || { echo "no libibverbs.so.1 in $library"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
gcc -std=c11 -D_GNU_SOURCE -O1 ${WEFT_SANITIZE:+-g1 "-fsanitize=$WEFT_SANITIZE"} -Wall -Wextra -Werror "$source/tests/verbs/goodbye.c" -o "$work/goodbye" -L"$library" -l:libibverbs.so.1 ||
  { echo "the program is not compiled"; exit 1; }
export LD_LIBRARY_PATH="$library" WEFT_VERBS_DEVICES=weft=127.0.0.1
# Each process that exits would look for leaks, which takes seconds.
[[ -z "${WEFT_SANITIZE:-}" ]] || export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"

failed=0
for near in 1 0; do
  for row in "1000 poll send" "300 event send" "300 poll immediate" "300 event immediate" "30 exit send" "30 gone send"; do
    read -r rounds how operation <<<"$row"
    status=0
    outcome="$(WEFT_VERBS_SHM=$near timeout -k 2 120 "$work/goodbye" weft "$rounds" "$how" "$operation" 2>&1)" || status=$?
    echo "$([[ $near == 1 ]] && echo "shared memory" || echo UDP), $how, $operation: $outcome"
    [[ $status -eq 0 ]] || { failed=$((failed + 1)); echo "FAILED ($status)"; }
  done
done
[[ $failed -eq 0 ]] && echo "verbs_goodbye_test: ok"
