#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# weft perf between two hosts, as network namespaces that a pair of veth joins: one client and several, libraries in turns, sides that differ,
# either side killed in the middle. Exit status 77: namespaces cannot be made here.
set -uo pipefail
weft="${WEFT_BUILD:?}/bin/weft"
[[ -x "$weft" && -e "$WEFT_BUILD/lib/weft/compat/libfabric.so.1" ]] || { echo "weft and the drop-in are not built"; exit 77; }
command -v ip >/dev/null || { echo "ip is not here (package iproute2)"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
space="weft-perf-$$" work="$(mktemp -d)" failures=0 server=
cleanup() {
  [[ -z "$server" ]] || kill "$server" 2>/dev/null
  wait
  ip netns del "$space-a" 2>/dev/null
  ip netns del "$space-b" 2>/dev/null
  rm -rf "$work"
  end_pair
}
trap cleanup EXIT
trap 'exit 1' TERM
ip netns add "$space-a" 2>"$work/err" && ip netns add "$space-b" || { echo "no network namespaces here: $(cat "$work/err")"; exit 77; }
ip -n "$space-a" link add veth0 type veth peer name veth0 netns "$space-b" || { echo "no veth here"; exit 77; }
for side in a b; do
  ip -n "$space-$side" link set lo up
  ip -n "$space-$side" link set veth0 up
  ip -n "$space-$side" addr add "10.79.0.$([[ $side == a ]] && echo 1 || echo 2)/24" dev veth0
done
there=(ip netns exec "$space-a") here=(ip netns exec "$space-b")

fail() { echo "FAILED: $*"; tail -n 20 "$work/out" "$work/err" "$work/server" 2>/dev/null; failures=$((failures + 1)); }
serve() {  # serve OPTION...
  "${there[@]}" env ${settings:+"$settings"} "$weft" perf --server --port 7471 "$@" >"$work/server" 2>&1 &
  server=$!
  await_server "$server" 7471 "${there[@]}" || fail "no server with $*"
}
ended() {  # ended STATUS: of the server that served one
  local got=0
  wait "$server" || got=$?
  server=
  [[ $got -eq $1 ]] || fail "the server ended with $got, not $1"
}
stop() { kill "$server" && wait "$server" 2>/dev/null; server=; }
client() {  # client STATUS OPTION...
  local wanted="$1" got=0; shift
  timeout 60 "${here[@]}" "$weft" perf --client 10.79.0.1 --port 7471 "$@" >"$work/out" 2>"$work/err" || got=$?
  [[ $got -eq $wanted ]] || fail "status $got, not $wanted, of: --client $*"
}
says() { grep -q -- "$1" "$work/out" "$work/err" || fail "nothing about '$1'"; }

serve
client 0 -p tcp -t tagged-pingpong,tagged-unexpected-rate,rma-write-bw -s 8,64k -n 64 -r 2; says 'this host and 10.79.0.1'
! grep -q note: "$work/err" || fail "alike sides, and yet there was a note"
ended 0

# A server that stays.
settings=WEFT_RELIABLE_TIMEOUT_S=55
serve --keep
settings=
client 0 -p tcp --threads 2 -t tagged-pingpong,tagged-rate -s 8 -n 64 -r 2; says '2 at once'
says 'WEFT_RELIABLE_TIMEOUT_S is .55. on the server and not set here'
client 0 -p tcp --peers 2 -t tagged-pingpong,rma-write-lat,tagged-bw -s 8 -n 64 -r 2; says '2 at once'
client 0 -t verbs -d weft_veth0 -s 8,10k -n 64 -r 1; says 'verbs-read-bw'
client 0 --stock -p 'tcp;ofi_rxm' -t tagged-pingpong -s 8 -n 64 -r 1; says tagged-pingpong
client 0 --compare stock -p 'tcp;ofi_rxm' -t tagged-pingpong,rma-read-lat -s 8,1k -n 64 -r 2 -f json -o "$work/compared"
python3 - "$work/compared" <<'P' || fail "--compare between two hosts"
import json, sys
results = json.load(open(sys.argv[1]))["results"]
assert len(results) == 4 and all(len(r[side]["samples"]) == 2 for r in results for side in ("weft", "other")), results
P
mkdir "$work/other" && cp -L "$WEFT_BUILD/lib/weft/compat/libfabric.so.1" "$work/other/"
client 1 --compare "$work/other" -p tcp -t tagged-pingpong -s 8 -n 64 -r 1; says 'knows of no other library'
# What is not ours does not stop it.
"${here[@]}" python3 - <<'P'
import socket
for words in (b"GET / HTTP/1.0\r\n\r\n", b'{"command": "hello", "protocol": 2, "lanes": "x"}\n', b'{"command": "open"}\n', b""):
    with socket.create_connection(("10.79.0.1", 7471)) as s:
        s.sendall(words)
        if words:
            s.settimeout(5)
            s.recv(1000)
P
client 0 -p tcp -t tagged-pingpong -s 8 -n 64 -r 1; says tagged-pingpong
# A client that is killed in the middle: the server serves the next one.
{ timeout -s KILL 2 "${here[@]}" "$weft" perf --client 10.79.0.1 --port 7471 -p tcp -t tagged-pingpong -s 8 --time 20000; } >"$work/out" 2>&1
client 0 -p tcp -t tagged-pingpong -s 8 -n 64 -r 1; says tagged-pingpong
# A server that is killed in the middle: the client says so, soon.
timeout 40 "${here[@]}" "$weft" perf --client 10.79.0.1 --port 7471 -p tcp -t tagged-pingpong -s 8 --time 20000 >"$work/out" 2>"$work/err" &
measuring=$!
sleep 2
kill -KILL "$server"; begin=$SECONDS
wait "$measuring" && fail "status 0 although the server was killed"
[[ $((SECONDS - begin)) -le 15 ]] || fail "it took $((SECONDS - begin)) s to notice that the server was killed"
says '10.79.0.1: '
wait "$server" 2>/dev/null; server=

serve --compare "$work/other" --keep
client 0 --compare "$work/other" -p tcp -t tagged-pingpong -s 8 -n 64 -r 1; says '2.6.0-weft'
stop
# One client only, and one library only.
serve
client 1 --compare stock -p tcp -t tagged-pingpong -s 8 -n 64 -r 1; says 'keep'
stop 2>/dev/null
serve --stock
client 1 -p tcp -t tagged-pingpong -s 8 -n 64 -r 1; says 'do not understand each other'
stop 2>/dev/null

[[ $failures -eq 0 ]] && echo "two hosts measure together"
exit $((failures > 0))
