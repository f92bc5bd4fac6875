#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The modules of kernel/ build without a finding of W=1 and sparse, against headers that are there: those that `./dev vm kofi` has
# unpacked, or those of the kernel that runs. Downloads nothing.
set -euo pipefail
source="${WEFT_SOURCE:?}" build="${WEFT_BUILD:?}"
version="$(sed -n 's/^project(weft VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")"
grep -qx "PACKAGE_VERSION=\"$version\"" "$source/kernel/dkms.conf" || { echo "FAILED: dkms.conf is not of version $version"; exit 1; }
[[ "$(awk '{ print $2 }' "$source/debian/weft-kofi-dkms.install" | sort -u)" == "usr/src/weft-kofi-$version" ]] ||
  { echo "FAILED: weft-kofi-dkms is not installed as version $version"; exit 1; }
for program in make gcc sparse; do
  command -v "$program" >/dev/null || { echo "there is no $program"; exit 77; }
done
headers=""
for folder in "$source/build/vm/headers/build" "/lib/modules/$(uname -r)/build"; do
  [[ -f "$folder/Makefile" ]] && { headers="$folder"; break; }
done
roots=("$source"/build/vm/*/made)   # of ./dev vm --kernel
[[ -n "$headers" || -f "${roots[0]}" ]] || { echo "no headers of a kernel: ./dev vm kofi unpacks some"; exit 77; }
built=0 wanted=$(sed -n 's/^obj-m += //p' "$source"/kernel/*/Kbuild | wc -w)
build_modules() {  # build_modules FOLDER HEADERS
  bash "$source/tests/vm/kofi/build.sh" "$source" "$1" "$2"
  built=$(find "$1" -maxdepth 1 -name '*.ko' | wc -l)
  [[ "$built" -eq "$wanted" ]] || { echo "FAILED: $built modules of $wanted ($1)"; exit 1; }
}
[[ -z "$headers" ]] || build_modules "$build/kofi" "$headers"
for made in "${roots[@]}"; do
  [[ -f "$made" && $EUID -eq 0 ]] || continue
  root="$(dirname "$made")" version="$(cat "$(dirname "$made")/kernel/version")"
  WEFT_VM_ROOT="$root" build_modules "$build/kofi_$(basename "$root")" "/lib/modules/$version/build"
  echo "kernel_modules_test: also for $version"
done
[[ $built -gt 0 ]] || { echo "a root of another suite is used by root only"; exit 77; }
# What DKMS and Kconfig list is what there is.
while read -r name; do
  grep -q "BUILT_MODULE_NAME\[[0-9]*\]=\"$name\"" "$source/kernel/dkms.conf" || { echo "FAILED: dkms.conf lacks $name"; exit 1; }
  grep -q "^\(menu\)\?config ${name^^}\$" "$source/kernel/Kconfig" || { echo "FAILED: Kconfig lacks ${name^^}"; exit 1; }
done < <(find "$source/kernel" -mindepth 2 -name Kbuild -printf '%h\n' | xargs -n 1 basename)
echo "kernel_modules_test: $built modules"
