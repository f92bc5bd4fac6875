# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Of guest.sh: allocations that fail, leaks, packets that get lost, devices that go, peers that are killed.
# shellcheck shell=bash

# --- allocations that fail (a kernel with fault injection) ---

# Of those that a function of a module has called for: all modules are kOFI's there, so they are told by their addresses.
inject() {  # inject PERCENT DEPTH [INTERVAL]: how deep the stack is searched; of INTERVAL allocations at most one fails
  local attribute rxe_create_qp
  rxe_create_qp="$(sort /proc/kallsyms | busybox awk 'first { print first, $1; exit } $3 == "rxe_create_qp" { first = $1 }')"
  for attribute in failslab fail_page_alloc; do
    echo 0xffffffffa0000000 >$debug/$attribute/require-start
    echo 0xffffffffff000000 >$debug/$attribute/require-end
    # rxe_create_qp() of 6.1 takes back what it has not set up yet (timers) when an allocation of it fails.
    echo "0x${rxe_create_qp% *}" >$debug/$attribute/reject-start
    echo "0x${rxe_create_qp#* }" >$debug/$attribute/reject-end
    echo "$2" >$debug/$attribute/stacktrace-depth
    echo N >$debug/$attribute/ignore-gfp-wait
    echo 0 >$debug/$attribute/verbose
    echo "${3:-1}" >$debug/$attribute/interval
    echo -1 >$debug/$attribute/times
    echo "$1" >$debug/$attribute/probability
  done
  echo 0 >$debug/fail_page_alloc/min-order
  echo N >$debug/fail_page_alloc/ignore-gfp-highmem
}
inject_off() {
  echo 0 >$debug/failslab/probability
  echo 0 >$debug/fail_page_alloc/probability
}

# The first, the second, the third... allocation of what a task does fails, so that each way back is taken.
each_allocation() {  # each_allocation LAST PROVIDER NODE
  local n
  for n in $(seq "$1"); do
    # The shell's own allocations for the redirection are among them.
    bash -c 'echo "$1" >/proc/self/fail-nth; echo "$2 $3 scarce 1" >'$debug'/kofi_test/run' nth "$n" "$2" "$3" 2>/dev/null
    grep '^FAILED' $debug/kofi_test/run && return 1
  done
  return 0
}

# What rxe of 6.1 cannot send (no memory, no route) ends its queue pair, the connection manager's too, whose receiving half nobody
# starts again: no program connects over the device until it is added anew (case connect-bare, without kOFI).
fresh_rxe() { [[ "$1" != kofi_verbs* ]] || remove_rxe 0; }

# One allocation of each run fails, anywhere: fail-nth would have those below rxe_create_qp() fail, too.
one_allocation() {  # one_allocation RUNS PROVIDER NODE
  local run attribute
  for run in $(seq "$1"); do
    fresh_rxe "$2"
    inject 2 24
    for attribute in failslab fail_page_alloc; do echo 1 >$debug/$attribute/times; done
    { echo "$2 $3 scarce 1" >$debug/kofi_test/run; } 2>/dev/null
    inject_off
    [[ "$(cat $debug/failslab/times)" != 0 ]] || one_failed=$((one_failed + 1))
    grep '^FAILED' $debug/kofi_test/run && return 1
  done
  return 0
}

scarce() {  # scarce PROVIDER NODE
  local percent one_failed=0
  for percent in 1 4 12; do
    fresh_rxe "$1"
    inject $percent 24
    # The request itself may fail; the file has the lines of the last one then.
    for _ in $(seq 50); do
      { echo "$1 $2 scarce 12" >$debug/kofi_test/run; } 2>$folder/error
      grep -q 'Cannot allocate memory' $folder/error || break
    done
    inject_off
    while read -r line; do result "$line, $percent % of allocations fail"; done <$debug/kofi_test/run
  done
  case "$1" in
    *';'*) ;;
    kofi_verbs)
      expect "$1 one" "allocation of each of 100 runs may fail" one_allocation 100 "$1" "$2"
      expect "$1 one" "had failed in $one_failed of them" test $one_failed -gt 50
      ;;
    *) expect "$1 each" "of the first 100 allocations fails once" each_allocation 100 "$1" "$2" ;;
  esac
  fresh_rxe "$1"
  run_test "$1" "$2" messages
}

