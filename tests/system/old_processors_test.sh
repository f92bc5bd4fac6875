#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Processors without x86-64-v2 (qemu64, kvm64) and the oldest one with it (Nehalem), by qemu-user: Debian's fi_info and fi_pingpong over the drop-in,
# and ibv_devinfo; the plugins under Debian's libfabric; a program of libweft.so.1. Then a server without the instruction of CRC-32C and a client that may
# have it: both must compute the same checksum. scripts/check/instructions.py looks at the paths that do not run here.
# Exit status 77: no qemu-x86_64, another architecture, or a sanitizer.
set -uo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] || { echo "the drop-in is not built"; exit 77; }
[[ "$(uname -m)" == x86_64 && -z "${WEFT_SANITIZE:-}" ]] || { echo "not for this build"; exit 77; }
for program in qemu-x86_64 fi_info fi_pingpong; do command -v "$program" >/dev/null || { echo "no $program"; exit 77; }; done
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
failures=0
# shellcheck disable=SC2034  # pair.sh has it
pair_limit=60
cd "$(dirname "$(command -v fi_pingpong)")" || exit 1 # qemu-x86_64 does not search PATH

passed() { echo "ok: $1"; }
failed() { echo "FAILED: $1"; failures=$((failures + 1)); }
plugins="$WEFT_BUILD/lib/weft/plugin" multiplexer="$WEFT_BUILD/lib"
work="$(mktemp -d)"
trap 'end_pair; rm -rf "$work"' EXIT
if [[ -e "$multiplexer/libweft.so.1" ]]; then
  cat >"$work/list.c" <<'END'
#include <rdma/fabric.h>
#include <stdio.h>
int main(void) {
  struct fi_info* info = NULL;
  if (fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info) != 0) return 1;
  for (struct fi_info* each = info; each; each = each->next) puts(each->fabric_attr->prov_name);
  fi_freeinfo(info);
  return 0;
}
END
  gcc "$work/list.c" -o "$work/list" -L"$multiplexer" -l:libweft.so.1 || failed "a program of libweft.so.1 is not compiled"
fi
for processor in qemu64 kvm64 Nehalem; do
  run=(env "LD_LIBRARY_PATH=$library" qemu-x86_64 -cpu "$processor")
  providers="$(timeout 60 "${run[@]}" fi_info -l 2>&1)" && grep -q '^tcp:' <<<"$providers" && passed "fi_info, $processor" ||
    { failed "fi_info, $processor"; tail -n 3 <<<"$providers"; }
  # What kvm64 lacks, qemu64 lacks, too, but for a few: one provider of each kind of link.
  [[ $processor == kvm64 ]] && names=(weft 'udp;ofi_rxd') || names=(shm weft tcp 'udp;ofi_rxd' udp)
  for provider in "${names[@]}"; do
    type=rdm size=64k bytes=65536
    [[ $provider != udp ]] || type=dgram size=1k bytes=1024
    # shellcheck disable=SC2310
    pair_reaches "$size" 127.0.0.1 -p "$provider" -e "$type" -c -S "$bytes" -I 10 && passed "fi_pingpong over $provider, $processor" ||
      failed "fi_pingpong over $provider, $processor"
  done
  if [[ -e "$library/libibverbs.so.1" && -x "$(command -v ibv_devinfo)" ]]; then
    devices="$(timeout 60 "${run[@]}" "$(command -v ibv_devinfo)" 2>&1)" && grep -q 'PORT_ACTIVE' <<<"$devices" && passed "ibv_devinfo, $processor" ||
      { failed "ibv_devinfo, $processor"; tail -n 3 <<<"$devices"; }
  fi
  if [[ -x "$work/list" ]]; then
    providers="$(LD_LIBRARY_PATH="$multiplexer" timeout 60 qemu-x86_64 -cpu "$processor" "$work/list" 2>&1)" && grep -qx tcp <<<"$providers" && passed "libweft.so.1, $processor" ||
      { failed "libweft.so.1, $processor"; tail -n 3 <<<"$providers"; }
  fi
  if [[ -e "$plugins/libweft-fi.so" ]]; then
    run=(env "FI_PROVIDER_PATH=$plugins" qemu-x86_64 -cpu "$processor")
    # shellcheck disable=SC2310
    pair_reaches 64k 127.0.0.1 -p weft_shm -e rdm -c -S 65536 -I 10 && passed "fi_pingpong over the plugin, $processor" ||
      failed "fi_pingpong over the plugin, $processor"
  fi
done
plugin="$WEFT_BUILD/tests/datagram_plugin"
if [[ -e "$plugin/libweft-udp-fi.so" ]]; then
  # The variables come from outside: env(1) under qemu-user would run the program on this processor.
  mixed() (
    export LD_LIBRARY_PATH="$library" FI_PROVIDER_PATH="$plugin"
    run=() there=(qemu-x86_64 -cpu qemu64)
    pair_reaches 64k 127.0.0.1 -p 'weft_udp;ofi_rxd' -e rdm -c -S 65536 -I 10
  )
  # shellcheck disable=SC2310
  mixed && passed "CRC-32C with and without its instruction" || failed "CRC-32C with and without its instruction"
fi
[[ $failures == 0 ]] || { echo "$failures failed"; exit 1; }
