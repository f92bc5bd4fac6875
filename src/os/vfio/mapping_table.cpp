// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two maps over the same mappings: by address of the device and by pages of the process.
#include "os/vfio/mapping_table.hpp"

namespace weft::os::vfio {

std::optional<uint64_t> MappingTable::share(uintptr_t memory, size_t bytes, nic::DmaAccess access) {
  const auto found = by_pages_.find(pages_of(memory, bytes, access));
  if (found == by_pages_.end()) return std::nullopt;
  ++by_iova_.find(found->second)->second.users;
  return found->second;
}

void MappingTable::add(const DmaMapping& mapping) {
  by_iova_.emplace(mapping.iova, Shared{mapping, 1});
  by_pages_.emplace(pages_of(mapping.memory, mapping.bytes, mapping.access), mapping.iova);
}

std::optional<DmaMapping> MappingTable::drop(uint64_t address) {
  auto found = by_iova_.upper_bound(address);
  if (found == by_iova_.begin()) return std::nullopt;
  --found;
  Shared& shared = found->second;
  if (address - shared.mapping.iova >= shared.mapping.bytes) return std::nullopt;
  if (--shared.users != 0) return std::nullopt;
  const DmaMapping mapping = shared.mapping;
  by_iova_.erase(found);
  by_pages_.erase(pages_of(mapping.memory, mapping.bytes, mapping.access));
  return mapping;
}

std::optional<DmaMapping> MappingTable::drop_any() {
  if (by_iova_.empty()) return std::nullopt;
  by_iova_.begin()->second.users = 1;
  return drop(by_iova_.begin()->first);
}

}  // namespace weft::os::vfio
