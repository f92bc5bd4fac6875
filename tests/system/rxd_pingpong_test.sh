#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Debian's fi_pingpong over udp;ofi_rxd, data checked, all sizes: IPv4, IPv6, and with packets that are lost, doubled and reordered. Each side waits
# for the other in a read(2) of its own between sizes: nobody drives the endpoint then, so what was completed must have arrived.
set -euo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] && command -v fi_pingpong >/dev/null || { echo "fi_pingpong or the drop-in is not there"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
run=(env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"})

pingpong() { pair_reaches 6m "$1" -p 'udp;ofi_rxd' -e rdm -c -S all "${@:2}"; }

pingpong 127.0.0.1
! has_ipv6 || pingpong ::1 -6
for seed in 1 2; do
  FI_LOG_LEVEL=info WEFT_PACKET_FAULTS="loss=1,twice=1,late=1,seed=$seed" pingpong 127.0.0.1
  grep -qE "faults: of [0-9]+ packets [1-9][0-9]* lost, [1-9][0-9]* twice, [1-9][0-9]* late, .*; seed $seed\$" "$pair_folder"/*.err ||
    { tell_pair; echo "no faults happened"; exit 1; }
done
