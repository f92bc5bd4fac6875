# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
# Starts Debian's fi_pingpong as server and client, the client when the server listens. Sourced by tests and by scripts/demo.sh.
#
# Variables that a script may set:
#   run             what stands before each program: weft run --, env LD_LIBRARY_PATH=...
#   here, there     what enters the network namespace of the client and of the server
#   server_options  options of the server alone
#   pair_limit      seconds after which either side is killed
run=() here=() there=() server_options=()
pair_limit=120
pair_folder="$(mktemp -d)" # server.out, server.err, client.out, client.err of the last pair
pair_port=$((10000 + $$ % 20000))  # below the range of ephemeral ports
pair_server=

# For the script's own trap on EXIT.
end_pair() {
  [[ -z "$pair_server" ]] || kill "$pair_server" 2>/dev/null || true
  rm -rf "$pair_folder"
}
trap end_pair EXIT

# eventually SECONDS COMMAND...: polls until the command succeeds; status 1 when the time is over.
eventually() {
  local end=$((SECONDS + $1 + 1))
  shift
  until "$@"; do
    [[ $SECONDS -lt $end ]] || return 1
    sleep 0.02
  done
}

# is_listening PORT [COMMAND...]: a TCP socket listens on the port, in the network namespace that COMMAND enters.
is_listening() {
  { "${@:2}" cat /proc/self/net/tcp /proc/self/net/tcp6 2>/dev/null || true; } |
    awk -v port="$(printf ':%04X' "$1")" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }'
}
is_alive() { kill -0 "$1" 2>/dev/null; }
is_listening_or_gone() { is_listening "${@:2}" || ! is_alive "$1"; }

# await_server PID PORT [COMMAND...]: status 1, and a line, when the process ends or 30 seconds pass before it listens.
await_server() {
  local told="does not listen on port $2 after 30 seconds"
  eventually 30 is_listening_or_gone "$@" && told="ended before it listened on port $2"
  is_listening "${@:2}" && return
  echo "the server $told" >&2
  return 1
}

# pair ADDRESS OPTION...: the status of the client, or else of the server.
pair() {
  local address="$1" status=0 server_status=0
  shift
  pair_port=$((pair_port + 1))
  while is_listening "$pair_port" "${there[@]}"; do pair_port=$((pair_port + 1)); done
  : >"$pair_folder/client.out"
  timeout -k 2 "$pair_limit" "${there[@]}" "${run[@]}" fi_pingpong "$@" "${server_options[@]}" -B "$pair_port" \
    >"$pair_folder/server.out" 2>"$pair_folder/server.err" &
  pair_server=$!
  if await_server "$pair_server" "$pair_port" "${there[@]}" 2>"$pair_folder/client.err"; then
    timeout -k 2 "$pair_limit" "${here[@]}" "${run[@]}" fi_pingpong "$@" -P "$pair_port" "$address" \
      >"$pair_folder/client.out" 2>"$pair_folder/client.err" || status=$?
  else
    status=1
  fi
  # A server whose client failed may wait for it until the limit.
  if [[ $status -ne 0 ]]; then
    eventually 5 is_gone "$pair_server" || kill "$pair_server" 2>/dev/null || true
  fi
  wait "$pair_server" || server_status=$?
  pair_server=
  [[ $status -ne 0 ]] || status=$server_status
  return "$status"
}
is_gone() { ! is_alive "$1"; }

# tell_pair: what the last pair printed.
tell_pair() { tail -n 30 "$pair_folder"/{server,client}.{out,err}; }

# pair_reaches SIZE ADDRESS OPTION...: a pair whose last line is of that size, ten messages. A failure prints all and is status 1.
pair_reaches() {
  local status=0
  pair "${@:2}" || status=$?
  [[ $status -ne 0 ]] || ! grep -q "^$1 .*=10" "$pair_folder/client.out" || return 0
  tell_pair
  echo "fi_pingpong ${*:3} to $2: status $status, or it did not reach $1"
  return 1
}
has_ipv6() { [[ -e /proc/net/if_inet6 ]] && grep -q ' lo$' /proc/net/if_inet6; }
