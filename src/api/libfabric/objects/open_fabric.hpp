// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The way from fi_fabric(3) to the objects. Must not know the objects behind it, which front ends without them include, too.
#pragma once

#include <rdma/fabric.h>

#include "api/libfabric/discovery/provider.hpp"

namespace weft::fi {

// Opens the fabric of a provider. `attr` is complete: it has prov_name (null in a
// plugin) and api_version. 0 or -FI_E*. No exception.
int open_fabric(const Provider& provider, fi_fabric_attr* attr, fid_fabric** fabric, void* context);

}  // namespace weft::fi
