// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "nic/e1000e/filter.hpp"

#include <algorithm>

namespace weft::nic::e1000e {

unsigned MulticastFilter::bit_of(const wire::Mac& mac) noexcept {
  return std::to_integer<unsigned>(mac[4]) >> 4 | std::to_integer<unsigned>(mac[5]) << 4;
}

bool MulticastFilter::join(const wire::Mac& mac) noexcept {
  Group* free = nullptr;
  for (Group& group : groups_) {
    if (group.joins != 0 && group.mac == mac) {
      ++group.joins;
      return true;
    }
    if (group.joins == 0 && !free) free = &group;
  }
  if (!free) {
    ++forgotten_;
    return false;
  }
  *free = {mac, 1};
  const unsigned at = bit_of(mac);
  table_[at / 32] |= bit(at % 32);
  return true;
}

void MulticastFilter::leave(const wire::Mac& mac) noexcept {
  const auto group = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Group& g) { return g.joins != 0 && g.mac == mac; });
  if (group == groups_.end()) {
    if (forgotten_ != 0) --forgotten_;
    return;
  }
  if (--group->joins != 0) return;
  const unsigned at = bit_of(mac);
  const bool is_shared = std::any_of(groups_.begin(), groups_.end(),
                                     [&](const Group& g) { return g.joins != 0 && bit_of(g.mac) == at; });
  if (!is_shared) table_[at / 32] &= ~bit(at % 32);
}

}  // namespace weft::nic::e1000e
