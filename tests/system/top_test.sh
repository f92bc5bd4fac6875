#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# `weft top` beside running programs that know nothing of it: fi_pingpong and ib_write_bw; after kill -9; beside a process that shows nonsense; from
# another pid namespace; as another user. And WEFT_STATS.
set -euo pipefail
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "runs the system's programs: not under a sanitizer"; exit 77; }
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
weft="$WEFT_BUILD/bin/weft"
[[ -x "$weft" && -e "$library/libfabric.so.1" && -e "$library/libibverbs.so.1" ]] || { echo "weft or a drop-in is not built"; exit 77; }
for program in fi_pingpong ib_write_bw python3; do command -v "$program" >/dev/null || { echo "no $program"; exit 77; }; done
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
folder="$(mktemp -d)"
patience_s=60  # until a program has begun and is shown: on busy CPUs its start takes seconds
started=()
leave() {
  for pid in "${started[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  end_pair
  rm -rf "$folder"
}
trap leave EXIT
fail() { echo "FAILED: $1"; cat "$folder"/look* 2>/dev/null | tail -40; exit 1; }

# start NAME COMMAND...: in the background, on Weft; its number in $last.
start() {
  local name="$1"
  shift
  env "LD_LIBRARY_PATH=$library" "$@" >"$folder/$name.out" 2>&1 &
  last=$!
  started+=("$last")
}
look() { "$weft" top --once --json >"$folder/look" 2>"$folder/look.err" || fail "weft top ends with $?"; }
# shows PID EXPRESSION: an object `o` of that process, for which the Python expression is true.
shows() {
  look
  python3 - "$folder/look" "$@" <<'PYTHON'
import json, sys
path, pid, expression = sys.argv[1:]
processes = json.load(open(path))["processes"]
found = [o for p in processes if p["pid"] == int(pid) for o in p["objects"] if eval(expression, {"o": o})]
sys.exit(0 if found else 1)
PYTHON
}
number() { # number PID KIND VALUE: the largest there is
  look
  python3 - "$folder/look" "$@" <<'PYTHON'
import json, sys
path, pid, kind, value = sys.argv[1:]
print(max([o.get(value, 0) for p in json.load(open(path))["processes"] if p["pid"] == int(pid) for o in p["objects"] if o["kind"] == kind] + [0]))
PYTHON
}
is_above() { [[ $(number "${@:2}") -gt $1 ]]; } # is_above BEFORE PID KIND VALUE
grows() { # grows PID KIND VALUE
  local before
  before=$(number "$@")
  eventually "$patience_s" is_above "$before" "$@" || fail "$3 of process $1 does not grow: $before"
}
next_port() {
  pair_port=$((pair_port + 1))
  while is_listening "$pair_port"; do pair_port=$((pair_port + 1)); done
}

# --- libfabric: endpoints and their paths ---
for what in shm:rdm weft:rdm "udp;ofi_rxd:rdm" "tcp;ofi_rxm:rdm" udp:dgram tcp:msg; do
  provider="${what%:*}" type="${what##*:}"
  next_port
  start server fi_pingpong -p "$provider" -e "$type" -I 100000000 -S 64 -B "$pair_port"
  server=$last
  eventually "$patience_s" is_listening "$pair_port" || fail "fi_pingpong does not listen"
  start client fi_pingpong -p "$provider" -e "$type" -I 100000000 -S 64 -P "$pair_port" 127.0.0.1
  client=$last
  eventually "$patience_s" shows "$client" "o['kind'] == 'endpoint' and o['name'] == '$provider' and o['messages_sent'] > 100 and o['messages_received'] > 100 and o['receive_queue'] > 0" ||
    fail "the endpoint of fi_pingpong -p $provider -e $type is not shown"
  [[ -n ${grown:-} ]] || grows "$client" endpoint messages_sent
  grown=1
  case "$provider:$type" in
    shm:* | weft:*) path=shm ;;
    *rxd:rdm) path=ofi_rxd ;;
    udp:* | tcp:msg)
      path=""
      grows "$client" endpoint bytes_received
      ;;
    *) path="" ;;
  esac
  [[ -z $path ]] || eventually "$patience_s" shows "$client" "o['kind'] == 'path' and o['name'] == '$path' and o['parent'] != 0 and o['packets_received'] > 100" ||
    fail "the path of fi_pingpong -p $provider is not shown"
  [[ $provider != weft ]] || grows "$client" path packets_received
  if [[ $type == msg ]]; then eventually "$patience_s" shows "$client" "o['kind'] == 'endpoint' and ' to ' in o['detail']" || fail "the peer of fi_pingpong -p $provider -e msg is not shown"; fi
  kill -9 "$server" "$client"
  wait "$server" "$client" 2>/dev/null || true
  look
  python3 -c "import json,sys; sys.exit(any(p['pid'] in ($server, $client) for p in json.load(open('$folder/look'))['processes']))" ||
    fail "a killed process is shown"
done

# --- WEFT_STATS of endpoints: counts at their end ---
next_port
start server fi_pingpong -p shm -e rdm -I 1000 -S 64 -B "$pair_port"
server=$last
eventually "$patience_s" is_listening "$pair_port" || fail "fi_pingpong does not listen"
start client env "WEFT_STATS=$folder/endpoint.json" fi_pingpong -p shm -e rdm -I 1000 -S 64 -P "$pair_port" 127.0.0.1
wait "$last" || fail "fi_pingpong ends with $?"
wait "$server" || fail "the server of fi_pingpong ends with $?"
python3 - "$folder/endpoint.json" <<'PYTHON' || fail "WEFT_STATS of an endpoint"
import json, sys
[process] = json.load(open(sys.argv[1]))["processes"]
[endpoint] = [o for o in process["objects"] if o["kind"] == "endpoint"]
[path] = [o for o in process["objects"] if o["kind"] == "path"]
assert path["parent"] == endpoint["id"], process
for count in "messages_sent", "messages_received":  # and what it says before and after its iterations
    assert 1000 <= endpoint[count] <= 1040, endpoint
