// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Domains that are network interfaces.
#include "api/libfabric/discovery/placed.hpp"

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::fi {
namespace {

bool says(const char* name) noexcept { return name != nullptr && *name != 0; }

}  // namespace

PlacedOffer::PlacedOffer(const fi_info& offer, const providers::Place& place, uint64_t reach)
    : domain_name_(place.domain),
      fabric_name_(place.fabric),
      domain_(*offer.domain_attr),
      fabric_(*offer.fabric_attr),
      info_(offer) {
  constexpr uint64_t either = FI_LOCAL_COMM | FI_REMOTE_COMM;
  domain_.name = domain_name_.data();
  domain_.caps &= ~either | reach;
  fabric_.name = fabric_name_.data();
  info_.caps &= ~either | reach;
  info_.domain_attr = &domain_;
  info_.fabric_attr = &fabric_;
}

bool names_place(const fi_info* hints) noexcept {
  if (hints == nullptr) return false;
  return (hints->domain_attr != nullptr && says(hints->domain_attr->name)) ||
         (hints->fabric_attr != nullptr && says(hints->fabric_attr->name));
}

std::vector<std::byte> source_in_domain(const Provider& provider, uint32_t format, const fi_info& info) {
  const char* const name = info.domain_attr != nullptr ? info.domain_attr->name : nullptr;
  if (provider.places == nullptr || !says(name) || std::string_view(name) == provider.name) return {};
  std::string fabric;  // of the info's own source
  if (info.src_addr != nullptr && info.src_addrlen >= provider.addrlen(format)) {
    const std::span given(static_cast<const std::byte*>(info.src_addr), provider.addrlen(format));
    for (const providers::Place& place : provider.places(format, given, {}))
      if (place.domain == name) fabric = place.fabric;
  }
  // Its port is that of one endpoint, and not of those that have no source: so the address is that of the place.
  std::vector<std::byte> first;
  for (providers::Place& place : provider.places(format, {}, {})) {
    if (place.domain != name) continue;
    if (fabric.empty() || place.fabric == fabric) return std::move(place.source);
    if (first.empty()) first = std::move(place.source);
  }
  return first;
}

std::string domain_names(const Provider& provider, uint32_t format) {
  std::string names;
  const auto add = [&names](const std::string& name) {
    const std::string quoted = '"' + name + '"';
    if (names.find(quoted) == std::string::npos) names += (names.empty() ? "" : ", ") + quoted;
  };
  for (const providers::Place& place : provider.places(format, {}, {})) add(place.domain);
  add(provider.name);
  return names;
}

}  // namespace weft::fi
