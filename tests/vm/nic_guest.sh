#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# In the guest of `./dev vm nic`: hands cards to VFIO with the command, runs the program over them, says results on the console.
#
#   hub 0: 00:04.0 e1000e --- virtio_net behind a root port --- 00:06.0 the kernel's, "wire0" --- 00:08.0 virtio_net, packed rings, no reset
#   hub 1: 00:07.0 and 00:07.1, both virtio_net, in one IOMMU group
set -u
exec 3>/dev/ttyS0

e1000e=0000:00:04.0 first=0000:00:07.0 second=0000:00:07.1 packed=0000:00:08.0
user=1000

say() { echo "vm: $*" >&3; }
result() { echo "$1 $2" >>/run/results; say "$1 $2"; }
uptime_s() { cut -d' ' -f1 /proc/uptime; }

# nic_cases in a case: its lines are results.
cases_in() {
  local name="$1" line
  shift
  timeout 120 /weft/nic_cases "$@" 2>&1 | tee -a "/logs/$name" | while IFS= read -r line; do
    case "$line" in
      "ok "*) result ok "$name: ${line#ok }" ;;
      "FAILED "*) result FAILED "$name: ${line#FAILED }" ;;
    esac
  done
  local status=${PIPESTATUS[0]}
  [[ $status -le 1 ]] || result FAILED "$name: nic_cases $* ended with $status"
}

# expect NAME STATUS TEXT COMMAND...: the command ends so and says that.
expect() {
  local name="$case: $1" wanted="$2" text="$3" output status
  shift 3
  output="$("$@" 2>&1)"
  status=$?
  printf '$ %s\n%s\n[%s]\n\n' "$*" "$output" "$status" >>"/logs/commands-$case"
  if [[ $status -eq $wanted && "$output" == *"$text"* ]]; then
    result ok "$name"
  else
    result FAILED "$name: status $status, $(head -n 3 <<<"$output")"
  fi
}

