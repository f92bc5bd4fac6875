#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# WEFT_PCAP with Debian's fi_pingpong over udp;ofi_rxd and udp: tshark reads what was captured, with right checksums, as UDP
# between the two endpoints; with faults the capture has what went. A second process does not overwrite the first one's file.
set -euo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] && command -v fi_pingpong >/dev/null || { echo "fi_pingpong or the drop-in is not there"; exit 77; }
command -v tshark >/dev/null || { echo "tshark is not there"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
run=(env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"})
folder="$(mktemp -d)"
trap 'end_pair; rm -rf "$folder"' EXIT
fail() { echo "$*"; cat "$pair_folder"/*.err; exit 1; }

# pingpong PROVIDER TYPE ADDRESS OPTIONS...: both processes are told the same name.
pingpong() {
  rm -f "$folder"/*
  FI_LOG_LEVEL=info WEFT_PCAP="${capture:-$folder/x.pcap}" pair "$3" -p "$1" -e "$2" -c -I 20 -S 1024 "${@:4}" || fail "fi_pingpong over $1"
}
count() { tshark -n -r "$1" -o udp.check_checksum:TRUE -o ip.check_checksum:TRUE -Y "$2" 2>/dev/null | wc -l; }

# looks_right NAME PACKETS: two captures of at least so many packets. (What is behind UDP's head tshark guesses by the port.)
looks_right() {
  local name=$1 least=$2 file all
  local files=("$folder"/*.pcap)
  [[ ${#files[@]} == 2 && -e "$folder/x.pcap" ]] || fail "$name: not two captures: ${files[*]}"
  for file in "${files[@]}"; do
    all=$(count "$file" frame)
    [[ $all -ge $least ]] || fail "$name: $file has $all packets"
    [[ $(count "$file" "udp && ip.checksum.status == 1 && udp.checksum.status == 1") == "$all" ]] ||
      fail "$name: tshark does not read all of $file"
    grep -q "capture: $all packets in $file" "$pair_folder"/*.err || fail "$name: the log does not name $file with $all packets"
  done
  echo "$name: ${#files[@]} captures, the last of $all packets"
}

pingpong 'udp;ofi_rxd' rdm 127.0.0.1
looks_right "udp;ofi_rxd" 40
pingpong udp dgram 127.0.0.1
looks_right "udp" 40
# 20 messages of 1,024 bytes each way, and as many to warm up at most, in captures of both sides.
for file in "$folder"/*.pcap; do
  [[ $(count "$file" "udp.length == $((1024 + 8))") -ge 40 ]] || fail "udp: $file lacks messages"
done
WEFT_PACKET_FAULTS="loss=5,twice=5,late=5,seed=11" pingpong 'udp;ofi_rxd' rdm 127.0.0.1
looks_right "udp;ofi_rxd with faults" 40
grep -qE 'faults: of [0-9]+ packets [1-9]' "$pair_folder"/*.err || fail "no packet was lost on purpose"

# Misspelt faults are refused with a sentence.
WEFT_PACKET_FAULTS="lost=5" pair 127.0.0.1 -p 'udp;ofi_rxd' -e rdm && fail "misspelt faults are taken"
grep -q 'WEFT_PACKET_FAULTS=lost=5: "lost" is no fault' "$pair_folder"/*.err || fail "misspelt faults"
# What cannot be written is one warning, and the program goes on.
capture="$folder/no/such/folder.pcap" pingpong 'udp;ofi_rxd' rdm 127.0.0.1
for log in "$pair_folder"/*.err; do
  [[ $(grep -c 'packets are not captured' "$log") == 1 ]] || fail "not one warning of a file that cannot be written"
done
echo "ok"
