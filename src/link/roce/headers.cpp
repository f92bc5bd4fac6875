// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Headers of sockets.
#include "link/roce/headers.hpp"

#include <netinet/in.h>

#include <cstring>

namespace weft::link::roce {

Headers headers_between(const os::SocketAddress& source, const os::SocketAddress& destination, size_t payload,
                        uint16_t identification, const os::IpMarks& marks) noexcept {
  Headers out;
  const auto udp_bytes = static_cast<uint16_t>(wire::Udp::bytes + payload);
  if (source.family() == AF_INET) {
    wire::Ip4 ip;
    ip.identification = identification;
    ip.traffic_class = marks.traffic_class;
    ip.hops = marks.hops;
    ip.total_bytes = static_cast<uint16_t>(wire::Ip4::bytes + udp_bytes);
    sockaddr_in from, to;
    std::memcpy(&from, source.get(), sizeof from);
    std::memcpy(&to, destination.get(), sizeof to);
    std::memcpy(ip.source.data(), &from.sin_addr, ip.source.size());
    std::memcpy(ip.destination.data(), &to.sin_addr, ip.destination.size());
    ip.write(out.bytes.data());
    out.count = wire::Ip4::bytes;
  } else {
    wire::Ip6 ip;
    ip.payload_bytes = udp_bytes;
    ip.traffic_class = marks.traffic_class;
    ip.hops = marks.hops;
    ip.flow_label = marks.flow_label;
    sockaddr_in6 from, to;
    std::memcpy(&from, source.get(), sizeof from);
    std::memcpy(&to, destination.get(), sizeof to);
    std::memcpy(ip.source.data(), &from.sin6_addr, ip.source.size());
    std::memcpy(ip.destination.data(), &to.sin6_addr, ip.destination.size());
    ip.write(out.bytes.data());
    out.count = wire::Ip6::bytes;
  }
  wire::Udp{source.port(), destination.port(), udp_bytes, 0}.write(out.bytes.data() + out.count);
  out.count += wire::Udp::bytes;
  return out;
}

std::array<std::byte, proto::roce::grh_bytes> grh_between(const Gid& source, const Gid& destination,
                                                          size_t payload, const os::IpMarks& marks) noexcept {
  std::array<std::byte, proto::roce::grh_bytes> grh{};
  wire::Ip6 ip;
  ip.payload_bytes = static_cast<uint16_t>(payload);
  ip.traffic_class = static_cast<uint8_t>(marks.traffic_class & ~3);
  ip.hops = marks.hops;
  ip.flow_label = marks.flow_label & 0xfffff;
  ip.next_header = 0x1b;  // IBTA 8.3: "IBA transport"
  ip.source = source;
  ip.destination = destination;
  ip.write(grh.data());
  return grh;
}

}  // namespace weft::link::roce
