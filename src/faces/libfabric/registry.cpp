// The providers of this build as the libfabric face sees them: one line for each type in src/providers/.
#include <array>

#include "faces/libfabric/endpoint_open.hpp"
#include "faces/libfabric/offer.hpp"
#include "faces/libfabric/provider.hpp"
#include "providers/loopback.hpp"
#include "providers/shm.hpp"

namespace weft::fi {
namespace {

template <class P>
const fi_info* offers_of() {
  static const Offer offer(P::name, P::version, P::addr_format, P::protocol);
  return &offer.info;
}

template <class P>
const Provider provider_of = {
    P::name,
    P::version,
    offers_of<P>,
    P::addr_format,
    P::Link::address_length,
    P::resolve,
    P::to_string,
    Opener<typename P::Link>::open_endpoint,
    Opener<typename P::Link>::open_scalable,
    Opener<typename P::Link>::open_stx,
    Opener<typename P::Link>::open_srx,
};

// In the order in which fi_getinfo returns them.
constexpr std::array<const Provider*, 2> all = {
    &provider_of<providers::Shm>,
    &provider_of<providers::Loopback>,
};

}  // namespace

std::span<const Provider* const> providers() { return all; }

}  // namespace weft::fi
