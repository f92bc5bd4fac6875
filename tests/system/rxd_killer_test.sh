#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Peers are killed under load over udp;ofi_rxd: what was pending ends with an error within a bound, and survivors go on with the replacement.
set -euo pipefail
program="${WEFT_BUILD:?}/tests/system/killer"
library="${WEFT_TEST_LIBRARY:-$WEFT_BUILD/lib/weft/compat}"
[[ -x "$program" && -e "$library/libfabric.so.1" ]] || { echo "killer or the drop-in is not built"; exit 77; }
export LD_LIBRARY_PATH="$library"
rounds=12
[[ -z "${WEFT_SANITIZE:-}" ]] || rounds=4
timeout -k 5 300 "$program" --provider 'udp;ofi_rxd' --rounds "$rounds" --limit-ms 20000
