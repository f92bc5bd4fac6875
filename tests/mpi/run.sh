#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Runs an MPI program (Open MPI 4.1 or 5) over one of Weft's providers. It knows mpirun's flags, so that no other script has to.
#
# usage: run.sh [OPTION]... PROVIDER RANKS PROGRAM [ARGUMENT...]
#   PROVIDER     weft, tcp, shm, "udp;ofi_rxd", "tcp;ofi_rxm", "verbs;ofi_rxm"; or "own": Open MPI's own transports, for comparison
#   --way WAY    mtl (pml cm, mtl ofi: the provider matches tags; the default) or btl (pml ob1, btl ofi: Open MPI matches; also over shm)
#   --rma WAY    one-sided over: rdma (btl ofi: fi_write, fi_read, atomics of the provider; the default), pt2pt (messages),
#                or auto (what Open MPI chooses; for ranks on one machine that is memory of its own). Open MPI 5 has no windows beside
#                mtl ofi, over any libfabric, but those of shared memory by MPI_Win_allocate; it has no pt2pt either. There it is auto.
#   --stock      the system's libfabric instead of Weft
#   --mca K V    one more of mpirun's parameters
#   --bind       a core for each rank (measuring); without it ranks are not bound and yield the core when idle
#   --quiet      do not say which provider Open MPI took
#
# Exit status: the program's; 77 when mpirun is not there; 3 when Open MPI did not take the provider.
set -uo pipefail
way=mtl rma=rdma library=ours bind=no quiet=no extra=()
while [[ "${1:-}" == --* ]]; do
  case "$1" in
    --way) way="$2"; shift 2 ;;
    --rma) rma="$2"; shift 2 ;;
    --stock) library=stock; shift ;;
    --mca) extra+=(--mca "$2" "$3"); shift 3 ;;
    --bind) bind=yes; shift ;;
    --quiet) quiet=yes; shift ;;
    *) echo "run.sh: no option $1" >&2; exit 2 ;;
  esac
done
[[ $# -ge 3 ]] || { sed -n '4,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
provider="$1" ranks="$2"; shift 2
command -v mpirun >/dev/null || { echo "mpirun is not here (package openmpi-bin)"; exit 77; }
version="$(mpirun --version 2>/dev/null | sed -n 's/^mpirun (Open MPI) \([0-9]*\).*/\1/p')"
[[ ${version:-4} -lt 5 || ($way == btl && $rma == rdma) ]] || rma=auto

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
compat="${WEFT_BUILD:-$here/../../build/release}/lib/weft/compat"
flags=(--oversubscribe -np "$ranks" --mca btl_base_warn_component_unused 0)
[[ $EUID -ne 0 ]] || flags+=(--allow-run-as-root)
if [[ $bind == yes ]]; then flags+=(--bind-to core); else flags+=(--bind-to none --mca mpi_yield_when_idle 1); fi

if [[ $provider == own ]]; then
  [[ $rma != pt2pt ]] || flags+=(--mca osc pt2pt)
  exec mpirun "${flags[@]}" "${extra[@]}" "$@"
fi

if [[ $library == ours ]]; then
  [[ -e $compat/libfabric.so.1 ]] || { echo "the drop-in is not built: $compat" >&2; exit 77; }
  flags+=(-x "LD_LIBRARY_PATH=$compat${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
fi
# Open MPI compares beginnings, so "tcp" would also take "tcp;ofi_rxm"; FI_PROVIDER does not tell these apart either, but the one
# that is named stands first in fi_getinfo's answer. Which it took is in what it says at this level.
flags+=(--mca opal_common_ofi_verbose 1)
case "$way" in
  mtl) flags+=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include "$provider") ;;
  btl) flags+=(--mca pml ob1 --mca btl ofi,self --mca btl_ofi_mode 2 --mca btl_ofi_provider_include "$provider") ;;  # 2: messages too
  *) echo "run.sh: --way mtl or btl" >&2; exit 2 ;;
esac
case "$way $rma" in
  "mtl rdma") flags+=(--mca btl ofi,self --mca btl_ofi_provider_include "$provider" --mca osc rdma --mca osc_rdma_btls ofi) ;;
  "btl rdma") flags+=(--mca osc rdma --mca osc_rdma_btls ofi) ;;
  "mtl pt2pt") flags+=(--mca btl self --mca osc pt2pt) ;;
  "btl pt2pt") flags+=(--mca osc pt2pt) ;;
  *" auto") ;;
  *) echo "run.sh: --rma rdma, pt2pt or auto" >&2; exit 2 ;;
esac
said="$(mktemp)"
trap 'rm -f "$said"' EXIT
status=0
# Not shown: what the flag above makes it say, and the advice of Open MPI 5, between two rules, to bind ranks where libfabric lists several interfaces.
mpirun "${flags[@]}" "${extra[@]}" "$@" 2> >(tee "$said" | sed -u -e 's/\x00//g' \
  -e '/^--*$/{N;/detected multiple NICs/!{P;D};:more;N;/\n--*$/!b more;d}' \
  -e '/common_ofi\|common-ofi\|mtl_ofi_component\|mtl:ofi\|btl:ofi\|btl_ofi_component/d' >&2) || status=$?
wait
taken="$(sed -n 's/.*mtl:ofi:prov\(ider\)\?: //p' "$said" | sort -u | paste -sd' ')"  # the btl does not say it
[[ -z $taken || $quiet == yes ]] || echo "run.sh: Open MPI took $taken" >&2
if [[ $status -eq 0 && $way == mtl && $taken != "$provider" ]]; then
  echo "run.sh: Open MPI did not take $provider but ${taken:-none}" >&2
  status=3
fi
exit "$status"
