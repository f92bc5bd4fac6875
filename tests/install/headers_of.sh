# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# headers_of FOLDER MAJOR MINOR [LINE of fi_domain_attr]: a copy of the headers of this machine in FOLDER/include that says it is another version.
headers_of() {
  local from; from="$(pkg-config --variable=includedir libfabric)"
  rm -rf "$1/include"
  mkdir -p "$1/include"
  cp -r "$from/rdma" "$1/include"
  sed -i "s/^#define FI_MAJOR_VERSION .*/#define FI_MAJOR_VERSION $2/; s/^#define FI_MINOR_VERSION .*/#define FI_MINOR_VERSION $3/" "$1/include/rdma/fabric.h"
  # src_addr, since 1.20.
  (($2 == 1 && $3 < 20)) || sed -i "/^struct fi_cq_err_entry {/,/^};/s/^};/fi_addr_t src_addr;\n};/" "$1/include/rdma/fi_eq.h"
  [[ -z "${4:-}" ]] || sed -i "/^struct fi_domain_attr {/,/^};/s/^};/$4\n};/" "$1/include/rdma/fabric.h"
}
