#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# WEFT_VERBS_DEVICES: one warning for each mistake, however often devices are listed, and no other devices than those that were named.
set -euo pipefail
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "runs the system's programs: not under a sanitizer"; exit 77; }
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
command -v ibv_devinfo >/dev/null || { echo "no ibv_devinfo"; exit 77; }
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

# said SETTING WARNINGS DEVICE...
said() {
  local setting="$1" warnings="$2"
  shift 2
  env "LD_LIBRARY_PATH=$library" "WEFT_VERBS_DEVICES=$setting" ibv_devinfo >"$folder/out" 2>"$folder/err" || true
  [[ $(grep -c "WEFT_VERBS_DEVICES" "$folder/err") -eq $warnings ]] || { echo "$setting: not $warnings warnings:"; cat "$folder/err"; exit 1; }
  [[ "$(sed -n 's/^hca_id:[[:space:]]*//p' "$folder/out" | tr '\n' ' ')" == "$*${*:+ }" ]] || { echo "$setting: other devices:"; cat "$folder/out"; exit 1; }
}

said "one=127.0.0.1,two=127.0.0.2" 0 one two
said "one=127.0.0.1,one=127.0.0.2" 1 one
said "lo,one=127.0.0.1,other=localhost,far=198.51.100.1" 3 one
said "lo" 2
