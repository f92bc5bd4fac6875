// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/shm/active_peers.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace weft::link::shm {

void ActivePeers::add(Peer& peer, uint64_t now_ns) noexcept {
  if (peer.activity.active || !peer.in.takes_frames()) return;  // not met yet, or rejected
  if (count_ == count_max) {
    Peer* quiet = nullptr;
    for (size_t i = 0; i < count_; ++i)
      if (!list_[i]->activity.demoting &&
          (quiet == nullptr || list_[i]->activity.rang_at_ns < quiet->activity.rang_at_ns))
        quiet = list_[i];
    if (quiet != nullptr && now_ns - quiet->activity.rang_at_ns > 10 * demotion_ns) {
      quiet->activity.demoting = true;
      quiet->activity.demoted_at_ns = now_ns;
      quiet->in.control()->polled.store(0, std::memory_order_seq_cst);
    }
    peer.activity.doorbells = 0;
    return;
  }
  WEFT_ASSERT(count_ < count_max);
  list_[count_++] = &peer;
  peer.activity.active = true;
  peer.activity.demoting = false;
  peer.activity.rang_at_ns = now_ns;
  peer.in.control()->polled.store(is_silent(peer) && !is_armed_ ? 1 : 0, std::memory_order_seq_cst);
}

void ActivePeers::remove(Peer& peer) noexcept {
  if (!peer.activity.active) return;
  for (size_t i = 0; i < count_; ++i) {
    if (list_[i] != &peer) continue;
    WEFT_ASSERT(count_ != 0);
    list_[i] = list_[--count_];
    break;
  }
  WEFT_ASSERT(std::find(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(count_), &peer) ==
              list_.begin() + static_cast<std::ptrdiff_t>(count_));
  peer.activity.active = false;
  peer.activity.demoting = false;
  peer.activity.doorbells = 0;
  if (peer.in.is_open()) peer.in.control()->polled.store(0, std::memory_order_seq_cst);
}

void ActivePeers::arm() noexcept {
  is_armed_ = true;
  for (size_t i = 0; i < count_; ++i) list_[i]->in.control()->polled.store(0, std::memory_order_seq_cst);
}

void ActivePeers::disarm() noexcept {
  is_armed_ = false;
  for (size_t i = 0; i < count_; ++i) {
    Peer& peer = *list_[i];
    if (!peer.activity.demoting && is_silent(peer))
      peer.in.control()->polled.store(1, std::memory_order_seq_cst);
  }
}

bool ActivePeers::has_frames() const noexcept {
  for (size_t i = 0; i < count_; ++i)
    if (list_[i]->in.has_frame()) return true;
  return false;
}

}  // namespace weft::link::shm