# The name of the interface that has this MAC, of the kernel's drivers.
interface_of() {
  local file
  for file in /sys/class/net/*/address; do
    if [[ "$(cat "$file")" == "$1" ]]; then basename "$(dirname "$file")"; return; fi
  done
}

taken() { /weft/weft nic bind "$@" >>"/logs/bind-$case" 2>&1; }

case_tool() {
  local eth
  eth="$(interface_of 52:54:00:14:00:04)"
  expect "list shows groups" 0 "can be bound" /weft/weft nic list
  expect "list as JSON" 0 '"iommu_group": ' /weft/weft nic list --json
  expect "info tells the steps" 0 "weft nic bind $first" /weft/weft nic info "$eth"
  cases_in tool refused $first "bound to the kernel's driver virtio-pci"
  ip addr add 10.16.0.5/24 dev "$eth"
  ip addr add fd16::5/64 dev "$eth" nodad
  ip link set "$eth" mtu 1400 up
  ip route add 10.99.0.0/16 dev "$eth"
  expect "a card with an address stays" 1 "$eth has the address 10.16.0.5/24" /weft/weft nic bind $first
  expect "one --force is not enough" 1 "--force --force" /weft/weft nic bind --force "$eth"
  expect "two are" 0 "from virtio-pci to vfio-pci" /weft/weft nic bind --force --force "$eth"
  expect "the group is not viable, and who blocks it" 0 "$second in it is bound to virtio-pci" /weft/weft nic info $first
  cases_in tool refused $first "not viable; $second in it is bound to virtio-pci"
  expect "info remembers what it had" 0 "addresses 10.16.0.5/24, fd16::5/64" /weft/weft nic info $first
  expect "the other one of the group" 0 "vfio-pci" /weft/weft nic bind $second
  expect "ready" 0 "ready" /weft/weft nic info $first
  cases_in tool --user $user refused $first "this user may not open /dev/vfio/"
  expect "back to the kernel" 0 "as it was" /weft/weft nic unbind $first
  eth="$(interface_of 52:54:00:14:00:04)"
  expect "with its IPv4 address" 0 "10.16.0.5/24" ip -4 addr show dev "$eth"
  expect "with its IPv6 address" 0 "fd16::5/64" ip -6 addr show dev "$eth"
  expect "with its MTU, up" 0 "mtu 1400" ip link show dev "$eth" up
  expect "nothing is remembered then" 1 "" test -e /run/weft/nic/$first
  expect "not twice" 1 "not with vfio-pci" /weft/weft nic unbind $first
  expect "no network card" 1 "not a network card" /weft/weft nic bind 00:00.0
  ip link set "$eth" down
  ip addr flush dev "$eth"
  /weft/weft nic unbind $second >>"/logs/bind-$case" 2>&1
}
case_device() {
  taken $e1000e $virtio $packed
  cases_in device device $e1000e wire0
  cases_in device device $virtio wire0
  cases_in device device $packed wire0
}
case_transfers() {
  taken $e1000e
  cases_in transfers transfers $e1000e wire0
}
case_refusals() {
  taken $e1000e
  cases_in refusals refusals $e1000e wire0
  cases_in refusals refused 0000:00:1e.7 "there is no PCI function"
  cases_in refusals refused $wire "bound to the kernel's driver virtio-pci"
  /weft/nic_cases hold $e1000e wire0 &
  local holder=$!
  sleep 1
  expect "a card in use is not given back" 1 "in use by process $holder" /weft/weft nic unbind $e1000e
  kill -9 $holder
  wait $holder 2>/dev/null
}
case_e1000e() {
  taken $e1000e
  cases_in e1000e --netdev h0 driver $e1000e wire0
}
case_virtio() {
  taken $virtio
  cases_in virtio --netdev h1 driver $virtio wire0
}
case_packed() {
  taken $packed
  cases_in packed --netdev h5 driver $packed wire0
}
# An ordinary user who was given the groups.
case_user() {
  expect "given to a user" 0 "belongs to $user" /weft/weft nic bind --user $user $e1000e $virtio
  cases_in user --user $user device $e1000e wire0
  cases_in user --user $user transfers $e1000e wire0
  cases_in user --user $user short $e1000e wire0
  cases_in user --user $user short $virtio wire0
  wire_up
  local as="/weft/nic_cases --user $user run" provider="-p 'udp;ofi_rxd' -e rdm"
  both "fi_pingpong rdm, the kernel's sockets ask" \
    "bash -c \"on_card $e1000e 4 $as /weft/fi_pingpong $provider -d nic_$e1000e -I 10 -S 1024\"" \
    "env LD_LIBRARY_PATH=/weft/compat /weft/fi_pingpong $provider -d 'udp;ofi_rxd' -I 10 -S 1024 127.0.0.1"
  both "ib_send_lat, card to card" "bash -c 'on_card $e1000e 4 $as ib_send_lat -n 50 -d card -x 1 -F'" \
    "bash -c 'on_card $virtio 5 $as ib_send_lat -n 50 -d card -x 1 -F 127.0.0.1'"
}
# From Weft to the kernel and back.
case_hands() {
  local card eth mac
  taken $e1000e $virtio
  ip addr add 10.17.0.1/24 dev wire0
  for card in $e1000e $virtio; do
    mac=52:54:00:14:00:01
    [[ $card == $e1000e ]] || mac=52:54:00:14:00:02
    expect "$card goes to the kernel" 0 "from vfio-pci to" /weft/weft nic unbind $card
    eth="$(interface_of $mac)"
    ip netns add hands
    ip link set "$eth" netns hands
    ip -n hands addr add 10.17.0.2/24 dev "$eth"
    ip -n hands link set "$eth" up
    expect "the kernel reaches it" 0 "bytes from 10.17.0.1" ip netns exec hands ping -c 2 -i 0.2 -w 10 10.17.0.1
    expect "out of sight it stays" 1 "another network namespace" /weft/weft nic bind $card
    ip -n hands addr flush dev "$eth"
    ip -n hands link set "$eth" netns 1
    for _ in $(seq 50); do [[ -n "$(interface_of $mac)" ]] && break; sleep 0.1; done
    ip netns del hands
    expect "$card comes back" 0 "to vfio-pci" /weft/weft nic bind $card
    cases_in hands short $card wire0
  done
  ip addr flush dev wire0
}

# --- fabrics over cards that Weft drives, against the kernel's network on wire0 ---

roce_v4=10.18.0  # .1 is the kernel's, .4 and .5 those of the cards

wire_up() {
  ip addr replace $roce_v4.1/24 dev wire0
  ip route replace default dev wire0
}
on_card() {  # on_card CARD HOST COMMAND...
  local card="$1" host="$2"
  shift 2
  env LD_LIBRARY_PATH=/weft/compat WEFT_VERBS_LOG=info WEFT_NIC="$card=$roce_v4.$host/24" \
    WEFT_VERBS_DEVICES="card=nic:$card" "$@"
}
rxe_index() {
  local file wanted
  wanted="$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' ${roce_v4//./ } 1)"
  for file in /sys/class/infiniband/rxe0/ports/1/gids/*; do
    if [[ "$(cat "$file" 2>/dev/null)" == "$wanted" ]]; then echo "${file##*/}"; return; fi
  done
}
# Until the server, which is process $1, listens: perftest at port 18515, fi_pingpong at 47592.
await_port() {
  for _ in $(seq 300); do
    grep -qE ':(4853|B9E8) 00000000:0000 0A' /proc/net/tcp && return
    grep -qE ':(4853|B9E8) [0:]* 0A' /proc/net/tcp6 && return
    kill -0 "$1" 2>/dev/null || return
    sleep 0.1
  done
}
# both NAME SERVER CLIENT: two commands as strings, the client's when the server listens; both have to end well.
both() {
  local name="$case: $1" file started server client server_status
  file="/logs/${1// /-}"
  file="${file//[;:]/}"
  started="$(uptime_s)"
  eval "timeout 60 $2" >"$file.server" 2>&1 &
  server=$!
  await_port $server
  eval "timeout 60 $3" >"$file.client" 2>&1
  client=$?
  wait $server
  server_status=$?
  if [[ $client -eq 0 && $server_status -eq 0 ]]; then
    result ok "$name ($(busybox awk "BEGIN { printf \"%.1f\", $(uptime_s) - $started }") s)"
  else
    result FAILED "$name: the server ended with $server_status ($(tail -n 1 "$file.server")), the client with $client ($(tail -n 1 "$file.client"))"
  fi
}
# timeout(1) execs programs, so functions go by a shell of their own.
export -f on_card
export roce_v4
case_direct() {
  taken $e1000e
  expect "a descriptor posted by hand" 0 "posted by hand: done" /weft/look_at_card $e1000e
}
# Retries after 4 s (-u 20): what an emulated card has in its queue takes longer than the programs expect, and rxe of
# Linux 6.1 does not survive packets that leave after their queue pair.
case_roce() {
  local index card host program
  taken $e1000e $virtio
  wire_up
  modprobe -a crc32_generic crc32_pclmul rdma_rxe ib_uverbs rdma_ucm 2>/dev/null
  rdma link add rxe0 type rxe netdev wire0
  for _ in $(seq 50); do [[ -n "$(rxe_index)" ]] && break; sleep 0.1; done
  index="$(rxe_index)"
  for card in $e1000e $virtio; do
    host=4
    [[ $card == $e1000e ]] || host=5
    for program in "ib_send_lat -n 200 -u 20" "ib_write_bw -n 200 -s 65536 -u 20" "ib_read_bw -n 100 -s 65536 -u 20"; do
      both "$card: ${program%% *}, rxe asks" "bash -c 'on_card $card $host $program -d card -x 1 -F'" "$program -d rxe0 -x $index -F 127.0.0.1"
      both "$card: ${program%% *}, rxe answers" "$program -d rxe0 -x $index -F" "bash -c 'on_card $card $host $program -d card -x 1 -F 127.0.0.1'"
    done
  done
  for program in "ib_send_lat -n 200 -u 20" "ib_write_bw -n 200 -s 65536 -u 20"; do
    both "card to card: ${program%% *}" "bash -c 'on_card $e1000e 4 $program -d card -x 1 -F'" \
      "bash -c 'on_card $virtio 5 $program -d card -x 1 -F 127.0.0.1'"
  done
  # A process that dies leaves a card that the next one can use.
  on_card $e1000e 4 ib_write_bw -d card -x 1 -F -D 20 >/dev/null 2>&1 &
  local server=$!
  await_port $server
  timeout 30 ib_write_bw -d rxe0 -x $index -F -D 20 127.0.0.1 >/dev/null 2>&1 &
  sleep 3
  busybox killall -9 ib_write_bw
  wait $server
  both "after a kill" "bash -c 'on_card $e1000e 4 ib_send_lat -n 50 -d card -x 1 -F'" "ib_send_lat -n 50 -d rxe0 -x $index -F 127.0.0.1"
  rdma link del rxe0
}
case_fabric() {
  local card host domain provider type bytes
  taken $e1000e $virtio
  wire_up
  for card in $e1000e $virtio; do
    host=4
    [[ $card == $e1000e ]] || host=5
    domain="nic_$card"
    for type in "rdm udp;ofi_rxd" "dgram udp"; do
      provider="'${type#* }'"
      both "$card: fi_pingpong ${type%% *}, the kernel's sockets ask" \
        "bash -c \"on_card $card $host /weft/fi_pingpong -p $provider -e ${type%% *} -d $domain -I 10 -S 1024\"" \
        "env LD_LIBRARY_PATH=/weft/compat /weft/fi_pingpong -p $provider -e ${type%% *} -d $provider -I 10 -S 1024 127.0.0.1"
    done
  done
  for bytes in 64 65536; do
    both "card to card: fi_pingpong rdm, $bytes bytes" \
      "bash -c \"on_card $e1000e 4 /weft/fi_pingpong -p 'udp;ofi_rxd' -e rdm -d nic_$e1000e -I 5 -S $bytes\"" \
      "bash -c \"on_card $virtio 5 /weft/fi_pingpong -p 'udp;ofi_rxd' -e rdm -d nic_$virtio -I 5 -S $bytes 127.0.0.1\""
  done
}

modprobe -a af_packet virtio_net e1000e
modprobe -a vfio_iommu_type1 vfio-pci
echo "nic:x:$user:$user::/:/bin/sh" >>/etc/passwd
ip link set lo up
wire="$(basename "$(dirname "$(dirname "$(dirname "$(readlink -f "/sys/class/net/$(interface_of 52:54:00:14:00:03)")")")")")"
virtio="$(basename "$(dirname "$(dirname "$(dirname "$(readlink -f "/sys/class/net/$(interface_of 52:54:00:14:00:02)")")")")")"
eth="$(interface_of 52:54:00:14:00:03)"
ip link set "$eth" down
ip link set "$eth" name wire0
ip link set wire0 up
say "cards are there after $(uptime_s) s"
run_case() {
  case="$1"
  started="$(uptime_s)"
  "case_$case"
  say "--- $case took $(busybox awk "BEGIN { print $(uptime_s) - $started }") s"
}
# The cards of hub 1 are nobody else's: that case runs beside the others.
while read -r name; do
  if [[ $name == tool ]]; then run_case tool </dev/null & beside=$!; else run_case "$name" </dev/null; fi
done </logs/cases
[[ -z "${beside:-}" ]] || wait "$beside"
! grep -q '^FAILED' /run/results
