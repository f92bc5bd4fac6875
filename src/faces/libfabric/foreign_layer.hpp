// RDM endpoints over the connected endpoints of a provider that is known at run time: "<name>;ofi_rxm". Must not know which providers there are.
#pragma once

#include <memory>

#include "faces/libfabric/provider.hpp"
#include "link/foreign/messages.hpp"

namespace weft::fi {

class Layered;
struct DropLayered {
  void operator()(Layered* layered) const noexcept;
};
using LayeredPtr = std::unique_ptr<Layered, DropLayered>;

// The provider "<source.name>;ofi_rxm"; null when the one below offers no FI_EP_MSG with addresses of IP here. `name` and version of `source`
// are set.
LayeredPtr layer_messages(link::foreign::Source source);

const Provider& provider_of(const Layered& layered) noexcept;

}  // namespace weft::fi
