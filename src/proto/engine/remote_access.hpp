// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the engine and a link that reaches the peer's memory say to each other: regions that peers may reach without the engine, and ways to copy a
// large message. Must not know any Link.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::proto {

// Entries of each list that HasRemoteMemory::access() takes: operations that go together may have as many in all.
inline constexpr size_t access_pieces_max = 16;

struct ExposedRegion {
  uint64_t key = 0;
  uint64_t base = 0;     // the remote address of the first byte
  uint64_t length = 0;   // bytes
  uint64_t address = 0;  // in our memory
  bool readable = false;
  bool writable = false;
};

// How the bytes of a large message get to the receiver.
enum class CopyPath : uint8_t {
  Ring,      // the sender sends them, in fragments or segments
  Receiver,  // the receiver reads the sender's memory
  Both,      // and the sender writes the receiver's memory meanwhile
};
inline constexpr size_t copy_paths = 3;

// What the receiver decides about one message. `start` is when its copying could begin, in the link's time; 0: it is not measured.
struct CopyChoice {
  CopyPath path = CopyPath::Ring;
  uint64_t start = 0;
};

// Why a way of copying is taken.
enum class CopyReason : uint8_t {
  Only,      // the peer's memory cannot be reached, or nothing came yet
  Pinned,    // by a setting
  Short,     // messages of that length always go that way
  Presumed,  // what most machines do best: the others were not measured yet
  Measured,  // it took the least
};

// Messages of one size class that came, and what is known of the ways that they may go.
struct CopyUse {
  struct PathUse {
    uint64_t messages = 0;
    uint64_t bytes = 0;
    uint64_t ns =
        0;  // of a message of the length that was asked for, by the last batch that was measured; 0: none was
  };
  uint64_t length_max = 0;         // of the class
  CopyPath path = CopyPath::Ring;  // of the next message, but for a trial
  CopyReason reason = CopyReason::Only;
  std::array<PathUse, copy_paths> paths{};
  uint64_t measured = 0;        // messages
  uint64_t trial_messages = 0;  // that went by another way to measure it
  uint64_t trials = 0;
  uint64_t changes = 0;
  uint64_t measured_ns = 0;  // time of all that were measured
  uint64_t lost_ns = 0;      // of that: what trials took beyond the best way
};

// What has become of a copy.
enum class CopyState : uint8_t {
  Done,
  Busy,    // the sender is still writing, and will tell
  Later,   // the sender is still writing, and will not tell: to be asked again soon
  Failed,  // by that way it cannot be done; nobody writes any more
};

// What has become of a sender's help with a copy.
enum class Assistance : uint8_t {
  Ended,
  Asked,  // ended, and the receiver wants to be told
  More,   // it took long enough for one call
};

}  // namespace weft::proto
