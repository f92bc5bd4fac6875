#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Programs that sleep until a completion event (asleep.c), over shared memory and over UDP: how many threads of the library are woken for an exchange, and every
# way to sleep.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
library="$build/lib/weft/compat"
[[ -e "$library/libibverbs.so.1" ]] || { echo "no libibverbs.so.1 in $library"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
gcc -std=c11 -D_GNU_SOURCE -O1 ${WEFT_SANITIZE:+-g1 "-fsanitize=$WEFT_SANITIZE"} -Wall -Wextra -Werror "$source/tests/verbs/asleep.c" -o "$work/asleep" -L"$library" -l:libibverbs.so.1 -pthread ||
  { echo "the program is not compiled"; exit 1; }
export LD_LIBRARY_PATH="$library" WEFT_VERBS_DEVICES=weft=127.0.0.1

failed=0
for near in 1 0; do
  for what in wakeups block poll epoll queues two polled shared signals handler fork; do
    status=0
    outcome="$(WEFT_VERBS_SHM=$near timeout -k 2 130 "$work/asleep" weft "$what" 2>&1)" || status=$?
    echo "$([[ $near == 1 ]] && echo "shared memory" || echo UDP), $outcome"
    [[ $status -eq 0 || $status -eq 77 ]] || { failed=$((failed + 1)); echo "FAILED: $what ($status)"; }
  done
done
[[ $failed -eq 0 ]] && echo "verbs_asleep_test: ok"
