#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A receiver that does not receive, then asks for the latest message first: a part of what `slow_receiver` does by itself.
set -euo pipefail
program="${WEFT_BUILD:?}/tests/system/slow_receiver"
library="${WEFT_TEST_LIBRARY:-$WEFT_BUILD/lib/weft/compat}"
[[ -x "$program" && -e "$library/libfabric.so.1" ]] || { echo "slow_receiver or the drop-in is not built"; exit 77; }
export LD_LIBRARY_PATH="$library"
small=300000
large=1500
limit=64
# A sanitizer keeps freed memory for itself.
[[ -z "${WEFT_SANITIZE:-}" ]] || { small=30000; large=300; limit=512; }
timeout -k 5 100 "$program" --small "$small" --large "$large" --pause-ms 600 --limit-mb "$limit"
timeout -k 5 100 "$program" --small "$((small / 4))" --large 0 --pause-ms 300 --limit-mb "$limit"
timeout -k 5 100 "$program" --small 0 --large 200 --large-size 1000000 --pause-ms 300 --limit-mb "$limit"
