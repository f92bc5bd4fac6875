#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The command `weft` as a user meets it: exit statuses, reasons, reports, and that no subcommand hangs when a process dies.
set -uo pipefail
weft="${WEFT_BUILD:?}/bin/weft"
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
source "$root/tests/pair.sh"
[[ -x "$weft" && -e "$WEFT_BUILD/lib/weft/compat/libfabric.so.1" ]] || { echo "weft and the drop-in are not built"; exit 77; }
work="$(mktemp -d)"
trap 'end_pair; rm -rf "$work"' EXIT
failures=0
fail() { echo "FAILED: $*"; tail -n 20 "$work/out" "$work/err" 2>/dev/null; failures=$((failures + 1)); }
# expect STATUS COMMAND...: output goes to $work/out and $work/err.
expect() {
  local wanted="$1" got=0; shift
  timeout 60 "$@" >"$work/out" 2>"$work/err" || got=$?
  [[ $got -eq $wanted ]] || fail "status $got, not $wanted, of: $*"
}
says() { grep -q -- "$1" "$work/out" "$work/err" || fail "nothing about '$1'"; }

expect 0 "$weft" --version; says '^weft [0-9]'
expect 0 "$weft" help; says SYNOPSIS
for command in run info top perf mux; do
  expect 0 "$weft" "$command" --help; says 'EXIT STATUS'
  expect 0 "$weft" help "$command"; says 'EXIT STATUS'
done
expect 2 "$weft"
expect 2 "$weft" spin; says "no command 'spin'"

expect 0 "$weft" info; says shm
expect 0 "$weft" info -v -p shm; says 'fi_ep_attr\|ep_attr'
expect 0 "$weft" info -j -p shm
python3 - "$work/out" <<'P' || fail "weft info -j is not the JSON that it should be"
import json, sys
infos = json.load(open(sys.argv[1]))
assert infos and all(i["fabric_attr"]["prov_name"] == "shm" and "FI_TAGGED" in i["caps"] for i in infos)
P
expect 1 "$weft" info --why -p shm -c FI_COLLECTIVE; says 'shm.*caps.*FI_COLLECTIVE'
expect 1 "$weft" info -p nosuch; says 'nothing matches'
expect 1 "$weft" info --why -p nosuch; says nosuch
expect 1 "$weft" info --why -e dgram -p shm; says FI_EP_DGRAM
expect 0 "$weft" info --why; says 'weft '
expect 0 "$weft" info --why -p shm -c FI_MSG; says '^  not named "shm": weft, tcp, '
expect 1 "$weft" info --why -p nosuch; says 'no provider is named "nosuch"; there are: weft, shm, tcp, '
expect 0 env FI_PROVIDER=shm,nosuch "$weft" info --why
says '^  FI_PROVIDER: no provider is named "nosuch"; there are: weft, shm, tcp, '; says '^  left out by FI_PROVIDER=shm,nosuch: weft, tcp, '
expect 0 "$weft" info --why -c FI_REMOTE_COMM; says '^  caps: .* shm offers \|^  shm: caps: '
expect 0 "$weft" info --settings; says '^WEFT_RELIABLE_TIMEOUT_S  *number  *60 s  *default$'; says '^FI_WEFT_SHM  *flag  *yes  *default$'
expect 0 env WEFT_RELIABLE_TIMEOUT_S=5 "$weft" info --settings; says '^WEFT_RELIABLE_TIMEOUT_S  *number  *5 s  *environment$'
expect 0 env WEFT_RELIABLE_TIMEOUT_S=5x "$weft" info --settings; says '^WEFT_RELIABLE_TIMEOUT_S  *number  *5x  *environment, malformed$'; says '; 5x is not a number from 1 to 999999, so the default is used$'
expect 0 env WEFT_RELIABLE_TIMEOUT_S=5 "$weft" info --settings --as-file; says '^WEFT_RELIABLE_TIMEOUT_S = 5$'
cp "$work/out" "$work/weft.conf"; expect 0 env WEFT_CONFIG="$work/weft.conf" "$weft" info --settings; says '^WEFT_RELIABLE_TIMEOUT_S  *number  *5 s '
expect 0 "$weft" info --system -j; says '"name": "kernel"'
# Settings that are wrong are told, once.
expect 0 env WEFT_RELIABLE_TIMEOUT_S=1e99 "$weft" info; says 'WEFT_RELIABLE_TIMEOUT_S=1e99 is not a number from 1 to 999999; 60 is used'
echo 'FI_WEFT_SMH = 0' >"$work/config"
expect 0 env WEFT_CONFIG="$work/config" "$weft" info; says 'FI_WEFT_SMH in the configuration file is no setting: is FI_WEFT_SHM meant'
expect 0 env WEFT_CONFIG="$work/config" "$weft" info --settings; says 'FI_WEFT_SMH in the configuration file is no setting: is FI_WEFT_SHM meant'
printf 'WEFT_NIC = 0000:00:1f.7=192.0.2.9/24\n' >"$work/config"
expect 0 env WEFT_CONFIG="$work/config" "$weft" info; says 'nic_0000:00:1f.7'
printf 'WEFT_NIC = junk\n' >"$work/config"
expect 0 env WEFT_CONFIG="$work/config" "$weft" info; says 'WEFT_NIC: '
expect 1 "$weft" nic bind "$(ls /sys/class/net | head -n 1)" no-such-card; says "no network card"
expect 2 "$weft" info -c FI_FOO; says 'FI_FOO is not a capability'
expect 2 "$weft" info --no-such-option

