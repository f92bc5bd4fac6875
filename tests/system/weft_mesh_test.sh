#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The provider weft between hosts, which are two network namespaces joined by veth: two processes here and two there, all to all, over
# IPv4 and IPv6; the same with shared memory forbidden; a stock fi_pingpong across.
set -euo pipefail
program="${WEFT_BUILD:?}/tests/system/mesh"
library="${WEFT_TEST_LIBRARY:-$WEFT_BUILD/lib/weft/compat}"
[[ -x "$program" && -e "$library/libfabric.so.1" ]] || { echo "mesh or the drop-in is not built"; exit 77; }
[[ $EUID -eq 0 ]] && command -v ip >/dev/null || { echo "network namespaces need root and ip"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
a="weft-a-$$" b="weft-b-$$"
trap 'end_pair; ip netns del "$a" 2>/dev/null || true; ip netns del "$b" 2>/dev/null || true' EXIT
ip netns add "$a" 2>/dev/null && ip netns add "$b" || { echo "no network namespaces here"; exit 77; }
ip link add "wv$$a" netns "$a" type veth peer name "wv$$b" netns "$b" || { echo "no veth here"; exit 77; }
limit=20000
[[ -z "${WEFT_SANITIZE:-}" ]] || limit=60000

up() {  # namespace, device, address
  ip -n "$1" link set lo up
  ip -n "$1" addr add "$3" dev "$2" nodad 2>/dev/null || ip -n "$1" addr add "$3" dev "$2"
  ip -n "$1" link set "$2" up
}
mesh() { LD_LIBRARY_PATH="$library" timeout -k 5 120 "$program" --limit-ms "$limit" "$@"; }

echo "- on one host"
mesh --places -,-,- --near 2
FI_WEFT_SHM=0 mesh --places -,-,- --near 0
echo "- two hosts, IPv4"
up "$a" "wv$$a" 10.99.0.1/24
up "$b" "wv$$b" 10.99.0.2/24
mesh --places "$a,$a,$b,$b" --near 1
FI_WEFT_SHM=0 mesh --places "$a,$b,$a,$b" --near 0
echo "- two hosts, IPv6"
ip -n "$a" addr flush dev "wv$$a"
ip -n "$b" addr flush dev "wv$$b"
up "$a" "wv$$a" fd99:1234:5678:9abc:def0:1234:5678:1/64
up "$b" "wv$$b" fd99:1234:5678:9abc:def0:1234:5678:2/64
mesh --places "$a,$b,$b,$a" --near 1

command -v fi_pingpong >/dev/null || { echo "no fi_pingpong: package libfabric-bin"; exit 0; }
echo "- fi_pingpong between the hosts"
up "$a" "wv$$a" 10.99.0.1/24
up "$b" "wv$$b" 10.99.0.2/24
there=(ip netns exec "$a") here=(ip netns exec "$b") pair_limit=60
run=(env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"})
pair 10.99.0.1 -p weft -e rdm -c -I 20 || { tell_pair; exit 1; }
tail -n 1 "$pair_folder/client.out"
