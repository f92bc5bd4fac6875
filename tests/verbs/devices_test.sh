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

# From the configuration file, which the environment goes before.
printf 'WEFT_VERBS_DEVICES = three=127.0.0.3\nWEFT_VERBS_DEVISES = x\nnonsense\n' >"$folder/weft.conf"
env "LD_LIBRARY_PATH=$library" "WEFT_CONFIG=$folder/weft.conf" ibv_devinfo >"$folder/out" 2>"$folder/err" || true
grep -q '^hca_id:[[:space:]]*three$' "$folder/out" || { echo "the file has not named a device:"; cat "$folder/out" "$folder/err"; exit 1; }
grep -q 'WEFT_VERBS_DEVISES in the configuration file is no setting' "$folder/err" || { echo "no word of a misspelt name:"; cat "$folder/err"; exit 1; }
grep -q 'weft.conf: line 3 ' "$folder/err" || { echo "no word of a bad line:"; cat "$folder/err"; exit 1; }
env "LD_LIBRARY_PATH=$library" "WEFT_CONFIG=$folder/weft.conf" WEFT_VERBS_DEVICES=one=127.0.0.1 ibv_devinfo >"$folder/out" 2>/dev/null || true
grep -q '^hca_id:[[:space:]]*one$' "$folder/out" || { echo "the environment does not go first:"; cat "$folder/out"; exit 1; }
