// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the front end tells a link before it is opened: settings of the domain and the endpoint, and where its words go. A link takes those that it knows.
// Must not know which links exist.
#pragma once

#include <cstdint>

#include "api/libfabric/discovery/provider.hpp"
#include "api/libfabric/discovery/traffic_class.hpp"
#include "api/libfabric/objects/objects.hpp"
#include "api/libfabric/text/log.hpp"
#include "proto/setup.hpp"

namespace weft::fi {

template <class L>
void apply_settings(L& link, const Domain& domain, const fi_info& info) {
  const Provider* provider = domain.provider;
  set_traffic_class(link, code_point_of(info.tx_attr, domain.attr.tclass, domain.api_version));
  if constexpr (proto::HasAddressFormats<L>) link.set_address_format(domain.addr_format);
  if constexpr (proto::HasContext<L>) link.set_context(provider->context);
  if constexpr (proto::HasWarnings<L>)
    link.set_warning(
        [](const void* who, const char* what) {
          log_warn(static_cast<const Provider*>(who)->name, FI_LOG_EP_CTRL, "%s", what);
        },
        provider);
  if constexpr (proto::HasNotes<L>)
    if (log_enabled(FI_LOG_INFO, FI_LOG_EP_DATA, provider->name))
      link.set_note(
          [](const void* who, const char* what) {
            log_info(static_cast<const Provider*>(who)->name, FI_LOG_EP_DATA, "%s", what);
          },
          provider);
}

}  // namespace weft::fi
