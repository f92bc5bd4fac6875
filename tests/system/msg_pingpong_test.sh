#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Debian's fi_pingpong over connected endpoints, data checked, all sizes, through `weft run` where it is staged: IPv4 and IPv6 on this host.
# Then with the plugin under the stock library: as it is, and with the stock library's messages over connections (ofi_rxm) on top.
set -euo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] && command -v fi_pingpong >/dev/null || { echo "fi_pingpong or the drop-in is not there"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
run=(env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"})
[[ -z "${WEFT_PRELOAD:-}" && -x "${WEFT_STAGE:-}/bin/weft" ]] && run=("$WEFT_STAGE/bin/weft" run --)

# pingpong PROVIDER TYPE ADDRESS OPTIONS...: must reach the largest size, 6 MiB.
pingpong() { pair_reaches 6m "$3" -p "$1" -e "$2" -c -S all "${@:4}"; }

pingpong tcp msg 127.0.0.1
! has_ipv6 || pingpong tcp msg ::1 -6

[[ -z "${WEFT_PRELOAD:-}" && -e "${WEFT_BUILD:?}/lib/weft/plugin/libweft-tcp-fi.so" ]] || exit 0
run=(env FI_PROVIDER_PATH="$WEFT_BUILD/lib/weft/plugin")
pingpong weft_tcp msg 127.0.0.1
pingpong "weft_tcp;ofi_rxm" rdm 127.0.0.1
