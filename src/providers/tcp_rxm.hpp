// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider tcp;ofi_rxm: the engine over messages over TCP connections. A provider is a type: its link, its name, its addresses.
#pragma once

#include <rdma/fabric.h>

#include <array>
#include <span>
#include <vector>

#include "link/message/link.hpp"
#include "link/tcp/messages.hpp"
#include "providers/endpoint_kind.hpp"
#include "providers/socket_address.hpp"

namespace weft::providers {

struct TcpRxm : SocketAddresses {
  using Link = link::message::MessageLink<link::tcp::Messages>;
  static constexpr const char* name = "tcp;ofi_rxm";
  static constexpr uint32_t version =
      FI_VERSION(207, 0);  // above the 206.0 of libfabric 2.6, which this library stands in for
  static constexpr std::array<EndpointKind, 1> kinds = {
      {{FI_EP_RDM, FI_PROTO_RXM, 1, FI_LOCAL_COMM | FI_REMOTE_COMM}}};
  static constexpr std::array<uint32_t, 2> formats = {FI_SOCKADDR_IN, FI_SOCKADDR_IN6};

  static constexpr size_t addrlen(uint32_t format) noexcept {
    return format == FI_ADDR_STR ? 0 : SocketAddresses::addrlen(format);
  }
  static std::vector<InterfaceDomain> interface_domains(uint32_t format, std::span<const std::byte> source,
                                                        std::span<const std::byte> destination) {
    return domains_with_setting(format, "FI_TCP_IFACE", source, destination);
  }
};

}  // namespace weft::providers
