// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider verbs: RoCEv2 queue pairs of this process; connected endpoints are RC, datagrams are UD (docs/verbs.md).
// A provider is a type: its links, its name, its addresses.
#pragma once

#include <rdma/fabric.h>

#include <array>

#include "link/roce/connection.hpp"
#include "link/roce/datagrams.hpp"
#include "providers/endpoint_kind.hpp"
#include "providers/socket_address.hpp"

namespace weft::providers {

struct Verbs : SocketAddresses {
  using Packets = link::roce::Datagrams;
  using Connection = link::roce::Connection;
  static constexpr bool shares_memory = true;
  static constexpr const char* name = "verbs";
  static constexpr uint32_t version =
      FI_VERSION(207, 0);  // above the 206.0 of libfabric 2.6, which this library stands in for
  static constexpr std::array<EndpointKind, 2> kinds = {
      {{FI_EP_MSG, FI_PROTO_RDMA_CM_IB_RC, 1, FI_LOCAL_COMM | FI_REMOTE_COMM},
       {FI_EP_DGRAM, FI_PROTO_IB_UD, 0, FI_LOCAL_COMM | FI_REMOTE_COMM}}};
  // GIDs with a port have room for IPv4 alone.
  static constexpr std::array<uint32_t, 1> formats = {FI_SOCKADDR_IN};

  static constexpr size_t addrlen(uint32_t format) noexcept {
    return format == FI_SOCKADDR_IN ? SocketAddresses::addrlen(format) : 0;
  }
  // The largest datagram: the path MTU that leaves every interface in one piece.
  static size_t datagram_bytes(uint32_t) noexcept { return link::roce::Datagrams::interface_bytes(); }
};

}  // namespace weft::providers
