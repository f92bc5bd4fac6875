#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The promise of weft/extensions.h: old and new programs, with old and new headers, on old and new libraries. "Old" is version 1, its header as it was
# published; "new" the next version, which WEFT_EXTENSIONS_NEXT makes of the same sources: one call more, and one member more in a structure. All
# work, but for a new call on an old library, which gets -FI_ENOSYS.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "the program would need the sanitizer's runtime: not tested here"; exit 77; }
here="$source/tests/compat"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

headers_old=(-I"$here/extensions-1")
headers_new=(-I"$source/include" -DWEFT_EXTENSIONS_NEXT)
library_old="$build/lib/weft/compat"
library_new="$build/tests/compat/next"
program_old=()
program_new=(-DNEW)
printf '%-8s %-8s %-8s %s\n' program headers library outcome
for program in old new; do
  for headers in old new; do
    declare -n defined="program_$program" included="headers_$headers"
    gcc -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror "${defined[@]}" "${included[@]}" "$here/extensions_program.c" -o "$work/$program.$headers" -lfabric ||
      fail "$program program, $headers headers"
    for library in old new; do
      declare -n folder="library_$library"
      wanted="works"
      case "$program $headers $library" in
        "new new old") wanted="works; new call: -FI_ENOSYS, new member: 0" ;;
        "new new new") wanted="works; new call: works, new member: 64" ;;
      esac
      outcome="$(LD_LIBRARY_PATH="$folder" timeout 30 "$work/$program.$headers" 2>&1)" || true
      printf '%-8s %-8s %-8s %s\n' "$program" "$headers" "$library" "$outcome"
      [[ "$outcome" == "$wanted" ]] || fail "expected: $wanted"
    done
  done
done
echo "extensions_test: ok"
