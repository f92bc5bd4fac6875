// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Pieces of memory, by their first byte.
#include "link/nic/regions.hpp"

#include <algorithm>

namespace weft::link::nic {

Piece* Regions::add(const void* memory, size_t bytes, uint64_t address) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  auto piece = std::make_unique<Piece>(Piece{begin, begin + bytes, address, 0});
  Piece* const added = piece.get();
  const auto at =
      std::upper_bound(slots_.begin(), slots_.end(), begin,
                       [](uintptr_t value, const Slot& slot) { return value < slot.piece->begin; });
  const auto index = static_cast<size_t>(at - slots_.begin());
  slots_.insert(at, Slot{std::move(piece), 0});
  update_ends(index);
  return added;
}

void Regions::remove(const Piece* piece) noexcept {
  const auto at = std::ranges::find_if(slots_, [&](const Slot& slot) { return slot.piece.get() == piece; });
  if (at == slots_.end()) return;
  if (last_ == piece) last_ = nullptr;
  const auto index = static_cast<size_t>(at - slots_.begin());
  slots_.erase(at);
  update_ends(index);
}

void Regions::update_ends(size_t from) noexcept {
  uintptr_t end = from == 0 ? 0 : slots_[from - 1].end_max;
  for (size_t i = from; i < slots_.size(); ++i) end = slots_[i].end_max = std::max(end, slots_[i].piece->end);
}

Piece* Regions::search(uintptr_t begin, size_t bytes) noexcept {
  auto at = std::upper_bound(slots_.begin(), slots_.end(), begin,
                             [](uintptr_t value, const Slot& slot) { return value < slot.piece->begin; });
  while (at != slots_.begin()) {
    --at;
    if (at->end_max < begin + bytes) return nullptr;  // nobody from here on reaches so far
    if (holds(*at->piece, begin, bytes)) return last_ = at->piece.get();
  }
  return nullptr;
}

void Regions::forget_frames() noexcept {
  for (Slot& slot : slots_) slot.piece->in_frames = 0;
}

}  // namespace weft::link::nic
