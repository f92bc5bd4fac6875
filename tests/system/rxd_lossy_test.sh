#!/usr/bin/env bash
# Mixed traffic over udp;ofi_rxd while packets are lost, doubled and reordered: every byte is checked. WEFT_LOSSY_SECONDS=60 is the long run.
set -euo pipefail
program="${WEFT_BUILD:?}/tests/system/mixed"
library="${WEFT_TEST_LIBRARY:-$WEFT_BUILD/lib/weft/compat}"
[[ -x "$program" && -e "$library/libfabric.so.1" ]] || { echo "mixed or the drop-in is not built"; exit 77; }
export LD_LIBRARY_PATH="$library"
seconds="${WEFT_LOSSY_SECONDS:-4}"
for faults in "" "loss=1,twice=0.5,late=1,seed=$seconds" "loss=5,twice=2,late=5,seed=$seconds"; do
  echo "faults: ${faults:-none}"
  WEFT_PACKET_FAULTS="$faults" timeout -k 5 $((seconds + 150)) "$program" --provider 'udp;ofi_rxd' --seconds "$seconds"
done
