#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A process is born again at its address while another sends to it: nothing vanishes without a word, over every provider of reliable endpoints and
# over packets of an author (examples/minimal_provider).
set -uo pipefail
build="${WEFT_BUILD:?}"
program="$build/tests/system/reborn"
[[ -x "$program" ]] || { echo "not built"; exit 77; }
export LD_LIBRARY_PATH="$build/lib/weft/compat" FI_LOG_LEVEL="${FI_LOG_LEVEL:-none}" WEFT_RELIABLE_TIMEOUT_S=3
failures=0
over() { timeout -k 2 120 "$program" --provider "$@" 2>&1 || { echo "FAILED: $*"; failures=$((failures + 1)); }; }
over shm
over tcp
over weft
over weft --by service
over 'tcp;ofi_rxm'
over 'udp;ofi_rxd'
plugin="$(find "$build/examples/minimal_provider" -name 'libminimal-fi.so' 2>/dev/null | head -n 1)"
if [[ -n "$plugin" && -z "${WEFT_SANITIZE:-}" ]]; then
  FI_PROVIDER_PATH="$(dirname "$plugin")" over minimal
fi
[[ $failures -eq 0 ]] && echo "reborn_test: ok"
exit "$((failures != 0))"
