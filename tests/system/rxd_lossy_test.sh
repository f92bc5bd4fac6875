#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Mixed traffic over udp;ofi_rxd while packets are lost, doubled and reordered: every byte is checked. WEFT_LOSSY_SECONDS=60 is the long run.
set -euo pipefail
program="${WEFT_BUILD:?}/tests/system/mixed"
library="${WEFT_TEST_LIBRARY:-$WEFT_BUILD/lib/weft/compat}"
[[ -x "$program" && -e "$library/libfabric.so.1" ]] || { echo "mixed or the drop-in is not built"; exit 77; }
export LD_LIBRARY_PATH="$library"
seconds="${WEFT_LOSSY_SECONDS:-4}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
for faults in "" "loss=1,twice=0.5,late=1,seed=$seconds" "loss=5,twice=2,late=5,seed=$seconds"; do
  echo "faults: ${faults:-none}"
  FI_LOG_LEVEL=info FI_LOG_SUBSYS=ep_data WEFT_PACKET_FAULTS="$faults" timeout -k 5 $((seconds + 150)) "$program" \
    --provider 'udp;ofi_rxd' --seconds "$seconds" 2>"$log" || { cat "$log"; exit 1; }
  [[ -n "$faults" ]] || continue
  # An endpoint of this run lost, doubled and delayed some.
  grep -E 'faults: of [0-9]+ packets [1-9][0-9]* lost, [1-9][0-9]* twice, [1-9][0-9]* late' "$log" ||
    { cat "$log"; echo "no faults happened"; exit 1; }
done
