#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Two hosts, as network namespaces that a pair of veth joins: fi_pingpong over every network, IPv4 and IPv6; a link that is cut and
# restored under load; a link that loses packets; a peer that is killed under load and comes again. Data is right, nothing hangs, and it
# goes on afterwards.
# Exit status 77: namespaces cannot be made here, or there is no network provider.
#
# usage: namespaces_test.sh [PROVIDER...]
set -uo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
echo_program="$WEFT_BUILD/tests/system/echo"
[[ -e "$library/libfabric.so.1" && -x "$echo_program" ]] || { echo "the drop-in or the program is not built"; exit 77; }
command -v ip >/dev/null || { echo "ip is not here (package iproute2)"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
space="weft-ns-$$" work="$(mktemp -d)" failures=0
ip netns add "$space-a" 2>"$work/err" || { echo "no network namespaces here: $(cat "$work/err")"; rm -rf "$work"; exit 77; }
ip netns del "$space-a"
cleanup() {
  local pids
  pids="$(jobs -p)"
  # shellcheck disable=SC2086  # a list of words on purpose
  [[ -z "$pids" ]] || kill $pids 2>/dev/null
  wait
  ip netns del "$space-a" 2>/dev/null
  ip netns del "$space-b" 2>/dev/null
  rm -rf "$work"
  end_pair
}
trap cleanup EXIT
trap 'exit 1' TERM
set_up() {  # set_up a|b NUMBER: the address goes with a link that is down
  ip -n "$space-$1" link set veth0 up
  ip -n "$space-$1" addr replace "10.78.0.$2/24" dev veth0
  ip -n "$space-$1" addr replace "fd78::$2/64" dev veth0 nodad 2>/dev/null
}
two_hosts() {  # makes $space-a and $space-b
  ip netns add "$space-a" && ip netns add "$space-b" || return 1
  ip -n "$space-a" link add veth0 type veth peer name veth0 netns "$space-b" || return 1
  ip -n "$space-a" link set lo up
  ip -n "$space-b" link set lo up
  set_up a 1
  set_up b 2
  here=(ip netns exec "$space-b")
  there=(ip netns exec "$space-a")
  run=(env "LD_LIBRARY_PATH=$library" ${WEFT_PRELOAD:+"LD_PRELOAD=$WEFT_PRELOAD"})
}
two_hosts || { echo "no veth here"; exit 77; }
can_ping=no
! "${here[@]}" ping -c 1 -i 0.2 -w 3 10.78.0.1 >/dev/null 2>&1 || can_ping=yes
six=no
[[ "$(ip -n "$space-a" -6 addr show dev veth0 2>/dev/null)" != *fd78::1* ]] || six=yes

offers() { [[ $'\n'"$("${there[@]}" "${run[@]}" fi_info -p "$1" -t "$2" 2>/dev/null)"$'\n' == *$'\n'"provider: $1"$'\n'* ]]; }
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

pingpong() {  # pingpong PROVIDER TYPE ADDRESS ROUNDS SIZE [OPTION...]
  local status=0
  pair "$3" -p "$1" -e "$2" -c -I "$4" -S "$5" "${@:6}" || status=$?
  if [[ $status -ne 0 ]]; then
    fail "fi_pingpong -p $1 -e $2 to $3: status $status"
    tell_pair
  else
    echo "ok: fi_pingpong -p '$1' -e $2 to $3, $4 rounds up to $(awk 'NR > 1 { size = $1 } END { print size }' "$pair_folder/client.out")"
  fi
}

# One server and one caller for each network, all at the same time: what happens to the link happens to all.
networks=() servers=() callers=()
serve() {  # serve SERVICE
  local i
  for i in "${!networks[@]}"; do
    rm -f "$work/name.$i"
    "${there[@]}" "${run[@]}" timeout -k 2 90 "$echo_program" --serve "$work/name.$i" --provider "${networks[i]}" --node 10.78.0.1 \
      --service "$(($1 + i))" --seconds 80 >"$work/server.$i" 2>&1 &
    servers[i]=$!
  done
}
call() {  # call SECONDS: returns when every network carries echoes
  local i
  for i in "${!networks[@]}"; do
    "${here[@]}" "${run[@]}" timeout -k 2 90 "$echo_program" --call "$work/name.$i" --provider "${networks[i]}" --node 10.78.0.2 \
      --seconds "$1" --limit-ms 30000 --alive-ms 4000 >"$work/caller.$i" 2>&1 &
    callers[i]=$!
  done
  for i in "${!networks[@]}"; do
    eventually 30 grep -q '^first echo' "$work/caller.$i" || fail "${networks[i]}: no echo in 30 seconds"
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
cut_link() {  # cut_link SECONDS: after two seconds of traffic
  sleep 2
  ip -n "$space-a" link set veth0 down
  sleep "$1"
  set_up a 1
  carries || fail "the kernel's own ping finds no link after a cut of $1 s"
}
# A link that was set up has been seen to carry nothing, not even ping, for 12 s: then it is set up anew.
carries() {
  local i
  [[ $can_ping == yes ]] || return 0
  for i in 1 2 3; do
    "${here[@]}" ping -c 1 -i 0.2 -w 3 10.78.0.1 >/dev/null 2>&1 && return 0
    [[ $i -lt 3 ]] || return 1
    echo "the link is up, and ping has no answer ($i): $(ip -n "$space-a" -o link show dev veth0 2>&1) $("${here[@]}" ip -o neigh show 2>&1 | tr '\n' ' ')"
    ip -n "$space-a" link set veth0 down
    set_up a 1
  done
}
# lose PER_CENT: so much of what comes to either side is lost. A classic BPF program (load a random word, compare) sends it into a hole,
# for netem is not in every kernel; 0xfffff038 is SKF_AD_OFF + SKF_AD_RANDOM of linux/filter.h.
lose() {
  local side limit=$(($1 * 42949673))
  for side in a b; do
    ip netns exec "$space-$side" tc qdisc del dev veth0 clsact 2>/dev/null
    [[ $1 -gt 0 ]] || continue
    [[ -e "$work/hole.$side" ]] || ip -n "$space-$side" link add hole type veth peer name depth || return 1
    : >"$work/hole.$side"
    ip -n "$space-$side" link set hole up || return 1
    ip netns exec "$space-$side" tc qdisc add dev veth0 clsact || return 1
    ip netns exec "$space-$side" tc filter add dev veth0 ingress protocol all \
      bpf bytecode "4,32 0 0 $((0xfffff038)),53 1 0 $limit,6 0 0 $((0xffffffff)),6 0 0 0" action mirred egress redirect dev hole || return 1
  done
}
lost() { ip netns exec "$space-a" tc -s filter show dev veth0 ingress | awk '$1 == "Sent" { print $4 }'; }

# The kernel's TCP repeats 0.2, 0.6, 1.4, 3 and 6.2 s after a loss. A busy machine may take seconds to bring the link up again, so ping tells how
# long it was away: nobody has to notice 4 s.
short_cut() {
  local i away ping
  serve 47000
  call 14
  "${here[@]}" ping -D -i 0.2 10.78.0.1 >"$work/ping" 2>&1 &
  ping=$!
  cut_link 1.5
  ends_well "link cut for 1.5 s"
  kill $ping 2>/dev/null
  away="$(awk -F '[][]' '/bytes from/ { if (last && $2 - last > most) most = $2 - last; last = $2 } END { printf "%.1f", most }' "$work/ping")"
  echo "ping: the link was away for $away s"
  awk -v s="$away" 'BEGIN { exit !(s > 0 && s < 4) }' || { echo "not judged: whether anybody noticed (ping is not here, or the link was away for long)"; return; }
  for i in "${!networks[@]}"; do
    grep -q ' errors 0 ' "$work/caller.$i" || fail "${networks[i]}: link cut for 1.5 s: noticed"
  done
}
peer_killed() {
  serve 47200
  call 10
  sleep 2  # of traffic
  # shellcheck disable=SC2046  # process ids
  kill -KILL $(ip netns pids "$space-a") 2>/dev/null
  wait "${servers[@]}" 2>/dev/null
  sleep 1  # nobody is there
  serve 47200  # the same addresses, other processes
  ends_well "peer killed, and there again"
}
long_cut() {
  serve 47100
  call 28
  cut_link 14  # tcp gives up after 10 s to 12 s; packets wait
  ends_well "link cut for 14 s"
}
loss() {
  command -v tc >/dev/null || { echo "loss is skipped: tc is not here (package iproute2)"; return; }
  lose 1 2>"$work/tc" || { echo "loss is skipped: $(tail -n 1 "$work/tc")"; lose 0; return; }
  serve 47300
  call 12
  sleep 4  # of traffic
  local few many
  few="$(lost)"
  lose 5 || fail "tc does not set 5 %"
  sleep 3  # of traffic
  many="$(lost)"
  lose 0
  ends_well "1 % lost, then 5 % ($few and $many packets)"
  [[ ${few:-0} -gt 0 && ${many:-0} -gt 0 ]] || fail "nothing was lost"
}

providers=("$@")
[[ ${#providers[@]} -gt 0 ]] || providers=(tcp "udp;ofi_rxd" "tcp;ofi_rxm" weft udp)
for provider in "${providers[@]}"; do ! offers "$provider" FI_EP_RDM || networks+=("$provider"); done

# What mostly waits goes on beside the rest, between two hosts of its own.
elsewhere() (
  trap cleanup EXIT
  trap 'exit 1' TERM
  space+="-2" work="$(mktemp -d)" failures=0 pair_server=
  pair_folder="$work"
  two_hosts || exit 1
  long_cut
  exit $((failures > 0))
)
beside=
if [[ ${#networks[@]} -gt 0 ]]; then
  elsewhere >"$work/elsewhere" 2>&1 &
  beside=$!
fi

ran=0
for provider in "${providers[@]}"; do
  for type in FI_EP_RDM FI_EP_MSG FI_EP_DGRAM; do
    offers "$provider" "$type" || continue
    ran=$((ran + 1))
    short="$(tr '[:upper:]' '[:lower:]' <<<"${type#FI_EP_}")"
    pingpong "$provider" "$short" 10.78.0.1 10 all
    pingpong "$provider" "$short" 10.78.0.1 500 512
    [[ $six == no ]] || pingpong "$provider" "$short" fd78::1 10 all -6
  done
done
[[ $ran -gt 0 ]] || { echo "this build has no network"; exit 77; }
if [[ ${#networks[@]} -gt 0 ]]; then
  short_cut
  loss
  peer_killed
  wait "$beside" || failures=$((failures + 1))
  cat "$work/elsewhere"
fi
exit $((failures > 0))
