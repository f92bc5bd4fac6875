// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Frames that the program reads and writes where the rings have them. Must not know why that is done, nor doorbells.
//
// A frame on loan and all behind it keep their room in the ring, because credit is one position; a reserved buffer keeps one slot, so that a commit never
// finds the ring full, and the bulk ring from its start on. Both keep the mapping that they lie in when the peer goes, so that the program never touches
// memory that is not there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "link/shm/memory_file.hpp"
#include "link/shm/peer.hpp"
#include "link/shm/ring.hpp"
#include "os/shared_memory.hpp"
#include "proto/engine/link.hpp"
#include "wire/frame.hpp"

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

// A frame whose place in the ring is the program's. False: no memory.
struct Loan {
  LentFrames* frames = nullptr;
  uint64_t slot = 0;
  explicit operator bool() const noexcept { return frames != nullptr; }
};

// A reserved buffer in the bulk ring.
struct ReservedBuffer {
  Peer* peer = nullptr;  // null once it has gone
  os::Mapping map;       // then, as the channel and whether another peer may have that
  size_t channel = 0;
  bool reusable = false;
  std::byte* bytes = nullptr;
  uint64_t start = 0;  // position in the bulk ring
  size_t capacity = 0;
};

class InPlace {
 public:
  explicit InPlace(MemoryFile& file) noexcept : file_(file) {}
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;

  // From within on_frame(): the frame that is shown.
  Loan loan(Peer& peer) noexcept;
  void release(const Loan& loan) noexcept;

  // While the peer's ring has a slot, and no reservation. Null: no room, or no memory.
  ReservedBuffer* reserve(Peer& peer, size_t bytes) noexcept;
  // Refused: the peer has gone.
  SendRing::Put commit(ReservedBuffer& buffer, const wire::FrameHead& head) noexcept;
  // Without a frame.
  void end(ReservedBuffer& buffer) noexcept;

  // The peer goes: frames that are still read keep its ring, what is still written keeps its channel. retain_channel(): false, nothing is.
  void retain_ring(Peer& peer) noexcept;
  bool retain_channel(Peer& peer, bool reusable) noexcept;
  void clear() noexcept {
    lent_.clear();
    reserved_.clear();
  }

  static proto::RingUse rings(const Peer& peer) noexcept;

 private:
  MemoryFile& file_;  // gets the channels back that were kept
  std::vector<std::unique_ptr<LentFrames>> lent_;
  std::vector<std::unique_ptr<ReservedBuffer>> reserved_;
};

}  // namespace weft::link::shm
