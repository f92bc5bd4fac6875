#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The kernel's style, as far as a pattern can tell: tabs, no space at the end, 100 columns (104 for a last word), no // comment but the first line.
# usage: kernel_style.sh [REPOSITORY]; prints what is wrong, status 1.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
mapfile -t files < <(find kernel examples/kofi_hello -name '*.[ch]' ! -name '*.mod.c' | LC_ALL=C sort)
[[ ${#files[@]} -gt 0 ]] || { echo "no source of the kernel's modules" >&2; exit 1; }
bad="$(awk '
  { wide = $0; gsub(/\t/, "        ", wide) }
  /^        / || /[ \t]$/ || / \t/ || length(wide) > 104 || (FNR > 1 && /^[ \t]*\/\//) { print FILENAME ":" FNR ": style: " $0 }' "${files[@]}")"
[[ -z "$bad" ]] || { echo "$bad"; exit 1; }
echo "${#files[@]} files"
