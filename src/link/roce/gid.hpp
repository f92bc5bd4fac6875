// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// GIDs and socket addresses: which 16 bytes name which place. Must not know packets.
//
//   ::ffff:a.b.c.d, or an IPv6 address     that address, port 4791: RoCEv2 as everybody speaks it (IBTA annex A17)
//   fd57:4546:5401:0:PORT:0:a.b.c.d        that address and port, understood by Weft alone: several processes of one
//                                          host, each with a socket of its own
//   fd57:4546:5402:PORT:INTERFACE           the same with the IPv6 link-local address fe80::INTERFACE, on the interface of
//                                          the port that it is used with
//
// Groups: an IPv6 multicast address, or ::ffff:a.b.c.d of an IPv4 one; port 4791 for who has a standard GID. Who sends
// by a GID of ours sends to group_port, where Weft alone listens: only there can the source's port be told. The GID of an
// IPv6 group has no room for a port number: Port::address_on_link() adds it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "os/socket_address.hpp"
#include "proto/roce/work.hpp"

namespace weft::link::roce {

using proto::roce::Gid;

inline constexpr uint16_t standard_port = 4791;
inline constexpr uint16_t group_port = 22341;  // of groups, for GIDs with a port

// The standard GID of the address, whatever its port.
Gid standard_gid(const os::SocketAddress& address) noexcept;
// One that carries the port, too; nothing for IPv6 but a link-local address (fe80::/64), as there is no room.
std::optional<Gid> gid_with_port(const os::SocketAddress& address) noexcept;
// Whether it is one of those: understood by Weft alone.
bool has_port(const Gid& gid) noexcept;
// Whether it names a multicast group: ff00::/8, or an IPv4 group as IPv4-mapped GID or with a port.
bool is_group(const Gid& gid) noexcept;
// How a port with the GID `source` names that group in an address vector: with group_port where `source` has a port.
Gid group_for(const Gid& group, const Gid& source) noexcept;
// Where packets to it go.
os::SocketAddress address_of(const Gid& gid) noexcept;

}  // namespace weft::link::roce
