#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# UCX as Debian ships it over the drop-in libibverbs.so.1: its transports rc_verbs and ud_verbs, tags, RMA and atomics, by shared memory and by UDP.
set -euo pipefail
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "runs the system's programs: not under a sanitizer"; exit 77; }
tests_folder="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
compat="${WEFT_BUILD:?}/lib/weft/compat"
[[ -e "$compat/libibverbs.so.1" ]] || { echo "no libibverbs.so.1 in $compat"; exit 77; }
command -v ucx_perftest >/dev/null || { echo "ucx-utils is not there"; exit 77; }
bash "$tests_folder/ucx_files.sh" true 2>/dev/null || { echo "no mount namespace to be had"; exit 77; }
source "$tests_folder/../pair.sh"
trap end_pair EXIT
pair_limit=60
inside=(bash "$tests_folder/ucx_files.sh" env "LD_LIBRARY_PATH=$compat" UCX_NET_DEVICES=weft_lo:1 UCX_LOG_LEVEL=warn UCX_WARN_UNUSED_ENV_VARS=n)

listed="$(bash "$tests_folder/ucx_files.sh" env "LD_LIBRARY_PATH=$compat" ucx_info -d)"
for transport in rc_verbs ud_verbs; do
  grep -q "Transport: $transport" <<<"$listed" || { echo "ucx_info -d lists no $transport"; exit 1; }
done
port=$((20000 + $$ % 10000))
# Debian 13's is built with MPI, which it takes for the test's set-up unless told otherwise.
perftest=(ucx_perftest)
! { ucx_perftest -h 2>&1 || true; } | grep 'enable MPI mode' >/dev/null || perftest+=(-P 0)
# over TLS TEST BYTES COUNT [SETTING]
over() {
  local tls="$1" test="$2" bytes="$3" count="$4" setting="${5:-WEFT_VERBS_LOG=warn}"
  port=$((port + 1))
  local command=("${inside[@]}" "UCX_TLS=$tls,self" "$setting" timeout 60 "${perftest[@]}" -p "$port" -t "$test" -s "$bytes" -n "$count")
  "${command[@]}" >"$pair_folder/server" 2>&1 &
  local server=$! status=0
  await_server "$server" "$port" || { cat "$pair_folder/server"; exit 1; }
  "${command[@]}" 127.0.0.1 >"$pair_folder/client" 2>&1 || status=$?
  wait "$server" || status=$?
  [[ $status -eq 0 ]] && grep -q '^Final: ' "$pair_folder/client" && return 0
  tail -n 20 "$pair_folder/server" "$pair_folder/client"
  echo "ucx_perftest over $*: status $status"
  exit 1
}
tests=0
for tls in rc_v ud_v; do
  for row in "tag_lat 8 500" "tag_bw 4096 500" "tag_bw 1048576 20" "ucp_put_lat 8 500" "ucp_get 65536 50" "ucp_am_lat 2048 200" "stream_lat 8 200"; do
    # shellcheck disable=SC2086  # three words
    over "$tls" $row
    tests=$((tests + 1))
  done
done
over rc_v ucp_fadd 8 200
over rc_v ucp_cswap 8 200
over rc_v tag_bw 65536 200 WEFT_VERBS_SHM=0
over rc_v ucp_fadd 8 100 WEFT_VERBS_SHM=0
echo "$((tests + 4)) tests of ucx_perftest passed"
