// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Labels and code points.
#include "api/libfabric/discovery/traffic_class.hpp"

#include "api/libfabric/discovery/info.hpp"

namespace weft::fi {

bool is_traffic_class(uint32_t tclass) noexcept {
  constexpr uint32_t code_points = 64;  // RFC 2474, section 3: six bits
  return tclass == FI_TC_UNSPEC || (tclass >= FI_TC_BEST_EFFORT && tclass <= FI_TC_NETWORK_CTRL) ||
         (tclass >= FI_TC_DSCP && tclass < FI_TC_DSCP + code_points);
}

uint8_t code_point_of(uint32_t tclass) noexcept {
  switch (tclass) {
    case FI_TC_LOW_LATENCY:
      return 18;
    case FI_TC_DEDICATED_ACCESS:
      return 46;
    case FI_TC_BULK_DATA:
      return 10;
    case FI_TC_SCAVENGER:
      return 1;
    case FI_TC_NETWORK_CTRL:
      return 48;
    default:
      return is_traffic_class(tclass) ? fi_tc_dscp_get(tclass) : uint8_t{0};
  }
}

uint8_t code_point_of(const fi_tx_attr* tx, uint32_t domain_class, uint32_t api_version) noexcept {
  // Programs of an older generation hold a fi_tx_attr without the field.
  const bool has_class = tx != nullptr && abi_of(api_version) >= Abi::v1_3;
  return code_point_of(has_class && tx->tclass != FI_TC_UNSPEC ? tx->tclass : domain_class);
}

uint8_t code_point_of(const fi_info& info, uint32_t api_version) noexcept {
  const bool has_class = info.domain_attr != nullptr && abi_of(api_version) >= Abi::v1_3;
  return code_point_of(info.tx_attr, has_class ? info.domain_attr->tclass : uint32_t{FI_TC_UNSPEC},
                       api_version);
}

}  // namespace weft::fi
