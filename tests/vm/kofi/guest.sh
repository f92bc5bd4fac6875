#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# In the guest: runs the cases that /logs/cases names and writes /logs/results.
set -u
exec 3>/dev/ttyS0
debug=/sys/kernel/debug
modules=/weft/kofi

say() { echo "vm: $*" >&3; }
result() { echo "$*" >>/logs/results; say "$*"; }
expect() {  # expect NAME WHAT COMMAND...: one line of the table
  local name="$1" what="$2"; shift 2
  if "$@"; then result "ok $name: $what"; else result "FAILED $name: $what"; fi
}

# A kernel that checks itself is slow.
[[ -e /logs/debug ]] && slow=4 || slow=1
load() {
  local name
  for name in "$@"; do
    insmod "$modules/$name.ko" || return 1
    [[ $name != kofi_test ]] || echo $((20000 * slow)) >/sys/module/kofi_test/parameters/wait_ms
  done
}
unload() { local name; for name in "$@"; do rmmod "$name" || return 1; done; }

# run_test PROVIDER [NODE [CASE]]: its lines are results.
run_test() {
  local status=0
  echo "$*" >$debug/kofi_test/run || status=1
  while read -r line; do result "$line"; done <$debug/kofi_test/run
  return $status
}

# examples/kofi_hello: it does its work when it is loaded.
says_hello() {  # says_hello PROVIDER [ARGUMENT...]
  insmod $modules/kofi_hello.ko provider="$1" "${@:2}" && rmmod kofi_hello && dmesg | tail -n 20 | grep -q "'hello, fabric' has arrived over $1"
}

case_loop() {
  load kofi kofi_loop kofi_test || { result "FAILED kofi_loop load: insmod"; return; }
  run_test kofi_loop
  expect "kofi_loop hello" "examples/kofi_hello: one line over one connection" says_hello kofi_loop
  expect "kofi_loop none" "it fails where its provider is not loaded" not says_hello kofi_tcp node=127.0.0.1
  cat $debug/kofi/providers $debug/kofi/objects $debug/kofi/counters
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  unload kofi_test kofi_loop kofi || result "FAILED kofi_loop unload: rmmod"
}

case_tcp() {
  load kofi kofi_tcp kofi_test || { result "FAILED kofi_tcp load: insmod"; return; }
  run_test kofi_tcp 127.0.0.1
  run_test kofi_tcp ::1 messages
  expect "kofi_tcp hello" "examples/kofi_hello: one line over one connection" says_hello kofi_tcp node=127.0.0.1
  cat $debug/kofi/providers $debug/kofi/objects $debug/kofi/counters
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  unload kofi_test kofi_tcp kofi || result "FAILED kofi_tcp unload: rmmod"
}

# The layer for RDM endpoints, over each provider of connected ones.
case_rdm() {
  load kofi kofi_loop kofi_tcp kofi_rdm kofi_test || { result "FAILED kofi_rdm load: insmod"; return; }
  run_test "kofi_loop;kofi_rdm"
  run_test "kofi_tcp;kofi_rdm" 127.0.0.1
  run_test "kofi_tcp;kofi_rdm" ::1 messages
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  unload kofi_test kofi_rdm kofi_tcp kofi_loop kofi || result "FAILED kofi_rdm unload: rmmod"
}

# The kernel's software RDMA device, over a pair of Ethernet devices.
rxe_up() {
  [[ ! -e /sys/class/infiniband/rxe0 ]] || return 0
  modprobe crc32_generic   # newer kernels have none: rxe does not ask for it there
  modprobe -a veth rdma_rxe rdma_ucm && ip link add kv0 type veth peer name kv1 && ip link set kv1 up &&
    ip addr add 10.7.0.1/24 dev kv0 && ip link set kv0 up && rdma link add rxe0 type rxe netdev kv0
}

