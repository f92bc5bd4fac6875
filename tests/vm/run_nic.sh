#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Boots a virtual machine with an IOMMU and network cards; Weft drives some of them through VFIO, against one that the
# kernel has on the same hub. docs/vm.md has the topology and the cases. usage: run_nic.sh [CASE...]; `./dev vm nic`
# has built what this needs. Environment: WEFT_BUILD; WEFT_VM_LOGS the folder for kernel and logs.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
build="${WEFT_BUILD:?}" folder="${WEFT_VM_LOGS:?}"
timeout_s="${WEFT_VM_TIMEOUT_S:-300}"
logs="$folder/nic_logs"

known=(tool device transfers refusals e1000e virtio packed user hands direct roce fabric)
cases=("$@")
[[ ${#cases[@]} -gt 0 ]] || cases=("${known[@]}")
for name in "${cases[@]}"; do
  [[ " ${known[*]} " == *" $name "* ]] || { echo "vm nic: no case named '$name'; there are: ${known[*]}" >&2; exit 2; }
done

mkdir -p "$folder"
bash "$here/kernel.sh" "$folder/kernel"
kernel_version="$(cat "$folder/kernel/version")"
bash "$here/initramfs.sh" base "$folder" "$kernel_version"
programs=("$build/bin/weft" "$build/tests/vm/nic_cases" "$build/tests/vm/look_at_card")
if command -v fi_pingpong >/dev/null; then programs+=("$(command -v fi_pingpong)"); fi
bash "$here/initramfs.sh" nic "$folder" "$here" "$build/lib/weft/compat" "${programs[@]}"

rm -rf "$logs"
mkdir -p "$logs"
printf '%s\n' "${cases[@]}" >"$logs/cases"
# QEMU's monitor: what the guest writes to the console as "monitor: COMMAND" goes there.
mkfifo "$logs/monitor.in" "$logs/monitor.out"
cat "$logs/monitor.out" >"$logs/monitor" &
exec 4<>"$logs/monitor.in"

# Hub 0: the cards under test and the kernel's, and a network of QEMU's own that takes every frame (it answers TCP alone, by resets):
# while no port of a hub has room, its senders wait, and rxe of Linux 6.1 does not survive that its packets wait longer than
# their queue pair lives. Hub 1: two functions of one slot, which are one IOMMU group.
hub_card() {  # hub_card NAME HUB MODEL,PROPERTIES
  echo "-netdev hubport,id=$1,hubid=$2 -device $3,netdev=$1"
}
mac=52:54:00:14:00
nics=(
  -netdev user,id=taker,restrict=on,ipv6=off -netdev hubport,id=h9,hubid=0,netdev=taker
  $(hub_card h0 0 "e1000e,mac=$mac:01,addr=4")
  -device pcie-root-port,id=root1,chassis=1,addr=5
  $(hub_card h1 0 "virtio-net-pci,mac=$mac:02,bus=root1,disable-legacy=on,iommu_platform=on")
  $(hub_card h2 0 "virtio-net-pci,mac=$mac:03,addr=6,disable-legacy=on")
  $(hub_card h3 1 "virtio-net-pci,mac=$mac:04,addr=7.0,multifunction=on,disable-legacy=on,iommu_platform=on")
  $(hub_card h4 1 "virtio-net-pci,mac=$mac:05,addr=7.1,disable-legacy=on,iommu_platform=on")
  $(hub_card h5 0 "virtio-net-pci,mac=$mac:06,addr=8,disable-legacy=on,iommu_platform=on,packed=on")
)
started=$SECONDS
echo "vm nic: booting Linux $kernel_version"
status=0
timeout -k 5 "$timeout_s" qemu-system-x86_64 -accel tcg,thread=multi -cpu "${WEFT_VM_CPU:-max}" -smp "${WEFT_VM_CPUS:-2}" -m 1024 \
  -M q35,kernel-irqchip=split -device intel-iommu,intremap=on \
  -kernel "$folder/kernel/root/boot/vmlinuz-$kernel_version" -initrd "$folder/nic_initramfs" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check intel_iommu=on weft.guest=nic_guest" \
  -nodefaults -no-user-config -display none -serial stdio -no-reboot \
  -chardev pipe,id=monitor,path="$logs/monitor" -mon chardev=monitor \
  -device isa-debug-exit,iobase=0xf4,iosize=0x04 \
  -fsdev local,id=logs,path="$logs",security_model=none -device virtio-9p-pci,fsdev=logs,mount_tag=logs \
  "${nics[@]}" </dev/null 2>&1 | tee "$logs/console" | sed -u 's/\r$//' | while IFS= read -r line; do
    case "$line" in
      "vm: "*) echo "${line#vm: }" ;;
      "monitor: "*) echo "${line#monitor: }" >&4 ;;
    esac
  done || status=${PIPESTATUS[0]}
exec 4>&-
rm -f "$logs/monitor.in" "$logs/monitor.out"

case "$status" in
  124 | 137) echo "vm nic: the guest did not end within $timeout_s s" ;;
  0) echo "vm nic: the guest ended without a status"; tail -n 20 "$logs/console" ;;
esac
echo "vm nic: the guest ran for $((SECONDS - started)) s; logs are in ${logs#"$PWD"/}"
sed -n 's/\r//; s/^vm: \(\(ok\|FAILED\) .*\)/\1/p' "$logs/console" >"$logs/results"
passed=$(grep -c '^ok ' "$logs/results" || true) failed=$(grep -c '^FAILED ' "$logs/results" || true)
[[ $status -eq 1 || $status -eq 3 ]] || failed=$((failed + 1))
echo "CASE            PASSED  FAILED  SECONDS"
while read -r name; do
  printf '%-14s %7s %7s %8s\n' "$name" "$(grep -c "^ok $name: " "$logs/results" || true)" \
    "$(grep -c "^FAILED $name: " "$logs/results" || true)" "$(sed -n "s/\r//; s/^vm: --- $name took \(.*\) s/\1/p" "$logs/console")"
done <"$logs/cases"
grep '^FAILED ' "$logs/results" || true
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
