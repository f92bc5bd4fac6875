// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider loopback: the engine over the in-process link. For tests, and the smallest example of a provider.
#pragma once

#include <rdma/fabric.h>

#include "link/loopback/connection.hpp"
#include "link/loopback/link.hpp"
#include "providers/endpoint_kind.hpp"
#include "providers/local_address.hpp"

namespace weft::providers {

struct Loopback : LocalAddresses<link::loopback::Link> {
  using Link = link::loopback::Link;
  using Connection = link::loopback::Connection;
  static constexpr const char* name = "loopback";
  static constexpr uint32_t version = FI_VERSION(1, 0);
  static constexpr std::array<EndpointKind, 2> kinds = {
      {{FI_EP_RDM, FI_PROTO_UNSPEC, 1, FI_LOCAL_COMM}, {FI_EP_MSG, FI_PROTO_UNSPEC, 1, FI_LOCAL_COMM}}};
};

}  // namespace weft::providers