# rxe_driver own|mended: whose devices the next ones are, the distribution's or those of the module that run.sh brings (docs/kofi.md, "Faults of
# rxe"). Without that module there is one driver only.
rxe_driver() {
  [[ -e /weft/rxe/rdma_rxe.ko ]] || return 0
  [[ ! -e /sys/class/infiniband/rxe0 ]] || { rdma link del rxe0 && ip link del kv0; } || return 1
  modprobe rdma_rxe && rmmod rdma_rxe || return 1   # what either depends on stays
  [[ $1 == own ]] || insmod /weft/rxe/rdma_rxe.ko
}

case_verbs() {
  expect "kofi_verbs rxe" "a device" rxe_up
  load kofi kofi_verbs kofi_rdm kofi_test || { result "FAILED kofi_verbs load: insmod"; return; }
  run_test kofi_verbs 10.7.0.1
  run_test "kofi_verbs;kofi_rdm" 10.7.0.1
  expect "kofi_verbs hello" "examples/kofi_hello: one line over one connection" says_hello kofi_verbs node=10.7.0.1
  cat $debug/kofi/providers $debug/kofi/objects $debug/kofi/counters
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  unload kofi_test kofi_rdm kofi_verbs kofi || result "FAILED kofi_verbs unload: rmmod"
}

# A user-space program over Weft's tcp and a kernel endpoint, in both roles.
case_peers() {
  if [[ ! -x /weft/bin/kernel_peer ]]; then result "skipped kofi_tcp peers: no staged Weft"; return; fi
  local program="/weft/stage/bin/weft run /weft/bin/kernel_peer" port=4711 address
  load kofi kofi_tcp kofi_test || { result "FAILED kofi_tcp load: insmod"; return; }
  $program serve 127.0.0.1 $port >/logs/serve.log 2>&1 &
  for _ in $(seq 100); do grep -q listening /logs/serve.log && break; sleep 0.2; done
  run_test kofi_tcp 127.0.0.1 drive $port
  expect "program serves" "its kernel peer drove; $(tail -n 1 /logs/serve.log)" wait $!
  { sleep 1; for _ in $(seq 20); do timeout 60 $program drive 127.0.0.1 $((port + 1)) && break; sleep 1; done; } >/logs/drive.log 2>&1 &
  run_test kofi_tcp 127.0.0.1 serve $((port + 1))
  wait $!
  expect "program drives" "its kernel peer served; $(tail -n 1 /logs/drive.log)" grep -q '^driven' /logs/drive.log
  unload kofi_test kofi_tcp kofi || result "FAILED kofi_tcp unload: rmmod"
}

