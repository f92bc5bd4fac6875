#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The distribution's kernel, downloaded and unpacked, never installed. usage: kernel.sh FOLDER ->
# FOLDER/root/boot/vmlinuz-*, FOLDER/version The cloud flavour has no rxe and no 9p; this is the general one.
# WEFT_VM_KERNEL: that of another Debian suite (suite.sh), beside FOLDER/../root.
set -euo pipefail
folder="$1"
if [[ -n "${WEFT_VM_KERNEL:-}" ]]; then
  exec bash "$(dirname "${BASH_SOURCE[0]}")/suite.sh" make "$(dirname "$folder")" "$WEFT_VM_KERNEL"
fi
if [[ -f "$folder/version" && -f "$folder/root/boot/vmlinuz-$(cat "$folder/version")" ]]; then exit 0; fi
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"
package="$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2; exit }')"
[[ -n "$package" ]] || { echo "vm: apt knows no linux-image-amd64" >&2; exit 1; }
echo "vm: downloading $package"
apt-get -q -o Acquire::Retries=3 -o APT::Sandbox::User=root download "$package" >download.log 2>&1 || { tail -n 5 download.log >&2; exit 1; }
dpkg-deb -x "$package"_*.deb root
rm -f ./*.deb
rm -rf root/usr/share/doc
echo "${package#linux-image-}" >version