case_scarce() {
  if [[ ! -d $debug/failslab ]]; then result "skipped kofi_test scarce: this kernel has no fault injection"; return; fi
  rxe_up
  load kofi kofi_loop kofi_tcp kofi_verbs kofi_rdm kofi_test || { result "FAILED kofi_rdm load: insmod"; return; }
  scarce kofi_loop -
  scarce kofi_tcp 127.0.0.1
  scarce kofi_verbs 10.7.0.1
  scarce "kofi_loop;kofi_rdm" -
  scarce "kofi_tcp;kofi_rdm" 127.0.0.1
  scarce "kofi_verbs;kofi_rdm" 10.7.0.1
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  unload kofi_test kofi_rdm kofi_verbs kofi_tcp kofi_loop kofi || result "FAILED kofi_rdm unload: rmmod"
  expect "kofi load" "fails when an allocation of it fails, or works" scarce_loads
}

# Modules are loaded while allocations of their initialisation fail.
scarce_loads() {
  local n name
  for n in $(seq 40); do
    inject 20 16
    for name in kofi kofi_loop kofi_tcp kofi_verbs kofi_rdm kofi_blk kofi_blk_target kofi_test; do insmod $modules/$name.ko 2>/dev/null; done
    inject_off
    for name in kofi_test kofi_blk_target kofi_blk kofi_rdm kofi_verbs kofi_tcp kofi_loop kofi; do
      ! lsmod | grep -q "^$name " || rmmod $name || return 1
    done
  done
}

# A block device and its target while allocations of both fail: what was acknowledged is there.
scarce_blk() {  # scarce_blk PROVIDER ADDRESS
  truncate -s 64M $image
  expect "$1-blk target" "kofi_blk_target" kernel_target "$1" "$2" 4711
  expect "$1-blk connect" "to it" blk_connect disk "$1" "$2" 4711
  expect "$1-blk scarce" "written and compared while allocations fail" writes_scarce "$(cat $config/disk/device)"
  cat $config/disk/state
  expect "$1-blk writer" "and after that" /weft/bin/writer "$(cat $config/disk/device)" 32 2 1
  expect "$1-blk disconnect" "" blk_disconnect disk
  expect "$1-blk end" "of the target" end_kernel_target
  rmdir /sys/kernel/config/kofi_blk_target/served
  rm -f $image
}
writes_scarce() {
  local status
  inject 1 10 20
  /weft/bin/writer "$1" 32 12 5
  status=$?
  inject_off
  return $status
}

case_scarce_blk() {
  if [[ ! -d $debug/failslab ]]; then result "skipped kofi_blk scarce: this kernel has no fault injection"; return; fi
  modprobe -a configfs crc32c_generic ext4
  mount -t configfs configfs /sys/kernel/config 2>/dev/null
  rxe_up
  load kofi kofi_loop kofi_tcp kofi_verbs kofi_blk kofi_blk_target || { result "FAILED kofi_blk load: insmod"; return; }
  scarce_blk kofi_loop ""
  scarce_blk kofi_tcp 127.0.0.1
  scarce_blk kofi_verbs 10.7.0.1
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  unload kofi_blk kofi_blk_target kofi_verbs kofi_tcp kofi_loop kofi || result "FAILED kofi_blk unload: rmmod"
}

