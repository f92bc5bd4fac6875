#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# WEFT_PCAP under a verbs program: tshark dissects what crossed by shared memory and by UDP as RoCEv2 without being told a port, and the ICRC of
# every record is the one that its headers ask for, by a CRC-32 that is not ours.
set -euo pipefail
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "runs the system's programs: not under a sanitizer"; exit 77; }
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
for program in ibv_rc_pingpong ib_write_bw tshark python3; do
  command -v "$program" >/dev/null || { echo "no $program"; exit 77; }
done
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
source "$(dirname "${BASH_SOURCE[0]}")/pairs.sh"
user=()
trap end_pair EXIT
pair_limit=60

# check FILE WORD...: each word stands in the dissection, nothing is malformed, all are RoCEv2, all ICRCs are right.
check() {
  local file="$1" word
  shift
  tshark -V -r "$file" >"$pair_folder/dissected" 2>/dev/null
  ! grep -qi "malformed" "$pair_folder/dissected" || { echo "$file: malformed packets"; exit 1; }
  for word in "$@"; do grep -q "$word" "$pair_folder/dissected" || { echo "$file: no $word"; exit 1; }; done
  [[ $(tshark -r "$file" 2>/dev/null | wc -l) -eq $(tshark -r "$file" -Y infiniband 2>/dev/null | wc -l) ]] ||
    { echo "$file: not all of it is RoCEv2"; exit 1; }
  python3 - "$file" <<'PYTHON'
import struct, sys, zlib
data = open(sys.argv[1], "rb").read()
at, packets = 24, 0
while at < len(data):
    length = struct.unpack_from("<I", data, at + 8)[0]
    ip = bytearray(data[at + 16 : at + 16 + length])
    at, packets = at + 16 + length, packets + 1
    assert ip[0] == 0x45, "IPv4 of 20 bytes"
    ip[1] = ip[8] = ip[10] = ip[11] = ip[26] = ip[27] = ip[28 + 4] = 0xFF
    assert struct.unpack_from("<I", ip, length - 4)[0] == zlib.crc32(b"\xff" * 8 + bytes(ip[: length - 4])), f"the ICRC of packet {packets}"
print(f"{sys.argv[1]}: {packets} packets")
PYTHON
}

for near in 1 0; do
  here=(env "WEFT_PCAP=$pair_folder/$near.pcap" "WEFT_VERBS_SHM=$near") there=(env "WEFT_VERBS_SHM=$near")
  passes 127.0.0.1 ibv_rc_pingpong -g 0 -n 50
  check "$pair_folder/$near.pcap" "Base Transport Header" "AETH - ACK Extended Transport Header" "Invariant CRC"
  here[1]="WEFT_PCAP=$pair_folder/$near.write.pcap"
  passes 127.0.0.1 ib_write_bw -F -n 20 -s 8192
  check "$pair_folder/$near.write.pcap" "RETH - RDMA Extended Transport Header" "AETH - ACK"
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
