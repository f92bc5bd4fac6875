// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether fi_cq_readfrom of a queue tells who sent. Must not know which links exist.
#pragma once

#include "faces/libfabric/objects/objects.hpp"

namespace weft::fi {

// From now on it does: an endpoint with FI_SOURCE is bound. Before, each source is FI_ADDR_NOTAVAIL (fi_cq(3), fi_cq_readfrom). The caller holds the
// domain lock.
void tell_sources(Cq& cq) noexcept;

}  // namespace weft::fi
