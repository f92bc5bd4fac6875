#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What the guest runs besides the modules: examples/kernel_peer, compiled here, and Weft's staged libfabric.
# usage: programs.sh ROOT STAGE
set -euo pipefail
root="$1" stage="$2"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[[ -e "$stage/lib/weft/compat/libfabric.so.1" ]] || { echo "vm: no staged libfabric.so.1: the case 'peers' is skipped"; exit 0; }
mkdir -p "$root/weft/bin" "$root/weft/stage"
gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror "$here/../../../examples/kernel_peer/kernel_peer.c" -o "$root/weft/bin/kernel_peer" -lfabric
cp -a "$stage/bin" "$stage/lib" "$root/weft/stage/"
find "$root/weft/stage" -name '*.a' -delete
rm -rf "$root/weft/stage/lib/cmake" "$root/weft/stage/lib/pkgconfig"
# The libraries that these are linked with, beside those of every run.
for file in "$root/weft/bin/kernel_peer" "$root/weft/stage/bin/weft" "$root/weft/stage/lib/weft/compat/libfabric.so.1"; do
  { ldd "$file" || true; } | grep -oE '/[^ ]+' | grep -v "^$root" || true
done | sort -u | while read -r library; do
  target="$root$library"
  case "$library" in /lib/* | /lib64/*) target="$root/usr$library" ;; esac
  mkdir -p "$(dirname "$target")"
  cp -L "$library" "$target"
done
