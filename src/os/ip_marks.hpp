// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// IpMarks: what an IP header says of a packet besides its addresses: traffic class, hop limit, flow label. Must not know
// sockets.
#pragma once

#include <cstdint>

namespace weft::os {

struct IpMarks {
  static constexpr uint8_t default_hops = 64;

  uint8_t traffic_class = 0;    // DSCP; its two lower bits belong to ECN
  uint8_t hops = default_hops;  // TTL of IPv4
  uint16_t reserved = 0;
  uint32_t flow_label = 0;  // 20 bits; IPv4 has none

  bool operator==(const IpMarks&) const noexcept = default;
};

}  // namespace weft::os