printf -- "-s 8 # one\n-p shm -t 'no-such-test'\n" >"$work/batch"
expect 2 "$weft" perf --batch "$work/batch"; says 'batch:2: there is no test'
printf -- '-s 8\n-s 16\n' >"$work/batch"
expect 2 "$weft" perf --batch "$work/batch" -o "$work/both"; says 'batch:2: .* would be written by two lines'
expect 1 "$weft" perf --batch ''; says 'cannot read'
expect 0 "$weft" perf -t tagged-pingpong,tagged-rate,rma-write-bw -s 8,100,64k -n 500 -r 3 --verify -f json -o "$work/report"
python3 - "$work/report" "$WEFT_BUILD" <<'P' || fail "the JSON report is not what it should be"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["library"].startswith(sys.argv[2]), report["library"]
assert len(report["results"]) == 9, len(report["results"])
for r in report["results"]:
    assert len(r["samples"]) == 3 and 0 < r["min"] <= r["median"] <= r["max"], r
P
expect 0 "$weft" perf -t rma-read-lat,atomic-lat,atomic-rate -s 8 -n 200 -r 2 --percentiles -f json -o "$work/times"
python3 - "$work/times" <<'PYTHON' || fail "perf --percentiles"
import json, sys
results = {r["test"]: r for r in json.load(open(sys.argv[1]))["results"]}
assert set(results) == {"rma-read-lat", "atomic-lat", "atomic-rate"}, results
for name in ("rma-read-lat", "atomic-lat"):
    times = results[name]["times_ns"]
    assert sum(count for _, count in times["histogram"]) == 400 and times["p50"] <= times["p99.9"] <= times["most"], times
