// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Domains that are network interfaces.
#include "api/libfabric/discovery/interface_offer.hpp"

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::fi {
namespace {

bool says(const char* name) noexcept { return name != nullptr && *name != 0; }

}  // namespace

InterfaceOffer::InterfaceOffer(const fi_info& offer, const providers::InterfaceDomain& at, uint64_t reach)
    : domain_name_(at.domain),
      fabric_name_(at.fabric),
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

bool names_interface(const fi_info* hints) noexcept {
  if (hints == nullptr) return false;
  return (hints->domain_attr != nullptr && says(hints->domain_attr->name)) ||
         (hints->fabric_attr != nullptr && says(hints->fabric_attr->name));
}

std::vector<std::byte> source_in_domain(const Provider& provider, uint32_t format, const fi_info& info) {
  const char* const name = info.domain_attr != nullptr ? info.domain_attr->name : nullptr;
  if (provider.interface_domains == nullptr || !says(name) || std::string_view(name) == provider.name)
    return {};
  std::string fabric;  // of the info's own source
  if (info.src_addr != nullptr && info.src_addrlen >= provider.addrlen(format)) {
    const std::span given(static_cast<const std::byte*>(info.src_addr), provider.addrlen(format));
    for (const providers::InterfaceDomain& at : provider.interface_domains(format, given, {}))
      if (at.domain == name) fabric = at.fabric;
  }
  // Its port is that of one endpoint, and not of those that have no source: so the address is that of the place.
  std::vector<std::byte> first;
  for (providers::InterfaceDomain& at : provider.interface_domains(format, {}, {})) {
    if (at.domain != name) continue;
    if (fabric.empty() || at.fabric == fabric) return std::move(at.source);
    if (first.empty()) first = std::move(at.source);
  }
  return first;
}

std::string domain_names(const Provider& provider, uint32_t format) {
  std::string names;
  const auto add = [&names](const std::string& name) {
    const std::string quoted = '"' + name + '"';
    if (names.find(quoted) == std::string::npos) names += (names.empty() ? "" : ", ") + quoted;
  };
  for (const providers::InterfaceDomain& at : provider.interface_domains(format, {}, {})) add(at.domain);
  add(provider.name);
  return names;
}

}  // namespace weft::fi