# Memory that nobody refers to any more. What the kernel itself had lost before is forgotten first.
leaks_forget() { [[ ! -e $debug/kmemleak ]] || { echo scan >$debug/kmemleak; echo clear >$debug/kmemleak; }; }
leaks() {  # one line of the table; nothing on a kernel without kmemleak
  [[ -e $debug/kmemleak ]] || return 0
  sleep 6   # it looks at what is older than 5 s
  echo scan >$debug/kmemleak
  echo scan >$debug/kmemleak
  cat $debug/kmemleak >/logs/kmemleak
  expect "kernel kmemleak" "$(grep -c '^unreferenced' /logs/kmemleak) objects" test ! -s /logs/kmemleak
}

# --- two RDMA devices with a wire between them ---

# Both ends are of this machine. Locally made packets leave by the wire: that their target is a local address is looked up
# only for what has come in.
wire_up() {  # wire_up own|mended
  rxe_driver "$1" && rxe_up && ip addr add 10.7.1.2/24 dev kv1 && ip addr add 10.7.1.1/24 dev kv0 && rdma link add rxe1 type rxe netdev kv1 || return 1
  echo 1 >/proc/sys/net/ipv4/conf/kv0/accept_local
  echo 1 >/proc/sys/net/ipv4/conf/kv1/accept_local
  echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
  echo 0 >/proc/sys/net/ipv4/conf/kv0/rp_filter
  echo 0 >/proc/sys/net/ipv4/conf/kv1/rp_filter
  ip route add 10.7.1.2 dev kv0 src 10.7.1.1 table 100 && ip route add 10.7.1.1 dev kv1 src 10.7.1.2 table 101 &&
    ip rule add pref 10 to 10.7.1.2 iif lo lookup 100 && ip rule add pref 11 to 10.7.1.1 iif lo lookup 101 &&
    ip rule add pref 20 lookup local && ip rule del pref 0 && ping -c 3 -i 0.2 10.7.1.2
}
wire_down() {
  tc qdisc del dev kv0 root; tc qdisc del dev kv1 root
  ip rule add pref 0 lookup local; ip rule del pref 20; ip rule del pref 11; ip rule del pref 10
  ip route flush table 100; ip route flush table 101
  rdma link del rxe1; ip addr del 10.7.1.2/24 dev kv1; ip addr del 10.7.1.1/24 dev kv0
  rxe_driver own || result "FAILED rxe driver: rmmod"
}
set_netem() { tc qdisc replace dev kv0 root netem "$@" && tc qdisc replace dev kv1 root netem "$@"; }
netem() { expect "wire netem" "$*" set_netem "$@"; }
# Only the wire loses packets: a queue that is full would refuse them to the sender, too (queue-bare).
lossy() { netem limit 100000 delay 1ms loss "$1%" reorder 1% duplicate 1%; }
tcp_again() { busybox awk '$1 == "Tcp:" && $2 ~ /^[0-9]/ { print $13 }' /proc/net/snmp; }
sent_again() { cat /sys/class/infiniband/rxe[01]/ports/1/hw_counters/rcvd_seq_err; }

# A block device whose commands, bytes and answers get lost.
lossy_blk() {  # lossy_blk PROVIDER SERVICE MIB
  truncate -s 64M $image
  expect "$1-blk target" "kofi_blk_target, at the other end of the wire" kernel_target "$1" 10.7.1.2 "$2"
  # rxe stalls for good now and then; the next connection repeats what has no answer.
  expect "$1-blk connect" "to it" blk_connect disk "$1" 10.7.1.2 "$2" 3
  expect "$1-blk lossy" "4 threads, all compared" /weft/bin/writer "$(cat $config/disk/device)" "$3" 8 3
  cat $config/disk/state
  expect "$1-blk disconnect" "" blk_disconnect disk
  expect "$1-blk end" "of the target" end_kernel_target
  rmdir /sys/kernel/config/kofi_blk_target/served
  rm -f $image
}

