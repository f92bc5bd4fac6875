#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The drop-in exports the 36 symbols of libfabric.so.1 at their 10 versions and nothing else; the plugin exports fi_prov_ini alone.
set -euo pipefail
dropin="${WEFT_BUILD:-build/release}/lib/weft/compat/libfabric.so.1"
plugin="${WEFT_BUILD:-build/release}/lib/weft/plugin/libweft-fi.so"
[[ -e "$dropin" && -e "$plugin" ]] || { echo "the libraries are not built"; exit 77; }

expected="$(
  cat <<'LIST'
A FABRIC_1.0
A FABRIC_1.1
A FABRIC_1.2
A FABRIC_1.3
A FABRIC_1.4
A FABRIC_1.5
A FABRIC_1.6
A FABRIC_1.7
A FABRIC_1.8
A FABRIC_1.9
T fi_dupinfo@@FABRIC_1.9
T fi_dupinfo@FABRIC_1.0
T fi_dupinfo@FABRIC_1.1
T fi_dupinfo@FABRIC_1.2
T fi_dupinfo@FABRIC_1.3
T fi_dupinfo@FABRIC_1.7
T fi_dupinfo@FABRIC_1.8
T fi_fabric@@FABRIC_1.1
T fi_fabric@FABRIC_1.0
T fi_fabric2@@FABRIC_1.8
T fi_freeinfo@@FABRIC_1.9
T fi_freeinfo@FABRIC_1.0
T fi_freeinfo@FABRIC_1.1
T fi_freeinfo@FABRIC_1.2
T fi_freeinfo@FABRIC_1.3
T fi_freeinfo@FABRIC_1.7
T fi_freeinfo@FABRIC_1.8
T fi_freeparams@@FABRIC_1.0
T fi_getinfo@@FABRIC_1.9
T fi_getinfo@FABRIC_1.0
T fi_getinfo@FABRIC_1.1
T fi_getinfo@FABRIC_1.2
T fi_getinfo@FABRIC_1.3
T fi_getinfo@FABRIC_1.7
T fi_getinfo@FABRIC_1.8
T fi_getparams@@FABRIC_1.0
T fi_log@@FABRIC_1.0
T fi_log_enabled@@FABRIC_1.0
T fi_log_ready@@FABRIC_1.6
T fi_open@@FABRIC_1.5
T fi_param_define@@FABRIC_1.0
T fi_param_get@@FABRIC_1.0
T fi_strerror@@FABRIC_1.0
T fi_tostr@@FABRIC_1.0
T fi_tostr_r@@FABRIC_1.4
T fi_version@@FABRIC_1.0
LIST
)"
found="$(nm -D --defined-only --with-symbol-versions "$dropin" | awk '{ print $2, $3 }' | LC_ALL=C sort)"
diff <(LC_ALL=C sort <<<"$expected") <(echo "$found") || { echo "FAILED: exports of the drop-in (< expected, > found)"; exit 1; }
found="$(nm -D --defined-only "$plugin" | awk '{ print $2, $3 }')"
[[ "$found" == "T fi_prov_ini" ]] || { echo "FAILED: exports of the plugin: $found"; exit 1; }
echo "36 symbols in 10 versions, and fi_prov_ini"
