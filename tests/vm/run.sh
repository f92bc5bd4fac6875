#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Boots a virtual machine with the kernel's software RDMA device (rdma_rxe) and lets it exchange with Weft.
# docs/vm.md has the topology and the cases. usage: run.sh [CASE...]; `./dev vm` has installed and built what this
# needs. Environment: WEFT_STAGE, WEFT_BUILD as for every test script; WEFT_VM_LOGS the folder for kernel, logs and
# captures.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
stage="${WEFT_STAGE:?}" build="${WEFT_BUILD:?}" folder="${WEFT_VM_LOGS:?}"
timeout_s="${WEFT_VM_TIMEOUT_S:-900}"
peer="$build/tests/vm/verbs_peer"
logs="$folder/logs"

cases=("$@")
if [[ ${#cases[@]} -eq 0 ]]; then
  mapfile -t cases < <(sed -n 's/^\([a-z][a-z0-9_-]*\) .*/\1/p' "$here/cases.txt" | grep -v '^bench$')
fi
bash "$here/names.sh" "$here/cases.txt" "${cases[@]}"

# The files of every run, and those of this one: the kernel unpacks both archives one after the other.
bash "$here/kernel.sh" "$folder/kernel"
[[ -z "${WEFT_VM_KERNEL:-}" ]] || bash "$here/suite.sh" verbs "$folder"
kernel_version="$(cat "$folder/kernel/version")"
bash "$here/initramfs.sh" base "$folder" "$kernel_version"
bash "$here/initramfs.sh" run "$folder" "$stage" "$peer" "$here"

rm -rf "$logs"
mkdir -p "$logs"
: >"$logs/results"
printf '%s\n' "${cases[@]}" >"$logs/cases"
echo "${WEFT_VM_ONLY:-.}" >"$logs/only"
echo "${WEFT_VM_ROUNDS:-5}" >"$logs/rounds"
echo "${WEFT_VM_RING:-8192}" >"$logs/ring"
started=$SECONDS
echo "vm: booting Linux $kernel_version"
status=0
tsc=""
if tsc_khz="$("$peer" tsc 2>/dev/null)"; then tsc="tsc_early_khz=$tsc_khz"; fi
timeout -k 5 "$timeout_s" qemu-system-x86_64 -accel tcg,thread=multi -cpu "${WEFT_VM_CPU:-max}" -smp "${WEFT_VM_CPUS:-2}" -m 1024 -M q35 \
  -kernel "$folder/kernel/root/boot/vmlinuz-$kernel_version" -initrd "$folder/initramfs" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable $tsc" \
  -nodefaults -no-user-config -display none -serial stdio -monitor none -no-reboot \
  -device isa-debug-exit,iobase=0xf4,iosize=0x04 \
  -fsdev local,id=logs,path="$logs",security_model=none -device virtio-9p-pci,fsdev=logs,mount_tag=logs \
  </dev/null 2>&1 | tee "$logs/console" | sed -u -n 's/\r$//; s/^vm: //p' || status=${PIPESTATUS[0]}

# qemu exits with (status << 1) | 1 when the guest wrote one, with 0 when it only went down.
case "$status" in
  124 | 137) echo "vm: the guest did not end within $timeout_s s" ;;
  0) echo "vm: the guest ended without a status"; tail -n 20 "$logs/console" ;;
esac
echo "vm: the guest ran for $((SECONDS - started)) s; logs and captures are in ${logs#"$PWD"/}"
bash "$here/dissect.sh" "$logs"
passed=$(grep -c '^ok ' "$logs/results" || true) failed=$(grep -c '^FAILED ' "$logs/results" || true)
skipped=$(grep -c '^skipped ' "$logs/results" || true)
[[ $status -eq 1 || $status -eq 3 ]] || failed=$((failed + 1))
[[ ! -s "$logs/bench" ]] || python3 "$here/ratios.py" "$logs/bench" | tee "$folder/bench.txt"
grep '^FAILED ' "$logs/results" || true
echo "$passed passed, $failed failed$([[ $skipped -eq 0 ]] || echo ", $skipped skipped")"
[[ $failed -eq 0 && ($passed -gt 0 || -s "$logs/bench") ]]
