// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opens an engine at a local address. Must not know which links exist.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "api/libfabric/discovery/link_name.hpp"
#include "api/libfabric/objects/objects.hpp"
#include "link/packet/middleware.hpp"
#include "proto/datagram/datagram.hpp"
#include "proto/engine/endpoint_engine.hpp"

namespace weft::fi {

// `name`: as Provider addresses read, or empty for any. `info`: that of the endpoint, null when it only gets another name.
template <proto::OpensByName E>
Result<void> open_engine(E& engine, const Domain&, const std::string& name, const fi_info*) {
  return engine.open(name);
}

// Datagrams, with the middleware that the settings ask for. Without a name: the address from which the destination that the program named is reached.
template <class P>
Result<void> open_engine(proto::Datagram<P>& engine, const Domain& domain, const std::string& name,
                         const fi_info* info) {
  const char* provider = domain.provider->name;
  link::packet::Audience audience;
  audience.warning = [](const void* who, const char* what) {
    log_warn(static_cast<const char*>(who), FI_LOG_EP_CTRL, "%s", what);
  };
  audience.warned = provider;
  if (log_enabled(FI_LOG_INFO, FI_LOG_EP_DATA, provider)) {
    audience.note = [](const void* who, const char* what) {
      log_info(static_cast<const char*>(who), FI_LOG_EP_DATA, "%s", what);
    };
    audience.noted = provider;
  }
  if constexpr (proto::HasPathMtu<P>)
    if (info != nullptr) engine.link().set_fragments(true);
  if (!name.empty())
    return link::packet::open_observed(engine.link(), std::as_bytes(std::span(name)), audience);
  const auto* dest = info != nullptr ? static_cast<const std::byte*>(info->dest_addr) : nullptr;
  const std::vector<std::byte> source =
      P::source_for(domain.addr_format == FI_SOCKADDR_IN6,
                    dest != nullptr ? std::span(dest, info->dest_addrlen) : std::span<const std::byte>());
  return link::packet::open_observed(engine.link(), source, audience);
}

}  // namespace weft::fi