PYTHON

# --- verbs: shared memory and UDP ---
for near in 1 0; do
  next_port
  start server env "WEFT_VERBS_SHM=$near" ib_write_bw -F -D 300 -s 4096 -p "$pair_port"
  server=$last
  eventually "$patience_s" is_listening "$pair_port" || fail "ib_write_bw does not listen"
  start client env "WEFT_VERBS_SHM=$near" ib_write_bw -F -D 300 -s 4096 -p "$pair_port" 127.0.0.1
  client=$last
  way=$([[ $near == 1 ]] && echo shm || echo udp)
  eventually "$patience_s" shows "$client" "o['kind'] == 'queue_pair' and o['bytes_sent'] > 1000000 and o['state'] == 3 and o['detail'].endswith('by $way')" ||
    fail "the queue pair of ib_write_bw is not shown ($way)"
  eventually "$patience_s" shows "$client" "o['kind'] == 'device' and (o['near_packets_sent'] > 0) == ($near == 1)" || fail "the device of ib_write_bw is not shown"
  grows "$client" queue_pair bytes_sent
  grows "$server" queue_pair bytes_received
  if [[ $near == 1 ]]; then
    "$weft" top --metrics >"$folder/metrics"
    python3 - "$folder/metrics" "$client" <<'PYTHON' || fail "the metrics are not of the format"
import re, sys
path, pid = sys.argv[1:]
sample = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)+\} [0-9]+$')
types, seen = {}, 0
for line in open(path):
    if line.startswith("# TYPE "):
        name, kind = line.split()[2:]
        assert name not in types and kind in ("counter", "gauge"), line
        types[name] = kind
    elif not line.startswith("# HELP "):
        match = sample.match(line)
        assert match and match[1] in types, line
        assert (types[match[1]] == "counter") == match[1].endswith("_total"), line
        seen += f'pid="{pid}"' in line
assert seen > 10
PYTHON
    "$weft" top --once >"$folder/look" && grep -q "RTS" "$folder/look" || fail "no table"
    # Another user, on a command that it may execute, sees nothing.
    if [[ $EUID -eq 0 ]] && command -v setpriv >/dev/null; then
      install -m 755 "$weft" "$folder/weft"
      chmod 755 "$folder"
      setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all "$folder/weft" top --once --json -p "$client" >"$folder/look"
      grep -q '"processes": \[\]' "$folder/look" || fail "another user reads the page"
    fi
  fi
  kill -9 "$client" "$server"
  wait "$client" "$server" 2>/dev/null || true
done

# --- WEFT_STATS ---
next_port
start server ib_write_bw -F -n 500 -s 4096 -p "$pair_port"
server=$last
eventually "$patience_s" is_listening "$pair_port" || fail "ib_write_bw does not listen"
start client env "WEFT_STATS=$folder/stats.json" ib_write_bw -F -n 500 -s 4096 -p "$pair_port" 127.0.0.1
wait "$last" || fail "ib_write_bw ends with $?"
wait "$server" || fail "the server of ib_write_bw ends with $?"
python3 - "$folder/stats.json" <<'PYTHON' || fail "WEFT_STATS"
import json, sys
[process] = json.load(open(sys.argv[1]))["processes"]
kinds = [o["kind"] for o in process["objects"]]
assert "device" in kinds and "queue_pair" in kinds, kinds
assert process["program"] == "ib_write_bw" and max(o.get("bytes_sent", 0) for o in process["objects"]) >= 500 * 4096
PYTHON

# --- nonsense: a page whose owner fills it with random bytes while it is read ---
cat >"$folder/liar.py" <<'PYTHON'
import fcntl, mmap, os, random, struct
fd = os.memfd_create("weft-statistics", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
os.ftruncate(fd, 1 << 20)
fcntl.fcntl(fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
page = mmap.mmap(fd, 1 << 20)
head = struct.pack("<QIIIIiI", 0x3154415453544657, 1, 4096, 512, 4294967295, os.getpid(), 0)
while True:
    page[: len(head)] = head
    at = random.randrange(40, 1 << 16)
    page[at : at + 512] = random.randbytes(512)
    if random.random() < 0.01:
        page[random.randrange(8, 32)] = random.randrange(256)

PYTHON
python3 "$folder/liar.py" &
started+=($!)
sleep 0.3
for _ in $(seq 30); do
  look
  python3 -c "import json; json.load(open('$folder/look'))" || fail "nonsense makes JSON that is none"
  "$weft" top --once >"$folder/table" || fail "nonsense ends the table"
  ! LC_ALL=C grep -q '[^[:print:]]' "$folder/table" || fail "a stranger's bytes reach the terminal"
done
kill -9 "${started[-1]}"

# --- from outside of a pid namespace: the numbers are those of the one who looks ---
if [[ $EUID -eq 0 ]] && unshare --pid --fork true 2>/dev/null; then
  next_port
  start server unshare --pid --fork --kill-child ib_write_bw -F -D 300 -s 4096 -p "$pair_port"
  outer=$last
  eventually "$patience_s" is_listening "$pair_port" || fail "ib_write_bw does not listen in a pid namespace"
  inner=$(pgrep -P "$outer" ib_write_bw)
  start client ib_write_bw -F -D 300 -s 4096 -p "$pair_port" 127.0.0.1
  eventually "$patience_s" shows "$inner" "o['kind'] == 'queue_pair'" || fail "a process in a pid namespace is not shown"
  kill -9 "$outer" "$last"
fi
echo "weft top: all seen"
