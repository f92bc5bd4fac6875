// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider tcp: the engine over TCP connections. Reaches this machine and others, over IPv4 and IPv6.
#pragma once

#include <rdma/fabric.h>

#include <array>
#include <span>
#include <vector>

#include "link/tcp/connection.hpp"
#include "link/tcp/link.hpp"
#include "providers/endpoint_kind.hpp"
#include "providers/socket_address.hpp"

namespace weft::providers {

struct Tcp : SocketAddresses {
  using Link = link::tcp::Link;
  using Connection = link::tcp::Connection;
  static constexpr const char* name = "tcp";
  static constexpr uint32_t version =
      FI_VERSION(207, 0);  // above the 206.0 of libfabric 2.6, which this library stands in for
  static constexpr std::array<EndpointKind, 2> kinds = {
      {{FI_EP_RDM, FI_PROTO_XNET, 1, FI_LOCAL_COMM | FI_REMOTE_COMM},
       {FI_EP_MSG, FI_PROTO_SOCK_TCP, 1, FI_LOCAL_COMM | FI_REMOTE_COMM}}};
  static std::vector<InterfaceDomain> interface_domains(uint32_t format, std::span<const std::byte> source,
                                                        std::span<const std::byte> destination) {
    return domains_with_setting(format, "FI_TCP_IFACE", source, destination);
  }
};

}  // namespace weft::providers
