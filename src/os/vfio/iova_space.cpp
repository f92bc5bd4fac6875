// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// First fit behind a cursor over a map of free pieces.
#include "os/vfio/iova_space.hpp"

#include <algorithm>

namespace weft::os::vfio {
namespace {

// Above every address that is given out; so an end, and the sum of an address and a size, never wraps.
constexpr uint64_t limit = uint64_t{1} << 63;

uint64_t round_up(uint64_t value, uint64_t power) noexcept { return (value + power - 1) & ~(power - 1); }

}  // namespace

IovaSpace::IovaSpace(std::span<const IovaRange> usable, uint64_t granule, unsigned address_bits)
    : granule_(granule) {
  const uint64_t top = address_bits < 63 ? uint64_t{1} << address_bits : limit;
  for (const IovaRange& range : usable) {
    if (range.first > range.last || range.first >= top) continue;
    const uint64_t begin = std::max(round_up(range.first, granule_), granule_);
    const uint64_t end = std::min(range.last, top - 1) + 1;
    insert(begin, end & ~(granule_ - 1));
  }
}

// Adds [begin, end), joined with every piece that it touches.
void IovaSpace::insert(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  auto next = free_.upper_bound(begin);
  if (next != free_.begin() && std::prev(next)->second >= begin) --next;
  while (next != free_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    free_bytes_ -= next->second - next->first;
    next = free_.erase(next);
  }
  free_.emplace(begin, end);
  free_bytes_ += end - begin;
}

std::optional<uint64_t> IovaSpace::allocate(uint64_t bytes, uint64_t alignment) {
  if (bytes == 0 || bytes > free_bytes_ || alignment > limit) return std::nullopt;
  bytes = round_up(bytes, granule_);
  alignment = std::max(alignment, granule_);
  auto found = take_between(cursor_, limit, bytes, alignment);
  if (!found) found = take_between(0, limit, bytes, alignment);
  if (found) cursor_ = *found + bytes;
  return found;
}

// The lowest fitting address in [from, to).
std::optional<uint64_t> IovaSpace::take_between(uint64_t from, uint64_t to, uint64_t bytes,
                                                uint64_t alignment) {
  auto piece = free_.upper_bound(from);
  if (piece != free_.begin()) --piece;
  for (; piece != free_.end() && piece->first < to; ++piece) {
    const auto [begin, end] = *piece;
    const uint64_t at = round_up(std::max(begin, from), alignment);
    if (at >= end || end - at < bytes) continue;
    free_.erase(piece);
    if (begin < at) free_.emplace(begin, at);
    if (at + bytes < end) free_.emplace(at + bytes, end);
    free_bytes_ -= bytes;
    return at;
  }
  return std::nullopt;
}

void IovaSpace::free(uint64_t address, uint64_t bytes) {
  insert(address, address + round_up(bytes, granule_));
}

}  // namespace weft::os::vfio
