#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The demonstration: programs as the distribution ships them run over Weft, then the same measurement on Weft and on the stock
# library, in turns. Called by `./dev demo`; needs the staged tree. Exit status 0 only when all of it ran.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
stage="${WEFT_STAGE:-$PWD/build/stage}"
weft="$stage/bin/weft"
source tests/pair.sh
work="$(mktemp -d)"
rounds="${WEFT_DEMO_ROUNDS:-5}"

trap 'end_pair; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

die() { printf 'demo: %s\n' "$*" >&2; exit 1; }
title() { printf '\n== %s\n' "$*"; }

[[ -x "$weft" ]] || die "no $weft; run ./dev build first"
[[ -e "$stage/lib/weft/compat/libfabric.so.1" ]] || die "no drop-in library in $stage"
command -v fi_info fi_pingpong >/dev/null || die "fi_info and fi_pingpong are missing (package libfabric-bin)"

title "the programs, unmodified: $(command -v fi_info), $(command -v fi_pingpong)"
"$weft" run -- ldd "$(command -v fi_pingpong)" 2>/dev/null | grep 'libfabric\.so\.1' | sed "s|$PWD/||" || true

title "weft run -- fi_info -p shm"
timeout 30 "$weft" run -- fi_info -p shm >"$work/info" || die "fi_info ended with status $?"
cat "$work/info"
grep -q '^provider: *shm' "$work/info" || die "fi_info lists no provider shm"

pingpong() {  # pingpong PROVIDER OPTIONS...: server in the background, client here, both unmodified
  local status=0
  run=("$weft" run --)
  pair 127.0.0.1 -p "$1" -e rdm "${@:2}" || status=$?
  [[ $status -eq 0 ]] || { tell_pair; die "fi_pingpong over $1 ended with status $status"; }
  cat "$pair_folder"/client.{out,err}
}

title "weft run -- fi_pingpong -p shm -e rdm -c -S all   (messages, data checked)"
pingpong shm -c -S all
title "weft run -- fi_pingpong -p shm -e rdm -m tagged -S 1024 -I 20000"
pingpong shm -m tagged -S 1024 -I 20000
for network in tcp "udp;ofi_rxd"; do
  title "weft run -- fi_pingpong -p '$network' -e rdm -c -S all   (over the network, data checked)"
  pingpong "$network" -c -S all
done

if command -v ib_write_bw ib_send_lat ibv_devices >/dev/null; then
  title "weft run -- ibv_devices   (there is no RDMA hardware, no module and no /dev/infiniband)"
  "$weft" run -- ibv_devices || die "ibv_devices ended with status $?"
  library="$stage/lib/weft/compat" user=() pair_limit=60
  source tests/verbs/pairs.sh
  for program in "ib_write_bw -F" "ib_send_lat -F -s 8"; do
    title "$program   (perftest over RoCEv2 in software, two processes)"
    # shellcheck disable=SC2086  # a program with options
    verbs_pair 127.0.0.1 $program || { tell_pair; die "$program ended with status $?"; }
    grep -E '^ *#bytes|^ [0-9]' "$pair_folder/client.out"
  done
fi

if command -v mpicc mpirun >/dev/null; then
  title "mpicc examples/mpi/ring.c, and mpirun over weft, tcp and udp;ofi_rxd"
  mpicc -O2 examples/mpi/ring.c -o "$work/ring" || die "mpicc ended with status $?"
  for network in weft tcp "udp;ofi_rxd"; do
    printf '%-12s ' "$network"
    WEFT_BUILD="$stage" timeout 120 tests/mpi/run.sh --quiet "$network" 2 "$work/ring" || die "mpirun over $network ended with status $?"
  done
  printf '%-12s ' "Open MPI's own"
  timeout 120 tests/mpi/run.sh own 2 "$work/ring" || die "mpirun over Open MPI's own transports ended with status $?"
fi

title "weft perf, in turns on Weft and on the stock library, $rounds rounds"
measure() {  # measure NAME ROUND NETWORK PROVIDER OPTION...: each test with the sizes that say something
  local name="$1" round="$2" network="$3" provider="$4" what tests sizes; shift 4
  for what in tagged-pingpong:8,64k,1m tagged-rate:8 tagged-bw:64k,1m; do
    tests="${what%%:*}" sizes="${what#*:}"
    timeout 120 "$weft" perf "$@" --provider "$provider" --tests "$tests" --sizes "$sizes" --repeat 3 --time 30 \
      --format json --output "$work/$name.$network.$round.$tests.json" >"$work/perf.log" 2>&1 && continue
    rm -f "$work/$name.$network.$round.$tests.json"
    [[ $name == weft ]] || { echo "the stock $provider did not get through $tests"; continue; }
    tail -n 30 "$work/perf.log" >&2
    die "weft perf ($name, $provider, $tests) ended badly"
  done
}
# The stock tcp of 1.x has no RDM endpoints. Its successor net has, which became tcp in 2.0.
stock_tcp=net
fi_info -p net -t FI_EP_RDM >/dev/null 2>&1 || stock_tcp=tcp
for round in $(seq "$rounds"); do
  for pair in shm=shm tcp="$stock_tcp" "udp;ofi_rxd=udp;ofi_rxd"; do
    network="${pair%%=*}"
    measure weft "$round" "$network" "$network"
    measure stock "$round" "$network" "${pair#*=}" --stock
  done
  printf 'round %d of %d done\n' "$round" "$rounds"
done

title "medians over $rounds rounds, two processes$([[ "$(nproc)" -ge 2 ]] && echo ", pinned to a core each")"
python3 scripts/compare.py "$work" weft stock
[[ $stock_tcp == tcp ]] || echo "the stock library is measured with its $stock_tcp in the rows of tcp"
