// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// udp and udp;ofi_rxd over network cards that this process drives (WEFT_NIC, docs/nic.md): the same providers, a domain
// for each card. A provider is a type: its link, its name, its addresses.
#pragma once

#include <rdma/fabric.h>

#include <array>
#include <string>
#include <vector>

#include "link/nic/frames.hpp"
#include "link/reliable/ip_names.hpp"
#include "link/reliable/link.hpp"
#include "providers/endpoint_kind.hpp"
#include "providers/socket_address.hpp"
#include "providers/udp.hpp"
#include "providers/udp_rxd.hpp"

namespace weft::providers {

struct NicAddresses : SocketAddresses {
  using Device = link::nic::Device;
  static constexpr const char* fabric = "nic";
  // Of the cards whose address has this format.
  static std::vector<std::string> domains(uint32_t format);
};

struct NicUdp : NicAddresses {
  using Packets = link::nic::Packets;
  static constexpr const char* name = Udp::name;
  static constexpr uint32_t version = Udp::version;
  static constexpr auto kinds = Udp::kinds;
  static constexpr auto formats = Udp::formats;

  static constexpr size_t addrlen(uint32_t format) noexcept { return Udp::addrlen(format); }
  // The largest message: what leaves each card in one piece.
  static size_t datagram_bytes(uint32_t format);
};

struct NicUdpRxd : NicAddresses {
  using Link = link::reliable::Reliable<link::nic::Packets, link::reliable::IpNames>;
  static constexpr const char* name = UdpRxd::name;
  static constexpr uint32_t version = UdpRxd::version;
  static constexpr auto kinds = UdpRxd::kinds;
};

}  // namespace weft::providers
