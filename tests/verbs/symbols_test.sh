#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The drop-in libibverbs.so.1 exports what Debian's does, each symbol at its versions with its type, and weft_verbs_register besides; no program that
# is bound at once (all of them are) misses one. Sizes of objects count, for programs copy them.
set -euo pipefail
ours="${WEFT_BUILD:?}/lib/weft/compat/libibverbs.so.1"
expected="${WEFT_SOURCE:?}/tests/verbs/symbols.txt"
[[ -e "$ours" ]] || { echo "the library is not built"; exit 77; }
list() {
  readelf --dyn-syms -W "$1" | awk '$7 != "UND" && $4 ~ /FUNC|OBJECT/ && $8 ~ /@/ { print $4, ($4 == "OBJECT" ? $3 : "-"), $8 }' | LC_ALL=C sort
}
diff "$expected" <(list "$ours" | grep -v '@@WEFT_1.0$') || { echo "FAILED: exports (< expected, > found)"; exit 1; }
[[ "$(list "$ours" | grep '@@WEFT_1.0$')" == "FUNC - weft_verbs_register@@WEFT_1.0" ]] || { echo "FAILED: weft_verbs_register"; exit 1; }
# The list is that of rdma-core 44, where that is installed.
for stock in /usr/lib/*/libibverbs.so.1; do
  [[ "$(readlink -f "$stock")" == *.so.1.14.44.* ]] || continue
  diff "$expected" <(list "$stock") || { echo "FAILED: symbols.txt is not what $stock has"; exit 1; }
done
echo "$(wc -l <"$expected") symbols, and weft_verbs_register"
