#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Many processes turn to one at the same time, over each network: all messages right, nobody hangs. `./dev bench peers` is the large one.
set -uo pipefail
program="${WEFT_BUILD:?}/bench/peers"
library="$WEFT_BUILD/lib/weft/compat"
[[ -x "$program" && -e "$library/libfabric.so.1" ]] || { echo "peers or the drop-in is not built"; exit 77; }
count=150
[[ -z "${WEFT_SANITIZE:-}" ]] || count=12  # a sanitized process is large and slow
export LD_LIBRARY_PATH="$library"
ran=0 failed=0
for provider in shm weft tcp "udp;ofi_rxd" "tcp;ofi_rxm"; do
  answer="$(LD_PRELOAD="${WEFT_PRELOAD:-}" fi_info -p "$provider" -t FI_EP_RDM 2>/dev/null)" || continue
  [[ $'\n'"$answer"$'\n' == *$'\n'"provider: $provider"$'\n'* ]] || continue
  ran=$((ran + 1))
  node=127.0.0.1
  [[ $provider != shm ]] || node=
  "$program" -n "$count" -p "$provider" -N "$node" -t 90 || { echo "FAILED: $provider"; failed=1; }
done
[[ $ran -gt 0 ]] || { echo "this build has no provider for it"; exit 77; }
exit $failed