case_loss() {
  modprobe -a sch_netem configfs
  mount -t configfs configfs /sys/kernel/config 2>/dev/null
  expect "kofi_verbs wire" "between two devices of rxe" wire_up mended
  load kofi kofi_verbs kofi_tcp kofi_rdm kofi_test kofi_blk kofi_blk_target || { result "FAILED kofi_verbs load: insmod"; wire_down; return; }
  # The last packet of a message is missed after seconds only.
  echo 120000 >/sys/module/kofi_test/parameters/wait_ms
  local percent
  for percent in 1 3; do
    lossy $percent
    run_test kofi_verbs 10.7.1.2 atomics
    run_test kofi_verbs 10.7.1.2 scarce
  done
  run_test "kofi_verbs;kofi_rdm" 10.7.1.2 scarce
  run_test kofi_tcp 10.7.1.2 messages
  run_test kofi_tcp 10.7.1.2 rma
  lossy_blk kofi_tcp 4712 8
  lossy_blk kofi_verbs 4713 1
  expect "kofi_verbs again" "was sent: $(sent_again | tr '\n' ' ') out of order" test "$(sent_again | sort -n | tail -n 1)" -gt 0
  expect "kofi_tcp again" "was sent: $(tcp_again) segments" test "$(tcp_again)" -gt 0
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  unload kofi_test kofi_blk kofi_blk_target kofi_rdm kofi_tcp kofi_verbs kofi || result "FAILED kofi_verbs unload: rmmod"
  wire_down
}

# What rxe does to the same traffic when kOFI has no part in it: on a wire that loses packets, and on one that loses none, but whose queue refuses
# all beyond 50. The distribution's is counted, with the reports that it makes; the mended one is judged.
case_loss_bare() { bare 1 3 10; }
case_queue_bare() { bare queue; }
bare() {  # bare PERCENT...|queue
  local driver wire
  modprobe -a sch_netem ib_uverbs
  for driver in own mended; do
    [[ $driver == mended || -e /weft/rxe/rdma_rxe.ko ]] || continue
    expect "rxe wire" "between two devices of rxe, $driver" wire_up $driver
    for wire in "$@"; do
      if [[ $wire == queue ]]; then netem limit 50 delay 1ms; else lossy "$wire"; fi
      bare_loss $driver "$wire"
    done
    wire_down
    [[ $driver == mended ]] || note_reports
  done
}
bare_loss() {  # bare_loss own|mended NAME
  local log="/logs/bare_loss.$1.$2"
  expect "rxe program" "ran, $1, $2" sh -c "/weft/bin/bare_loss rxe0 10.7.1.1 rxe1 10.7.1.2 $(cat /logs/turns) >$log"
  grep ' pairs, ' "$log" | while IFS= read -r line; do result "note rxe $1-$2: $line"; done
  [[ $1 == own ]] || expect "rxe bytes" "all right, $2" test "$(grep -vc ' pairs, ' "$log")" = 0
}
# Reports of the kernel since the case began, which do not fail it.
note_reports() {
  local found
  sleep 1
  found=$(count_reports /logs/kmsg)
  result "note rxe reports: $((found - seen)) lines of the kernel's log"
  seen=$found
}

# Connections of two programs over rxe before and after one packet of the connection manager could not be sent, without kOFI.
two_connect() {  # two_connect SECONDS
  local server status
  timeout 60 ib_send_lat -R -n 100 >/logs/two_server 2>&1 &
  server=$!
  sleep 2
  timeout "$1" ib_send_lat -R -n 100 10.7.0.1 >/logs/two_client 2>&1
  status=$?
  kill $server 2>/dev/null
  wait $server 2>/dev/null
  return $status
}
link_flap() { ip link set kv0 down; sleep 10; ip link set kv0 up; sleep 2; }
case_connect_bare() {
  local asker
  expect "rxe device" "" rxe_up
  expect "rxe connects" "two programs" two_connect 30
  link_flap
  expect "rxe flap" "the link was down for 10 s: they connect" two_connect 30
  # Nobody answers; the request is repeated every 4 to 6 s, while the link is down, too.
  ip neigh replace 10.7.0.77 lladdr 02:00:00:00:00:77 dev kv0 nud permanent
  timeout 60 ib_send_lat -R -n 100 10.7.0.77 >/logs/nobody 2>&1 &
  asker=$!
  sleep 3
  link_flap
  kill $asker
  wait $asker
  result "note rxe asked: $(two_connect 30 && echo "they connect" || echo "the same while a request was repeated: they do not connect within 30 s")"
  remove_rxe
  expect "rxe anew" "they connect when the device was added anew" two_connect 30
}

