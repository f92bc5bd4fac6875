#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A domain for each network interface (docs/libfabric.md): two hosts with two networks between them. fi_info lists what the stock library
# lists; a domain that is named binds to its interface, though another one is the better way; FI_TCP_IFACE and FI_UDP_IFACE choose.
# Exit status 77: namespaces cannot be made here.
#
# usage: interfaces_test.sh
set -uo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] || { echo "the drop-in is not built"; exit 77; }
command -v ip >/dev/null || { echo "ip is not here (package iproute2)"; exit 77; }
command -v fi_info >/dev/null || { echo "fi_info is not here (package libfabric-bin)"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
space="weft-if-$$" work="$(mktemp -d)" failures=0
ip netns add "$space-a" 2>"$work/err" || { echo "no network namespaces here: $(cat "$work/err")"; rm -rf "$work"; exit 77; }
cleanup() {
  ip netns del "$space-a" 2>/dev/null
  ip netns del "$space-b" 2>/dev/null
  rm -rf "$work"
  end_pair
}
trap cleanup EXIT
trap 'exit 1' TERM
ip netns add "$space-b"
for i in 0 1; do
  ip -n "$space-a" link add "net$i" type veth peer name "net$i" netns "$space-b" || { echo "no veth here"; exit 77; }
done
number=1
for side in a b; do
  ip -n "$space-$side" link set lo up
  for i in 0 1; do
    ip -n "$space-$side" link set "net$i" up
    ip -n "$space-$side" addr add "10.79.$i.$number/24" dev "net$i"
  done
  ip -n "$space-$side" route add default via "10.79.0.$((3 - number))"
  number=2
done

here=(ip netns exec "$space-b")
there=(ip netns exec "$space-a")
run=(env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+"LD_PRELOAD=$WEFT_PRELOAD"})
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
expect() {  # expect WHAT WANTED GOT
  if [[ $2 == "$3" ]]; then echo "ok: $1"; else fail "$1: wanted '$2', got '$3'"; fi
}
entries() {  # entries [COMMAND...]: "domain network source" of each entry of fi_info -v, in their order
  "$@" 2>>"$work/told" | awk '/^    src_addr:/ { source = $2 } $1 == "name:" { names[++n] = $2 } $1 == "prov_name:" {
    print names[n - 1], names[n], source }'
}
ours() { entries "${there[@]}" env "${@:2}" "${run[@]}" fi_info -v -p "$1" "${type[@]}" "${more[@]}"; }
type=(-t FI_EP_MSG) more=()

# What the stock library lists. Its fi_tostr leaves out the scope of a link-local address.
without_scope() { sed 's/%[0-9]*]/]/'; }
expect "fi_info -p tcp lists what the stock library lists" \
  "$(entries "${there[@]}" env -u LD_LIBRARY_PATH fi_info -v -p tcp "${type[@]}" "${more[@]}" | sort)" "$(ours tcp | without_scope | sort)"
expect "the way out of the machine is first, loopback last" "net0 net1 lo" "$(ours tcp | awk '{ print $1 }' | uniq | paste -sd' ')"
type=(-t FI_EP_DGRAM)
expect "fi_info -p udp lists what the stock library lists" \
  "$(entries "${there[@]}" env -u LD_LIBRARY_PATH fi_info -v -p udp "${type[@]}" "${more[@]}" | sort)" "$(ours udp | without_scope | sort)"
type=(-t FI_EP_RDM) more=(-a FI_SOCKADDR_IN)
for provider in tcp 'tcp;ofi_rxm' 'udp;ofi_rxd'; do
  expect "$provider has the same" "net0 net1 lo" "$(ours "$provider" | awk '{ print $1 }' | uniq | head -n 3 | paste -sd' ')"
done

# Names.
more=(-a FI_SOCKADDR_IN -d net1)
expect "-d net1" "net1 10.79.1.0/24 fi_sockaddr_in://10.79.1.1:0" "$(ours 'udp;ofi_rxd')"
more=(-a FI_SOCKADDR_IN -f 10.79.1.0/24)
expect "-f 10.79.1.0/24" "net1 10.79.1.0/24 fi_sockaddr_in://10.79.1.1:0" "$(ours 'udp;ofi_rxd')"
more=()
expect "weft is one domain for all interfaces" "weft weft weft://0.0.0.0:0" "$(ours weft)"
more=(-d net1)
expect "unless one is asked for" "net1 10.79.1.0/24 weft://10.79.1.1:0" "$(ours weft | head -n 1)"
more=()

# Settings.
expect "FI_UDP_IFACE" "net1" "$(ours 'udp;ofi_rxd' FI_UDP_IFACE=net1 | awk '{ print $1 }' | sort -u)"
expect "FI_TCP_IFACE" "net1" "$(ours tcp FI_TCP_IFACE=net1 | awk '{ print $1 }' | sort -u)"
expect "FI_TCP_IFACE and weft" "net1 10.79.1.0/24 weft://10.79.1.1:0" "$(ours weft FI_TCP_IFACE=net1 | head -n 1)"
: >"$work/told"
expect "an interface that is not there: all" "lo net0 net1" "$(ours tcp FI_TCP_IFACE=nope | awk '{ print $1 }' | sort -u | paste -sd' ')"
expect "and one warning" 1 "$(grep -c 'FI_TCP_IFACE=nope: no interface of that name' "$work/told")"

# Destinations: the interface from which they are reached.
more=(-n 10.79.1.2 -P 7000)
expect "to the second network" "net1 10.79.1.0/24 fi_sockaddr_in://10.79.1.1:0" "$(ours 'udp;ofi_rxd')"
more=(-n 127.0.0.1 -P 7000)
expect "to loopback" "lo 127.0.0.1/32 fi_sockaddr_in://127.0.0.1:0" "$(ours 'udp;ofi_rxd')"

# An endpoint in a domain is where its interface is: the server listens at the second network's address alone.
for case in 'tcp rdm' 'tcp msg' 'tcp;ofi_rxm rdm' 'udp;ofi_rxd rdm' 'udp dgram' 'weft rdm'; do
  read -r provider kind <<<"$case"
  status=0
  pair 10.79.1.1 -p "$provider" -e "$kind" -d net1 -c -I 100 -S 1024 || status=$?
  [[ $status -eq 0 ]] && echo "ok: fi_pingpong -p '$provider' -e $kind -d net1" || { fail "fi_pingpong -p $provider -e $kind -d net1: status $status"; tell_pair; }
done
[[ $failures -eq 0 ]] || exit 1
