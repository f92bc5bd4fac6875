#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Open MPI over Weft prints nothing of Weft when all goes well, with the settings of docs/mpi.md and no FI_LOG_LEVEL.
set -uo pipefail
compat="${WEFT_BUILD:?}/lib/weft/compat" source="${WEFT_SOURCE:?}"
command -v mpirun >/dev/null && command -v mpicc >/dev/null || { echo "mpirun is not here (packages openmpi-bin, libopenmpi-dev)"; exit 77; }
[[ -e "$compat/libfabric.so.1" ]] || { echo "the drop-in is not built"; exit 77; }
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "Open MPI itself does not run clean under a sanitizer"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
unset FI_PROVIDER FI_LOG_LEVEL WEFT_CONFIG
mpicc "$source/examples/mpi/ring.c" -o "$work/ring" || exit 1
failures=0
flags=(--oversubscribe -np 2 --bind-to none --mca mpi_yield_when_idle 1 -x "LD_LIBRARY_PATH=$compat")
[[ $EUID -ne 0 ]] || flags+=(--allow-run-as-root)
# silent [VARIABLE=VALUE] FLAG...
silent() {
  local set=()
  if [[ $1 == *=* ]]; then set=("$1"); shift; fi
  env "${set[@]}" LD_LIBRARY_PATH="$compat" timeout -k 5 120 mpirun "${flags[@]}" "$@" "$work/ring" >"$work/out" 2>"$work/err" </dev/null
  local status=$?
  if [[ $status -ne 0 ]] || grep -q '^weft:' "$work/err"; then
    echo "FAILED: status $status: ${set[*]} $*"
    cat "$work/err"
    failures=$((failures + 1))
  fi
}
mtl=(--mca pml cm --mca mtl ofi)
btl=(--mca pml ob1 --mca btl "ofi,self" --mca btl_ofi_mode 2)
for provider in weft tcp 'udp;ofi_rxd' 'tcp;ofi_rxm'; do silent "${mtl[@]}" --mca mtl_ofi_provider_include "$provider"; done
for provider in weft tcp shm; do silent "${btl[@]}" --mca btl_ofi_provider_include "$provider"; done
silent FI_PROVIDER=weft "${mtl[@]}"
silent FI_PROVIDER=weft --mca mtl ofi --mca btl ofi,self,vader
silent FI_PROVIDER=tcp --mca mtl ofi --mca btl ofi,self,vader
silent --mca mtl ofi --mca btl ofi,self,vader
silent FI_PROVIDER=shm --mca mtl ofi --mca btl ofi,self,vader
silent FI_PROVIDER=shm
[[ $failures -eq 0 ]] && echo "quiet_mpi_test: ok"
exit $((failures > 0))
