#!/bin/bash
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
  expect "kofi_loop reload" "100 times, with traffic" reload_turns 100
  load kofi kofi_loop kofi_test
  expect "kofi_loop busy" "not removed while objects are open" remove_busy
  unload kofi_test kofi_loop kofi || result "FAILED kofi_loop unload: rmmod"
}

mount -t debugfs debugfs $debug
ip link set lo up
started_dmesg="$(dmesg | wc -l)"
while read -r name; do
  say "--- $name"
  "case_${name//-/_}"
done </logs/cases
dmesg | tail -n "+$started_dmesg" | grep -E 'WARNING|BUG|Oops|INFO: task|Call Trace' &&
  result "FAILED kernel dmesg: a warning (dmesg of the logs has it)"
! grep -q '^FAILED' /logs/results
