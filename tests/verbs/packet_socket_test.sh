#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Debian's verbs programs over packet sockets: two devices at the ends of a veth, with addresses that no interface has, in a
# user and network namespace of their own, where an ordinary user may have packet sockets.
set -euo pipefail
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "runs the system's programs: not under a sanitizer"; exit 77; }
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libibverbs.so.1" ]] || { echo "no libibverbs.so.1 in $library"; exit 77; }
command -v ibv_rc_pingpong >/dev/null || { echo "ibverbs-utils is not there"; exit 77; }
if [[ "${1:-}" != inside ]]; then
  unshare -rn ip link add wire0 type veth peer name wire1 2>/dev/null || { echo "no namespaces with a veth here"; exit 77; }
  exec unshare -rn bash "${BASH_SOURCE[0]}" inside
fi

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
ip link set lo up
ip link add wire0 type veth peer name wire1
ip link set wire0 mtu 4300 up
ip link set wire1 mtu 4300 up
export LD_LIBRARY_PATH="$library" WEFT_VERBS_LOG=info

# pair GID_INDEX DEVICES PROGRAM OPTION...
failed=0
port=18700
pair() {
  local index="$1" status=0 server_status=0
  export WEFT_VERBS_DEVICES="$2"
  shift 2
  port=$((port + 1))
  timeout 60 "$@" -d one -g "$index" -p $port >"$folder/server" 2>&1 &
  local server=$!
  for _ in $(seq 200); do
    [[ -z "$(ss -Hltn "sport = :$port")" ]] || break
    sleep 0.05
  done
  timeout 60 "$@" -d two -g "$index" -p $port 127.0.0.1 >"$folder/client" 2>&1 || status=$?
  wait $server || server_status=$?
  # Headers are seen: nothing is wrong, nothing is guessed.
  if [[ $status -eq 0 && $server_status -eq 0 ]] && grep -q 'wrong ICRC: 0; by a solved IP identification: 0$' "$folder/client"; then
    echo "ok: $*"
  else
    failed=1
    echo "FAILED: $* ($server_status, $status)"
    tail -n 6 "$folder/server" "$folder/client"
  fi
}

v4=one=packet:wire0/10.77.0.1/24,two=packet:wire1/10.77.0.2/24
v6=one=packet:wire0/fd77::1,two=packet:wire1/fd77::2
for program in rc uc ud srq; do
  pair 1 $v4 "ibv_${program}_pingpong" -n 300
  pair 2 $v6 "ibv_${program}_pingpong" -n 300
done
pair 1 $v4 ibv_rc_pingpong -n 300 -e -s 100000
# In a small ring, and without one; both say so.
expect() {
  if grep -q "packet socket: $1" "$folder/client"; then echo "ok: $1"; else failed=1; grep 'packet socket' "$folder/client"; echo "FAILED: $1"; fi
}
expect 'a ring of [0-9]* frames, 8192 KiB; frames lost for want of room: 0;'
export WEFT_VERBS_PACKET_RING=64
# The server ends with its last message. Where the client's ring has no room for the acknowledgement of that, there is nobody to repeat it: once more.
for attempt in 1 2 3; do
  before=$failed
  pair 1 $v4 ibv_rc_pingpong -n 100 -s 100000
  [[ $failed != "$before" && $attempt != 3 ]] || break
  if ! grep -q '^100 iters' "$folder/server" || ! grep -q 'did not answer in retry_cnt' "$folder/client"; then break; fi
  failed=$before
done
expect 'a ring of 14 frames, 64 KiB;'
export WEFT_VERBS_PACKET_RING=0
pair 1 $v4 ibv_rc_pingpong -n 300
expect 'no ring;'
exit $failed
