#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Open MPI between two hosts: our walk with two ranks on each of two network namespaces that a pair of veth joins, each with a name and
# a /dev/shm of its own. mpirun reaches the other one by its agent (ssh elsewhere), which is this script too.
#
# usage: hosts_test.sh [PROVIDER...]
# Exit status 77: no mpirun, or namespaces cannot be made here.
set -uo pipefail
if [[ "${1:-}" == --agent ]]; then  # --agent HOST COMMAND: runs a line of shell on that host
  shift
  exec ip netns exec "$1" unshare --uts bash -c 'hostname "$0" && mount -t tmpfs none /dev/shm && eval "$1"' "$1" "${*:2}"
fi
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
walk="${WEFT_BUILD:?}/tests/mpi/walk"
skip() { echo "skipped: $*"; exit 77; }
command -v mpirun >/dev/null || skip "mpirun is not here (package openmpi-bin)"
[[ -x $walk ]] || skip "the MPI program is not built (package libopenmpi-dev)"
[[ -e "$WEFT_BUILD/lib/weft/compat/libfabric.so.1" ]] || skip "the drop-in is not built"
[[ -z "${WEFT_SANITIZE:-}" ]] || skip "Open MPI itself does not run clean under a sanitizer"
command -v ip unshare >/dev/null || skip "ip or unshare are not here (packages iproute2, util-linux)"

hosts=("weft-mpi-$$-a" "weft-mpi-$$-b") work="$(mktemp -d)" failures=0
cleanup() {
  ip netns del "${hosts[0]}" 2>/dev/null
  ip netns del "${hosts[1]}" 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' TERM
for i in 0 1; do ip netns add "${hosts[i]}" 2>"$work/err" || skip "no network namespaces here: $(cat "$work/err")"; done
ip -n "${hosts[0]}" link add veth0 type veth peer name veth0 netns "${hosts[1]}" 2>"$work/err" || skip "no veth here: $(cat "$work/err")"
for i in 0 1; do
  ip -n "${hosts[i]}" link set lo up
  ip -n "${hosts[i]}" link set veth0 up
  ip -n "${hosts[i]}" addr add "10.79.0.$((i + 1))/24" dev veth0
  echo "${hosts[i]} slots=4" >>"$work/hosts"
done
printf '#!/bin/bash\nexec bash %q --agent "$@"\n' "$here/$(basename "$0")" >"$work/agent"
chmod +x "$work/agent"
"$work/agent" "${hosts[0]}" true 2>"$work/err" || skip "no namespaces of names and mounts here: $(cat "$work/err")"

agent=plm_rsh_agent hostfile=orte_default_hostfile mapping=rmaps_base_mapping_policy
version="$(mpirun --version 2>/dev/null | sed -n 's/^mpirun (Open MPI) \([0-9]*\).*/\1/p')"
[[ ${version:-4} -lt 5 ]] || agent=plm_ssh_agent hostfile=prte_default_hostfile mapping=rmaps_default_mapping_policy
run() {  # run WHAT PROVIDER [OPTION of run.sh...] PART...
  local what="$1" provider="$2" status=0 begin=$SECONDS options=(); shift 2
  while [[ "${1:-}" == --* ]]; do options+=("$1" "$2"); shift 2; done
  local command=(timeout -k 5 180 "$here/run.sh" --quiet "${options[@]}" --mca "$agent" "$work/agent"
                 --mca "$hostfile" "$work/hosts" --mca "$mapping" node "$provider" 4 "$walk" "$@")
  "$work/agent" "${hosts[0]}" "$(printf '%q ' "${command[@]}")" >"$work/out" 2>"$work/err" </dev/null || status=$?
  if [[ $status -eq 0 ]]; then
    echo "ok: $provider between two hosts, $what ($((SECONDS - begin)) s): $(tail -n 1 "$work/out")"
  else
    echo "FAILED: $provider between two hosts, $what: status $status after $((SECONDS - begin)) s"
    tail -n 20 "$work/out" "$work/err"
    failures=$((failures + 1))
  fi
}

# Not dynamic: between hosts Open MPI 4.1 waits for ever for the lock of a dynamic window, over any libfabric.
parts=(p2p trunc probe traffic coll icoll types comms rma amo)
providers=("$@")
[[ ${#providers[@]} -gt 0 ]] || providers=(weft tcp "udp;ofi_rxd" "tcp;ofi_rxm")
for provider in "${providers[@]}"; do
  if [[ ${version:-4} -ge 5 ]]; then  # no windows beside mtl ofi (run.sh)
    run messages "$provider" p2p probe traffic coll icoll types comms
    [[ $provider == *ofi_rxm* ]] || run "all by btl ofi" "$provider" --way btl p2p probe traffic coll icoll types comms rma amo
    continue
  fi
  [[ $provider == *ofi_rxm* ]] || run "one-sided by rdma" "$provider" --rma rdma "${parts[@]}"
  [[ $provider != weft && $provider != *ofi_rxm* ]] || run "one-sided by messages" "$provider" --rma pt2pt
done
exit $((failures > 0))
