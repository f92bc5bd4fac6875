#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Builds the modules of kernel/ with W=1 and sparse; a warning is an error. usage: build.sh REPOSITORY FOLDER HEADERS ->
# FOLDER/*.ko, and FOLDER/hello/kofi_hello.ko, a client (examples/). Builds copies: nothing is written beside the sources.
set -euo pipefail
repository="$1" folder="$2" headers="$3"
mkdir -p "$folder/src"
folder="$(cd "$folder" && pwd)"
# The kernel's style, as far as a pattern can tell: tabs, no space at the end, 100 columns, no // comment but the first line.
bad="$(find "$repository/kernel" "$repository/examples/kofi_hello" -name '*.[ch]' -print0 | xargs -0 awk '
  { wide = $0; gsub(/\t/, "        ", wide) }
  /^        / || /[ \t]$/ || / \t/ || length(wide) > 104 || (FNR > 1 && /^[ \t]*\/\//) { print FILENAME ":" FNR ": style: " $0 }')"
[[ -z "$bad" ]] || { echo "$bad" >&2; exit 1; }
# What has gone from the sources goes from the copy; what has not changed is not built again.
(cd "$folder/src" && find . -name '*.[ch]' -type f ! -name '*.mod.c' -print) | while read -r file; do
  [[ -e "$repository/kernel/$file" ]] || rm -f "$folder/src/$file"
done
cp -au "$repository/kernel/." "$folder/src/"
compile() {  # compile FOLDER LOG [VARIABLE=VALUE...]
  if ! make -s -C "$headers" M="$1" W=1 C=1 "${@:3}" modules >"$2" 2>&1; then
    cat "$2" >&2
    exit 1
  fi
  if grep -vE 'Skipping BTF generation|BTF \[M\]' "$2" | grep -qE 'warning|error'; then
    grep -vE 'Skipping BTF generation' "$2" >&2
    echo "vm: the modules do not build without a finding (W=1, sparse)" >&2
    exit 1
  fi
}
compile "$folder/src" "$folder/build.log"
# As a client builds that is none of the tree's.
rm -rf "$folder/hello"   # make does not see that names of Module.symvers have changed
mkdir -p "$folder/hello"
cp -a "$repository/examples/kofi_hello/." "$folder/hello/"
compile "$folder/hello" "$folder/hello.log" KOFI="$folder/src"
rm -f "$folder"/*.ko
cp "$folder"/src/*/*.ko "$folder/"
