#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Each operation of udp;ofi_rxd to an address that the kernel sends nothing to ends with an error after 2 s (a peer that was never met), or after
# WEFT_RELIABLE_TIMEOUT_S where that is less; the log names the errno. Exit status 77: namespaces cannot be made here.
set -uo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
program="$WEFT_BUILD/tests/system/unreachable"
[[ -e "$library/libfabric.so.1" && -x "$program" ]] || { echo "the drop-in is not built"; exit 77; }
command -v ip >/dev/null || { echo "no ip"; exit 77; }
space="weft-ur-$$" failures=0 log="$(mktemp)"
cleanup() {
  ip netns del "$space" 2>/dev/null
  rm -f "$log"
}
trap cleanup EXIT
trap 'exit 1' TERM
ip netns add "$space" 2>/dev/null || { echo "no network namespaces here"; exit 77; }
ip -n "$space" link add ur0 type veth peer name ur1 || { echo "no veth here"; exit 77; }
ip -n "$space" addr add 10.9.0.1/24 dev ur0
for name in lo ur0 ur1; do ip -n "$space" link set "$name" up; done
ip -n "$space" route add blackhole 10.8.0.0/24
ip -n "$space" route add unreachable 10.7.0.0/24

ends() {  # ends ADDRESS SECONDS LEAST MOST ERRNO: WEFT_RELIABLE_TIMEOUT_S; milliseconds
  if ip netns exec "$space" env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"} FI_LOG_LEVEL=warn "WEFT_RELIABLE_TIMEOUT_S=$2" \
    timeout 100 "$program" 'udp;ofi_rxd' 10.9.0.1 "$1" 5000 "$3" "$4" 2>"$log" && grep -q "peer .*$1:5000 is .*unreachable.*the last error was: $5" "$log"; then
    echo "ok: $1 after $2 s at most"
  else
    echo "FAILED: $1 after $2 s at most"
    cat "$log"
    failures=$((failures + 1))
  fi
}
ends 10.8.0.1 60 1900 4000 'Invalid argument'
ends 10.7.0.1 60 1900 4000 'No route to host'
ends 10.5.0.1 60 1900 4000 'Network is unreachable'
ends 10.8.0.1 1 900 3000 'Invalid argument'
# Nobody answers for the address on the link: the kernel says so 3 s after each packet.
ends 10.9.0.9 60 4000 20000 'No route to host'
[[ $failures == 0 ]] || { echo "$failures failed"; exit 1; }
