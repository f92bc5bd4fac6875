#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Many processes, each sending to each: all data right, order kept, nothing left behind. `./dev bench all_to_all` is the large one.
set -euo pipefail
program="${WEFT_BUILD:?}/bench/all_to_all"
library="$WEFT_BUILD/lib/weft/compat"
[[ -x "$program" && -e "$library/libfabric.so.1" ]] || { echo "all_to_all or the drop-in is not built"; exit 77; }
count=24
[[ -z "${WEFT_SANITIZE:-}" ]] || count=8  # a sanitized process is large and slow
export LD_LIBRARY_PATH="$library"
"$program" -n "$count" -t 120 -i 0.2
"$program" -n "$count" -t 120 -i 0 -e -q
"$program" -n 6 -m 8 -s 200000 -t 120 -i 0 -q
"$program" -n 6 -m 8 -s 0 -t 120 -i 0 -q
