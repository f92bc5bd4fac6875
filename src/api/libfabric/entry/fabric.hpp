// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The doors from the exported symbols to the objects: fi_fabric(3) and fi_open (fi_provider(3)). Must not
// know the objects behind them.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>

#include "api/libfabric/discovery/getinfo.hpp"
#include "api/libfabric/discovery/provider.hpp"

namespace weft::fi {

// fi_fabric(3): finds the provider that attr->prov_name names and opens its fabric. -FI_EINVAL without attr
// or fabric, -FI_ENODEV for an unknown provider, -FI_ENOSYS for an api_version above ours; each is logged at
// warn.
int find_and_open_fabric(const Catalogue& catalogue, fi_fabric_attr* attr, fid_fabric** fabric, void* context,
                         Abi abi = layout::compiled) noexcept;

// fi_open: "logging" takes an fi_ops_log by fi_import_log; other names are -FI_ENOSYS.
int open_object(uint32_t version, const char* name, void* attr, size_t attr_len, uint64_t flags, fid** object,
                void* context) noexcept;

}  // namespace weft::fi
