// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A provider over packets of somebody else (weft/plugin.hpp): the engine over reliable streams over them. A provider is a type: its link, its
// name, its addresses. Must not know the front end.
#pragma once

#include <rdma/fabric.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "link/kit/tabled.hpp"
#include "link/kit/text_names.hpp"
#include "link/reliable/link.hpp"
#include "providers/endpoint_kind.hpp"

namespace weft::providers {

// There is one in a process; what it is, it learns from its table. `kinds`, `name` and `version` are there after use().
struct PacketsProvider {
  using Tabled = link::kit::Tabled;
  static inline const char* name = "";
  static inline uint32_t version = 0;
  static inline std::array<EndpointKind, 1> kinds{};
  static void use(const PacketsTable& table) noexcept {
    link::kit::use_table(table);
    name = table.name;
    version = table.provider_version;
    const uint64_t reach = (table.flags & table_leaves_machine) != 0 ? FI_REMOTE_COMM : 0;
    kinds[0] = {FI_EP_RDM, FI_PROTO_RXD, 1, FI_LOCAL_COMM | reach};
  }

  struct Named {
    static inline const char*& name = PacketsProvider::name;
  };
  using Names = link::kit::TextNames<Tabled, Named>;
  using Link = link::reliable::Reliable<link::kit::TabledPackets, Names>;
  static constexpr std::array<uint32_t, 1> formats = {FI_ADDR_STR};

  static constexpr size_t addrlen(uint32_t format) noexcept {
    return format == FI_ADDR_STR ? Names::address_length : 0;
  }
  static bool available(uint32_t) noexcept { return Tabled::is_available(); }
  // A node "fi_NAME://TEXT" is taken as it is. Else the author's type resolves; when it does not, the service is the text, and a node that is not the only one says
  // nothing.
  static Result<std::vector<std::byte>> resolve(uint32_t, const char* node, const char* service,
                                                bool source) {
    const std::string_view host = node != nullptr ? node : "";
    const std::string_view port = service != nullptr ? service : "";
    if (host.empty() && port.empty()) return std::vector<std::byte>{};
    std::optional<link::kit::Address> address;
    if (host.starts_with(Names::scheme())) {
      address = Names().read(std::as_bytes(std::span(host)));
    } else if (host.find("://") != std::string_view::npos) {
      return Error{EINVAL, std::string(host) + " is no address of " + name};
    } else if (Tabled::resolves()) {
      address = Names::from(Tabled::resolve(node, service, source));
    } else if (!port.empty()) {
      address = Names::from_text(port);
    } else if (source) {
      return std::vector<std::byte>{};
    } else {
      address = Names::from_text(host);
    }
    if (!address) return Error{ENODATA, std::string(!port.empty() ? port : host) + ": no address of " + name};
    const auto text = Names().write(*address);
    return std::vector<std::byte>(text.bytes.begin(), text.bytes.end());
  }
  // "fi_NAME://", without a text.
  static std::vector<std::byte> unnamed(uint32_t) {
    const std::string text = Names::scheme();
    std::vector<std::byte> bytes(Names::address_length);
    std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size() - 1));
    return bytes;
  }
  static bool normalise(uint32_t, std::byte* bytes) {
    const auto address = Names().read({bytes, Names::address_length});
    if (!address) return false;
    const auto text = Names().write(*address);
    std::memcpy(bytes, text.bytes.data(), text.bytes.size());
    return true;
  }
  static std::string to_string(uint32_t, const void* bytes) {
    const auto* text = static_cast<const char*>(bytes);
    return Names().read({static_cast<const std::byte*>(bytes), Names::address_length})
               ? std::string(text, ::strnlen(text, Names::address_length))
               : std::string();
  }
};

}  // namespace weft::providers
