// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a program has open in place: messages that it reads where they lie, room that it writes. Each has a handle with a generation, so that one
// that is over is told from one that is open. Must not know which link it is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/assert.hpp"
#include "proto/engine/context.hpp"
#include "proto/engine/link.hpp"

namespace weft::proto {

// A message that the program reads in place.
struct LoanedMessage {
  const std::byte* data = nullptr;
  size_t length = 0;
  uint64_t tag = 0;
  uint64_t cq_data = 0;
  bool has_data = false;
  bool in_link = false;  // where the link has it, not copied
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  uint64_t handle = 0;
};

// A message that the program wrote in place.
struct WrittenMessage {
  bool tagged = false;
  bool has_data = false;
  size_t length = 0;
  uint64_t tag = 0;
  uint64_t cq_data = 0;
};

inline constexpr size_t open_in_place_max = 256;  // of one endpoint

template <class L>
struct OpenTable {
  void forget(const PeerState&) noexcept {}
};

template <class L>
requires HasLoans<L>
struct OpenTable<L> {
  enum class Kind : uint8_t { Free, Frame, Message, ReservedBuffer };
  struct Entry {
    Kind kind = Kind::Free;
    uint8_t context = 0;  // ReservedBuffer: receive context at the peer
    uint32_t generation = 0;
    typename L::Loan loan{};        // Frame
    RxContext* rx = nullptr;        // Message
    Unexpected* message = nullptr;  // Message
    PeerState* peer = nullptr;      // ReservedBuffer: null once it has gone
    typename L::ReservedBuffer* buffer = nullptr;
    size_t capacity = 0;  // ReservedBuffer
  };

  OpenTable() noexcept {
    for (size_t i = 0; i < free.size(); ++i) free[i] = static_cast<uint16_t>(free.size() - 1 - i);
  }
  bool is_full() const noexcept { return free_count == 0; }
  // Only when it is not full.
  Entry& add(Kind kind) noexcept {
    WEFT_ASSERT(!is_full() && kind != Kind::Free);
    Entry& entry = entries[free[--free_count]];
    WEFT_ASSERT(entry.kind == Kind::Free);
    const uint32_t generation = entry.generation + 1;
    entry = Entry{};
    entry.kind = kind;
    entry.generation = generation;
    return entry;
  }
  uint64_t handle_of(const Entry& entry) const noexcept {
    WEFT_ASSERT(&entry >= entries.data() && &entry < entries.data() + entries.size());
    return uint64_t{entry.generation} << 32 | static_cast<uint64_t>(&entry - entries.data());
  }
  // Null: that handle is none, or is over.
  Entry* find(uint64_t handle) noexcept {
    const uint64_t index = handle & UINT32_MAX;
    if (index >= entries.size()) return nullptr;
    Entry& entry = entries[index];
    return entry.kind != Kind::Free && entry.generation == handle >> 32 ? &entry : nullptr;
  }
  void remove(Entry& entry) noexcept {
    WEFT_ASSERT(entry.kind != Kind::Free && free_count < free.size());
    entry.kind = Kind::Free;
    free[free_count++] = static_cast<uint16_t>(&entry - entries.data());
  }
  void forget(const PeerState& peer) noexcept {
    for (Entry& entry : entries)
      if (entry.kind == Kind::ReservedBuffer && entry.peer == &peer) entry.peer = nullptr;
  }

  std::array<Entry, open_in_place_max> entries{};
  std::array<uint16_t, open_in_place_max> free{};
  size_t free_count = open_in_place_max;
};

}  // namespace weft::proto
