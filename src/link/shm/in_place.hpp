// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the shm link remembers of frames that are read and written in place. Must not know why that is done.
//
// Both keep the mapping that they lie in when the peer goes, so that the program never touches memory that is not there.
#pragma once

#include <cstdint>
#include <vector>

#include "link/shm/link.hpp"

namespace weft::link::shm {

// Frames of one peer that are on loan, oldest first.
struct LentFrames {
  struct Frame {
    uint64_t slot;  // position in the ring
    uint64_t bulk;  // what was consumed of the bulk ring before it
    bool released;
  };
  Peer* peer = nullptr;  // null once it has gone
  os::Mapping map;       // then
  std::vector<Frame> frames;
};

// A reserved buffer in the bulk ring.
struct ReservedBuffer {
  Peer* peer = nullptr;  // null once it has gone
  os::Mapping map;       // then, as the channel and whether somebody else may have that
  size_t channel = 0;
  bool reusable = false;
  std::byte* bytes = nullptr;
  uint64_t start = 0;  // position in the bulk ring
  size_t capacity = 0;
};

}  // namespace weft::link::shm
