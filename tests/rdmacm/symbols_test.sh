#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The drop-in librdmacm.so.1 exports what symbols.txt says, each symbol at its version; what the installed librdmacm.so.1 of any rdma-core exports is
# among it. It needs libibverbs.so.1 and libc alone.
set -euo pipefail
ours="${WEFT_BUILD:?}/lib/weft/compat/librdmacm.so.1"
expected="${WEFT_SOURCE:?}/tests/rdmacm/symbols.txt"
[[ -e "$ours" ]] || { echo "the library is not built"; exit 77; }
list() { readelf --dyn-syms -W "$1" | awk '$7 != "UND" && $4 == "FUNC" && $8 ~ /@/ { sub("@@", "@", $8); print $8 }' | LC_ALL=C sort -u; }
diff "$expected" <(list "$ours") || { echo "FAILED: exports (< expected, > found)"; exit 1; }
for stock in /usr/lib/*/librdmacm.so.1 ${WEFT_STOCK_RDMACM:-}; do
  [[ -e "$stock" ]] || continue
  missing="$(LC_ALL=C comm -13 "$expected" <(list "$stock"))"
  [[ -z "$missing" ]] || { echo "FAILED: $stock has besides:"; echo "$missing"; exit 1; }
done
needed="$(readelf -d "$ours" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -Ev '^(libibverbs\.so\.1|libc\.so\.6|libm\.so\.6|ld-linux.*|lib[at]san\.so.*|libubsan\.so.*|libstdc\+\+\.so.*|libgcc_s\.so.*)$' || true)"
[[ -z "$needed" ]] || { echo "FAILED: it needs $needed"; exit 1; }
echo "$(wc -l <"$expected") symbols"
