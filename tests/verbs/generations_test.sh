#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A program that is bound at the nodes of rdma-core 59 to 65 (generations.cpp) starts and works on the drop-in libibverbs.so.1.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
library="$build/lib/weft/compat"
[[ -e "$library/libibverbs.so.1" ]] || { echo "no libibverbs.so.1 in $library"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
g++ -std=c++20 -D_GNU_SOURCE -O1 ${WEFT_SANITIZE:+-g1 "-fsanitize=$WEFT_SANITIZE"} -Wall -Wextra -Werror -I"$source/src" "$source/tests/verbs/generations.cpp" \
  -o "$work/generations" -L"$library" -l:libibverbs.so.1 || { echo "the program is not compiled"; exit 1; }
for node in 1.15 1.16 1.17 1.18; do
  readelf -V "$work/generations" | grep -q "Name: IBVERBS_$node " || { echo "FAILED: the program is not bound to IBVERBS_$node"; exit 1; }
done
LD_LIBRARY_PATH="$library" WEFT_VERBS_DEVICES=weft=127.0.0.1 timeout 100 "$work/generations"
