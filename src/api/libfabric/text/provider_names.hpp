// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names of providers and lists of them, as FI_PROVIDER and fi_fabric(3), "prov_name", have them. Must not know which providers exist.
#pragma once

#include <string_view>

namespace weft::fi {

// Without the spaces at both ends.
std::string_view trimmed(std::string_view text) noexcept;

// Calls `found` with each part of `text` between separators, trimmed, until it returns true.
template <class Found>
bool any_part(std::string_view text, char separator, Found found) {
  while (true) {
    const size_t end = text.find(separator);
    if (found(trimmed(text.substr(0, end)))) return true;
    if (end == std::string_view::npos) return false;
    text.remove_prefix(end + 1);
  }
}

// "ofi_rxm;verbs" asks for both layers, in either order (fi_fabric(3), "prov_name"). Capitals do not count.
bool has_layers(std::string_view name, std::string_view layers) noexcept;

// Whether a list as in FI_PROVIDER lets a name pass: "a,b" those, "^a,b" all but those, null or empty all.
// Capitals do not count. A name of layers, "a;b", is met by each of its parts.
bool name_passes(const char* list, const char* name) noexcept;

}  // namespace weft::fi
