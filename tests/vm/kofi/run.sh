#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The modules of kernel/ in a virtual machine: builds them, boots, runs the cases, prints one table (docs/kofi.md, "Tests").
# usage: run.sh [CASE...] (cases.txt). Environment: as ../run.sh; without WEFT_STAGE build/stage, if it is there.
# WEFT_VM_DEBUG_KERNEL=1: on a kernel that checks itself, with allocations that fail (docs/kofi.md, "The debug kernel"); it is built in
# WEFT_VM_DEBUG_FOLDER. WEFT_VM_KERNEL: as kernel.sh; without the cases that need a mended rxe, which is 6.1's.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
repository="$(cd "$here/../../.." && pwd)"
folder="${WEFT_VM_LOGS:?}"
debug="${WEFT_VM_DEBUG_KERNEL:-}"
timeout_s="${WEFT_VM_TIMEOUT_S:-$([[ -z "$debug" ]] && echo 1800 || echo 5400)}"
[[ -z "$debug" ]] || folder="$folder/debug"
logs="$folder/kofi/logs"

over_mended='loss|loss-bare|queue-bare'   # these make their devices with a mended rxe; ./dev installs the source for the same
cases=("$@")
if [[ ${#cases[@]} -eq 0 ]]; then
  mapfile -t cases < <(sed -n 's/^\([a-z][a-z0-9_-]*\) .*/\1/p' "$here/cases.txt" | grep -vE '^(bench|loss-bare|queue-bare|connect-bare)$' |
    grep -vE "^(${WEFT_VM_KERNEL:+$over_mended})\$")
fi
bash "$here/../names.sh" "$here/cases.txt" "${cases[@]}"
if [[ -n "${WEFT_VM_KERNEL:-}" && " ${cases[*]} " =~ " "($over_mended)" " ]]; then
  echo "vm: ${BASH_REMATCH[1]} needs a mended rxe, of which the source is that of 6.1 (docs/kofi.md, \"Faults of rxe\")" >&2
  exit 2
fi

mkdir -p "$folder"
if [[ -n "$debug" ]]; then
  cache="${WEFT_VM_DEBUG_FOLDER:-$folder/cache}"
  bash "$here/debug/kernel.sh" "$cache"
  ln -sfn "$(cd "$cache" && pwd)" "$folder/kernel"
  headers="$folder/kernel/build"
elif [[ -n "${WEFT_VM_KERNEL:-}" ]]; then
  bash "$here/../kernel.sh" "$folder/kernel"
  export WEFT_VM_ROOT="$folder"
  headers="/lib/modules/$(cat "$folder/kernel/version")/build"
else
  bash "$here/../kernel.sh" "$folder/kernel"
  bash "$here/headers.sh" "$folder/headers" "$(cat "$folder/kernel/version")"
  headers="$folder/headers/build"
fi
kernel_version="$(cat "$folder/kernel/version")"
[[ " ${cases[*]} " != *" walk "* ]] || export WEFT_VM_WALK=1
bash "$here/build.sh" "$repository" "$folder/kofi" "$headers"
echo "vm: $(ls "$folder"/kofi/*.ko | wc -l) modules, no finding of W=1 and sparse"
# The module with which these cases make their devices (docs/kofi.md, "Faults of rxe"); the debug kernel's rxe is mended itself.
# Where it cannot be built they fail, and the others run.
rxe= unbuilt=()
if [[ -z "$debug" && " ${cases[*]} " =~ " "($over_mended)" " ]]; then
  rxe="$folder/rxe/rdma_rxe.ko"
  if ! bash "$here/rxe/build.sh" "$folder/rxe" "$headers"; then
    mapfile -t unbuilt < <(printf '%s\n' "${cases[@]}" | grep -xE "$over_mended")
    [[ ${#unbuilt[@]} -lt ${#cases[@]} ]] || exit 1
    mapfile -t cases < <(printf '%s\n' "${cases[@]}" | grep -vxE "$over_mended")
    rxe=
  fi
fi
bash "$here/../initramfs.sh" base "$folder" "$kernel_version"

# The modules and the guest's script, behind the files of every run.
root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/weft/tests" "$root/weft/kofi"
cp "$here/guest.sh" "$here/guest_faults.sh" "$here/guest_fio.sh" "$here/bench.sh" "$root/weft/tests/"
cp "$folder"/kofi/*.ko "$folder/kofi/hello/kofi_hello.ko" "$root/weft/kofi/"
[[ -z "${WEFT_VM_WALK:-}" ]] || install -D -t "$root/weft/kofi_walk" "$folder"/kofi/walk/*.ko
[[ -z "$rxe" ]] || install -D "$rxe" "$root/weft/rxe/rdma_rxe.ko"
install -m 755 "$here/../init" "$root/init"
bash "$here/programs.sh" "$root" "${WEFT_STAGE:-$repository/build/stage}" "${cases[@]}"
(cd "$root" && find . -print0 | LC_ALL=C sort -z | cpio --null -o -H newc --quiet) | cat "$folder/base.cpio" - >"$folder/kofi/initramfs"

rm -rf "$logs"
mkdir -p "$logs"
: >"$logs/results"
for name in "${unbuilt[@]}"; do echo "FAILED rxe $name: the mended module was not built" >>"$logs/results"; done
printf '%s\n' "${cases[@]}" >"$logs/cases"
echo "${WEFT_VM_TURNS:-30}" >"$logs/turns"
[[ -z "$debug" ]] || echo 1 >"$logs/debug"
if [[ " ${cases[*]} " == *" bench "* ]]; then
  echo "${WEFT_VM_TURNS:-5}" >"$logs/turns"
  tr ' ' '\n' <<<"${WEFT_VM_PARTS:-tcp verbs blk}" >"$logs/parts"
fi
memory="${WEFT_VM_MEMORY:-$([[ -z "$debug" ]] && echo 1024 || echo 1536)}"
started=$SECONDS
echo "vm: booting Linux $kernel_version"
status=0
timeout -k 5 "$timeout_s" qemu-system-x86_64 -accel tcg,thread=multi -cpu "${WEFT_VM_CPU:-max}" -smp "${WEFT_VM_CPUS:-2}" -m "$memory" -M q35 \
  -kernel "$folder/kernel/root/boot/vmlinuz-$kernel_version" -initrd "$folder/kofi/initramfs" \
  -append "console=ttyS0 quiet panic=-1 oops=panic mitigations=off tsc=reliable ${debug:+kasan_multi_shot rcupdate.rcu_cpu_stall_suppress=1}" \
  -nodefaults -no-user-config -display none -serial stdio -monitor none -no-reboot \
  -device isa-debug-exit,iobase=0xf4,iosize=0x04 \
  -fsdev local,id=logs,path="$logs",security_model=none -device virtio-9p-pci,fsdev=logs,mount_tag=logs \
  </dev/null 2>&1 | tee "$logs/console" | sed -u -n 's/\r$//; s/^vm: //p' || status=${PIPESTATUS[0]}
case "$status" in
  124 | 137) echo "vm: the guest did not end within $timeout_s s" ;;
  0) echo "vm: the guest ended without a status"; tail -n 40 "$logs/console" ;;
esac
echo "vm: the guest ran for $((SECONDS - started)) s; logs are in ${logs#"$PWD"/}"
echo
if [[ -s "$logs/walk" ]]; then
  if python3 "$repository/tests/walk/walk_test.py" --kernel "$logs/walk" "$repository/docs/walk/kofi.md"; then outcome=ok; else outcome=FAILED; fi
  echo "$outcome kofi_blk walk: the steps of docs/walk/kofi.md in their order" >>"$logs/results"
fi
awk '{ kind = $1; provider = $2; name = $3; sub(/:$/, "", name); $1 = $2 = $3 = ""; printf "%-8s %-18s %-12s%s\n", kind, provider, name, $0 }' "$logs/results"
echo
if [[ -s "$logs/bench" ]]; then
  python3 "$here/bench.py" "$logs/bench" "$folder/kofi/kofi_test.ko" | tee "$folder/kofi_bench.txt"
  echo
fi
passed=$(grep -c '^ok ' "$logs/results" || true) failed=$(grep -c '^FAILED ' "$logs/results" || true)
skipped=$(grep -c '^skipped ' "$logs/results" || true)
[[ $status -eq 1 || $status -eq 3 ]] || failed=$((failed + 1))
echo "$passed passed, $failed failed$([[ $skipped -eq 0 ]] || echo ", $skipped skipped")"
[[ $failed -eq 0 && $passed -gt 0 ]]
