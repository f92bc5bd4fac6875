// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Addresses that turned out to be another user's, so that what goes there fails at once: the last few, for a while. Must not know what a token is made of.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::link::shm {

class RefusedAddresses {
 public:
  static constexpr size_t count_max = 16;
  static constexpr uint64_t refused_ns =
      10'000'000'000;  // so long an address that was refused is not tried again

  void add(uint64_t token, uint64_t now_ns) noexcept {
    entries_[next_++ % entries_.size()] = {token, now_ns + refused_ns};
  }
  bool has(uint64_t token, uint64_t now_ns) const noexcept {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const Entry& entry) { return entry.token == token && now_ns < entry.until_ns; });
  }

 private:
  struct Entry {
    uint64_t token = 0;
    uint64_t until_ns = 0;
  };
  std::array<Entry, count_max> entries_{};
  size_t next_ = 0;
};

}  // namespace weft::link::shm