# Bytes that a hostile peer may send: hostile FIRST LAST, each a serving endpoint of its own: frame kinds, then noise.
hello='WEFT\x01\x00\x50\x00\x01\x02'
hostile_frame() {  # kind shape length, then noise
  printf "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' "$1" "$2" $(($3 % 256)) $(($3 / 256)))"
  head -c "$4" /dev/urandom
}
hostile_once() {
  local turn="$1" port=$((5000 + turn)) kind=$((turn % 22)) shapes=(0 1 4 8 21 41 64 3 255) shape server
  echo "kofi_tcp 127.0.0.1 serve $port" >$debug/kofi_test/run 2>/dev/null &
  server=$!
  for _ in $(seq 100); do (exec 4<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && break; sleep 0.1; done
  shape=${shapes[$((turn % ${#shapes[@]}))]}
  {
    exec 4<>/dev/tcp/127.0.0.1/$port || return 1
    head -c 200 /dev/urandom >&4
    exec 4>&-
    exec 4<>/dev/tcp/127.0.0.1/$port || return 1
    printf "$hello" >&4
    head -c 70 /dev/zero >&4
    sleep 0.1
    hostile_frame "$kind" "$shape" 40 60 >&4
    hostile_frame "$kind" 0 40 40 >&4
    hostile_frame 2 0 8 8 >&4
    head -c 3000 /dev/urandom >&4
    exec 4>&-
  } 2>/dev/null
  wait $server
  return 0
}
hostile_turns() {
  local turn
  # A subshell each: the endpoint may close while it is written to.
  for turn in $(seq 0 "$1"); do (trap '' PIPE; hostile_once "$turn") || return 1; done
}

# A peer that sends a part of a frame and stays: its endpoint ends after the time that the module has for it.
partial_frame() {
  local started server status
  echo 2 >/sys/module/kofi_tcp/parameters/frame_timeout
  echo "kofi_tcp 127.0.0.1 serve 5100" >$debug/kofi_test/run 2>/dev/null &
  server=$!
  exec 5<>/dev/null
  for _ in $(seq 100); do (exec 4<>/dev/tcp/127.0.0.1/5100) 2>/dev/null && break; sleep 0.1; done
  exec 5<>/dev/tcp/127.0.0.1/5100 || return 1
  started=$SECONDS
  printf "$hello" >&5
  head -c 70 /dev/zero >&5
  sleep 0.5
  hostile_frame 2 4 40 1 >&5
  wait $server
  status=$((SECONDS - started))
  exec 5>&-
  echo 300 >/sys/module/kofi_tcp/parameters/frame_timeout
  echo "ended after $status s"
  [[ $status -le $((8 * slow)) ]]
}

case_hostile() {
  load kofi kofi_tcp kofi_test || { result "FAILED kofi_tcp load: insmod"; return; }
  expect "kofi_tcp partial" "a part of a frame, then nothing: the connection ends" partial_frame
  expect "kofi_tcp hostile" "22 peers that send wrong bytes" hostile_turns 21
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  run_test kofi_tcp 127.0.0.1 messages
  unload kofi_test kofi_tcp kofi || result "FAILED kofi_tcp unload: rmmod"
}

# --- block devices ---
config=/sys/kernel/config/kofi_blk
folder=/run/blk
image=$folder/disk.img

start_target() {
  local n
  : >/logs/target.log
  /weft/stage/bin/weft run /weft/bin/block_target 127.0.0.1 4710 $image >>/logs/target.log 2>&1 &
  target=$!
  for n in $(seq 200); do grep -q serving /logs/target.log && return 0; sleep 0.1; done
  return 1
}
stop_target() { kill -9 "$target"; wait "$target"; } 2>/dev/null
blk_connect() {  # blk_connect NAME PROVIDER ADDRESS SERVICE [SECONDS]: that a command may take
  mkdir $config/"$1" && echo "$2" >$config/"$1"/provider && echo "$3" >$config/"$1"/address &&
    echo "$4" >$config/"$1"/service && echo 2 >$config/"$1"/queues && echo "${5:-30}" >$config/"$1"/timeout && echo 1 >$config/"$1"/connect
}
blk_disconnect() { echo 0 >$config/"$1"/connect && rmdir $config/"$1"; }
# While a command runs, something else is done again and again: during SECONDS... turns COMMAND is done to the device.
disturb() {  # disturb TURNS PAUSE COMMAND...
  local turns="$1" pause="$2" i; shift 2
  for i in $(seq "$turns"); do sleep "$pause"; "$@"; done
}
cut_disk() { echo 1 >$config/disk/cut; }
kill_target() { stop_target; sleep 0.3; start_target; }
# What was sent and not taken stays in the socket, and what comes behind it in the provider: both end with the connection.
stop_and_cut() { kill -STOP "$target"; sleep 0.3; cut_disk; sleep 0.1; kill -CONT "$target"; }
under() {  # under TURNS PAUSE COMMAND: the writer on $1 while the connections are disturbed
  local path="$1" seconds="$2" writer status; shift 2
  /weft/bin/writer "$path" 32 "$seconds" "$RANDOM" >/logs/writer.log 2>&1 &
  writer=$!
  disturb "$@"
  wait $writer
  status=$?
  cat /logs/writer.log $config/disk/state
  return $status
}
cuts_of() { sed -n 's/.*cuts \([0-9]*\).*/\1/p' $config/disk/state; }

blk_cases() {  # blk_cases NAME: a device of config/disk
  local name="$1" dev; dev="$(cat $config/disk/device)"
  expect "$name writer" "4 threads, all compared" /weft/bin/writer "$dev" 32 4 1
  expect "$name cut" "100 times while it is written" under "$dev" 12 100 0.1 cut_disk
  expect "$name discard" "and zeros" blkdiscard_and_zero "$dev"
  expect "$name mkfs" "ext4" /weft/bin/mke2fs -q -F -t ext4 "$dev"
  mkdir -p $folder/mnt
  expect "$name mount" "" mount -t ext4 "$dev" $folder/mnt
  expect "$name busy" "not disconnected while it is mounted" busy_disconnect
  expect "$name ext4" "100 cuts while a file is written" under $folder/mnt/file 12 100 0.1 cut_disk
}
busy_disconnect() { ! echo 0 2>/dev/null >$config/disk/connect; }
blkdiscard_and_zero() { blkdiscard "$1" 2>/dev/null || busybox blkdiscard "$1"; }

not() { ! "$@"; }
lists() { local line; for line in "$@"; do /weft/stage/bin/weft kofi list | grep -q "^$line" || return 1; done; }
# What a target may come back without, and who else may come.
state_is() {  # state_is WORD: within 10 s
  local n
  for n in $(seq 100); do grep -q "^$1 " $config/disk/state && return 0; sleep 0.1; done
  cat $config/disk/state
  return 1
}
write_some() { dd if=/dev/urandom of=/dev/kofi0 bs=4096 count=4 oflag=direct 2>/dev/null; }
flushed_all() { dd if=/dev/zero of=/dev/kofi0 bs=4096 count=1 conv=fsync 2>/dev/null; }
other_boot() { stop_target; echo "$1" >$folder/boot_id; start_target; }
reads() { timeout 20 dd if=/dev/kofi0 of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null; }
blk_losses() {
  echo 1 >$folder/boot_id
  mount --bind $folder/boot_id /proc/sys/kernel/random/boot_id
  stop_target; start_target
  expect "kofi_blk again" "connected" blk_connect disk kofi_tcp 127.0.0.1 4710
  mkdir $config/second
  echo 127.0.0.1 >$config/second/address
  expect "kofi_blk second" "another initiator is refused" not sh -c "echo 1 2>/dev/null >$config/second/connect"
  rmdir $config/second
  write_some && flushed_all && other_boot 2
  expect "kofi_blk flushed" "the target's machine started anew after a flush: goes on" timeout 20 dd if=/dev/kofi0 of=/dev/null bs=4096 count=1 iflag=direct
  expect "kofi_blk goes-on" "" state_is live
  write_some && other_boot 3
  expect "kofi_blk unflushed" "and with writes that were not flushed: fails" state_is failed
  expect "kofi_blk fails" "reads end with an error" not reads
  expect "kofi_blk leave" "" blk_disconnect disk
  expect "kofi_blk fresh" "connected" blk_connect disk kofi_tcp 127.0.0.1 4710
  stop_target; cp $image $image.2 && mv $image.2 $image; start_target
  reads
  expect "kofi_blk other" "another file of the same size: fails" state_is failed
  expect "kofi_blk leave" "" blk_disconnect disk
  umount /proc/sys/kernel/random/boot_id
}

case_blk() {
  if [[ ! -x /weft/bin/block_target ]]; then result "skipped kofi_blk user: no staged Weft"; return; fi
  local weft=/weft/stage/bin/weft
  modprobe -a crc32c_generic ext4
  expect "weft-kofi load" "kofi_tcp and kofi_blk" $weft kofi load --from $modules
  truncate -s 160M $image
  expect "kofi_blk target" "examples/block_target over Weft's tcp" start_target
  expect "weft-kofi refused" "where nobody listens" not $weft kofi connect --name disk 127.0.0.1 4709
  expect "weft-kofi connect" "to the target" $weft kofi connect --name disk --queues 2 127.0.0.1 4710
  $weft kofi list
  expect "weft-kofi list" "the provider and the device" lists "provider kofi_tcp 1.0" "device disk /dev/kofi0: kofi_tcp 127.0.0.1 4710, 2 queues of 64: live"
  blk_cases kofi_blk
  expect "kofi_blk killed" "the target 8 times while a file is written" under $folder/mnt/file2 14 8 0.7 kill_target
  expect "kofi_blk stopped" "the target 12 times, and cut, while a file is written" under $folder/mnt/file3 14 12 0.4 stop_and_cut
  cat $config/disk/state
  expect "kofi_blk umount" "" umount $folder/mnt
  expect "weft-kofi disconnect" "" $weft kofi disconnect /dev/kofi0
  expect "kofi_blk fsck" "the image is clean" /weft/bin/e2fsck -fn $image
  blk_losses
  stop_target
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  rm -f $image
  unload kofi_blk kofi_tcp kofi || result "FAILED kofi_blk unload: rmmod"
}

# The target in the kernel: kernel_target PROVIDER ADDRESS SERVICE
kernel_target() {
  local at=/sys/kernel/config/kofi_blk_target/served
  mkdir -p $at && echo "$1" >$at/provider && echo "$2" >$at/address && echo "$3" >$at/service && echo $image >$at/path &&
    echo 1 >$at/enable
}
end_kernel_target() { echo 0 >/sys/kernel/config/kofi_blk_target/served/enable; }
# It goes and comes while it is used: the commands that it executes end first, connections are refused meanwhile.
toggle_target() { end_kernel_target; sleep 0.2; echo 1 >/sys/kernel/config/kofi_blk_target/served/enable; }

kernel_blk() {  # kernel_blk PROVIDER ADDRESS
  local provider="$1" address="$2"
  truncate -s 160M $image
  expect "$provider-blk target" "kofi_blk_target" kernel_target "$provider" "$address" 4711
  expect "$provider-blk connect" "to it" blk_connect disk "$provider" "$address" 4711
  blk_cases "$provider-blk"
  expect "$provider-blk toggled" "the target 8 times while a file is written" under $folder/mnt/file2 10 8 0.5 toggle_target
  cat $config/disk/state
  expect "$provider-blk umount" "" umount $folder/mnt
  expect "$provider-blk disconnect" "" blk_disconnect disk
  expect "$provider-blk end" "of the target" end_kernel_target
  expect "$provider-blk fsck" "the image is clean" /weft/bin/e2fsck -fn $image
  rmdir /sys/kernel/config/kofi_blk_target/served
  rm -f $image
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
}

# Of one write of 64 KiB to a device that was idle: the functions of the modules, in their order, with the processor's number.
trace_write() {
  local tracing=/sys/kernel/tracing
  echo >$tracing/set_ftrace_filter
  local name
  for name in kofi kofi_tcp kofi_blk kofi_blk_target; do echo ":mod:$name" >>$tracing/set_ftrace_filter || return 1; done
  echo global >$tracing/trace_clock && echo function >$tracing/current_tracer || return 1
  sleep 0.5
  echo >$tracing/trace
  busybox dd if=/dev/zero of=/dev/kofi0 bs=64k count=1 oflag=direct || return 1
  sleep 0.5
  echo 0 >$tracing/tracing_on
  busybox sed -n 's/^.*\[\([0-9]*\)\].*: \([A-Za-z0-9_.]*\) <-.*/\2/p' $tracing/trace >/logs/walk
  echo nop >$tracing/current_tracer
  echo 1 >$tracing/tracing_on
  [[ -s /logs/walk ]]
}

case_walk() {
  local modules=/weft/kofi_walk
  mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
  if [[ ! -w /sys/kernel/tracing/set_ftrace_filter ]]; then result "skipped kofi_blk walk: the kernel has no function tracer"; return; fi
  modprobe -a configfs crc32c_generic
  mount -t configfs configfs /sys/kernel/config 2>/dev/null
  load kofi kofi_tcp kofi_blk kofi_blk_target || { result "FAILED kofi_blk load: insmod"; return; }
  truncate -s 16M $image
  expect "kofi_blk target" "kofi_blk_target" kernel_target kofi_tcp 127.0.0.1 4711
  expect "kofi_blk connect" "to it" blk_connect disk kofi_tcp 127.0.0.1 4711
  expect "kofi_blk trace" "one write of 64 KiB" trace_write
  expect "kofi_blk disconnect" "" blk_disconnect disk
  expect "kofi_blk end" "of the target" end_kernel_target
  rmdir /sys/kernel/config/kofi_blk_target/served
  rm -f $image
  unload kofi_blk kofi_blk_target kofi_tcp kofi || result "FAILED kofi_blk unload: rmmod"
}

case_blk_kernel() {
  modprobe -a configfs crc32c_generic ext4
  mount -t configfs configfs /sys/kernel/config 2>/dev/null
  load kofi kofi_loop kofi_tcp kofi_blk kofi_blk_target || { result "FAILED kofi_blk load: insmod"; return; }
  kernel_blk kofi_loop ""
  kernel_blk kofi_tcp 127.0.0.1
  unload kofi_blk kofi_blk_target kofi_tcp kofi_loop kofi || result "FAILED kofi_blk unload: rmmod"
}

case_blk_verbs() {
  modprobe -a configfs crc32c_generic ext4
  mount -t configfs configfs /sys/kernel/config 2>/dev/null
  expect "kofi_verbs rxe" "a device" rxe_up
  load kofi kofi_verbs kofi_blk kofi_blk_target || { result "FAILED kofi_blk load: insmod"; return; }
  kernel_blk kofi_verbs 10.7.0.1
  unload kofi_blk kofi_blk_target kofi_verbs kofi || result "FAILED kofi_blk unload: rmmod"
}

# A case runs while its provider is to be removed: refused as long as an object is open.
remove_busy() {
  local refused=0 tries
  echo "kofi_loop - churn" >$debug/kofi_test/run &
  for tries in $(seq 200); do
    if [[ $(wc -l <$debug/kofi/objects) -gt 0 ]]; then
      rmmod kofi_loop 2>/dev/null || refused=$((refused + 1))
      lsmod | grep -q '^kofi_loop ' || load kofi_loop
    fi
    kill -0 $! 2>/dev/null || break
  done
  wait $!
  echo "refused $refused times" >&2
  [[ $refused -gt 0 ]]
}

reload_turns() {
  local i
  for i in $(seq "${1:-100}"); do
    load kofi kofi_loop kofi_test || return 1
    if [[ $((i % 4)) -eq 0 ]]; then
      echo "kofi_loop - callbacks" >$debug/kofi_test/run || return 1
    else
      echo "kofi_loop - connect" >$debug/kofi_test/run || return 1
    fi
    unload kofi_test kofi_loop kofi || return 1
  done
}

case_reload() {
  local turns; turns="$(cat /logs/turns)"
  expect "kofi_loop reload" "$turns times, with traffic" reload_turns "$turns"
  load kofi kofi_loop kofi_test
  expect "kofi_loop busy" "not removed while objects are open" remove_busy
  unload kofi_test kofi_loop kofi || result "FAILED kofi_loop unload: rmmod"
}

# shellcheck source=guest_faults.sh
source /weft/tests/guest_faults.sh
# shellcheck source=guest_fio.sh
source /weft/tests/guest_fio.sh
source /weft/tests/bench.sh

mkdir -p $folder
mount -t debugfs debugfs $debug
ip link set lo up
cat /dev/kmsg >/logs/kmsg &
leaks_forget
reports='WARNING|BUG|Oops|INFO: |Call Trace|KASAN|UBSAN|ODEBUG|DEBUG_LOCKS|possible .* locking'
# Not the stack of who asked for memory that there was not: cases make allocations fail.
count_reports() {
  busybox awk -v what="$reports" '/vmalloc error|page allocation failure/ { refused = 12 }
    refused-- > 0 && /Call Trace/ { refused = 0; next } $0 ~ what { found++ } END { print found + 0 }' "$1"
}
sleep 1
seen=$(count_reports /logs/kmsg)   # what it said of itself before
while read -r name; do
  say "--- $name"
  "case_${name//-/_}"
  found=$(count_reports /logs/kmsg)
  [[ $found -eq $seen ]] || result "FAILED kernel $name: a report in its log (kmsg of the logs has it)"
  seen=$found
done </logs/cases
leaks
! grep -q '^FAILED' /logs/results
