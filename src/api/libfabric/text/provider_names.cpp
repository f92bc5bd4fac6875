// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lists of provider names, read.
#include "api/libfabric/text/provider_names.hpp"

#include <strings.h>

namespace weft::fi {
namespace {

bool same_name(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool has_layers(std::string_view name, std::string_view layers) noexcept {
  return !any_part(layers, ';', [name](std::string_view layer) {
    return !any_part(name, ';', [layer](std::string_view part) { return same_name(part, layer); });
  });
}

bool name_passes(const char* list, const char* name) noexcept {
  if (list == nullptr) return true;
  std::string_view items = trimmed(list);
  if (items.empty()) return true;
  const bool all_but = items.front() == '^';
  if (all_but) items.remove_prefix(1);
  const bool listed =
      any_part(items, ',', [name](std::string_view item) { return !item.empty() && has_layers(name, item); });
  return listed != all_but;
}

}  // namespace weft::fi