assert results["atomic-rate"]["times_ns"] is None
PYTHON
expect 0 "$weft" perf -t tagged-pingpong -s 8,64 -n 100 -r 1 -f csv; says '^library,provider,test,bytes,'
[[ $(grep -c ',shm,tagged-pingpong,' "$work/out") -eq 2 ]] || fail "perf -f csv"
expect 0 "$weft" perf --compare stock -p shm -t rma-read-lat -s 8,64 -n 50 -r 2 -f json -o "$work/compared"
python3 - "$work/compared" <<'PYTHON' || fail "perf --compare"
import json, sys
results = json.load(open(sys.argv[1]))["results"]
assert [r["weft"]["size"] for r in results] == [8, 64] and all(len(r[side]["samples"]) == 2 for r in results for side in ("weft", "other")), results
PYTHON
expect 2 "$weft" perf --compare /nowhere; says 'there is none at'
expect 2 "$weft" perf --compare stock --stock
expect 0 "$weft" perf -t tagged-posted-lat,tagged-unexpected-lat,tagged-posted-rate,tagged-unexpected-rate -s 8,100k -n 64 -r 2 --verify -f csv
[[ $(grep -c ',shm,tagged-' "$work/out") -eq 8 ]] || fail "perf: posted and unexpected receives"
expect 0 "$weft" perf -p tcp -t tagged-unexpected-lat,tagged-unexpected-rate -s 8,100k -n 64 -r 1 --verify; says unexpected
for provider in shm tcp; do
  expect 0 "$weft" perf -p "$provider" --threads 2 -t tagged-pingpong,tagged-rate,msg-rate,rma-write-lat,atomic-lat,tagged-unexpected-lat -s 8 -n 100 -r 2 --percentiles -f json -o "$work/threads"
  expect 0 "$weft" perf -p "$provider" --peers 3 -t tagged-pingpong,tagged-bw,rma-write-lat,rma-read-bw,atomic-rate -s 8 -n 100 -r 2 -f json -o "$work/peers"
  python3 - "$work/threads" "$work/peers" <<'PYTHON' || fail "perf --threads, --peers over $provider"
import json, sys
threads, peers = (json.load(open(file))["results"] for file in sys.argv[1:])
assert len(threads) == 6 and all(len(r["lanes"]) == 2 and 0 < r["fairness"] <= 1 for r in threads), threads
assert sum(n for _, n in threads[0]["times_ns"]["histogram"]) == 2 * 2 * 100, "percentiles of both pairs"
assert len(peers) == 5 and all(len(r["lanes"]) == 3 and len(r["samples"]) == 2 for r in peers), peers
PYTHON
done
expect 0 "$weft" perf -t verbs -d weft_lo -s 8,10k -n 64 -r 2 --percentiles -f csv
[[ $(grep -c ',weft_lo,verbs-' "$work/out") -eq 12 ]] || fail "perf: tests of verbs"
expect 0 "$weft" perf -t verbs-send-lat,verbs-write-lat,verbs-read-bw --threads 2 -d weft_lo -s 8 -n 64 -r 1; says '2 at once'
# Refused before the first measurement, so no line of a result.
refuses() {
  expect "$1" "$weft" perf "${@:3}"; says "$2"
  [[ ! -s "$work/out" ]] || fail "measured something: ${*:3}"
}
refuses 2 'atomic operations are of 8 bytes' -t tagged-rate,atomic-lat -s 64
refuses 2 'size of 0' -s 8,0
refuses 2 'is too large' -s 5g
refuses 2 'is not a size' -s 64kb
refuses 2 'of memory' -s 4g --buffers 16384
refuses 2 'a window of 64 messages.* moves 32 GiB' -p 'udp;ofi_rxd' -t tagged-bw -s 8,512m
refuses 2 'at most [0-9]* bytes\|of memory' -t verbs-send-lat -d weft_lo -s 8,4g
refuses 2 'libibverbs.so.1 for tests of verbs; there is none' --compare /nowhere -t verbs
refuses 2 'measures anyway' --compare "$WEFT_BUILD/lib/weft/compat" -t tagged-pingpong
refuses 1 'nothing to compare' --compare stock -t verbs -d weft_lo
refuses 2 'names no provider' -p ''
refuses 1 "no provider 'nosuch'" -p shm -p nosuch
refuses 2 'may not run on that CPU' --pin 4095
refuses 2 'one peer' --peers 2 -t msg-rate
refuses 2 'do not go together' --peers 2 --threads 2
refuses 1 "no verbs device 'nosuch'; there are: .*weft_lo" -t verbs -d nosuch
refuses 2 'by themselves' -t verbs,tagged-rate
refuses 2 'the client' --server -s 8
expect 0 "$weft" perf -t msg-pingpong -s 8 -n 500 -r 1 --threading safe; says 'fi_inject'
if command -v gnuplot >/dev/null; then
  expect 0 "$weft" perf -t tagged-pingpong -s 8:1k -n 200 -r 1 --plot "$work/plot.svg"
  grep -q '</svg>' "$work/plot.svg" || fail "no plot"
