#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What `weft check` says a provider is good enough for, beside what happens: Open MPI over it (tests/mpi/walk by mtl ofi; its windows with everything
# by btl ofi), and fi_pingpong over the system's rxm and rxd on top of it. They must say the same.
#
# WEFT_CHECK_VERDICTS=all  every provider of the system's libfabric and of ours (10 to 20 minutes), not a few fast ones
# WEFT_CHECK_VERDICTS_TO   a file that gets a line for each: LIBRARY<tab>PROVIDER<tab>VERDICT<tab>yes or no<tab>what the run did
#                          (scripts/check_tables.py reads it)
set -uo pipefail
build="${WEFT_BUILD:?}"
# The system's tcp;ofi_rxm takes an interface that has a link-local IPv6 address only where one is there (a container's veth), and then no
# message leaves: fi_tinjectdata ends with EINVAL.
export FI_TCP_IFACE=lo FI_SOCKETS_IFACE=lo
tests="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# The system's shm calls its region in /dev/shm after the process number and leaves it there when Open MPI over it ends badly; a later process
# that is given the same number finds the file and its endpoint fails. So this test has a /dev/shm of its own where it may.
if [[ -z "${WEFT_TEST_OWN_SHM:-}" ]] && unshare -m mount -t tmpfs none /dev/shm 2>/dev/null; then
  # shellcheck disable=SC2016  # for the other shell
  WEFT_TEST_OWN_SHM=yes exec unshare -m sh -c 'mount -t tmpfs none /dev/shm && exec "$@"' - bash "${BASH_SOURCE[0]}" "$@"
fi
weft="$build/bin/weft" walk="$build/tests/mpi/walk"
[[ -x "$weft" && -x "$build/libexec/weft/weft_conformance" && -e "$build/lib/weft/compat/libfabric.so.1" ]] || { echo "not built"; exit 77; }
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "runs the system's programs: not under a sanitizer"; exit 77; }
command -v fi_pingpong >/dev/null || { echo "fi_pingpong is not here"; exit 77; }
source "$tests/../pair.sh"
work="$(mktemp -d)"
trap 'end_pair; rm -rf "$work"' EXIT
failures=0 pair_limit=40
[[ -z "${WEFT_CHECK_VERDICTS_TO:-}" ]] || : >"$WEFT_CHECK_VERDICTS_TO"

ended() {  # what a status means
  case "$1" in
    124 | 137) echo "hangs" ;;
    139 | 134 | 135) echo "crashes" ;;
    *) echo "fails" ;;
  esac
}

# mpi SECONDS LIBRARY PROVIDER OPTION... PARTS...: the walk, each argument a run; "yes", or what it did first.
mpi() {
  local limit="$1" library=() provider="$3" options=() part status
  [[ $2 == ours ]] || library=(--stock)
  shift 3
  while [[ $1 == --* ]]; do options+=("$1" "$2"); shift 2; done
  for part in "$@"; do
    status=0
    # shellcheck disable=SC2086  # parts are words
    timeout -k 3 "$limit" "$tests/../mpi/run.sh" --quiet "${library[@]}" "${options[@]}" "$provider" 2 "$walk" $part \
      >"$work/run" 2>&1 </dev/null || status=$?
    [[ $status -eq 0 ]] && continue
    if [[ $status -eq 3 ]] || grep -qE 'unreachable|No components were able|PML cm cannot be selected' "$work/run"; then
      echo "not taken"
    else
      echo "$(ended "$status") in $part"
    fi
    return
  done
  echo yes
}

# pingpong LIBRARY PROVIDER LAYER: both sides with checked bytes, over the layer of the system's library; a provider of ours comes as a plugin.
pingpong() {
  local name="$2;$3" folders="" size status
  [[ $1 == stock ]] || { name="weft_$name"; folders="$build/lib/weft/plugin"; }
  for size in "${pingpong_sizes[@]}"; do
    status=0
    FI_PROVIDER_PATH="$folders" pair 127.0.0.1 -p "$name" -e rdm -I 20 -S "$size" -c || status=$?
    tell_pair >"$work/run"
    [[ $status -eq 0 ]] || { [[ $size -eq ${pingpong_sizes[0]} && $(ended "$status") == fails ]] && echo "not taken" || echo "$(ended "$status") at $size bytes"; return; }
  done
  echo yes
}

run() {  # run LIBRARY PROVIDER VERDICT
  case "$3" in
    ompi-*)
      if ! command -v mpirun >/dev/null || [[ ! -x $walk ]]; then
        echo "not run"
      elif [[ $3 == ompi-mtl ]]; then
        mpi 60 "$1" "$2" --way mtl --rma pt2pt "${mtl_parts[@]}"
      else
        mpi 150 "$1" "$2" --way btl "${btl_parts[@]}"
      fi
      ;;
    mpich) echo "not run" ;;  # Debian's is built for UCX
    *) if [[ $2 == *\;* || ($1 == ours && $2 != tcp && $2 != udp) ]]; then echo "not run"; else pingpong "$1" "$2" "ofi_$3"; fi ;;
  esac
}

compare() {  # compare LIBRARY PROVIDER VERDICT...
  local library="$1" provider="$2" option=() verdict says status did; shift 2
  [[ $library == ours ]] || option=(--stock)
  for verdict in "$@"; do
    status=0
    timeout -k 2 300 "$weft" check "${option[@]}" --for "$verdict" "$provider" >"$work/said" 2>&1 || status=$?
    case $status in
      0) says=yes ;;
      1) says=no ;;
      *) echo "FAILED: weft check ${option[*]} --for $verdict '$provider': status $status"; cat "$work/said"; failures=$((failures + 1)); continue ;;
    esac
    # A program would find another provider whose name begins like this one.
    if grep -q 'FI_EP_[A-Z]* is not offered' "$work/said"; then did="not run"; else did="$(run "$library" "$provider" "$verdict")"; fi
    echo "$library $provider, $verdict: weft check says $says, the run: $did"
    [[ -z "${WEFT_CHECK_VERDICTS_TO:-}" ]] || printf '%s\t%s\t%s\t%s\t%s\n' "$library" "$provider" "$verdict" "$says" "$did" >>"$WEFT_CHECK_VERDICTS_TO"
    if [[ $did != "not run" && "$([[ $did == yes ]] && echo yes || echo no)" != "$says" ]]; then
      echo "FAILED: they differ"
      grep -A6 -E '^(runs|serves) ' "$work/said"
      tail -n 15 "$work/run"
      failures=$((failures + 1))
    fi
  done
}

if [[ "${WEFT_CHECK_VERDICTS:-}" == all ]]; then
  mtl_parts=(p2p probe traffic coll icoll types comms) btl_parts=(rma dynamic amo) pingpong_sizes=(64 4096 1048576)
  for provider in tcp 'tcp;ofi_rxm' net shm udp 'udp;ofi_rxd' sockets; do compare stock "$provider" ompi-mtl ompi-btl mpich rxm rxd; done
  for provider in weft shm tcp 'tcp;ofi_rxm' udp 'udp;ofi_rxd'; do compare ours "$provider" ompi-mtl ompi-btl mpich rxm rxd; done
else
  mtl_parts=("p2p probe comms") btl_parts=("rma amo") pingpong_sizes=(65536)
  compare stock 'tcp;ofi_rxm' ompi-mtl ompi-btl
  compare stock shm ompi-btl
  compare stock tcp rxm
  compare stock udp rxd
  compare ours shm ompi-mtl ompi-btl
  compare ours tcp rxm
fi
exit $((failures > 0))
