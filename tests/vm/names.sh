#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Are these cases of that list? usage: names.sh CASES.TXT [NAME...]; status 2, and the list, if one is not.
set -euo pipefail
for name in "${@:2}"; do
  [[ "$name" != -* ]] || { echo "vm: unknown option '$name' (./dev help)" >&2; exit 2; }
  cut -d' ' -f1 "$1" | grep -qxF -- "$name" || { echo "vm: no case named '$name'; there are:" >&2; awk '/^[a-z]/ { name = $1; $1 = ""; printf "  %-13s%s\n", name, $0 }' "$1" >&2; exit 2; }
done
