# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
# Debian's fi_pingpong, data checked, all sizes: on this host with IPv4 and IPv6, and between two network namespaces. Sourced with
# provider, type, largest (what a line of the largest size begins with) and net (a number of its own).
set -euo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] && command -v fi_pingpong >/dev/null || { echo "fi_pingpong or the drop-in is not there"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
run=(env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"})
pair_limit=60
space="weft-$provider-$$"
cleanup() {
  end_pair
  [[ "${#here[@]}" == 0 ]] || { ip netns del "$space-a"; ip netns del "$space-b"; } 2>/dev/null || true
}
trap cleanup EXIT

pingpong() { pair_reaches "$largest" "$1" -p "$provider" -e "$type" -c -S all "${@:2}"; }

pingpong 127.0.0.1
! has_ipv6 || pingpong ::1 -6

ip netns add "$space-a" 2>/dev/null || { echo "no network namespaces here: only this host was tried"; exit 0; }
here=(ip netns exec "$space-b")
there=(ip netns exec "$space-a")
ip netns add "$space-b"
ip -n "$space-a" link add veth0 type veth peer name veth0 netns "$space-b"
for side in a b; do
  ip -n "$space-$side" link set lo up
  ip -n "$space-$side" link set veth0 up
  ip -n "$space-$side" addr add "10.$net.0.$([[ $side == a ]] && echo 1 || echo 2)/24" dev veth0
  ip -n "$space-$side" addr add "fd$net::$([[ $side == a ]] && echo 1 || echo 2)/64" dev veth0 nodad
done
pingpong "10.$net.0.1"
pingpong "fd$net::1" -6
