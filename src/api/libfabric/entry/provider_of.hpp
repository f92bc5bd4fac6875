// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Makes a Provider, as the front end knows it, out of a provider's type, and so compiles its engines with all their calls: included where a provider is
// compiled (api/libfabric/providers/, those of others). Who only names a provider of this build includes providers.hpp.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "api/libfabric/discovery/offer.hpp"
#include "api/libfabric/discovery/provider.hpp"
#include "api/libfabric/discovery/provider_type.hpp"
#include "api/libfabric/endpoints/device.hpp"
#include "api/libfabric/endpoints/endpoint_open.hpp"
#include "api/libfabric/entry/providers.hpp"
#include "api/libfabric/text/param.hpp"
#include "base/lasting.hpp"
#include "proto/datagram/datagram.hpp"
#include "proto/engine/engine.hpp"
#include "providers/endpoint_kind.hpp"

namespace weft::fi {

// What endpoints of a provider stand on: an engine that it names itself (P::Engine), the engine of datagrams over its packets (P::Packets), or the
// one that knows all of fi_* over its link (P::Link).
template <class P>
struct EngineOf {
  using Type = proto::Engine<typename P::Link>;
};
template <BringsEngine P>
struct EngineOf<P> {
  using Type = typename P::Engine;
};
template <BringsPackets P>
struct EngineOf<P> {
  using Type = proto::Datagram<typename P::Packets>;
};

template <class P>
constexpr proto::EngineAbilities abilities_of(fi_ep_type type) noexcept {
  if constexpr (BringsConnections<P>)
    if (type == FI_EP_MSG) return proto::Engine<typename P::Connection>::abilities;
  return EngineOf<P>::Type::abilities;
}

// The domains that a provider offers; one with its own name where it names none.
template <class P>
std::vector<std::string> domains_of([[maybe_unused]] uint32_t format) {
  if constexpr (NamesDomains<P>) return P::domains(format);
  else return {P::name};
}

// One offer for each domain, kind of endpoint and format of addresses, linked by next. Programs may ask from their own exit handlers.
template <class P>
const fi_info* offers_of(const Provider&) {
  static const std::deque<Offer>* const offers = &make_lasting<std::deque<Offer>>([] {
    if constexpr (BringsConnections<P>) {  // defines the variables, too
      typename P::Connection connection;
      set_time_limits(P::name, connection);
    }
    if constexpr (BringsParameters<P>)
      for (const providers::Parameter& parameter : P::parameters)
        (void)param_define(P::name, parameter.name, FI_PARAM_BOOL, parameter.help);
    std::deque<Offer> made;  // does not move its elements, which point into themselves
    for (const providers::EndpointKind& kind : P::kinds) {
      for (const uint32_t format : P::formats) {
        if (!P::available(format)) continue;
        for (std::string& domain : domains_of<P>(format)) {
          Offer& offer = made.emplace_back(P::name, P::version, kind, format, abilities_of<P>(kind.type));
          if constexpr (NamesDomains<P>) offer.set_names(P::fabric, std::move(domain));
          if constexpr (LimitsDatagrams<P>)
            if (kind.type == FI_EP_DGRAM) offer.limit_messages(P::datagram_bytes(format));
          if (made.size() > 1) made[made.size() - 2].info.next = &offer.info;
        }
      }
    }
    return made;
  }());
  return offers->empty() ? nullptr : &offers->front().info;
}

// How a provider's endpoints are opened.
template <class P>
struct Openers : Opener<typename EngineOf<P>::Type> {
  using Engine = typename EngineOf<P>::Type;
  static constexpr decltype(Provider::passive_endpoint) open_passive = [] {
    if constexpr (proto::ConnectedEngine<Engine>) return open_passive_endpoint<typename Engine::Connection>;
    else return decltype(Provider::passive_endpoint)(nullptr);
  }();
};
template <BringsConnections P>
struct Openers<P> : Opener<typename EngineOf<P>::Type> {
  using Connected = proto::Engine<typename P::Connection>;
  using ByType = OpenerByType<typename EngineOf<P>::Type, Connected>;
  static constexpr auto open_endpoint = ByType::open_endpoint;
  static constexpr auto open_srx = ByType::open_srx;
  static constexpr auto open_passive = open_passive_endpoint<typename P::Connection>;
};

template <class P>
constexpr bool repeats_packets() noexcept {
  if constexpr (BringsLink<P>) return proto::repeats_packets<typename P::Link>;
  else return false;
}

template <class P>
constexpr bool shares_memory() noexcept {
  if constexpr (SaysSharesMemory<P>) return P::shares_memory;
  else return false;
}

template <class P>
constexpr Provider describe() {
  using Open = Openers<P>;
  using Engine = typename EngineOf<P>::Type;
  Provider provider{
      .name = P::name,
      .version = P::version,
      .offers = offers_of<P>,
      .addrlen = P::addrlen,
      .resolve = P::resolve,
      .unnamed = P::unnamed,
      .normalise = P::normalise,
      .to_string = P::to_string,
      .endpoint = Open::open_endpoint,
      .scalable_endpoint = nullptr,
      .stx = nullptr,
      .srx = nullptr,
      .passive_endpoint = Open::open_passive,
      .context = nullptr,
      .repeats_packets = repeats_packets<P>(),
      .shares_memory = shares_memory<P>(),
      .open_device = device_opener<P>(),
  };
  if constexpr (HasInterfaceDomains<P>) provider.interface_domains = P::interface_domains;
  if constexpr (proto::HasManyContexts<Engine>) {
    provider.scalable_endpoint = Open::open_scalable;
    provider.stx = Open::open_stx;
    provider.srx = Open::open_srx;
  } else if constexpr (BringsConnections<P>) {
    provider.srx = Open::open_srx;  // of the connected endpoints
  }
  return provider;
}
template <class P>
constinit const Provider Compiled<P>::provider = describe<P>();

}  // namespace weft::fi
