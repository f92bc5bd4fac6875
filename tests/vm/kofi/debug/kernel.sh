#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Builds a kernel that checks itself, of the distribution's source package and kernel.config; kept until one of these changes.
# usage: kernel.sh FOLDER -> FOLDER/root/boot/vmlinuz-VERSION, FOLDER/root/lib/modules/VERSION, FOLDER/version, FOLDER/build for `make -C`
# A folder may be shared by several work trees; building takes 15 minutes of two processors and 3 GB.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
folder="$1"
package=(/usr/src/linux-source-6.1.tar.*)
stamp="$(cat "$here/kernel.config" "$here/kernel.sh" "$here/../rxe/mend.sh" | sha256sum | cut -c1-16) $(stat -L -c '%s' "${package[0]}" 2>/dev/null || echo none)"
if [[ "$(cat "$folder/stamp" 2>/dev/null)" == "$stamp" && -f "$folder/version" ]]; then exit 0; fi
[[ -f "${package[0]}" ]] || { echo "vm: there is no linux-source-6.1 in /usr/src" >&2; exit 1; }
mkdir -p "$folder"
cd "$folder"
exec 9>lock
flock 9
[[ "$(cat stamp 2>/dev/null)" != "$stamp" || ! -f version ]] || exit 0
rm -rf source build root version stamp
mkdir -p source build root/boot
echo "vm: building the debug kernel (once; log in $PWD/build.log)"
tar -xf "${package[0]}" -C source --strip-components=1
# Which calls of an allocation may fail is told by their stack. 6.1 keeps this from x86-64; frame pointers make its stacks reliable.
sed -i '/^config FAULT_INJECTION_STACKTRACE_FILTER/,/^config /{/depends on !X86_64/d}' source/lib/Kconfig.debug
bash "$here/../rxe/mend.sh" source/drivers/infiniband/sw/rxe
compile() { make -s -C source O="$PWD/build" "$@" >>build.log 2>&1 || { tail -n 30 build.log >&2; exit 1; }; }
: >build.log
compile KCONFIG_ALLCONFIG="$here/kernel.config" allnoconfig
while read -r line; do
  grep -qxF "$line" build/.config || { echo "vm: kernel.config asks for $line, which the kernel does not have" >&2; exit 1; }
done < <(grep '^CONFIG' "$here/kernel.config")
compile -j"${WEFT_VM_JOBS:-$(nproc)}" bzImage modules
compile INSTALL_MOD_PATH="$PWD/root" modules_install
version="$(make -s -C build kernelrelease)"
cp build/arch/x86/boot/bzImage "root/boot/vmlinuz-$version"
# What modules are not built with.
find build -name '*.o' ! -path 'build/scripts/*' ! -path 'build/tools/*' -delete
find build -name '*.a' -delete
rm -f build/vmlinux build/arch/x86/boot/compressed/vmlinux*
echo "$version" >version
echo "$stamp" >stamp
