// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// IP_TOS of ip(7) and IPV6_TCLASS of ipv6(7): the upper six bits are the code point, the lower two belong to ECN.
#include "os/traffic_class.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

namespace weft::os {

void mark_traffic(int socket, uint8_t dscp, uint8_t ecn) noexcept {
  const int octet = dscp << 2 | (ecn & 3);
  // Both: an IPv6 socket sends to IPv4-mapped addresses, too.
  (void)::setsockopt(socket, IPPROTO_IP, IP_TOS, &octet, sizeof(octet));
  (void)::setsockopt(socket, IPPROTO_IPV6, IPV6_TCLASS, &octet, sizeof(octet));
}

}  // namespace weft::os
