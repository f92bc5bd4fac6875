#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Open MPI over one provider: our walk through MPI with 2 to 4 ranks (8 over weft), one-sided both ways, threads, everything by btl ofi,
# NetPIPE and HPCC to the end.
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
# What Open MPI's mtl asks for; FI_REMOTE_COMM is what shm, which stays on one machine, cannot promise. Its btl does without.
offers() {  # offers CAPABILITIES
  answer="$(LD_LIBRARY_PATH="$compat" fi_info -p "$provider" -t FI_EP_RDM -c "$1" 2>&1)" &&
    [[ $'\n'"$answer"$'\n' == *$'\n'"provider: $provider"$'\n'* ]]
}
ways=(mtl btl)
if ! offers 'FI_TAGGED|FI_LOCAL_COMM|FI_REMOTE_COMM|FI_DIRECTED_RECV'; then
  offers 'FI_MSG|FI_RMA|FI_ATOMIC' || skip "$provider is not for MPI: $(tail -n 1 <<<"$answer")"
  ways=(btl)
fi
[[ $provider != *ofi_rxm* ]] || ways=(mtl)  # btl ofi leaves out whatever has ofi_rxm in its name

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

messages=(p2p probe traffic coll icoll types comms)  # not trunc: pml ob1 writes behind the end of a short receive
parts=("${messages[@]}" rma dynamic amo)
version="$(mpirun --version 2>/dev/null | sed -n 's/^mpirun (Open MPI) \([0-9]*\).*/\1/p')"
run() {  # run SECONDS WHAT [OPTION...] RANKS PROGRAM...: run.sh
  local limit="$1" name="$2" options=(); shift 2
  while [[ $1 == --* ]]; do
    if [[ $1 == --mca ]]; then options+=("$1" "$2" "$3"); shift 3; else options+=("$1" "$2"); shift 2; fi
  done
  expect "$limit" "$1 ranks, $name" "$here/run.sh" --quiet "${options[@]}" "$provider" "$@"
}

if [[ $what != programs && ${ways[0]} == mtl && ${version:-4} -ge 5 ]]; then
  for ranks in 2 4; do run 120 "messages" "$ranks" "$walk" "${messages[@]}"; done
  run 120 "two threads each" 2 "$walk" threads
  [[ $provider != weft ]] || run 240 "messages" 8 "$walk" "${messages[@]}"
elif [[ $what != programs && ${ways[0]} == mtl ]]; then
  rma=rdma
  [[ ${ways[*]} == *btl* ]] || rma=pt2pt
  for ranks in 2 4; do run 120 "one-sided by $rma" --rma "$rma" "$ranks" "$walk"; done
  run 120 "one-sided by messages" --rma pt2pt 3 "$walk"
  run 120 "two threads each" --rma pt2pt 2 "$walk" threads
  [[ $provider != weft ]] || run 240 "one-sided by $rma" --rma "$rma" 8 "$walk"
fi
if [[ $what != programs && ${ways[*]} == *btl* ]]; then
  run 120 "all by btl ofi" --way btl 2 "$walk" "${parts[@]}"
  # By its default osc rdma asks btl ofi for atomics that this does not know, and the job ends.
  run 120 "all operations" --way btl --mca osc_rdma_acc_use_amo 0 2 "$walk" ops
fi
[[ $what == programs || ${ways[0]} == mtl ]] || run 120 "all by btl ofi" --way btl 4 "$walk" "${parts[@]}"

if [[ $what != walk ]]; then
  cd "$work" || exit 1
  way=(--way "${ways[0]}" --rma pt2pt)
  if command -v NPopenmpi >/dev/null; then
    run 120 "NetPIPE, bytes checked" "${way[@]}" 2 NPopenmpi -i -n 10 -u 1048576 -o /dev/null
    run 120 "NetPIPE" "${way[@]}" 2 NPopenmpi -n 10 -u 4194304 -o /dev/null
  fi
  if command -v hpcc >/dev/null; then
    cp "$here/hpccinf.txt" hpccinf.txt
    if run 120 "HPCC" "${way[@]}" 2 hpcc; then
      grep -q '^Success=1' hpccoutf.txt || { echo "FAILED: HPCC does not say Success=1"; failures=$((failures + 1)); }
      ! grep -q 'FAILED' hpccoutf.txt || { echo "FAILED: HPCC's own checks:"; grep FAILED hpccoutf.txt; failures=$((failures + 1)); }
    fi
  fi
fi
exit $((failures > 0))
