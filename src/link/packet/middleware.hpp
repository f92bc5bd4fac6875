// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opens a packet link with the middleware that the settings ask for: WEFT_PACKET_FAULTS and WEFT_PCAP. Works for every
// PacketLink. Must not know which link it is.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "proto/packet/abilities.hpp"
#include "proto/packet/observed.hpp"

namespace weft::link::packet {

// Where sentences go; each may be null. `note` is for what is no fault.
struct Audience {
  proto::PacketWarning warning = nullptr;
  const void* warned = nullptr;
  proto::PacketWarning note = nullptr;
  const void* noted = nullptr;
};

struct Middleware {
  std::optional<proto::FaultPlan> faults;
  std::string capture_path;  // empty: none

  bool is_wanted() const noexcept { return faults || !capture_path.empty(); }
};

// EINVAL with a sentence when a setting is malformed.
Result<Middleware> middleware_of_settings();
std::unique_ptr<proto::PacketObserver> make_observer(const Middleware& wanted,
                                                     const proto::PacketLinkTraits& traits,
                                                     const Audience& audience);

// The link stands on packets that have the middleware already: there what goes over the network is seen.
template <class P>
concept ObservesBelow = requires {
  requires P::observes_below;
};

template <proto::PacketLink P>
Result<void> open_observed(proto::Observed<P>& link, std::span<const std::byte> address,
                           const Audience& audience) {
  if constexpr (ObservesBelow<P>) return link.open(address);
  auto wanted = middleware_of_settings();
  if (!wanted) return wanted.error();
  if (auto opened = link.open(address); !opened) return opened;
  if (wanted->is_wanted()) link.observe(make_observer(*wanted, proto::traits_of(link), audience));
  return {};
}

}  // namespace weft::link::packet
