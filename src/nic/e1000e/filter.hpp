// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// MulticastFilter: which groups were joined, as the 82574's multicast table (MTA, datasheet 10.2.5.17). The table is a hash: frames to
// other groups may pass. Must not know registers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "nic/e1000e/registers.hpp"
#include "wire/neighbor.hpp"

namespace weft::nic::e1000e {

class MulticastFilter {
 public:
  static constexpr size_t groups_max = 128;

  // Each join needs its leave. False: there is no room to remember the group, and all groups pass until it is left.
  bool join(const wire::Mac& mac) noexcept;
  void leave(const wire::Mac& mac) noexcept;

  bool passes_all() const noexcept { return forgotten_ != 0; }
  uint32_t word(unsigned index) const noexcept { return table_[index]; }
  // Which bit of the table: bits 47 to 36 of the address, which are the last 12 on the wire (RCTL.MO is 0).
  static unsigned bit_of(const wire::Mac& mac) noexcept;

 private:
  struct Group {
    wire::Mac mac{};
    uint32_t joins = 0;  // 0: free
  };

  std::array<Group, groups_max> groups_{};
  std::array<uint32_t, Mta::words> table_{};
  size_t forgotten_ = 0;  // joins of groups that are not in groups_
};

}  // namespace weft::nic::e1000e
