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

load() { local name; for name in "$@"; do insmod "$modules/$name.ko" || return 1; done; }
unload() { local name; for name in "$@"; do rmmod "$name" || return 1; done; }

# run_test PROVIDER [NODE [CASE]]: its lines are results.
run_test() {
  local status=0
  echo "$*" >$debug/kofi_test/run || status=1
  while read -r line; do result "$line"; done <$debug/kofi_test/run
  return $status
}

case_loop() {
  load kofi kofi_loop kofi_test || { result "FAILED kofi_loop load: insmod"; return; }
  run_test kofi_loop
  cat $debug/kofi/providers $debug/kofi/objects $debug/kofi/counters
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  unload kofi_test kofi_loop kofi || result "FAILED kofi_loop unload: rmmod"
}

case_tcp() {
  load kofi kofi_tcp kofi_test || { result "FAILED kofi_tcp load: insmod"; return; }
  run_test kofi_tcp 127.0.0.1
  run_test kofi_tcp ::1 messages
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

case_hostile() {
  load kofi kofi_tcp kofi_test || { result "FAILED kofi_tcp load: insmod"; return; }
  expect "kofi_tcp hostile" "22 peers that send wrong bytes" hostile_turns 21
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  run_test kofi_tcp 127.0.0.1 messages
  unload kofi_test kofi_tcp kofi || result "FAILED kofi_tcp unload: rmmod"
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

mount -t debugfs debugfs $debug
ip link set lo up
cat /dev/kmsg >/logs/kmsg &
started_dmesg="$(dmesg | wc -l)"
while read -r name; do
  say "--- $name"
  "case_${name//-/_}"
done </logs/cases
dmesg | tail -n "+$started_dmesg" | grep -E 'WARNING|BUG|Oops|INFO: task|Call Trace' &&
  result "FAILED kernel dmesg: a warning (dmesg of the logs has it)"
! grep -q '^FAILED' /logs/results
