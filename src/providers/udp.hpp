// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider udp: unreliable datagrams, one UDP packet each. A provider is a type: its link, its name, its addresses.
#pragma once

#include <rdma/fabric.h>

#include <cstring>
#include <span>
#include <vector>

#include "link/udp/packets.hpp"
#include "os/link_local.hpp"
#include "providers/endpoint_kind.hpp"
#include "providers/socket_address.hpp"

namespace weft::providers {

struct Udp : SocketAddresses {
  using Packets = link::udp::Packets;
  static constexpr const char* name = "udp";
  static constexpr uint32_t version =
      FI_VERSION(207, 0);  // above the 206.0 of libfabric 2.6, which this library stands in for
  static constexpr std::array<EndpointKind, 1> kinds = {
      {{FI_EP_DGRAM, FI_PROTO_UDP, 0, FI_LOCAL_COMM | FI_REMOTE_COMM}}};
  static constexpr std::array<uint32_t, 2> formats = {FI_SOCKADDR_IN, FI_SOCKADDR_IN6};

  static constexpr size_t addrlen(uint32_t format) noexcept {
    return format == FI_ADDR_STR ? 0 : SocketAddresses::addrlen(format);
  }
  // Each datagram goes to an address as the vector has it, so a peer's name gets the scope that it has here when it is inserted.
  static bool normalise(uint32_t format, std::byte* bytes) noexcept {
    const auto address = parse(format, bytes);
    if (!address) return false;
    const os::SocketAddress here = os::on_this_host(*address, {});
    std::memcpy(bytes, here.get(), here.size());
    return true;
  }
  // The largest message: what leaves every interface in one piece.
  static size_t datagram_bytes(uint32_t format) noexcept {
    return os::udp_interface_bytes(format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET);
  }
  static std::vector<InterfaceDomain> interface_domains(uint32_t format, std::span<const std::byte> source,
                                                        std::span<const std::byte> destination) {
    return domains_with_setting(format, "FI_UDP_IFACE", source, destination);
  }
};

}  // namespace weft::providers
