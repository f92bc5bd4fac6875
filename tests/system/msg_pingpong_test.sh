#!/usr/bin/env bash
# Debian's fi_pingpong over connected endpoints, data checked, all sizes, through `weft run` where it is staged: IPv4 and IPv6 on this host.
# Then with the plugin under the stock library: as it is, and with the stock library's messages over connections (ofi_rxm) on top.
set -euo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] && command -v fi_pingpong >/dev/null || { echo "fi_pingpong or the drop-in is not there"; exit 77; }
run=(env LD_LIBRARY_PATH="$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"})
[[ -z "${WEFT_PRELOAD:-}" && -x "${WEFT_STAGE:-}/bin/weft" ]] && run=("$WEFT_STAGE/bin/weft" run --)
port=$((16000 + $$ % 2000))
server=
cleanup() { [[ -z "$server" ]] || kill "$server" 2>/dev/null || true; }
trap cleanup EXIT

# pingpong PROVIDER TYPE ADDRESS OPTIONS...: must reach the largest size, 6 MiB.
pingpong() {
  local provider=$1 type=$2 address=$3 output
  shift 3
  port=$((port + 1))
  timeout -k 2 120 "${run[@]}" fi_pingpong -p "$provider" -e "$type" -c -S all -B "$port" "$@" >/dev/null &
  server=$!
  sleep 0.7
  output=$(timeout -k 2 120 "${run[@]}" fi_pingpong -p "$provider" -e "$type" -c -S all -P "$port" "$@" "$address")
  wait "$server"
  server=
  grep -q '^6m .*=10' <<<"$output" || { echo "$output"; echo "fi_pingpong -p $provider to $address did not reach 6 MiB"; exit 1; }
}

pingpong tcp msg 127.0.0.1
[[ ! -e /proc/net/if_inet6 ]] || ! grep -q ' lo$' /proc/net/if_inet6 || pingpong tcp msg ::1 -6

[[ -z "${WEFT_PRELOAD:-}" && -e "${WEFT_BUILD:?}/lib/weft/plugin/libweft-tcp-fi.so" ]] || exit 0
run=(env FI_PROVIDER_PATH="$WEFT_BUILD/lib/weft/plugin")
pingpong weft_tcp msg 127.0.0.1
pingpong "weft_tcp;ofi_rxm" rdm 127.0.0.1
