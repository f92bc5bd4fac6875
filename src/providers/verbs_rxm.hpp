// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider verbs;ofi_rxm: the engine over messages over RC queue pairs. A provider is a type: its link, its name,
// its addresses.
#pragma once

#include <rdma/fabric.h>

#include <array>

#include "link/message/link.hpp"
#include "link/roce/messages.hpp"
#include "providers/endpoint_kind.hpp"
#include "providers/socket_address.hpp"

namespace weft::providers {

struct VerbsRxm : SocketAddresses {
  using Link = link::message::MessageLink<link::roce::Messages>;
  static constexpr bool shares_memory = true;
  static constexpr const char* name = "verbs;ofi_rxm";
  static constexpr uint32_t version =
      FI_VERSION(207, 0);  // above the 206.0 of libfabric 2.6, which this library stands in for
  static constexpr std::array<EndpointKind, 1> kinds = {
      {{FI_EP_RDM, FI_PROTO_RXM, 1, FI_LOCAL_COMM | FI_REMOTE_COMM}}};
  static constexpr std::array<uint32_t, 1> formats = {FI_SOCKADDR_IN};

  static constexpr size_t addrlen(uint32_t format) noexcept {
    return format == FI_SOCKADDR_IN ? SocketAddresses::addrlen(format) : 0;
  }
};

}  // namespace weft::providers
