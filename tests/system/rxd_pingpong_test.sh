#!/usr/bin/env bash
# Debian's fi_pingpong over udp;ofi_rxd, data checked, all sizes: IPv4, IPv6, and with packets that are lost, doubled and reordered. Each side waits
# for the other in a read(2) of its own between sizes: nobody drives the endpoint then, so what was completed must have arrived.
set -euo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] && command -v fi_pingpong >/dev/null || { echo "fi_pingpong or the drop-in is not there"; exit 77; }
port=$((18000 + $$ % 2000))  # below the range that the system gives out
server=
log=
trap '[[ -z "$server" ]] || kill "$server" 2>/dev/null || true; [[ -z "$log" ]] || rm -f "$log"' EXIT

pingpong() {
  local address=$1 output
  shift
  port=$((port + 1))
  local run=(env LD_LIBRARY_PATH="$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"} timeout -k 2 120
    fi_pingpong -p 'udp;ofi_rxd' -e rdm -c -S all)
  "${run[@]}" -B "$port" "$@" >/dev/null &
  server=$!
  sleep 0.5
  output=$("${run[@]}" -P "$port" "$@" "$address")
  wait "$server"
  server=
  grep -q '^6m .*=10' <<<"$output" || { echo "$output"; echo "fi_pingpong to $address did not reach 6 MiB"; exit 1; }
}

pingpong 127.0.0.1
[[ ! -e /proc/net/if_inet6 ]] || ! grep -q ' lo$' /proc/net/if_inet6 || pingpong ::1 -6
log="$(mktemp)"
for seed in 1 2; do
  FI_LOG_LEVEL=info WEFT_PACKET_FAULTS="loss=1,twice=1,late=1,seed=$seed" pingpong 127.0.0.1 2>"$log"
  grep -qE "faults: of [0-9]+ packets [1-9][0-9]* lost, [1-9][0-9]* twice, [1-9][0-9]* late, .*; seed $seed\$" "$log" ||
    { cat "$log"; echo "no faults happened"; exit 1; }
done
