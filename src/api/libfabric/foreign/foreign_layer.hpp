// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RDM endpoints over what a provider that is known at run time has: "<name>;ofi_rxm" over connected endpoints, "<name>;ofi_rxd" over datagrams.
// Must not know which providers there are.
#pragma once

#include <memory>

#include "api/libfabric/discovery/provider.hpp"
#include "link/foreign/source.hpp"

namespace weft::fi {

class Layered;
struct DropLayered {
  void operator()(Layered* layered) const noexcept;
};
using LayeredPtr = std::unique_ptr<Layered, DropLayered>;

// The providers "<source.name>;ofi_rxm" and "<source.name>;ofi_rxd"; null when the one below offers no FI_EP_MSG or FI_EP_DGRAM with addresses
// of IP here. `name` and version of `source` are set.
LayeredPtr layer_messages(link::foreign::Source source);
LayeredPtr layer_packets(link::foreign::Source source);

const Provider& provider_of(const Layered& layered) noexcept;

}  // namespace weft::fi
