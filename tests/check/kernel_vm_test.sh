#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The short form of `./dev vm kofi`: some of its cases, in a virtual machine with the kernel that it has unpacked. Downloads nothing.
set -euo pipefail
source="${WEFT_SOURCE:?}" build="${WEFT_BUILD:?}"
for program in qemu-system-x86_64 cpio make gcc sparse mke2fs; do
  command -v "$program" >/dev/null || { echo "there is no $program"; exit 77; }
done
vm="$source/build/vm" folder="$build/kofi_vm"
for file in kernel/version headers/version base.cpio base.stamp; do
  [[ -f "$vm/$file" ]] || { echo "no kernel: ./dev vm kofi unpacks one"; exit 77; }
done
mkdir -p "$folder"
ln -sfn "$vm/kernel" "$folder/kernel"
ln -sfn "$vm/headers" "$folder/headers"
cp -u "$vm/base.cpio" "$vm/base.stamp" "$folder/"
WEFT_VM_LOGS="$folder" WEFT_VM_TURNS=3 WEFT_VM_TIMEOUT_S=300 bash "$source/tests/vm/kofi/run.sh" loop tcp reload
