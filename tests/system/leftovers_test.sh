#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Nothing stays in /dev/shm, /tmp or among the System V segments: not after a program that ends well, not after one that is killed
# in the middle of its work. The programs look by themselves too, in fresh places; here the places are the real ones.
set -euo pipefail
program="${WEFT_BUILD:?}/tests/system/talker"
library="${WEFT_TEST_LIBRARY:-$WEFT_BUILD/lib/weft/compat}"
[[ -x "$program" && -e "$library/libfabric.so.1" ]] || { echo "talker or the drop-in is not built"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
# In a session of its own, by which its children are found when it is gone.
talk() { LD_LIBRARY_PATH="$library" exec setsid "$program" "$@"; }
session_has_ended() { ! pgrep -s "$1" -r D,R,S,T >/dev/null; }
ended() { # ended PID: the process, and its children by the kernel's hand
  wait "$1" 2>/dev/null || true
  eventually 10 session_has_ended "$1" || { echo "children outlive the talker"; failed=1; }
}

# Names in /tmp are the whole machine's: only those that a fabric would choose count there.
list() {
  ls -A /dev/shm | sed 's|^|/dev/shm/|'
  ls -A /tmp | { grep -E 'weft|^fi_|ofi' || true; } | sed 's|^|/tmp/|'
  { tail -n +2 /proc/sysvipc/shm 2>/dev/null || true; } | awk '{print "sysv " $1 " " $2}'
}

before=$(list | sort)
failed=0
check() {
  after=$(list | sort)
  new=$(printf '%s\n%s\n' "$before" "$after" | sort | uniq -u)
  if [[ -n "$new" ]]; then
    echo "left behind by $1:"
    echo "$new"
    failed=1
    before=$after
  fi
}

(talk --ms 200)
check "a run that ends well"

# Killed at several points of its life, from the opening of endpoints to the middle of the traffic.
for ms in 5 20 60 150 400; do
  talk --ms 20000 >/dev/null 2>&1 &
  talker=$!
  sleep "$(awk "BEGIN { print $ms / 1000 }")"  # the instant of the kill, not a wait for anything
  kill -KILL "$talker" 2>/dev/null || true
  ended "$talker"
  check "a run killed after $ms ms"
done

# Ended by SIGTERM, with the default action of the program.
talk --ms 20000 >/dev/null 2>&1 &
talker=$!
sleep 0.2  # the instant
kill -TERM "$talker"
ended "$talker"
check "a run ended by SIGTERM"

[[ "$failed" -ne 0 ]] || echo "leftovers_test: nothing left behind"
exit "$failed"