# --- a device that goes while it is used ---

remove_rxe() { rdma link del rxe0; sleep "${1:-0.3}"; rdma link add rxe0 type rxe netdev kv0; }
remove_under_test() {  # remove_under_test PROVIDER TURNS
  local i tester
  echo "$1 10.7.0.1 scarce $(($2 * 20))" >$debug/kofi_test/run &
  tester=$!
  for i in $(seq "$2"); do sleep 0.4; remove_rxe || return 1; done
  wait $tester
}

case_removal() {
  modprobe -a configfs crc32c_generic ext4
  mount -t configfs configfs /sys/kernel/config 2>/dev/null
  expect "kofi_verbs rxe" "a device" rxe_up
  load kofi kofi_verbs kofi_rdm kofi_test kofi_blk kofi_blk_target || { result "FAILED kofi_verbs load: insmod"; return; }
  expect "kofi_verbs removed" "the device 8 times under traffic" remove_under_test kofi_verbs 8
  while read -r line; do result "$line"; done <$debug/kofi_test/run
  expect "kofi_rdm removed" "the device 8 times under traffic" remove_under_test "kofi_verbs;kofi_rdm" 8
  while read -r line; do result "$line"; done <$debug/kofi_test/run
  run_test kofi_verbs 10.7.0.1 messages
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  unload kofi_test kofi_rdm kofi_blk kofi_blk_target kofi_verbs kofi || result "FAILED kofi_verbs unload: rmmod"
}

# --- a program over Weft's tcp that is killed while it speaks to a kernel endpoint ---

killed_turn() {  # killed_turn TURN: it drives; the kernel serves
  local port=$((5200 + $1)) server program
  echo "kofi_tcp 127.0.0.1 serve $port" >$debug/kofi_test/run 2>/dev/null &
  server=$!
  { sleep 0.5; exec /weft/stage/bin/weft run /weft/bin/kernel_peer drive 127.0.0.1 $port; } >/logs/killed.log 2>&1 &
  program=$!
  sleep "$(printf '0.%d' $((5 + $1 % 5)))"; sleep "0.$((RANDOM % 10))"
  kill -9 $program 2>/dev/null
  wait $program 2>/dev/null
  wait $server
  return 0
}
killed_turns() {
  local turn wait_ms; wait_ms=$(cat /sys/module/kofi_test/parameters/wait_ms)
  echo 5000 >/sys/module/kofi_test/parameters/wait_ms   # for a program that had not connected yet
  for turn in $(seq "$1"); do killed_turn "$turn" 2>/dev/null; done
  echo "$wait_ms" >/sys/module/kofi_test/parameters/wait_ms
  [[ $(wc -l <$debug/kofi/objects) -eq 0 ]]
}
case_killed() {
  if [[ ! -x /weft/bin/kernel_peer ]]; then result "skipped kofi_tcp killed: no staged Weft"; return; fi
  load kofi kofi_tcp kofi_test || { result "FAILED kofi_tcp load: insmod"; return; }
  expect "kofi_tcp killed" "the program 12 times; no object is left" killed_turns 12
  run_test kofi_tcp 127.0.0.1 messages
  unload kofi_test kofi_tcp kofi || result "FAILED kofi_tcp unload: rmmod"
}
