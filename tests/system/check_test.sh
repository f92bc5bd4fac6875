#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# `weft check`: a provider of ours shows what it claims; one that lies, crashes and hangs is told by name and the others go on; plugins that cannot be
# used, names that nobody has, and the system's library.
set -uo pipefail
build="${WEFT_BUILD:?}"
weft="$build/bin/weft"
plugins="$build/tests/system/plugins"
[[ -x "$weft" && -x "$build/libexec/weft/weft_conformance" && -e "$build/lib/weft/compat/libfabric.so.1" ]] || { echo "not built"; exit 77; }
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "crashes on purpose: not under a sanitizer"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "FAILED: $*"; tail -n 40 "$work/out" "$work/err" 2>/dev/null; failures=$((failures + 1)); }
expect() {
  local wanted="$1" got=0; shift
  timeout -k 2 120 "$@" >"$work/out" 2>"$work/err" || got=$?
  [[ $got -eq $wanted ]] || fail "status $got, not $wanted, of: $*"
}
says() { grep -qE -- "$1" "$work/out" "$work/err" || fail "nothing about '$1'"; }
says_not() { ! grep -qE -- "$1" "$work/out" "$work/err" || fail "something about '$1'"; }

echo "-- every case stands in the table"
expect 0 "$weft" check --list
says '^FI_TAGGED \(fi_tagged\(3\)\)$'
says_not 'in no table'

echo "-- ours, as JSON"
expect 0 "$weft" check --format json shm
python3 - "$work/out" <<'END' || fail "the JSON of shm"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["all_claims_shown"] and report["provider"] == "shm"
lines = {line["capability"]: line for line in report["endpoint_types"]["FI_EP_RDM"]["capabilities"]}
assert lines["FI_TAGGED"]["claimed"] == "yes" and lines["FI_TAGGED"]["shown"] >= 10 and not lines["FI_TAGGED"]["broken"]
verdicts = {v["verdict"]: v for v in report["verdicts"]}
assert verdicts["runs Open MPI btl"]["yes"] and not verdicts["runs Open MPI mtl"]["yes"]
assert any("FI_REMOTE_COMM" in reason for reason in verdicts["runs Open MPI mtl"]["reasons"])
END

echo "-- a part: connected endpoints of tcp, and only what is named"
expect 0 "$weft" check --type msg --only 'FI_EP_MSG,Messages.every_size*' tcp
says '^FI_EP_MSG '
says_not 'FI_EP_RDM|^runs |^serves '

echo "-- one that lies, crashes and hangs"
expect 1 "$weft" check --case-time 2 --wait-time 500 --only 'FI_TAGGED,fi_cancel,FI_MSG,Peeked.miss*' "$plugins/liar-fi.so"
says '^  FI_TAGGED .* yes .*[1-9][0-9]* of [1-9]'
says 'Tagged.every_size_expected.*: byte 512 of 1024 is wrong'
says 'Tagged.vectors_and_msg_calls.*: crashed: the process was ended by SIGSEGV'
says 'Peeked.miss.*: hung: a call did not return'
says 'TaggedRecv.cancel__.*: '
says 'of what is claimed, [1-9] broken'
grep -qE '^  FI_MSG +yes +([0-9]+) of \1$' "$work/out" || fail "what works is not shown"

echo "-- one that demands registration of local buffers, and regions that belong to endpoints"
for demand in local endpoint both; do
  cases='FI_MSG,FI_TAGGED,FI_RMA,memory regions'
  [[ $demand != local ]] || cases+=',FI_ATOMIC,EndpointOptions.alias*'
  WEFT_DEMANDING=$demand expect 0 "$weft" check --type rdm --only "$cases" "$plugins/demanding-fi.so"
  for capability in FI_MSG FI_TAGGED FI_RMA 'memory regions'; do
    grep -qE "^  $capability +yes +([1-9][0-9]*) of \1\$" "$work/out" || fail "$capability with $demand is not shown"
  done
done
expect 1 "$weft" check --for ompi-btl "$plugins/demanding-fi.so"
says 'not offered: .*no FI_MR_LOCAL'

echo "-- what cannot be checked"
expect 2 "$weft" check nobody
says 'does not offer nobody; it has: .*shm'
expect 2 "$weft" check
says 'which provider'
expect 2 "$weft" check --only no_such_thing shm
says 'no capability and no case is named so'
expect 2 "$weft" check --only 'FI_TAGGED,FI_PEKK' shm
says 'FI_PEKK: no capability and no case is named so'
expect 2 "$weft" check --only ' , ' shm
says 'names nothing'
expect 2 "$weft" check --only FI_EP_MSG shm
says 'no endpoints that these cases are about'
expect 0 "$weft" check --only 'FI_PEEK' shm
expect 2 "$weft" check ./nowhere-fi.so
says 'there is no such file'
echo "no library" >"$work/text-fi.so"
expect 2 "$weft" check "$work/text-fi.so"
says 'text-fi.so cannot be used: .*(invalid ELF header|file too short)'
expect 2 "$weft" check "$plugins/no_entry-fi.so"
says 'has no fi_prov_ini'
expect 2 "$weft" check "$plugins/missing_symbol-fi.so"
says 'undefined symbol'
expect 2 "$weft" check "$plugins/old_interface-fi.so"
says 'does not offer'
printf 'no library' >"$work/libfabric.so.1"
expect 2 "$weft" check --library "$work/libfabric.so.1" shm
says 'cannot be used: .*(invalid ELF header|file too short)'
expect 2 "$weft" check --stock --library "$build/lib/weft/compat/libfabric.so.1" shm

echo "-- one purpose alone"
expect 0 "$weft" check --for ompi-btl shm
says '^runs Open MPI btl +yes$'
says_not 'runs Open MPI mtl|FI_TAGGED'
expect 1 "$weft" check --for ompi-mtl shm
says 'not offered: FI_LOCAL_COMM and FI_REMOTE_COMM'
expect 1 "$weft" check --for rxd shm
says 'FI_EP_DGRAM is not offered'
expect 2 "$weft" check --for something shm
says 'there are ompi-mtl'
expect 2 "$weft" check --for rxm --only FI_MSG tcp

echo "-- what hinders the check is no answer"
mkdir -p "$work/bin" "$work/libexec/weft" "$work/lib"
cp "$weft" "$work/bin/weft"
ln -s "$build/lib/weft" "$work/lib/weft"
expect 3 "$work/bin/weft" check shm
says 'weft_conformance is not there'
printf '#!/bin/sh\nexit 9\n' >"$work/libexec/weft/weft_conformance"
chmod +x "$work/libexec/weft/weft_conformance"
expect 3 "$work/bin/weft" check shm
says 'cannot say what it has'
printf '#!/bin/sh\n[ "$1" = --gtest_list_tests ] || exit 127\necho Tagged.; echo "  one"\n' >"$work/libexec/weft/weft_conformance"
expect 3 "$work/bin/weft" check shm
says 'exited with status 127'
[[ ! -s "$work/out" ]] || fail "a verdict without a case"

echo "-- another library, by its file"
expect 0 "$weft" check --library "$build/lib/weft/compat/libfabric.so.1" --only 'FI_MULTI_RECV' loopback
if command -v fi_info >/dev/null; then
  echo "-- the system's"
  expect 0 "$weft" check --stock --type rdm --only 'Messages.every_size*' sockets
  says '^sockets '
fi
exit $((failures > 0))
