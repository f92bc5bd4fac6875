#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The headers of the kernel that kernel.sh has unpacked: downloaded and unpacked, never installed. usage: headers.sh FOLDER
# KERNEL_VERSION -> FOLDER/build, a folder for `make -C`
set -euo pipefail
folder="$1" version="$2"
if [[ "$(cat "$folder/version" 2>/dev/null)" == "$version" && -f "$folder/build/Makefile" ]]; then exit 0; fi
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"
folder="$PWD"
headers="linux-headers-$version"
mapfile -t packages < <(apt-cache depends "$headers" | awk '/Depends: linux-(headers|kbuild)/ { print $2 }')
echo "vm: downloading $headers"
apt-get -q -o Acquire::Retries=3 -o APT::Sandbox::User=root download "$headers" "${packages[@]}" >download.log 2>&1 || { tail -n 5 download.log >&2; exit 1; }
for package in ./*.deb; do dpkg-deb -x "$package" root; done
rm -f ./*.deb
# Its Makefile names the common part by the path that it would have when installed.
sed -i "s#/usr/src/#$folder/root/usr/src/#" "root/usr/src/$headers/Makefile"
ln -s "root/usr/src/$headers" build
echo "$version" >version
