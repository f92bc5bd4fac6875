// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which tables of providers a core of this version can have. Must not know what a provider does.
#include "link/kit/tabled.hpp"

#include <string>

namespace weft::link::kit {
namespace {

std::string text_of(uint32_t version) {
  return std::to_string(version >> 16) + '.' + std::to_string(version & 0xffff);
}

// Only for tables that are whole.
const char* missing_in(const PacketsTable& table) noexcept {
  if (table.make == nullptr || table.destroy == nullptr) return "make";
  if (table.open == nullptr) return "open";
  if (table.close == nullptr) return "close";
  if (table.address == nullptr) return "address";
  if (table.packet_bytes_max == nullptr) return "packet_bytes_max";
  if (table.send == nullptr) return "send";
  if (table.receive == nullptr) return "receive";
  if (table.address_text == nullptr || table.address_from_text == nullptr) return "address_text";
  return nullptr;
}

}  // namespace

std::string fault_of_table(const PacketsTable& table) {
  const std::string core = text_of(WEFT_PROVIDER_VERSION);
  if (table.version >> 16 != WEFT_PROVIDER_VERSION_MAJOR)
    return "a provider was compiled for version " + text_of(table.version) +
           " of weft/provider.hpp, and the core in this plugin has " + core +
           ": compile its sources again, with the headers of this core";
  if (table.bytes < table_bytes_least || table.name == nullptr)
    return "a provider's table is damaged: it has " + std::to_string(table.bytes) + " bytes";
  const std::string who = std::string("the provider \"") + table.name + "\" ";
  if (table.version_needed > WEFT_PROVIDER_VERSION)
    return who + "needs version " + text_of(table.version_needed) +
           " of weft/provider.hpp, and the core in this plugin has " + core +
           ": link it with the libweft-core.a of a newer Weft";
  if (const char* missing = missing_in(table)) return who + "lacks " + missing + "()";
  if (table.address_bytes_max < 1 || table.address_bytes_max > address_bytes_limit)
    return who + "has addresses of " + std::to_string(table.address_bytes_max) + " bytes";
  return {};
}

}  // namespace weft::link::kit
