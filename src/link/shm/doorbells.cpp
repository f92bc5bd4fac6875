// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/shm/doorbells.hpp"

#include "base/assert.hpp"

namespace weft::link::shm {

bool ring_unmapped(ChannelControl& channel) noexcept {
  // The hello on its way is the doorbell. Once it has been read and the answer waits with us, only a datagram reaches the peer. An atomic
  // read-modify-write: the slot before it is visible first (pairs with attach_channel()).
  return channel.doorbell.fetch_or(0, std::memory_order_seq_cst) != 0;
}

bool ring(ChannelControl& channel, RegionHeader& remote) noexcept {
  uint32_t doorbell = channel.doorbell.load(std::memory_order_relaxed);
  if (doorbell == 0) {
    remote.pending.fetch_or(pending_socket, std::memory_order_seq_cst);
    // It may have attached, and looked at the ring, before our slot was visible; now it is (pairs with attach_channel()).
    doorbell = channel.doorbell.load(std::memory_order_seq_cst);
  }
  if (doorbell != 0 && doorbell <= doorbell_count) {
    const uint32_t index = doorbell - 1;
    // Sequentially consistent: the slot before it is visible, and the look at `sleeping` comes after it (pairs with arm()).
    remote.doorbells[index / 64].fetch_or(uint64_t{1} << (index % 64), std::memory_order_seq_cst);
    remote.pending.fetch_or(uint64_t{1} << (index / 64), std::memory_order_seq_cst);
  }
  return remote.sleeping.load(std::memory_order_seq_cst) != 0 && remote.sleeping.exchange(0) != 0;
}

void Doorbells::add(Peer& peer) noexcept {
  peer.doorbell = next_++ % doorbell_count;
  peer.next_same_doorbell = (*peers_)[peer.doorbell];
  (*peers_)[peer.doorbell] = &peer;
}

void Doorbells::remove(Peer& peer) noexcept {
  for (Peer** at = &(*peers_)[peer.doorbell]; *at != nullptr; at = &(*at)->next_same_doorbell) {
    if (*at != &peer) continue;
    *at = peer.next_same_doorbell;
    break;
  }
}

void Doorbells::ring_own(const Peer& peer) noexcept {
  header_->doorbells[peer.doorbell / 64].fetch_or(uint64_t{1} << (peer.doorbell % 64));
  header_->pending.fetch_or(uint64_t{1} << (peer.doorbell / 64));
}

void Doorbells::collect(uint64_t words, std::vector<Peer*>& out) noexcept {
  while (words != 0) {
    const auto word = static_cast<size_t>(__builtin_ctzll(words));
    words &= words - 1;
    if (word >= doorbell_words) continue;
    uint64_t bits = header_->doorbells[word].exchange(0, std::memory_order_acq_rel);
    while (bits != 0) {
      const size_t index = word * 64 + static_cast<size_t>(__builtin_ctzll(bits));
      WEFT_ASSERT(index < doorbell_count);
      bits &= bits - 1;
      for (Peer* peer = (*peers_)[index]; peer != nullptr; peer = peer->next_same_doorbell)
        out.push_back(peer);
    }
  }
}

}  // namespace weft::link::shm
