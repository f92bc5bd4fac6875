#!/usr/bin/env bash
# WEFT_PCAP with Debian's fi_pingpong over udp;ofi_rxd and udp: tshark reads what was captured, with right checksums, as UDP
# between the two endpoints; with faults the capture has what went. A second process does not overwrite the first one's file.
set -euo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] && command -v fi_pingpong >/dev/null || { echo "fi_pingpong or the drop-in is not there"; exit 77; }
command -v tshark >/dev/null || { echo "tshark is not there"; exit 77; }
port=$((12000 + $$ % 2000))
folder="$(mktemp -d)"
server=
trap '[[ -z "$server" ]] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
fail() { echo "$*"; cat "$folder"/*.log 2>/dev/null; exit 1; }

# pingpong PROVIDER TYPE ADDRESS OPTIONS...: both processes are told the same name.
pingpong() {
  local provider=$1 type=$2 address=$3
  shift 3
  port=$((port + 1))
  rm -f "$folder"/*
  local run=(env LD_LIBRARY_PATH="$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"} FI_LOG_LEVEL=info
    WEFT_PCAP="${capture:-$folder/x.pcap}" timeout -k 2 120 fi_pingpong -p "$provider" -e "$type" -c -I 20 -S 1024)
  "${run[@]}" -B "$port" "$@" >/dev/null 2>"$folder/server.log" &
  server=$!
  sleep 0.5
  "${run[@]}" -P "$port" "$@" "$address" >/dev/null 2>"$folder/client.log" || fail "fi_pingpong over $provider"
  wait "$server" || fail "fi_pingpong's server over $provider"
  server=
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
    grep -q "capture: $all packets in $file" "$folder"/*.log || fail "$name: the log does not name $file with $all packets"
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
grep -qE 'faults: of [0-9]+ packets [1-9]' "$folder"/*.log || fail "no packet was lost on purpose"

# Misspelt faults are refused with a sentence.
output=$(env LD_LIBRARY_PATH="$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"} WEFT_PACKET_FAULTS="lost=5" timeout 60 \
  fi_pingpong -p 'udp;ofi_rxd' -e rdm -B $((port + 1)) 2>&1 &
  sleep 0.5
  env LD_LIBRARY_PATH="$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"} WEFT_PACKET_FAULTS="lost=5" timeout 60 \
    fi_pingpong -p 'udp;ofi_rxd' -e rdm -P $((port + 1)) 127.0.0.1 2>&1) || true
grep -q 'WEFT_PACKET_FAULTS=lost=5: "lost" is no fault' <<<"$output" || fail "misspelt faults: $output"
# What cannot be written is one warning, and the program goes on.
capture="$folder/no/such/folder.pcap" pingpong 'udp;ofi_rxd' rdm 127.0.0.1
for log in "$folder"/*.log; do
  [[ $(grep -c 'packets are not captured' "$log") == 1 ]] || fail "not one warning of a file that cannot be written"
done
echo "ok"
