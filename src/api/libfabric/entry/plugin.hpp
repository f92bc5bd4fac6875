// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A provider as a plugin gives it to the libfabric that loads it: fi_provider(3). Must not know which provider it is.
#pragma once

#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

#include "api/libfabric/discovery/provider.hpp"

namespace weft::fi {

// For fi_prov_ini(), once in a plugin. Both are kept. `name` is the one that programs see.
fi_provider* export_as_plugin(const Provider* const& provider, const char* name) noexcept;

}  // namespace weft::fi
