// Makes a Provider, as the face knows it, out of a provider's type. A library names the types that it holds: registry.cpp all of them, a
// directly linked one its own. Must not know which providers exist.
#pragma once

#include <deque>

#include "base/lasting.hpp"
#include "faces/libfabric/datagram_open.hpp"
#include "faces/libfabric/device.hpp"
#include "faces/libfabric/endpoint_open.hpp"
#include "faces/libfabric/offer.hpp"
#include "faces/libfabric/param.hpp"
#include "faces/libfabric/provider.hpp"
#include "providers/endpoint_kind.hpp"

namespace weft::fi {

// One offer for each kind of endpoint and each format of addresses, linked by next. Programs may ask from their own exit handlers.
template <class P>
const fi_info* offers_of(const Provider&) {
  static const std::deque<Offer>& offers = make_lasting<std::deque<Offer>>([] {
    if constexpr (requires { typename P::Connection; }) {  // defines the variables, too
      typename P::Connection connection;
      set_time_limits(P::name, connection);
    }
    if constexpr (requires { P::parameters; })
      for (const providers::Parameter& parameter : P::parameters)
        (void)param_define(P::name, parameter.name, FI_PARAM_BOOL, parameter.help);
    std::deque<Offer> made;  // does not move its elements, which point into themselves
    for (const providers::EndpointKind& kind : P::kinds) {
      for (const uint32_t format : P::formats) {
        if (!P::available(format)) continue;
        Offer& offer = made.emplace_back(P::name, P::version, kind, format);
        if constexpr (requires { P::datagram_bytes(format); })
          offer.limit_to_datagrams(P::datagram_bytes(format));
        if (made.size() > 1) made[made.size() - 2].info.next = &offer.info;
      }
    }
    return made;
  }());
  return offers.empty() ? nullptr : &offers.front().info;
}

// How a provider's endpoints are opened; one with a type Connection has connected endpoints, too.
template <class P>
struct Openers : Opener<typename P::Link> {
  static constexpr decltype(Provider::passive_endpoint) open_passive = nullptr;
};
template <class P>
requires proto::ConnectedLink<typename P::Connection>
struct Openers<P> : Opener<typename P::Link> {
  using ByType = OpenerByType<typename P::Link, typename P::Connection>;
  static constexpr auto open_endpoint = ByType::open_endpoint;
  static constexpr auto open_srx = ByType::open_srx;
  static constexpr auto open_passive = open_passive_endpoint<typename P::Connection>;
};

template <class P>
constexpr Provider describe() {
  return {
      P::name,
      P::version,
      offers_of<P>,
      P::addrlen,
      P::resolve,
      P::unnamed,
      P::normalise,
      P::to_string,
      Openers<P>::open_endpoint,
      Openers<P>::open_scalable,
      Openers<P>::open_stx,
      Openers<P>::open_srx,
      Openers<P>::open_passive,
      nullptr,
      proto::RepeatsPackets<typename P::Link>,
      device_opener<P>(),
  };
}
template <class P>
inline const Provider provider_of = describe<P>();

// Datagram endpoints only.
template <class P>
inline const Provider datagram_provider_of = {
    P::name,
    P::version,
    offers_of<P>,
    P::addrlen,
    P::resolve,
    P::unnamed,
    P::normalise,
    P::to_string,
    DatagramOpener<typename P::Packets>::open_endpoint,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    false,
    device_opener<P>(),
};

// The one of the two that fits.
template <class P>
constexpr const Provider& any_provider_of() noexcept {
  if constexpr (requires { typename P::Link; }) return provider_of<P>;
  else return datagram_provider_of<P>;
}

}  // namespace weft::fi
