#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Reports about other fabrics that need an environment of their own (docs/reports.md): cases of the conformance program without access to the memory of
# other processes, with lost packets, with a small or read-only /dev/shm, and on a host with loopback only, up and down.
#
# usage: public_reports_test.sh
set -uo pipefail
program="${WEFT_BUILD:?}/libexec/weft/weft_conformance" library="$WEFT_BUILD/lib/weft/compat"
[[ -x "$program" && -e "$library/libfabric.so.1" ]] || { echo "the conformance program or the drop-in is not built"; exit 77; }
work="$(mktemp -d)" failures=0
trap 'rm -rf "$work"' EXIT
export "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+"LD_PRELOAD=$WEFT_PRELOAD"}

# cases WHAT PROVIDER FILTER [COMMAND...]: runs them within COMMAND
cases() {
  local what="$1" provider="$2" filter="$3"
  if timeout 100 "${@:4}" env "WEFT_TEST_PROVIDER=$provider" "$program" --gtest_filter="$filter" >"$work/out" 2>&1 &&
    grep -q 'PASSED  ] [1-9]' "$work/out"; then
    echo "ok: $what, $provider"
  else
    echo "FAILED: $what, $provider"
    tail -n 30 "$work/out"
    failures=$((failures + 1))
  fi
}

# Several long unexpected messages where CMA is forbidden (libfabric 9143).
for provider in shm weft; do
  cases "no CMA" "$provider" '*every_size_unexpected*:Flood.large_unexpected*:Flood.four_senders*:Flood.received_in_reverse*' env WEFT_CMA=0
done

# Multi-receive buffers and atomics whose results are there with the completion, where packets are lost (libfabric 8212).
cases "lost packets" "udp+ofi_rxd" 'MultiRecv.*:Flags.of_atomics*:Atomic.tickets*:Messages.a_thousand*' \
  env WEFT_PACKET_FAULTS=loss=2,seed=5

own=(unshare --mount --net)
[[ $(id -u) == 0 ]] || own=(unshare --map-root-user --mount --net)
if ! "${own[@]}" true 2>/dev/null; then
  echo "namespaces cannot be made here: /dev/shm and the loopback interface are not tried"
else
  some='Messages.every_size_expected*:Tagged.inject*:Messages.send_to_self*'
  # A /dev/shm of 1 MiB, and a read-only one (libfabric 9422).
  for provider in shm weft; do
    cases "/dev/shm of 1 MiB" "$provider" "$some" "${own[@]}" bash -c 'mount -t tmpfs -o size=1m none /dev/shm && ip link set lo up; "$@"' -
    cases "a read-only /dev/shm" "$provider" "$some" "${own[@]}" bash -c 'mount -t tmpfs -o ro none /dev/shm && ip link set lo up; "$@"' -
  done
  # A host with loopback only, up and down (libfabric 8227).
  if command -v ip >/dev/null; then
    for provider in tcp weft udp+ofi_rxd tcp+ofi_rxm; do
      cases "loopback only" "$provider" "$some" "${own[@]}" bash -c 'ip link set lo up; "$@"' -
    done
    for provider in shm weft; do cases "loopback down" "$provider" "$some" "${own[@]}"; done
  fi
fi
[[ $failures == 0 ]] || { echo "$failures failed"; exit 1; }
