# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
# Runs a verbs program as server and client on Weft's libibverbs. Sourced by tests, after tests/pair.sh, whose variables `here`, `there` and
# `pair_limit` hold here, too.
#
#   library   the folder with libibverbs.so.1
#   user      what stands before the program: env, setpriv ...

# verbs_pair ADDRESS PROGRAM OPTION...: status 0 when both sides end with 0. Output in $pair_folder/{server,client}.{out,err}.
verbs_pair() {
  local address="$1" program="$2" status=0 server_status=0
  shift 2
  pair_port=$((pair_port + 1))
  while is_listening "$pair_port" "${there[@]}"; do pair_port=$((pair_port + 1)); done
  : >"$pair_folder/client.out"
  timeout -k 2 "$pair_limit" "${there[@]}" "${user[@]}" env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"} \
    "$program" -p "$pair_port" "$@" >"$pair_folder/server.out" 2>"$pair_folder/server.err" &
  pair_server=$!
  if await_server "$pair_server" "$pair_port" "${there[@]}" 2>"$pair_folder/client.err"; then
    timeout -k 2 "$pair_limit" "${here[@]}" "${user[@]}" env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"} \
      "$program" -p "$pair_port" "$@" "$address" >"$pair_folder/client.out" 2>"$pair_folder/client.err" || status=$?
  else
    status=1
  fi
  if [[ $status -ne 0 ]]; then
    eventually 5 is_gone "$pair_server" || kill "$pair_server" 2>/dev/null || true
  fi
  wait "$pair_server" || server_status=$?
  pair_server=
  [[ $status -ne 0 ]] || status=$server_status
  return "$status"
}

# passes ADDRESS PROGRAM OPTION...: counts, and tells what failed.
passed=0 failed=0
passes() {
  local status=0
  verbs_pair "$@" || status=$?
  if [[ $status -eq 0 ]]; then
    passed=$((passed + 1))
    return
  fi
  failed=$((failed + 1))
  echo "FAILED ($status): ${*:2}"
  tell_pair
}
