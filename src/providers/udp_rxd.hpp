// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider udp;ofi_rxd: the engine over reliable streams over UDP. A provider is a type: its link, its name, its addresses.
#pragma once

#include <rdma/fabric.h>

#include <span>
#include <vector>

#include "link/reliable/ip_names.hpp"
#include "link/reliable/link.hpp"
#include "link/udp/packets.hpp"
#include "providers/endpoint_kind.hpp"
#include "providers/socket_address.hpp"

namespace weft::providers {

struct UdpRxd : SocketAddresses {
  using Link = link::reliable::Reliable<link::udp::Packets, link::reliable::IpNames>;
  static constexpr const char* name = "udp;ofi_rxd";
  static constexpr uint32_t version =
      FI_VERSION(207, 0);  // above the 206.0 of libfabric 2.6, which this library stands in for
  static constexpr std::array<EndpointKind, 1> kinds = {
      {{FI_EP_RDM, FI_PROTO_RXD, 1, FI_LOCAL_COMM | FI_REMOTE_COMM}}};
  static std::vector<InterfaceDomain> interface_domains(uint32_t format, std::span<const std::byte> source,
                                                        std::span<const std::byte> destination) {
    return domains_with_setting(format, "FI_UDP_IFACE", source, destination);
  }
};

}  // namespace weft::providers