fi
expect 2 "$weft" perf -t tagged-pong; says tagged-pingpong
expect 2 "$weft" perf -s 3q
expect 1 "$weft" perf -p nosuch -t tagged-rate; says 'weft info --why'

# Two hosts, on one.
"$weft" perf --server --port 0 >"$work/server" 2>&1 &
server=$!
eventually 30 grep -q 'port [0-9]' "$work/server" || fail "the server does not say its port"
port="$(sed -n 's/.*port \([0-9]*\)$/\1/p' "$work/server")"
expect 0 "$weft" perf --client 127.0.0.1 --port "$port" -t tagged-pingpong -s 8 -n 500 -r 2; says tagged-pingpong
wait "$server" || fail "the server ended with status $?"

# A process that is killed ends the measurement soon, whichever it is.
for victim in 1 2; do
  timeout 60 "$weft" perf -t tagged-pingpong -s 8 --time 20000 -r 3 >"$work/out" 2>"$work/err" &
  parent=$!
  # The same two children at two looks: what the program starts before it measures has gone by then.
  before=none
  for _ in $(seq 100); do
    sleep 0.3
    watcher="$(pgrep -P "$parent" | head -n 1)"
    mapfile -t children < <(pgrep -P "${watcher:-0}")
    [[ ${#children[@]} -eq 2 && "${children[*]}" == "$before" ]] && break
    before="${children[*]}"
  done
  kill -KILL "${children[$((victim - 1))]}"
  begin=$SECONDS
  wait "$parent" && fail "status 0 although a process was killed"
  [[ $((SECONDS - begin)) -le 15 ]] || fail "it took $((SECONDS - begin)) s to notice that a process was killed"
  says 'died of signal 9'
done

# A client of several, and their server: the leading process and the server are children of the watcher, clients those of the leading one.
for victim in server client; do
  timeout 60 "$weft" perf --peers 2 -t tagged-pingpong -s 8 --time 20000 -r 3 >"$work/out" 2>"$work/err" &
  parent=$! clients=()
  for _ in $(seq 100); do
    sleep 0.1
    watcher="$(pgrep -P "$parent" | head -n 1)"
    mapfile -t children < <(pgrep -P "${watcher:-0}")
    [[ ${#children[@]} -eq 2 ]] || continue
    mapfile -t clients < <(pgrep -P "${children[0]}"; pgrep -P "${children[1]}")
    [[ ${#clients[@]} -eq 2 ]] && break
  done
  sleep 0.3
  if [[ $victim == client ]]; then
    kill -KILL "${clients[0]}"
  else
    [[ -n "$(pgrep -P "${children[0]}")" ]] && kill -KILL "${children[1]}" || kill -KILL "${children[0]}"
  fi
  begin=$SECONDS
  wait "$parent" && fail "status 0 although the $victim was killed"
  [[ $((SECONDS - begin)) -le 15 ]] || fail "it took $((SECONDS - begin)) s to notice that the $victim was killed"
  says 'died of signal 9'
done

expect 7 "$weft" run -- sh -c 'exit 7'
expect 7 "$weft" run sh -c 'exit 7'
expect 127 "$weft" run -- no-such-program-anywhere; says 'No such file'
expect 126 "$weft" run -- /etc/passwd; says 'Permission denied'
expect 126 "$weft" run -- /tmp
expect 125 "$weft" run
expect 125 "$weft" run --bogus true; says '--bogus'
expect 0 "$weft" run -- sh -c 'echo "$LD_LIBRARY_PATH"'; says "^$WEFT_BUILD/lib/weft/compat"
expect 0 "$weft" run --plugin -- sh -c 'echo "$FI_PROVIDER_PATH"'; says "^$WEFT_BUILD/lib/weft/plugin"

# The manual pages are the texts of --help.
[[ -n "${WEFT_SANITIZE:-}" ]] || expect 0 python3 "$root/scripts/man.py" "$weft" "$root/docs/man" --check

[[ $failures -eq 0 ]] && echo "the command does what it says"
exit $((failures > 0))
