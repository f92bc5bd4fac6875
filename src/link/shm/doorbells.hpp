// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Doorbells: how a sender tells a receiver that does not poll its ring. A bit of a word in the receiver's header, and a bit for that word in `pending`.
// Must not know frames, datagrams, or what is done with who rang.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "link/shm/layout.hpp"
#include "link/shm/peer.hpp"

namespace weft::link::shm {

// --- the sender's side. After a slot was published; true: the receiver sleeps, or may not see it, and only a datagram (Wake) reaches it. ---
// The peer's header is not mapped here.
bool ring_unmapped(ChannelControl& channel) noexcept;
bool ring(ChannelControl& channel, RegionHeader& remote) noexcept;

// The receiver's side: which peer has which doorbell. Several may have one: a doorbell says where to look, no more.
class Doorbells {
 public:
  using Table = std::array<Peer*, doorbell_count>;

  void open(RegionHeader& header) {  // throws std::bad_alloc
    peers_ = std::make_unique<Table>();
    peers_->fill(nullptr);
    header_ = &header;
  }
  // Gives the peer a doorbell; the next one, in turn. The caller tells it.
  void add(Peer& peer) noexcept;
  void remove(Peer& peer) noexcept;
  // As if the peer had rung: what it has written is looked at in the next poll.
  void ring_own(const Peer& peer) noexcept;
  // Appends who rang, by the bits of `pending` that were taken; those with the same doorbell, too.
  void collect(uint64_t words, std::vector<Peer*>& out) noexcept;

 private:
  RegionHeader* header_ = nullptr;
  std::unique_ptr<Table> peers_;  // lists through Peer::next_same_doorbell
  uint32_t next_ = 0;
};

}  // namespace weft::link::shm
