#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Two hosts with nothing but an IPv6 link-local address each (EUI-64), on interfaces of different numbers, the loopback interface down, then up:
# fi_pingpong of Debian over each provider, and queue pairs of the drop-in libibverbs (GID 0 by name and port, GID 2 at the standard port), of two
# hosts and of two processes of one. Then two ranks of MPI on two interfaces of one host, which are the ends of one link, then of two. Exit status
# 77: namespaces cannot be made here, or the kernel has no IPv6.
set -uo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] || { echo "the drop-in is not built"; exit 77; }
for program in ip fi_pingpong fi_info; do command -v "$program" >/dev/null || { echo "no $program"; exit 77; }; done
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
space="weft-ll-$$" failures=0
eui=fe80::211:22ff:fe33
cleanup() {
  for side in a b c d; do ip netns del "$space-$side" 2>/dev/null; done
  end_pair
}
trap cleanup EXIT
trap 'exit 1' TERM
ip netns add "$space-a" 2>/dev/null && ip netns add "$space-b" || { echo "no network namespaces here"; exit 77; }
ip -n "$space-a" link add ll0 index 7 type veth peer name ll0 index 9 netns "$space-b" || { echo "no veth here"; exit 77; }
for side in a b; do
  ip -n "$space-$side" link set ll0 addrgenmode none up
  ip -n "$space-$side" addr add "$eui:445$side/64" dev ll0 nodad 2>/dev/null || { echo "no IPv6 here"; exit 77; }
done
# shellcheck disable=SC2034,SC2154  # pair.sh has them
there=(ip netns exec "$space-a") here=(ip netns exec "$space-b")
# shellcheck disable=SC2034
run=(env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"}) pair_limit=60

says() {  # says NAME WANTED GOT
  [[ "$2" == "$3" ]] && echo "ok: $1" || { echo "FAILED: $1: wanted '$2', got '$3'"; failures=$((failures + 1)); }
}
reaches() {  # reaches SIZE PROVIDER TYPE BYTES
  if pair_reaches "$1" "$eui:445a%ll0" -6 -p "$2" -e "$3" -c -S "$4" -I 10; then echo "ok: fi_pingpong, $2"; else failures=$((failures + 1)); fi
}

formats() { "${here[@]}" "${run[@]}" fi_info -v -p tcp -t FI_EP_RDM 2>&1 | sed -n 's/^ *addr_format: //p' | sort -u | paste -sd' '; }
says "the addresses of a host without loopback are of IPv6" FI_SOCKADDR_IN6 "$(formats)"
reaches 64k tcp rdm 65536
for side in a b; do ip -n "$space-$side" link set lo up; done
reaches 64k tcp rdm 65536
reaches 64k tcp msg 65536
reaches 64k 'tcp;ofi_rxm' rdm 65536
reaches 64k 'udp;ofi_rxd' rdm 65536
reaches 1k udp dgram 1024
reaches 64k weft rdm 65536
if [[ -e "$library/libibverbs.so.1" && -z "${WEFT_SANITIZE:-}" ]]; then
  # shellcheck disable=SC2154
  churn="$pair_folder/churn"
  if gcc -std=c11 -D_GNU_SOURCE -O1 "${WEFT_SOURCE:?}/tests/verbs/churn.c" -o "$churn" -L"$library" -l:libibverbs.so.1 &&
    "${here[@]}" env "LD_LIBRARY_PATH=$library" WEFT_VERBS_STANDARD_GID=1 timeout 60 "$churn" weft_ll0 200 2 "/run/netns/$space-a" &&
    "${here[@]}" env "LD_LIBRARY_PATH=$library" timeout 60 "$churn" weft_ll0 200 0 "/run/netns/$space-a" &&
    "${here[@]}" env "LD_LIBRARY_PATH=$library" timeout 60 "$churn" weft_ll0 200 &&
    "${here[@]}" env "LD_LIBRARY_PATH=$library" WEFT_VERBS_SHM=0 timeout 60 "$churn" weft_ll0 200; then
    echo "ok: queue pairs"
  else
    echo "FAILED: queue pairs"
    failures=$((failures + 1))
  fi
fi
# The weft of two processes of one host: by shared memory, then by TCP.
# shellcheck disable=SC2034
there=(ip netns exec "$space-b")
for near in 1 0; do
  export FI_WEFT_SHM=$near
  if pair_reaches 64k "$eui:445b%ll0" -6 -p weft -e rdm -c -S 65536 -I 10; then echo "ok: weft on one host, FI_WEFT_SHM=$near"; else failures=$((failures + 1)); fi
done
program="$WEFT_BUILD/tests/mpi/walk"
two_interfaces() {  # two_interfaces PROVIDER WHERE
  if ip netns exec "$space-c" "${run[@]}" timeout 60 "$WEFT_BUILD/tests/system/scoped" "$1" "$eui:4401%ll1" "$eui:4402%ll2"; then
    echo "ok: directed receives on two interfaces of $2, $1"
  else
    echo "FAILED: directed receives on two interfaces of $2, $1"
    failures=$((failures + 1))
  fi
  if ! command -v mpirun >/dev/null || [[ ! -x "$program" ]]; then return; fi
  local rma=rdma parts=()
  [[ "$(mpirun --version 2>/dev/null)" != *'Open MPI) 5'* ]] || parts=(p2p trunc probe traffic coll icoll types comms)  # no windows beside mtl ofi
  [[ $1 != *rxm ]] || rma=pt2pt  # btl ofi leaves out what has ofi_rxm in its name
  # shellcheck disable=SC2154
  if ip netns exec "$space-c" timeout 60 bash "${WEFT_SOURCE:?}/tests/mpi/run.sh" --quiet --rma "$rma" "$1" 2 "$program" "${parts[@]}" >"$pair_folder/mpi" 2>&1; then
    echo "ok: two ranks on two interfaces of $2, $1"
  else
    echo "FAILED: two ranks on two interfaces of $2, $1"
    tail -n 5 "$pair_folder/mpi"
    failures=$((failures + 1))
  fi
}
give_addresses() {
  for number in 1 2; do
    ip -n "$space-c" link set "ll$number" addrgenmode none up
    ip -n "$space-c" addr add "$eui:440$number/64" dev "ll$number" nodad
  done
}
if ip netns add "$space-c" && ip netns add "$space-d"; then
  ip -n "$space-c" link set lo up
  ip -n "$space-c" link add ll1 type veth peer name ll2
  give_addresses
  for provider in tcp 'udp;ofi_rxd' 'tcp;ofi_rxm' weft; do two_interfaces "$provider" "one link"; done
  ip -n "$space-c" link del ll1
  for number in 1 2; do
    ip -n "$space-c" link add "ll$number" type veth peer name "ll$number" netns "$space-d"
    ip -n "$space-d" link set "ll$number" up
  done
  give_addresses
  for provider in tcp 'tcp;ofi_rxm' weft; do two_interfaces "$provider" "two links"; done
fi
[[ $failures == 0 ]] || { echo "$failures failed"; exit 1; }
