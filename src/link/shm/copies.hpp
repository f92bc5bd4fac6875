// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the shm link remembers of the large messages of one peer: meetings that are open, what the copies took. Must not know operations.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "link/shm/copy_chooser.hpp"
#include "link/shm/meeting.hpp"

namespace weft::link::shm {

// Large messages of one size class that came, by each way.
struct CopyCounts {
  std::array<uint64_t, proto::copy_paths> messages{};
  std::array<uint64_t, proto::copy_paths> bytes{};

  void count(CopyPath path, uint64_t length) noexcept {
    ++messages[static_cast<size_t>(path)];
    bytes[static_cast<size_t>(path)] += length;
  }
  CopyCounts& operator+=(const CopyCounts& more) noexcept {
    for (size_t i = 0; i < proto::copy_paths; ++i) {
      messages[i] += more.messages[i];
      bytes[i] += more.bytes[i];
    }
    return *this;
  }
};
using CopyCountsByClass = std::array<CopyCounts, copy_classes>;

struct Copies {
  struct Meeting {
    MeetingFront front;
    uint64_t name = 0;     // 0: no receive has it
    bool failed = false;   // we cannot read the peer's memory
    bool waits = false;    // for the sender, who is at a piece
    bool crowded = false;  // opened while others were
    uint64_t until = 0;    // ticks: so long the sender need not tell
    bool is_open() const noexcept { return name != 0 || kept; }
    bool kept = false;  // and the receive has ended: the place is not free before the sender is through
  };
  std::array<std::unique_ptr<CopyChooser>, copy_classes> choosers;  // each made with the first message
  std::array<Meeting, meeting_count> meetings;
  CopyCountsByClass counts;
  // The last message that both could have copied was copied by us alone: the sender does not poll.
  bool alone = false;
  bool refused = false;  // the sender cannot write our memory
  // Messages of a class that were asked for in segments and are not here: what else is copied meanwhile is not measured. After a while they count
  // as gone, for their receives may have been closed.
  std::array<uint32_t, copy_classes> asked_for{};
  uint64_t asked_at = 0;  // ticks, the last of them
};

// A meeting's name as it is told to the sender: generation, grain, index. Never 0.
struct MeetingName {
  static constexpr uint32_t grain_unit = 4096;
  uint32_t generation = 0;
  uint32_t grain = 0;  // bytes
  uint32_t index = 0;

  uint64_t word() const noexcept { return uint64_t{generation} << 32 | (grain / grain_unit) << 8 | index; }
  static MeetingName of(uint64_t word) noexcept {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word >> 8 & 0x7ffff) * grain_unit,
            static_cast<uint32_t>(word & 0xff)};
  }
};

}  // namespace weft::link::shm
