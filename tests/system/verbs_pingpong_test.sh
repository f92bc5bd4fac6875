#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Debian's fi_pingpong over queue pairs, data checked, all sizes: datagrams up to the largest size of it that fits, connections, messages over
# connections. Then a smaller run with packets that are lost, doubled and reordered.
set -euo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] && command -v fi_pingpong >/dev/null || { echo "fi_pingpong or the drop-in is not there"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
run=(env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"})
# shellcheck disable=SC2034
pair_limit=120

pingpong() { pair_reaches "$1" 127.0.0.1 -p "$2" -e "$3" -c -S all -I "$4"; }

pingpong 1k verbs dgram 100
pingpong 6m verbs msg 10
pingpong 6m 'verbs;ofi_rxm' rdm 10
WEFT_PACKET_FAULTS="loss=0.1,twice=1,late=1,seed=1" pingpong 6m verbs msg 10
