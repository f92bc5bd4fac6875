#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# `weft trace`: programs that know nothing of it say what they say without it, and the timeline has their calls, each
# operation with its completion: over our drop-ins and over the stock library, of a program that is killed, of one
# that starts others, with a ring that is too small.
set -euo pipefail
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "runs the system's programs: not under a sanitizer"; exit 77; }
weft="${WEFT_BUILD:?}/bin/weft"
[[ -x "$weft" && -e "$WEFT_BUILD/lib/weft/trace/libweft-trace.so" ]] || { echo "weft or its recorder is not built"; exit 77; }
for program in fi_pingpong ib_write_bw fi_info python3; do command -v "$program" >/dev/null || { echo "no $program"; exit 77; }; done
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
folder="$(mktemp -d)"
trap 'end_pair; rm -rf "$folder"' EXIT
fail() { echo "FAILED: $1"; tail -n 5 "$folder"/*.err 2>/dev/null; exit 1; }

# says FILE EXPRESSION: Python about `count(phase, name)`, `other` and the events.
says() {
  python3 - "$@" <<'PYTHON' || fail "$1: $2"
import json, sys
document = json.load(open(sys.argv[1]))
events, other = document["traceEvents"], document["otherData"]
count = lambda phase, name: sum(e["ph"] == phase and e["name"] == name for e in events)
def nested():  # slices of a thread lie within each other
    threads = {}
    for e in events:
        if e["ph"] == "X":
            threads.setdefault((e["pid"], e["tid"]), []).append((round(e["ts"] * 1000), -round(e["dur"] * 1000)))
    for slices in threads.values():
        ends = []
        for begin, length in sorted(slices):
            while ends and ends[-1] <= begin + 1:
                ends.pop()
            if ends and begin - length > ends[-1] + 2:
                return False
            ends.append(begin - length)
    return True
begun = {e["id"]: e for e in events if e["ph"] == "b"}
ended = {e["id"]: e for e in events if e["ph"] == "e"}
paired = set(begun) == set(ended) and all(begun[i]["name"] == ended[i]["name"] and begun[i]["ts"] <= ended[i]["ts"] for i in begun)
value = eval(sys.argv[2], {**globals()})
if not value:
    from collections import Counter
    print(Counter((e["ph"], e["name"]) for e in events).most_common(30), other)
sys.exit(0 if value and paired and nested() else 1)
PYTHON
}

# A program's output and its status are its own.
"$weft" run -- fi_info -p shm >"$folder/plain"
"$weft" trace -o "$folder/info.json" -- fi_info -p shm >"$folder/traced" 2>"$folder/info.err" || fail "fi_info"
cmp "$folder/plain" "$folder/traced" || fail "the output of fi_info"
grep -q "^weft trace: .*info.json: " "$folder/info.err" || fail "the last line"
says "$folder/info.json" 'count("X", "fi_getinfo") == 1'
status=0
"$weft" trace -o "$folder/x.json" -- sh -c 'exit 7' 2>/dev/null || status=$?
[[ $status -eq 7 ]] || fail "the status of the program: $status"
status=0
"$weft" trace -o "$folder/x.json" -- sh -c 'kill -9 $$' 2>/dev/null || status=$?
[[ $status -eq 137 ]] || fail "the status of a program that is killed: $status"
for bad in "--records 5" "--records x" "--nonsense" "-o" ""; do
  status=0
  # shellcheck disable=SC2086
  "$weft" trace $bad >/dev/null 2>&1 || status=$?
  [[ $status -eq 125 ]] || fail "'weft trace $bad' ends with $status"
done
status=0
"$weft" trace -o "$folder/none/x.json" -- true 2>/dev/null || status=$?
[[ $status -eq 125 ]] || fail "an output that cannot be written: $status"

next_port() {
  pair_port=$((pair_port + 1))
  while is_listening "$pair_port"; do pair_port=$((pair_port + 1)); done
}
# exchange NAME OPTION... -- PROGRAM...: a server and a client, both traced, on a port of their own.
exchange() {
  local name="$1" options=()
  shift
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  shift
  next_port
  local at=(-p "$pair_port") to=(-p "$pair_port" 127.0.0.1)
  [[ $1 != fi_pingpong ]] || at=(-B "$pair_port") to=(-P "$pair_port" 127.0.0.1)
  "$weft" trace "${options[@]}" -o "$folder/$name.server.json" -- timeout 120 "$@" "${at[@]}" >"$folder/$name.server" 2>"$folder/$name.server.err" &
  local server=$! tries
  for ((tries = 0; tries < 60; ++tries)); do
    sleep 0.5
    if "$weft" trace "${options[@]}" -o "$folder/$name.json" -- timeout 120 "$@" "${to[@]}" >"$folder/$name" 2>"$folder/$name.err"; then
      wait "$server" || fail "the server of $name"
      return 0
    fi
    kill -0 "$server" 2>/dev/null || fail "the server of $name ended"
  done
  fail "$name"
}
for provider in shm tcp; do
  exchange "$provider" -- fi_pingpong -p "$provider" -e rdm -I 50 -S 64
  # 64 bytes are injected, which has no completion; each receive has one.
  says "$folder/$provider.json" 'count("X", "fi_inject") == 50 and count("b", "fi_recv") >= 50'
  says "$folder/$provider.json" 'other["completionsWithoutOperation"] == 0 and other["recordsDropped"] == 0 and count("X", "fi_domain") == 1 and count("X", "fi_close") >= 5'
  grep -q "^64 " "$folder/$provider" || fail "the output of fi_pingpong over $provider"
done
exchange msg -- fi_pingpong -p tcp -e msg -I 20 -S 4096
says "$folder/msg.json" 'count("X", "fi_connect") == 1 and count("b", "fi_send") == 20 and other["completionsWithoutOperation"] == 0'
exchange verbs -- ib_write_bw -n 40 -s 4096
says "$folder/verbs.json" 'count("b", "RDMA WRITE") >= 1 and count("X", "ibv_open_device") == 1 and other["completionsWithoutOperation"] == 0'
says "$folder/verbs.json" 'all(e["args"]["bytes"] == 4096 for e in begun.values() if e["name"] == "RDMA WRITE")'
exchange send -- ib_send_lat -n 40 -s 64
says "$folder/send.json" 'count("b", "RECV") >= 30 and other["completionsWithoutOperation"] == 0'
# Calls that stand behind the end of an older ibv_qp_ex.
g++ -std=c++20 -D_GNU_SOURCE -O1 -I"$WEFT_SOURCE/src" "$WEFT_SOURCE/tests/verbs/generations.cpp" -o "$folder/generations" -L"$WEFT_BUILD/lib/weft/compat" -l:libibverbs.so.1 ||
  fail "generations.cpp is not compiled"
WEFT_VERBS_DEVICES=weft=127.0.0.1 "$weft" trace -o "$folder/generations.json" -- "$folder/generations" >"$folder/generations.out" 2>"$folder/generations.err" || fail "generations.cpp"
says "$folder/generations.json" 'count("b", "ATOMIC WRITE") == 4 and count("b", "FLUSH") == 5 and other["completionsWithoutOperation"] == 0'
says "$folder/generations.json" 'sorted(e["args"]["bytes"] for e in begun.values() if e["name"] == "FLUSH") == [64, 64, 64, 64, 4097]'
# The stock library, whose layers call each other: each layer's operation has its own completion.
exchange stock --stock -- fi_pingpong -p tcp -e rdm -I 20 -S 4096
says "$folder/stock.json" 'count("b", "fi_send") == 20 and other["completionsWithoutOperation"] == 0'
# Reads by fi_cq_readfrom, with FI_SOURCE and without.
gcc -std=c11 -D_GNU_SOURCE -O1 "$WEFT_SOURCE/tests/system/sources.c" -o "$folder/sources" -lfabric || fail "sources.c is not compiled"
"$weft" trace -o "$folder/sources.json" -- "$folder/sources" shm >"$folder/sources.out" 2>"$folder/sources.err" || fail "sources.c"
says "$folder/sources.json" 'count("e", "fi_trecv") == 6 and count("e", "fi_tsend") == 6 and other["operations"] == other["completed"] == 12'
# A ring that is too small keeps the newest.
exchange small --records 64 -- fi_pingpong -p tcp -e rdm -I 200 -S 64
says "$folder/small.json" 'other["recordsDropped"] > 0 and 0 < count("X", "fi_close") and len(events) < 400'
grep -q 'dropped (--records)' "$folder/small.err" || fail "what was dropped is not said"

# What the program starts, and the folder of the recorder: gone.
"$weft" trace -o "$folder/two.json" -- sh -c 'fi_info -p shm; fi_info -p tcp; exec fi_info -p udp' >/dev/null 2>"$folder/two.err" || fail "several programs"
says "$folder/two.json" 'len({e["pid"] for e in events}) == 3 and count("X", "fi_getinfo") == 3'
! compgen -G "/dev/shm/weft-trace-*" >/dev/null || [[ -n "$(pgrep -x weft || true)" ]] || fail "something is left in /dev/shm"
echo "trace_test: ok"
