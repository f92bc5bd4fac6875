// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The cards of WEFT_NIC as domains.
#include "providers/nic.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>

#include "link/nic/settings.hpp"
#include "wire/ip.hpp"

namespace weft::providers {
namespace {

bool has_format(const link::nic::Configuration& card, uint32_t format) noexcept {
  return format == FI_ADDR_STR || (card.address.family() == AF_INET6) == (format == FI_SOCKADDR_IN6);
}

}  // namespace

std::vector<std::string> NicAddresses::domains(uint32_t format) {
  std::vector<std::string> names;
  for (const link::nic::Configuration& card : link::nic::configured_cards().cards)
    if (has_format(card, format)) names.push_back(link::nic::domain_name(card));
  return names;
}

size_t NicUdp::datagram_bytes(uint32_t format) {
  size_t bytes = SIZE_MAX;
  for (const link::nic::Configuration& card : link::nic::configured_cards().cards) {
    const size_t head =
        (card.address.family() == AF_INET6 ? wire::Ip6::bytes : wire::Ip4::bytes) + wire::Udp::bytes;
    if (has_format(card, format)) bytes = std::min(bytes, card.mtu_bytes - head);
  }
  return bytes;
}

}  // namespace weft::providers
