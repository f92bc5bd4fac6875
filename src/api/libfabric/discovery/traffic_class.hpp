// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Traffic classes of fi_endpoint(3), "tclass". Must not know which links exist.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

#include "proto/setup.hpp"

namespace weft::fi {

// FI_TC_UNSPEC, a label of fi_endpoint(3), or a code point as fi_tc_dscp_set() makes it. Everything else has no meaning here.
bool is_traffic_class(uint32_t tclass) noexcept;

// The code point (RFC 2474) that stands for a traffic class. The labels follow the service classes of RFC 4594 and RFC 8622:
//   FI_TC_BEST_EFFORT, FI_TC_UNSPEC   DF    0
//   FI_TC_LOW_LATENCY                 AF21  18   low-latency data: transactions
//   FI_TC_DEDICATED_ACCESS            EF    46
//   FI_TC_BULK_DATA                   AF11  10   high-throughput data
//   FI_TC_SCAVENGER                   LE    1
//   FI_TC_NETWORK_CTRL                CS6   48
uint8_t code_point_of(uint32_t tclass) noexcept;

// The class of an endpoint that is opened with these attributes: its own, or the domain's (fi_endpoint(3)).
uint8_t code_point_of(const fi_tx_attr* tx, uint32_t domain_class, uint32_t api_version) noexcept;

// The same for a passive endpoint, which has no domain: the class of the fi_info's domain attributes stands in for it.
uint8_t code_point_of(const fi_info& info, uint32_t api_version) noexcept;

// Hands it to a link that sends marked packets. Before open().
template <class Link>
void set_traffic_class(Link& link, uint8_t dscp) noexcept {
  if constexpr (proto::HasTrafficClass<Link>) link.set_traffic_class(dscp);
}

}  // namespace weft::fi
