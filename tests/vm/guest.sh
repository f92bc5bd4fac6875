#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# In the guest: lays the wire between the kernel's device and Weft, runs the cases that /logs/cases names, writes
# /logs/results.
#
#   first namespace: rxe0 on kernel0 --- veth --- weft0 : namespace "weft", a UDP socket on port 4791
#                    control0 --------- veth --- control1: TCP by which programs meet; nothing is lost there
set -u
source /weft/tests/programs.sh

kernel_v4=10.14.0.1 weft_v4=10.14.0.2 kernel_v6=fd14::1 weft_v6=fd14::2
# Of the packet socket: addresses that no interface has.
packet_v4=10.14.0.9 packet_v6=fd14::9
kernel_control=10.15.0.1 weft_control=10.15.0.2
exec 3>/dev/ttyS0

say() { echo "vm: $*" >&3; }
uptime_s() { cut -d' ' -f1 /proc/uptime; }
result() { echo "$1 $2" >>/logs/results; say "$1 $2"; }

# Runs a program as Weft's side has it, and as the kernel's side.
in_weft() {
  ip netns exec weft env LD_LIBRARY_PATH=/weft/compat WEFT_VERBS_LOG=info WEFT_VERBS_STANDARD_GID=1 "$@"
}
in_kernel() { "$@"; }
in_packet_v4() {
  ip netns exec weft env LD_LIBRARY_PATH=/weft/compat WEFT_VERBS_LOG=info WEFT_VERBS_DEVICES=weft_packet=packet:weft0/$packet_v4/24 "$@"
}
in_packet_v6() {
  ip netns exec weft env LD_LIBRARY_PATH=/weft/compat WEFT_VERBS_LOG=info WEFT_VERBS_DEVICES=weft_packet=packet:weft0/$packet_v6/64 "$@"
}
# Two of Weft's own: the second side in place of the kernel's.
in_weft_too() { ip netns exec weft2 env LD_LIBRARY_PATH=/weft/compat WEFT_VERBS_STANDARD_GID=1 "$@"; }

lay_wire() {
  local folder
  [[ ! -d /suite ]] || for folder in dev sys proc; do mkdir -p /suite/$folder; mount --rbind /$folder /suite/$folder; done
  modprobe -a crc32_generic crc32_pclmul crc32c_generic veth sch_netem af_packet rdma_rxe ib_uverbs rdma_ucm 2>/dev/null
  ip link set lo up
  ip netns add weft
  ip -n weft link set lo up
  ip link add kernel0 type veth peer name weft0 netns weft
  ip link add control0 type veth peer name control1 netns weft
  ip addr add $kernel_v4/24 dev kernel0
  ip addr add $kernel_v6/64 dev kernel0 nodad
  ip addr add $kernel_control/24 dev control0
  ip -n weft addr add $weft_v4/24 dev weft0
  ip -n weft addr add $weft_v6/64 dev weft0 nodad
  ip -n weft addr add $weft_control/24 dev control1
  ip link set kernel0 up
  ip link set control0 up
  ip -n weft link set weft0 up
  ip -n weft link set control1 up
  rdma link add rxe0 type rxe netdev kernel0
  # The device's GIDs follow the addresses.
  for _ in $(seq 50); do
    [[ -n "$(gid_index $kernel_v4)" && -n "$(gid_index $kernel_v6)" ]] && return 0
    sleep 0.1
  done
  return 1
}

# Where rxe0 has the GID of an address.
gid_index() {
  local wanted file
  case "$1" in
    *:*) wanted="fd14:0000:0000:0000:0000:0000:0000:000${1##*::}" ;;
    *) wanted="$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' ${1//./ })" ;;
  esac
  for file in /sys/class/infiniband/rxe0/ports/1/gids/*; do
    if [[ "$(cat "$file" 2>/dev/null)" == "$wanted" ]]; then echo "${file##*/}"; return; fi
  done
}

