#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The distribution's rdma_rxe, mended (mend.sh), as a module for the kernel whose headers these are; from its source package.
# usage: build.sh FOLDER HEADERS -> FOLDER/rdma_rxe.ko
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
headers="$(cd "$2" && pwd -P)"
package=(/usr/src/linux-source-6.1.tar.*)
[[ -f "${package[0]}" ]] || { echo "vm: there is no linux-source-6.1 in /usr/src" >&2; exit 1; }
stamp="$(cat "$here"/*.sh | sha256sum | cut -c1-16) $(stat -L -c '%s %Y' "${package[0]}") $headers"
mkdir -p "$1"
cd "$1"
if [[ "$(cat stamp 2>/dev/null)" == "$stamp" && -f rdma_rxe.ko ]]; then exit 0; fi
rm -rf source stamp rdma_rxe.ko
mkdir source
rxe=drivers/infiniband/sw/rxe
tar -xf "${package[0]}" -C source --strip-components=5 --wildcards "*/$rxe/*"
bash "$here/mend.sh" source
make -s -C "$headers" M="$PWD/source" CONFIG_RDMA_RXE=m modules >build.log 2>&1 || { tail -n 30 build.log >&2; exit 1; }
cp source/rdma_rxe.ko .
echo "$stamp" >stamp
