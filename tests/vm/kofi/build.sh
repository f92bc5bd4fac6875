#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Builds the modules of kernel/ with W=1 and sparse; a warning is an error. usage: build.sh REPOSITORY FOLDER HEADERS ->
# FOLDER/*.ko, and FOLDER/hello/kofi_hello.ko, a client (examples/). Builds copies: nothing is written beside the sources.
# WEFT_VM_ROOT: a folder that suite.sh has made; make runs in its root, where HEADERS is.
# WEFT_VM_WALK=1: also FOLDER/walk/*.ko, in which the compiler has inlined no function that does not say so: a trace has them all.
set -euo pipefail
repository="$1" folder="$2" headers="$3"
mkdir -p "$folder/src"
folder="$(cd "$folder" && pwd)"
bash "$repository/scripts/check/kernel_style.sh" "$repository" >"$folder/style.log" || { cat "$folder/style.log" >&2; exit 1; }
# What has gone from the sources goes from the copy; what has not changed is not built again.
(cd "$folder/src" && find . -name '*.[ch]' -type f ! -name '*.mod.c' -print) | while read -r file; do
  [[ -e "$repository/kernel/$file" ]] || rm -f "$folder/src/$file"
done
cp -au "$repository/kernel/." "$folder/src/"
in_root=()
[[ -z "${WEFT_VM_ROOT:-}" ]] || in_root=(bash "$repository/tests/vm/suite.sh" run "$WEFT_VM_ROOT" "$folder")
# KBUILD_CHECKSRC is what C=1 sets, unless scripts/checker-valid.sh, which Debian's headers of 7.2 lack, says that sparse is too old.
compile() {  # compile FOLDER LOG [VARIABLE=VALUE...]
  if ! "${in_root[@]}" make -s -C "$headers" M="$1" W=1 KBUILD_CHECKSRC=1 "${@:3}" modules >"$2" 2>&1; then
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
if [[ -n "${WEFT_VM_WALK:-}" ]]; then
  mkdir -p "$folder/walk/src"
  cp -au "$repository/kernel/." "$folder/walk/src/"
  compile "$folder/walk/src" "$folder/walk/build.log" \
    KCFLAGS="-fno-inline-functions -fno-inline-functions-called-once -fno-inline-small-functions -fno-partial-inlining -fno-ipa-sra -fno-ipa-cp"
  cp "$folder"/walk/src/*/*.ko "$folder/walk/"
fi
