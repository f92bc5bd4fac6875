#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Traffic class, hop limit and flow label reach the packet and the receiver's GRH: over UDP sockets of IPv4 and IPv6, over shared memory, and over
# packet sockets in a user and network namespace of their own.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
library="$build/lib/weft/compat"
[[ -e "$library/libibverbs.so.1" ]] || { echo "no libibverbs.so.1 in $library"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
gcc -std=c11 -D_GNU_SOURCE -O1 ${WEFT_SANITIZE:+-g1 "-fsanitize=$WEFT_SANITIZE"} -Wall -Wextra -Werror "$source/tests/verbs/traffic.c" -o "$work/traffic" -L"$library" -l:libibverbs.so.1 ||
  { echo "the program is not compiled"; exit 1; }
export LD_LIBRARY_PATH="$library"

failed=0
# good NAME SETTING... -- WORD...
good() {
  local name="$1" settings=() status=0
  shift
  while [[ "$1" != -- ]]; do settings+=("$1") && shift; done
  shift
  env "${settings[@]}" timeout 100 "$work/traffic" "$@" >"$work/out" 2>&1 || status=$?
  if [[ $status -eq 0 ]]; then
    echo "ok: $name"
  else
    failed=1
    echo "FAILED ($status): $name"
    cat "$work/out"
  fi
}

device=WEFT_VERBS_DEVICES=weft=127.0.0.1
good "GID 0 over UDP" $device WEFT_VERBS_SHM=0 -- datagrams weft 0 100 0
good "GID 0 over shared memory" $device -- datagrams weft 0 100 2
good "RC over UDP" $device -- rc weft
if unshare -rn true 2>/dev/null; then
  # Port 4791 has one owner in each namespace.
  export -f good
  export work failed
  inside() { unshare -rn bash -c "ip link set lo up; $1; exit \$failed" || failed=1; }
  inside "good 'GID 1, IPv4' WEFT_VERBS_STANDARD_GID=1 $device -- datagrams weft 1 100 0"
  inside "good 'GID 2, IPv6' WEFT_VERBS_DEVICES=weft=::1 -- datagrams weft 2 100 1"
  if unshare -rn ip link add wire0 type veth peer name wire1 2>/dev/null; then
    wire='ip link add wire0 type veth peer name wire1; ip link set wire0 up; ip link set wire1 up'
    inside "$wire; good 'packet socket, IPv4' WEFT_VERBS_DEVICES=weft=packet:wire0/10.77.0.1/24 -- datagrams weft 1 100 0"
    inside "$wire; good 'packet socket, IPv6' WEFT_VERBS_DEVICES=weft=packet:wire0/fd77::1 -- datagrams weft 2 100 1"
  fi
fi
exit $failed
