// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Regions: which memory of the program the card may read where it lies, and which frames under way use it. Bookkeeping;
// must not know the card.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace weft::link::nic {

// A mapped piece of a region.
struct Piece {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  uint64_t address = 0;    // the device's, of the first byte
  uint32_t in_frames = 0;  // posted frames that read from it and have not come back
};

class Regions {
 public:
  // Pieces may overlap those of other regions. The address is stable. May throw std::bad_alloc.
  Piece* add(const void* memory, size_t bytes, uint64_t address);
  void remove(const Piece* piece) noexcept;
  // A piece with all of these bytes; null: there is none.
  Piece* find(const void* memory, size_t bytes) noexcept {
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    if (last_ != nullptr && holds(*last_, begin, bytes)) return last_;
    return search(begin, bytes);
  }
  // The card was reset: no frame is under way.
  void forget_frames() noexcept;
  bool empty() const noexcept { return slots_.empty(); }
  size_t size() const noexcept { return slots_.size(); }

 private:
  struct Slot {
    std::unique_ptr<Piece> piece;
    uintptr_t end_max = 0;  // of this place and all before it
  };
  static bool holds(const Piece& piece, uintptr_t begin, size_t bytes) noexcept {
    return begin >= piece.begin && begin <= piece.end && bytes <= piece.end - begin;
  }
  Piece* search(uintptr_t begin, size_t bytes) noexcept;
  void update_ends(size_t from) noexcept;

  std::vector<Slot> slots_;  // by begin
  Piece* last_ = nullptr;    // that was found
};

}  // namespace weft::link::nic
