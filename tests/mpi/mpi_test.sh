#!/usr/bin/env bash
# Open MPI over one provider: our walk through MPI with 2 to 4 ranks, one-sided both ways, threads, NetPIPE and HPCC to the end.
#
# usage: mpi_test.sh PROVIDER [walk|programs|all]   udp_ofi_rxd is "udp;ofi_rxd", for tools that cannot write the semicolon
# Exit status 77: no mpirun, or the provider is not one that Open MPI takes.
set -uo pipefail
provider="${1:?usage: mpi_test.sh PROVIDER [walk|programs|all]}"
provider="${provider/_ofi_/;ofi_}" what="${2:-all}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
walk="${WEFT_BUILD:?}/tests/mpi/walk" compat="$WEFT_BUILD/lib/weft/compat"
skip() { echo "skipped: $*"; exit 77; }
command -v mpirun >/dev/null || skip "mpirun is not here (package openmpi-bin)"
[[ -x $walk ]] || skip "the MPI program is not built (package libopenmpi-dev)"
[[ -e $compat/libfabric.so.1 ]] || skip "the drop-in is not built"
[[ -z "${WEFT_SANITIZE:-}" ]] || skip "Open MPI itself does not run clean under a sanitizer"
# What Open MPI's mtl asks for; FI_REMOTE_COMM is what shm, which stays on one machine, cannot promise.
answer="$(LD_LIBRARY_PATH="$compat" fi_info -p "$provider" -t FI_EP_RDM \
  -c 'FI_TAGGED|FI_LOCAL_COMM|FI_REMOTE_COMM|FI_DIRECTED_RECV' 2>&1)" || skip "$provider is not for MPI: $(tail -n 1 <<<"$answer")"
[[ $'\n'"$answer"$'\n' == *$'\n'"provider: $provider"$'\n'* ]] || skip "this build has no provider $provider"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
failures=0
# expect SECONDS WHAT COMMAND...: ends in time, with status 0.
expect() {
  local limit="$1" name="$2" status=0 begin=$SECONDS; shift 2
  timeout -k 5 "$limit" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
  if [[ $status -ne 0 ]]; then
    echo "FAILED: $name: status $status after $((SECONDS - begin)) s$([[ $status -ne 124 ]] || echo ': it hung')"
    tail -n 25 "$work/out" "$work/err"
    failures=$((failures + 1))
    return 1
  fi
  echo "ok: $name ($((SECONDS - begin)) s): $(tail -n 1 "$work/out")"
}

# btl ofi leaves out whatever has ofi_rxm in its name.
rma=rdma
[[ $provider != *ofi_rxm* ]] || rma=pt2pt
if [[ $what != programs ]]; then
  for ranks in 2 4; do
    expect 120 "$ranks ranks, one-sided by $rma" "$here/run.sh" --rma "$rma" "$provider" "$ranks" "$walk"
  done
  expect 120 "3 ranks, one-sided by messages" "$here/run.sh" --rma pt2pt "$provider" 3 "$walk"
  expect 60 "2 ranks, two threads each" "$here/run.sh" --rma pt2pt "$provider" 2 "$walk" threads
fi

if [[ $what != walk ]]; then
  cd "$work"
  if command -v NPopenmpi >/dev/null; then
    expect 60 "NetPIPE, bytes checked" "$here/run.sh" --rma pt2pt "$provider" 2 NPopenmpi -i -n 10 -u 1048576 -o /dev/null
    expect 60 "NetPIPE" "$here/run.sh" --rma pt2pt "$provider" 2 NPopenmpi -n 10 -u 4194304 -o /dev/null
  fi
  if command -v hpcc >/dev/null; then
    cp "$here/hpccinf.txt" hpccinf.txt
    if expect 120 "HPCC" "$here/run.sh" --rma pt2pt "$provider" 2 hpcc; then
      grep -q '^Success=1' hpccoutf.txt || { echo "FAILED: HPCC does not say Success=1"; failures=$((failures + 1)); }
      ! grep -q 'FAILED' hpccoutf.txt || { echo "FAILED: HPCC's own checks:"; grep FAILED hpccoutf.txt; failures=$((failures + 1)); }
    fi
  fi
fi
exit $((failures > 0))
