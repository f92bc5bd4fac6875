#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The drop-in libibverbs.so.1 exports what symbols.txt says, each symbol at its versions with its type, and weft_verbs_register besides; what the
# installed libibverbs.so.1 of any rdma-core exports is among it, so no program that is bound at once (all of them are) misses one. Sizes of objects
# count, for programs copy them.
set -euo pipefail
ours="${WEFT_BUILD:?}/lib/weft/compat/libibverbs.so.1"
expected="${WEFT_SOURCE:?}/tests/verbs/symbols.txt"
[[ -e "$ours" ]] || { echo "the library is not built"; exit 77; }
list() {
  readelf --dyn-syms -W "$1" | awk '$7 != "UND" && $4 ~ /FUNC|OBJECT/ && $8 ~ /@/ { print $4, ($4 == "OBJECT" ? $3 : "-"), $8 }' | LC_ALL=C sort
}
# A symbol has one default version (@@), the newest; programs are bound to the one that they name.
versions() { sed 's/@@/@/' | LC_ALL=C sort -u; }
diff "$expected" <(list "$ours" | grep -v '@@WEFT_1.0$') || { echo "FAILED: exports (< expected, > found)"; exit 1; }
[[ "$(list "$ours" | grep '@@WEFT_1.0$')" == "FUNC - weft_verbs_register@@WEFT_1.0" ]] || { echo "FAILED: weft_verbs_register"; exit 1; }
for stock in /usr/lib/*/libibverbs.so.1 ${WEFT_STOCK_VERBS:-}; do
  [[ -e "$stock" ]] || continue
  missing="$(LC_ALL=C comm -13 <(versions <"$expected") <(list "$stock" | versions))"
  [[ -z "$missing" ]] || { echo "FAILED: $stock has besides:"; echo "$missing"; exit 1; }
done
echo "$(wc -l <"$expected") symbols, and weft_verbs_register"
