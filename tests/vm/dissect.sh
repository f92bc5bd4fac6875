#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What tshark thinks of the captures of a run: no malformed packet, and no packet in error. usage: dissect.sh LOGS;
# adds lines to LOGS/results
set -euo pipefail
logs="$1"
shopt -s nullglob
# What stands above RoCE in other programs is not guessed in our payload.
without=()
for protocol in smc smb_direct rpcordma nvme-rdma lnet iser infiniband.eoib infiniband_sdp fcoib; do without+=(--disable-protocol "$protocol"); done
for capture in "$logs"/*.pcap; do
  name="$(basename "$capture" .pcap)"
  if ! command -v tshark >/dev/null; then
    echo "skipped $name: no tshark to dissect the capture" | tee -a "$logs/results"
    continue
  fi
  # The kernel sends a UDP checksum of zero over IPv6, as annex A17 has it.
  tshark -n "${without[@]}" -r "$capture" -Y '_ws.malformed || (_ws.expert.severity >= 0x00800000 && !udp.checksum.zero)' >"$logs/$name.tshark" \
    2>"$logs/$name.tshark.errors" || true
  count="$(tshark -n -r "$capture" -Y infiniband -T fields -e frame.number 2>/dev/null | wc -l)"
  if [[ ! -s "$logs/$name.tshark" && $count -gt 0 ]]; then
    echo "ok $name: tshark dissects $count packets without a complaint" >>"$logs/results"
  else
    echo "FAILED $name: tshark complains about $(wc -l <"$logs/$name.tshark") of $count packets: $(head -n 1 "$logs/$name.tshark")" >>"$logs/results"
  fi
  tail -n 1 "$logs/results"
done
