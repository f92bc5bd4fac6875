#!/usr/bin/env bash
# Two hosts, as network namespaces that a pair of veth joins: fi_pingpong over every network, IPv4 and IPv6; a link that is cut and
# restored under load; a peer that is killed under load and comes again. Data is right, nothing hangs, and it goes on afterwards.
# Exit status 77: namespaces cannot be made here, or there is no network provider.
#
# usage: namespaces_test.sh [PROVIDER...]
set -uo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
echo_program="$WEFT_BUILD/tests/system/echo"
[[ -e "$library/libfabric.so.1" && -x "$echo_program" ]] || { echo "the drop-in or the program is not built"; exit 77; }
command -v ip >/dev/null || { echo "ip is not here (package iproute2)"; exit 77; }
space="weft-ns-$$" work="$(mktemp -d)" failures=0
ip netns add "$space-a" 2>"$work/err" || { echo "no network namespaces here: $(cat "$work/err")"; rm -rf "$work"; exit 77; }
cleanup() {
  local pids
  pids="$(jobs -p)"
  # shellcheck disable=SC2086  # a list of words on purpose
  [[ -z "$pids" ]] || kill $pids 2>/dev/null
  ip netns del "$space-a" 2>/dev/null
  ip netns del "$space-b" 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
ip netns add "$space-b"
ip -n "$space-a" link add veth0 type veth peer name veth0 netns "$space-b" || { echo "no veth here"; exit 77; }
set_up() {  # set_up a|b: the address goes with a link that is down
  ip -n "$space-$1" link set veth0 up
  ip -n "$space-$1" addr replace "10.78.0.$2/24" dev veth0
  ip -n "$space-$1" addr replace "fd78::$2/64" dev veth0 nodad 2>/dev/null
}
ip -n "$space-a" link set lo up
ip -n "$space-b" link set lo up
set_up a 1
set_up b 2
six=no
[[ "$(ip -n "$space-a" -6 addr show dev veth0 2>/dev/null)" != *fd78::1* ]] || six=yes

# Before a command: in that namespace, over our library.
here=(ip netns exec "$space-b" env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+"LD_PRELOAD=$WEFT_PRELOAD"})
there=(ip netns exec "$space-a" "${here[@]:4}")
offers() { [[ $'\n'"$("${there[@]}" fi_info -p "$1" -t "$2" 2>/dev/null)"$'\n' == *$'\n'"provider: $1"$'\n'* ]]; }
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

port=46000
pingpong() {  # pingpong PROVIDER TYPE ADDRESS [OPTION...]
  local provider="$1" type="$2" address="$3" server status=0; shift 3
  port=$((port + 1))
  "${there[@]}" timeout -k 2 120 fi_pingpong -p "$provider" -e "$type" -c -S all -I 5 -B "$port" "$@" >"$work/server" 2>&1 &
  server=$!
  for _ in $(seq 60); do
    ip netns exec "$space-a" ss -Hltn "sport = :$port" | grep -q . && break
    sleep 0.05
  done
  "${here[@]}" timeout -k 2 120 fi_pingpong -p "$provider" -e "$type" -c -S all -I 5 -P "$port" "$@" "$address" >"$work/client" 2>&1 || status=$?
  wait "$server" || status=$((status + 1000))
  if [[ $status -ne 0 ]]; then
    fail "fi_pingpong -p $provider -e $type to $address: status $status"
    tail -n 5 "$work/client" "$work/server"
  else
    echo "ok: fi_pingpong -p '$provider' -e $type to $address, up to $(awk 'NR > 1 { size = $1 } END { print size }' "$work/client")"
  fi
}

# One server and one caller for each network, all at the same time: what happens to the link happens to all.
networks=() servers=() callers=()
serve() {  # serve SERVICE
  local i
  for i in "${!networks[@]}"; do
    rm -f "$work/name.$i"
    "${there[@]}" timeout -k 2 90 "$echo_program" --serve "$work/name.$i" --provider "${networks[i]}" --node 10.78.0.1 \
      --service "$(($1 + i))" --seconds 80 >"$work/server.$i" 2>&1 &
    servers[i]=$!
  done
}
call() {  # call SECONDS
  local i
  for i in "${!networks[@]}"; do
    "${here[@]}" timeout -k 2 90 "$echo_program" --call "$work/name.$i" --provider "${networks[i]}" --node 10.78.0.2 \
      --seconds "$1" --limit-ms 30000 --alive-ms 4000 >"$work/caller.$i" 2>&1 &
    callers[i]=$!
  done
}
ends_well() {  # ends_well WHAT
  local i status
  for i in "${!networks[@]}"; do
    status=0
    wait "${callers[i]}" || status=$?
    if [[ $status -eq 0 ]]; then
      echo "ok: ${networks[i]}: $1: $(tail -n 1 "$work/caller.$i")"
    else
      fail "${networks[i]}: $1: status $status"
      tail -n 8 "$work/caller.$i" "$work/server.$i"
    fi
  done
  kill "${servers[@]}" 2>/dev/null
  wait "${servers[@]}" 2>/dev/null
}
cut_link() {  # cut_link SECONDS
  sleep 2
  ip -n "$space-a" link set veth0 down
  sleep "$1"
  set_up a 1
}

under_load() {
  serve 47000
  call 9
  cut_link 1.5  # nobody has to notice
  ends_well "link cut for 1.5 s"

  serve 47100
  call 40
  cut_link 18  # each side gives the other up
  ends_well "link cut for 18 s"

  serve 47200
  call 24
  sleep 2
  # shellcheck disable=SC2046  # process ids
  kill -KILL $(ip netns pids "$space-a") 2>/dev/null
  wait "${servers[@]}" 2>/dev/null
  sleep 1
  serve 47200  # the same addresses, other processes
  ends_well "peer killed, and there again"
}

ran=0
providers=("$@")
[[ ${#providers[@]} -gt 0 ]] || providers=(tcp "udp;ofi_rxd" "tcp;ofi_rxm" weft udp)
for provider in "${providers[@]}"; do
  for type in FI_EP_RDM FI_EP_MSG FI_EP_DGRAM; do
    offers "$provider" "$type" || continue
    ran=$((ran + 1))
    short="$(tr '[:upper:]' '[:lower:]' <<<"${type#FI_EP_}")"
    pingpong "$provider" "$short" 10.78.0.1
    [[ $six == no ]] || pingpong "$provider" "$short" fd78::1 -6
  done
  ! offers "$provider" FI_EP_RDM || networks+=("$provider")
done
[[ $ran -gt 0 ]] || { echo "this build has no network"; exit 77; }
[[ ${#networks[@]} -eq 0 ]] || under_load
exit $((failures > 0))
