#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Verbs programs over a bad network (WEFT_PACKET_FAULTS): lost packets are repeated alone between processes of Weft, and all that follows where one
# side does not want that; a lost last packet is found by a probe, of which few are needless on busy processors; marked packets (ECN) are answered by notices. What happened is in the counters (WEFT_STATS), and tshark takes the capture.
# As root between two network namespaces, else over the loopback interface.
set -euo pipefail
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "runs the system's programs: not under a sanitizer"; exit 77; }
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
for program in ib_write_bw tshark python3; do
  command -v "$program" >/dev/null || { echo "no $program"; exit 77; }
done
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
source "$(dirname "${BASH_SOURCE[0]}")/pairs.sh"
user=()
pair_limit=120
near_space="" far_space=""
loops=()
end_loops() {
  [[ ${#loops[@]} -eq 0 ]] || kill "${loops[@]}" 2>/dev/null || true
  loops=()
}
leave() {
  end_loops
  end_pair
  for space in "$near_space" "$far_space"; do [[ -z "$space" ]] || ip netns del "$space" 2>/dev/null || true; done
}
trap leave EXIT
address=127.0.0.1
client=(env) server=(env)
if [[ $EUID -eq 0 ]] && ip netns add "weft-loss-a-$$" 2>/dev/null; then
  near_space="weft-loss-a-$$"
  ip netns add "weft-loss-b-$$" && far_space="weft-loss-b-$$"
  ip -n "$near_space" link add wl0 type veth peer name wl0 netns "$far_space"
  for space in "$near_space" "$far_space"; do ip -n "$space" link set lo up && ip -n "$space" link set wl0 up; done
  ip -n "$near_space" addr add 10.77.0.1/24 dev wl0 && ip -n "$far_space" addr add 10.77.0.2/24 dev wl0
  address=10.77.0.2
  client=(ip netns exec "$near_space" env) server=(ip netns exec "$far_space" env)
fi
unset WEFT_PACKET_FAULTS
bytes=$((200 * 65536))

# counter SIDE NAME: of the devices of that side, as it left.
counter() {
  python3 - "$pair_folder/$1.json" "$2" <<'PYTHON'
import json, sys
page = json.load(open(sys.argv[1]))
total = 0
def walk(at):
    global total
    if isinstance(at, dict):
        if at.get("kind") == "device":
            total += at.get(sys.argv[2], at.get("values", {}).get(sys.argv[2], 0))
        for one in at.values(): walk(one)
    elif isinstance(at, list):
        for one in at: walk(one)
walk(page)
print(total)
PYTHON
}
# run SELECTIVE-OF-THE-CLIENT SELECTIVE-OF-THE-SERVER FAULTS: the client writes.
run() {
  here=("${client[@]}" WEFT_VERBS_SHM=0 "WEFT_VERBS_SELECTIVE=$1" "WEFT_PACKET_FAULTS=$3" "WEFT_STATS=$pair_folder/client.json")
  there=("${server[@]}" WEFT_VERBS_SHM=0 "WEFT_VERBS_SELECTIVE=$2" "WEFT_STATS=$pair_folder/server.json" "WEFT_PCAP=$pair_folder/server.pcap")
  rm -f "$pair_folder"/*.json
  passes "$address" ib_write_bw -F -n 200 -s 65536
  [[ $failed -eq 0 ]] || exit 1
  echo "$bytes bytes with $3, selective $1 and $2: $(counter client retransmissions) packets sent again," \
    "$(counter client selective_retransmissions) of them alone, $(counter server kept) kept," \
    "$(counter server congestion_notices_sent) notices sent, $(counter client congestion_notices_received) received"
}
is() { test "$1" "-$2" "$3" || { echo "FAILED: $4: $1 is not -$2 $3"; exit 1; }; }

run 1 1 loss=1,seed=5
is "$(counter client selective_retransmissions)" gt 0 "nothing was repeated alone"
is "$(counter server kept)" gt 0 "nothing was kept"
is "$(counter client icrc_errors)" eq 0 "packets of the server were altered"
alone=$(counter client retransmissions)
tshark -V -r "$pair_folder/server.pcap" >"$pair_folder/dissected" 2>/dev/null
grep -q "Opcode: Unknown (209)" "$pair_folder/dissected" || { echo "FAILED: the capture has no map"; exit 1; }
! grep -qi malformed "$pair_folder/dissected" || { echo "FAILED: malformed packets"; exit 1; }

for sides in "0 1" "1 0"; do
  read -r ours theirs <<<"$sides"
  run "$ours" "$theirs" loss=1,seed=5
  is "$(counter client selective_retransmissions)" eq 0 "one side does not want it"
  is "$(counter client retransmissions)" gt "$alone" "going back repeats more"
done

# Tail loss: exchanges of one packet. A probe finds what is lost, and the timeout (67 ms) is for peers that have gone; without probes each loss that
# holds the exchange up is one. On a busy machine some of the first ones come by the timeout all the same.
tail_loss() {
  local program="$1"
  shift
  here=("${client[@]}" WEFT_VERBS_SHM=0 WEFT_PACKET_FAULTS=loss=5,seed=5 "WEFT_STATS=$pair_folder/client.json")
  there=("${server[@]}" WEFT_VERBS_SHM=0 WEFT_PACKET_FAULTS=loss=5,seed=5 "WEFT_STATS=$pair_folder/server.json")
  rm -f "$pair_folder"/*.json
  passes "$address" "$program" -F -n 400 "$@"
  [[ $failed -eq 0 ]] || exit 1
  local again timeouts
  again=$(($(counter client retransmissions) + $(counter server retransmissions)))
  timeouts=$(($(counter client timeouts) + $(counter server timeouts)))
  echo "$program, 400 exchanges with loss=5: $again packets sent again, $timeouts timeouts"
  is "$again" gt 15 "$program: nothing was lost"
  is $((timeouts * 3)) lt "$again" "$program: losses wait for the timeout"
}
tail_loss ib_send_lat -s 64
tail_loss ib_write_lat -s 64
tail_loss ib_read_lat -s 64
tail_loss ib_atomic_lat

# The same in time: the mean of a READ beside udp;ofi_rxd's with the same loss. Busy processors: 0.2 to 0.7 times, and 5 to 8 times where each loss waits for
# the timeout; quiet ones make the second one larger. The program sleeps: one that polls may share its processor with its peer, and then takes 2 ms each time.
if [[ -x "${WEFT_BUILD:?}/bin/weft" && -e "$library/libfabric.so.1" ]]; then
  here=("${client[@]}" WEFT_VERBS_SHM=0 WEFT_PACKET_FAULTS=loss=1,seed=5)
  there=("${server[@]}" WEFT_VERBS_SHM=0 WEFT_PACKET_FAULTS=loss=1,seed=5)
  passes "$address" ib_read_lat -F -e -n 1000 -s 8
  [[ $failed -eq 0 ]] || exit 1
  rc=$(awk '$1 == 8 && NF > 5 { printf "%d", $6 + 1 }' "$pair_folder/client.out")
  rxd=$(env "LD_LIBRARY_PATH=$library" WEFT_PACKET_FAULTS=loss=1,seed=5 timeout -k 2 60 "$WEFT_BUILD/bin/weft" perf -p "udp;ofi_rxd" --node 127.0.0.1 \
    -t rma-read-lat -s 8 -n 500 -w 100 -r 3 --pin none --format json | python3 -c 'import json, sys; print(round(json.load(sys.stdin)["results"][0]["median"] / 1e3) + 1)')
  echo "READ of 8 bytes with loss=1: $rc us, udp;ofi_rxd $rxd us"
  is "$rc" gt 0 "no time of a READ"
  is "$rc" lt $((rxd * 5)) "losses wait, us"
fi

# Packets sent again without a loss, with a loop on each core: less than one in a thousand. The programs sleep, so that they get their turn and send
# enough. Each side may send some five probes too many at first; after that 3,072 acknowledgements earn one (roce.md).
busy() {
  local program="$1" sent again
  shift
  here=("${client[@]}" WEFT_VERBS_SHM=0 "WEFT_STATS=$pair_folder/client.json")
  there=("${server[@]}" WEFT_VERBS_SHM=0 "WEFT_STATS=$pair_folder/server.json")
  rm -f "$pair_folder"/*.json
  passes "$address" "$program" -F -e -s 8 "$@"
  [[ $failed -eq 0 ]] || exit 1
  sent=$(($(counter client packets_sent) + $(counter server packets_sent)))
  again=$(($(counter client retransmissions) + $(counter server retransmissions)))
  echo "$program without loss, a loop on each core: $sent packets, $again of them sent again"
  is "$sent" ge 10000 "$program: too few packets"
  is $((again * 1000)) lt "$sent" "$program: needless retransmissions"
}
for cpu in $(python3 -c 'import os; print(*os.sched_getaffinity(0))'); do
  timeout 200 taskset -c "$cpu" bash -c 'while :; do :; done' &  # also where this script is killed
  loops+=($!)
done
busy ib_send_lat -n 8000
busy ib_read_lat -n 6000
end_loops

run 1 1 mark=20,seed=5
is "$(counter server congestion_marks)" gt 0 "no mark arrived"
is "$(counter server congestion_notices_sent)" gt 0 "no notice was sent"
is "$(counter client congestion_notices_received)" gt 0 "no notice arrived"
is "$(counter client timeouts)" eq 0 "a mark is no loss"
is "$(counter client retransmissions)" lt 10 "a mark is no loss, but for a probe now and then on a busy machine"
echo "$passed passed"
