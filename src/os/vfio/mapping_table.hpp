// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which memory of the process a device can reach: mappings, each with the count of its users. Pure bookkeeping; must not know how a mapping is
// made.
//
// Two maps of the same pages with the same rights share one mapping: many small buffers lie in one page. Ranges that only overlap
// get a mapping each, with addresses of its own: TYPE1v2 unmaps a mapping whole or not at all, and what was unmapped must not stay reachable
// because a neighbour of a part of it is still mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "nic/bus.hpp"

namespace weft::os::vfio {

struct DmaMapping {
  uint64_t iova = 0;
  uintptr_t memory = 0;  // both of whole granules
  size_t bytes = 0;
  nic::DmaAccess access;
};

class MappingTable {
 public:
  // One more user of a mapping of exactly these pages and rights: its IOVA. Nothing: there is none.
  std::optional<uint64_t> share(uintptr_t memory, size_t bytes, nic::DmaAccess access);
  // A new mapping, with one user.
  void add(const DmaMapping& mapping);
  // The user that has an address within the mapping goes. The mapping, if this was the last one: the caller unmaps it. Nothing: it has
  // other users, or the address is in none.
  std::optional<DmaMapping> drop(uint64_t address);
  // Any mapping, whatever its users; for the end.
  std::optional<DmaMapping> drop_any();

  size_t size() const noexcept { return by_iova_.size(); }

 private:
  using Pages = std::pair<std::pair<uintptr_t, size_t>, unsigned>;
  struct Shared {
    DmaMapping mapping;
    size_t users = 1;
  };
  static Pages pages_of(uintptr_t memory, size_t bytes, nic::DmaAccess access) noexcept {
    return {{memory, bytes}, (access.device_reads ? 1U : 0U) | (access.device_writes ? 2U : 0U)};
  }

  std::map<uint64_t, Shared> by_iova_;
  std::map<Pages, uint64_t> by_pages_;
};

}  // namespace weft::os::vfio
