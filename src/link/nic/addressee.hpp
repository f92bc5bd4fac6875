// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For whom a frame that came is: the owner of a UDP port, members of a group, everybody, the host itself. It decides
// who looks at a frame;
// whether the frame is right the stack of the one who looks decides (link/ethernet/stack.hpp). Stateless. Must not know
// cards or endpoints.
#pragma once

#include <cstdint>
#include <span>

#include "link/ethernet/neighbor_cache.hpp"

namespace weft::link::nic {

struct Addressee {
  enum class Kind : uint8_t {
    Nobody,    // neither ARP nor ICMPv6 nor UDP, or too short to tell
    Port,      // UDP to a station
    Group,     // UDP to a group of Ethernet, `group`
    Everyone,  // ARP and ICMPv6 that ask nothing of `own`
    Host,      // a question about `own`, which one answers for all
  };
  Kind kind = Kind::Nobody;
  uint16_t port = 0;
  wire::Mac group{};
};

// `own`: the card's address. The frame is not validated; nothing beyond it is read.
Addressee addressee_of(std::span<const std::byte> frame, const ethernet::Host& own) noexcept;

}  // namespace weft::link::nic
