#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Queue pairs are made and destroyed by turns while another one of the device is in use (churn.c): over shared memory, over UDP, with lost packets.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
library="$build/lib/weft/compat"
[[ -e "$library/libibverbs.so.1" ]] || { echo "no libibverbs.so.1 in $library"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
gcc -std=c11 -D_GNU_SOURCE -O1 ${WEFT_SANITIZE:+-g1 "-fsanitize=$WEFT_SANITIZE"} -Wall -Wextra -Werror "$source/tests/verbs/churn.c" -o "$work/churn" -L"$library" -l:libibverbs.so.1 ||
  { echo "the program is not compiled"; exit 1; }
export LD_LIBRARY_PATH="$library" WEFT_VERBS_DEVICES=weft=127.0.0.1

failed=0
run() {  # run WHAT PAIRS [NAME=VALUE...]
  local status=0
  echo "$1:"
  env "${@:3}" timeout -k 2 100 "$work/churn" weft "$2" || status=$?
  [[ $status -eq 0 ]] || { failed=$((failed + 1)); echo "FAILED ($status)"; }
}
many=5000 some=1000
[[ -z "${WEFT_SANITIZE:-}" ]] || many=1000 some=200  # several times as slow
run "shared memory" $many WEFT_VERBS_SHM=1
run "UDP" $many WEFT_VERBS_SHM=0
run "UDP, lost packets" $some WEFT_VERBS_SHM=0 WEFT_PACKET_FAULTS=loss=1,seed=4
[[ $failed -eq 0 ]] && echo "verbs_churn_test: ok"