# The network of the next case: MTU of the wire, then what netem does, in both directions.
network() {
  local mtu="$1"; shift
  ip link set kernel0 mtu "$mtu"
  ip -n weft link set weft0 mtu "$mtu"
  tc qdisc del dev kernel0 root 2>/dev/null
  tc -n weft qdisc del dev weft0 root 2>/dev/null
  if [[ $# -gt 0 ]]; then
    tc qdisc add dev kernel0 root netem "$@"
    tc -n weft qdisc add dev weft0 root netem "$@"
  fi
}

capture_start() {
  ip netns exec weft tcpdump -i weft0 --immediate-mode -s 4700 -B 16384 -w "/dev/shm/$1.pcap" udp port 4791 2>"/logs/$1.tcpdump" &
  capture_pid=$!
  for _ in $(seq 100); do
    grep -q 'listening on' "/logs/$1.tcpdump" && return
    sleep 0.1
  done
}
capture_stop() {
  kill -INT $capture_pid
  wait $capture_pid
  cp "/dev/shm/$1.pcap" "/logs/$1.pcap"
  rm "/dev/shm/$1.pcap"
}

case_kernel() {
  network 1500
  peers kernel $kernel_v4 $kernel_v4 in_kernel
}
case_plain_v4() {
  network 1500
  peers plain-v4 $kernel_v4 $weft_v4 in_weft
}
case_plain_v6() {
  network 4300
  peers plain-v6 $kernel_v6 $weft_v6 in_weft
}
case_packet_v4() {
  network 1500
  peers packet-v4 $kernel_v4 $packet_v4 in_packet_v4
}
case_packet_v6() {
  network 4300
  peers packet-v6 $kernel_v6 $packet_v6 in_packet_v6
}
case_loss_1_v4() {
  network 1500 delay 1ms reorder 98% 50% loss 1% duplicate 1%
  peers loss-1-v4 $kernel_v4 $weft_v4 in_weft --lossy
}
case_loss_1_v6() {
  network 4300 delay 1ms reorder 98% 50% loss 1% duplicate 1%
  peers loss-1-v6 $kernel_v6 $weft_v6 in_weft --lossy
}
case_loss_3_v4() {
  network 1500 delay 1ms reorder 97% 50% loss 3% duplicate 2%
  peers loss-3-v4 $kernel_v4 $weft_v4 in_weft --lossy
}
case_loss_3_v6() {
  network 4300 delay 1ms reorder 97% 50% loss 3% duplicate 2%
  peers loss-3-v6 $kernel_v6 $weft_v6 in_weft --lossy
}
case_loss_5_v4() {
  network 1500 delay 1ms reorder 95% 50% loss 5% duplicate 2%
  peers loss-5-v4 $kernel_v4 $weft_v4 in_weft --lossy
}
case_loss_5_v6() {
  network 4300 delay 1ms reorder 95% 50% loss 5% duplicate 2%
  peers loss-5-v6 $kernel_v6 $weft_v6 in_weft --lossy
}
case_loss_3_packet() {
  network 1500 delay 1ms reorder 97% 50% loss 3% duplicate 2%
  # The kernel's side gives an address one second: a lost question would end the connection (ETIMEDOUT of ibv_modify_qp).
  ip neigh replace $packet_v4 lladdr "$(ip netns exec weft cat /sys/class/net/weft0/address)" dev kernel0 nud permanent
  peers loss-3-packet $kernel_v4 $packet_v4 in_packet_v4 --lossy
}
case_pingpong() {
  network 1500
  pingpongs
}
case_perftest() {
  network 1500
  perftests
}

case_events() {
  network 1500
  events
}

# Two rxe devices at the ends of one veth in the first namespace, where rxe works, and routes that lead from one to the
# other over it; then a veth between two namespaces for Weft, with the same addresses.
server_v4=10.16.0.2 client_v4=10.16.0.1
in_weft_server() { ip netns exec bench1 env LD_LIBRARY_PATH=/weft/compat "$@"; }
in_weft_client() { ip netns exec bench0 env LD_LIBRARY_PATH=/weft/compat "$@"; }
# Over packet sockets, with addresses that no interface has; the programs meet by TCP at those above. WEFT_VM_RING as
# WEFT_VERBS_PACKET_RING.
in_packet_server() { in_weft_server WEFT_VERBS_DEVICES=weft_wire1=packet:wire1/10.16.0.12/24 WEFT_VERBS_PACKET_RING="$(cat /logs/ring)" "$@"; }
in_packet_client() { in_weft_client WEFT_VERBS_DEVICES=weft_wire0=packet:wire0/10.16.0.11/24 WEFT_VERBS_PACKET_RING="$(cat /logs/ring)" "$@"; }
case_bench() {
  local name
  ip link add wire2 type veth peer name wire3
  for name in wire2 wire3; do
    ip link set $name mtu 4300
    echo 1 >/proc/sys/net/ipv4/conf/$name/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/$name/rp_filter
  done
  echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
  ip addr add $client_v4/32 dev wire2
  ip addr add $server_v4/32 dev wire3
  ip link set wire2 up
  ip link set wire3 up
  ip route add $server_v4 dev wire2 src $client_v4 table 100
  ip route add $client_v4 dev wire3 src $server_v4 table 101
  ip neigh replace $server_v4 lladdr "$(cat /sys/class/net/wire3/address)" dev wire2 nud permanent
  ip neigh replace $client_v4 lladdr "$(cat /sys/class/net/wire2/address)" dev wire3 nud permanent
  ip rule add pref 5 iif wire2 lookup local
  ip rule add pref 6 iif wire3 lookup local
  ip rule add pref 7 from $client_v4 to $server_v4 ipproto udp lookup 100
  ip rule add pref 8 from $server_v4 to $client_v4 ipproto udp lookup 101
  ip rule add pref 9 oif wire2 lookup 100
  ip rule add pref 10 oif wire3 lookup 101
  ip rule add pref 100 lookup local
  ip rule del pref 0
  rdma link add rxe1 type rxe netdev wire2
  rdma link add rxe2 type rxe netdev wire3
  ip netns add bench0
  ip netns add bench1
  ip -n bench0 link add wire0 type veth peer name wire1 netns bench1
  ip -n bench0 addr add $client_v4/24 dev wire0
  ip -n bench1 addr add $server_v4/24 dev wire1
  for name in 0 1; do
    ip -n bench$name link set lo up
    ip -n bench$name link set wire$name mtu 4300 up
  done
  sleep 1
  grep -H . /sys/class/infiniband/rxe[12]/ports/1/gids/[01]
  bench
  busybox cat /sys/class/net/wire2/statistics/tx_packets
}

if ! lay_wire; then
  result FAILED "guest: rxe0 has no GIDs"
  exit 1
fi
say "rxe0 is there after $(uptime_s) s"
status=0
while read -r name; do
  if [[ $name != kernel && ! -e /weft/compat/libibverbs.so.1 ]]; then
    result skipped "$name: the staged tree has no libibverbs.so.1"
    continue
  fi
  started="$(uptime_s)"
  say "--- $name"
  "case_${name//-/_}"
  say "--- $name took $(busybox awk "BEGIN { print $(uptime_s) - $started }") s"
done </logs/cases
grep -q '^FAILED' /logs/results && status=1
exit $status
