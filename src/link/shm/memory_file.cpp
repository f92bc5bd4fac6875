// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/shm/memory_file.hpp"

#include <utility>

#include "base/assert.hpp"

namespace weft::link::shm {

Result<void> MemoryFile::create() {
  if (auto allowed = os::check_file_limit(header_bytes + channel_bytes); !allowed) return allowed;
  auto file = os::create_memory("weft-shm", header_bytes);
  if (!file) return file.error();
  file_ = std::move(*file);
  auto map = os::map_memory(file_, 0, header_bytes);
  if (!map) return map.error();
  header_map_ = std::move(*map);
  return {};
}

void MemoryFile::close() noexcept {
  header_map_ = {};
  free_.clear();
  channels_ = 0;
  file_.reset();
}

Result<void> MemoryFile::grow() {
  if (!free_.empty()) return {};
  free_.reserve(channels_ + 1);  // all may come back
  if (auto grown = os::grow_memory(file_, offset_of(channels_ + 1)); !grown) return grown.error();
  free_.push_back(channels_++);
  return {};
}

Result<os::Mapping> MemoryFile::acquire(size_t& channel) {
  WEFT_ASSERT(!free_.empty());
  channel = free_.back();
  WEFT_ASSERT(channel < channels_);
  auto map = os::map_memory(file_, offset_of(channel), channel_bytes);
  if (map) free_.pop_back();
  return map;
}

void MemoryFile::discard(size_t channel) noexcept {
  os::discard_memory(file_, offset_of(channel), channel_bytes);
}

void MemoryFile::discard_bulk(size_t channel, size_t kept) noexcept {
  os::discard_memory(file_, offset_of(channel) + channel_bulk_offset + kept, bulk_bytes - kept);
}

}  // namespace weft::link::shm
