// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The peers whose rings every poll looks at: a few, and those that ring often. All others have to ring a doorbell. Must not know doorbells, frames or
// clocks.
//
// A peer in the list sees `polled` in its channel and does not ring. When the list is full a quiet one has to leave, slowly: it is still looked at
// until no store of it can have been missed (finish_leaving()).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "link/shm/peer.hpp"

namespace weft::link::shm {

class ActivePeers {
 public:
  static constexpr size_t count_max = 16;
  static constexpr uint32_t rings_to_enter = 4;  // doorbells of a peer that is not in the list

  [[gnu::always_inline]] size_t size() const noexcept { return count_; }
  [[gnu::always_inline]] Peer& operator[](size_t index) const noexcept { return *list_[index]; }

  // Whether this process takes part in the asymmetric fence: without it on both sides a sender has to ring, a locked instruction, every time.
  void set_fences(bool fences) noexcept { fences_ = fences; }
  bool has_fences() const noexcept { return fences_; }

  // When the list is full, and a peer in it is quiet, that one begins to leave.
  void add(Peer& peer, uint64_t now_ns) noexcept;
  void remove(Peer& peer) noexcept;
  // Those who have been leaving for long enough leave; left(peer) is called for each.
  template <class Left>
  void finish_leaving(uint64_t now_ns, Left&& left) noexcept {
    for (size_t i = count_; i-- > 0;) {
      Peer& peer = *list_[i];
      if (!peer.activity.demoting || now_ns - peer.activity.demoted_at_ns < demotion_ns) continue;
      remove(peer);
      left(peer);
    }
  }
  void clear() noexcept { count_ = 0; }

  // From arm() to disarm() every peer rings: the owner sleeps.
  void arm() noexcept;
  void disarm() noexcept;
  bool is_armed() const noexcept { return is_armed_; }
  bool has_frames() const noexcept;

 private:
  static constexpr uint64_t demotion_ns = 2'000'000;  // far longer than a store takes to be seen

  bool is_silent(const Peer& peer) const noexcept {
    return fences_ && peer.remote != nullptr && peer.remote->fences != 0;
  }

  size_t count_ = 0;
  std::array<Peer*, count_max> list_{};
  bool fences_ = false;
  bool is_armed_ = false;
};

}  // namespace weft::link::shm
