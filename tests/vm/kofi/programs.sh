#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What the guest runs besides the modules: the verifying writer, the programs of e2fsprogs; examples/kernel_peer and
# examples/block_target, compiled here, and Weft's staged libfabric.
# usage: programs.sh ROOT STAGE CASE...
set -euo pipefail
root="$1" stage="$2"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
mkdir -p "$root/weft/bin"
# The libraries that programs are linked with, beside those of every run.
add_libraries() {
  for file in "$@"; do
    { ldd "$file" || true; } | grep -oE '/[^ ]+' | grep -v "^$root" || true
  done | sort -u | while read -r library; do
    target="$root$library"
    case "$library" in /lib/* | /lib64/*) target="$root/usr$library" ;; esac
    mkdir -p "$(dirname "$target")"
    cp -L "$library" "$target"
  done
}
compile() { gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror "$@"; }
compile "$here/writer.c" -o "$root/weft/bin/writer" -lpthread
cp -L /sbin/mke2fs /sbin/e2fsck "$root/weft/bin/"
add_libraries "$root/weft/bin/writer" "$root/weft/bin/mke2fs" "$root/weft/bin/e2fsck"
if [[ " ${*:3} " =~ " "(bench|fio|fio-verbs)" " ]]; then
  cp -L /usr/bin/fio "$root/weft/bin/"
  add_libraries "$root/weft/bin/fio"
fi
if [[ " ${*:3} " =~ " "(loss|queue)"-bare " ]]; then
  compile "$here/bare_loss.c" -o "$root/weft/bin/bare_loss" -libverbs
  add_libraries "$root/weft/bin/bare_loss"
fi
if [[ " ${*:3} " == *" bench "* ]]; then
  cp -L /usr/bin/nbd-server /usr/sbin/nbd-client "$root/weft/bin/"
  add_libraries "$root/weft/bin/nbd-server" "$root/weft/bin/nbd-client"
fi
[[ -e "$stage/lib/weft/compat/libfabric.so.1" ]] || { echo "vm: no staged libfabric.so.1: cases with programs over Weft are skipped"; exit 0; }
mkdir -p "$root/weft/stage"
for name in kernel_peer block_target; do
  compile "$here/../../../examples/$name/$name.c" -o "$root/weft/bin/$name" -lfabric
done
cp -a "$stage/bin" "$stage/lib" "$root/weft/stage/"
find "$root/weft/stage" -name '*.a' -delete
rm -rf "$root/weft/stage/lib/cmake" "$root/weft/stage/lib/pkgconfig"
add_libraries "$root/weft/bin/kernel_peer" "$root/weft/stage/bin/weft" "$root/weft/stage/lib/weft/compat/libfabric.so.1"
