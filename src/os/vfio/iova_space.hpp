// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which addresses a device may be given (IOVAs): ranges that the IOMMU translates, less those taken. Pure bookkeeping; must not know who maps what.
//
// The search goes on behind what was taken last, and starts from below when it reaches the end: an address that was given back is used
// again late, so a device that still has it meets the IOMMU's fault, not somebody else's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

namespace weft::os::vfio {

struct IovaRange {
  uint64_t first = 0;
  uint64_t last = 0;  // inclusive
};

class IovaSpace {
 public:
  // `granule` is a power of two: all addresses and sizes are multiples of it. Page 0 is never given out: to devices and drivers 0 means "none".
  // Addresses stay below 2^address_bits. Ranges that overlap, or are upside down, are taken for what they have together, or for nothing.
  IovaSpace(std::span<const IovaRange> usable, uint64_t granule, unsigned address_bits);

  // `bytes` is rounded up to granules; `alignment` is a power of two. Nothing: no range is large enough.
  std::optional<uint64_t> allocate(uint64_t bytes, uint64_t alignment);
  // What allocate() gave, whole.
  void free(uint64_t address, uint64_t bytes);

  uint64_t free_bytes() const noexcept { return free_bytes_; }
  uint64_t granule() const noexcept { return granule_; }
  size_t pieces() const noexcept { return free_.size(); }

 private:
  std::optional<uint64_t> take_between(uint64_t from, uint64_t to, uint64_t bytes, uint64_t alignment);
  void insert(uint64_t begin, uint64_t end);

  std::map<uint64_t, uint64_t> free_;  // begin to end (exclusive); no two touch
  uint64_t granule_;
  uint64_t free_bytes_ = 0;
  uint64_t cursor_ = 0;  // the end of what was taken last
};

}  // namespace weft::os::vfio
