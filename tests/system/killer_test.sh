#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Processes are killed at random instants and replaced: a small number of rounds of what `killer` does. The full run is
# `killer --rounds 2000`.
set -euo pipefail
program="${WEFT_BUILD:?}/tests/system/killer"
library="${WEFT_TEST_LIBRARY:-$WEFT_BUILD/lib/weft/compat}"
[[ -x "$program" && -e "$library/libfabric.so.1" ]] || { echo "killer or the drop-in is not built"; exit 77; }
export LD_LIBRARY_PATH="$library"
rounds=100
limit=2000
# A sanitized process is slow to start and to find out.
[[ -z "${WEFT_SANITIZE:-}" ]] || { rounds=15; limit=10000; }
timeout -k 5 100 "$program" --rounds "$rounds" --limit-ms "$limit" --seed 1
timeout -k 5 100 "$program" --rounds "$((rounds / 4))" --limit-ms "$limit" --seed 2 --processes 2 --max-size 100
