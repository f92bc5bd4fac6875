// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory file of an endpoint: its header, and a channel for each peer that it sends to (layout.hpp). Must not know peers or what channels carry.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.hpp"
#include "link/shm/layout.hpp"
#include "os/fd.hpp"
#include "os/shared_memory.hpp"

namespace weft::link::shm {

class MemoryFile {
 public:
  // Where a channel lies in the file.
  static constexpr uint64_t offset_of(size_t channel) noexcept {
    return header_bytes + channel * channel_bytes;
  }

  Result<void> create();
  // Of this process only; in a forked child, too. Peers keep their mappings.
  void close() noexcept;
  const os::Fd& fd() const noexcept { return file_; }
  RegionHeader* header() const noexcept { return header_map_.as<RegionHeader>(); }

  // Makes the file longer when no channel is free. Throws std::bad_alloc.
  Result<void> grow();
  // After grow(): a free channel, all zeros, and its number. Throws std::bad_alloc.
  Result<os::Mapping> acquire(size_t& channel);
  // The pages of a channel go; they are zeros afterwards.
  void discard(size_t channel) noexcept;
  // The same of its bulk ring, but for the first `kept` bytes.
  void discard_bulk(size_t channel, size_t kept) noexcept;
  // Another peer may have it. Who may still look at a channel would read what is meant for its next user, so not before the last one is gone.
  void release(size_t channel) noexcept { free_.push_back(channel); }  // grow() has made room

 private:
  os::Fd file_;
  os::Mapping header_map_;
  std::vector<size_t> free_;  // numbers of channels
  size_t channels_ = 0;       // in the file
};

}  // namespace weft::link::shm
