// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider shm: the engine over the shared memory link. A provider is a type: its link, its name, its addresses.
#pragma once

#include <rdma/fabric.h>

#include "link/shm/link.hpp"
#include "providers/endpoint_kind.hpp"
#include "providers/local_address.hpp"

namespace weft::providers {

struct Shm : LocalAddresses<link::shm::Link> {
  using Link = link::shm::Link;
  static constexpr bool shares_memory = true;
  static constexpr const char* name = "shm";
  static constexpr uint32_t version =
      FI_VERSION(207, 0);  // above the 206.0 of libfabric 2.6, which this library stands in for
  static constexpr std::array<EndpointKind, 1> kinds = {{{FI_EP_RDM, FI_PROTO_SHM, 1, FI_LOCAL_COMM}}};
};

}  // namespace weft::providers
