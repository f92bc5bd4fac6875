// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/shm/traffic.hpp"

namespace weft::link::shm {

void Traffic::Carried::add(const Peer& peer) noexcept {
  if (peer.out.is_open()) {
    frames_sent += peer.out.next();
    bytes_sent += peer.out.bulk_sent();
  }
  if (peer.in.is_open()) {
    frames_received += peer.in.next();
    bytes_received += peer.in.bulk_taken();
  }
}

void Traffic::show(const PeerTable& peers, uint64_t bytes_outside_of_ring) noexcept {
  if (!shown_) return;
  using Value = os::StatisticsEntry::Value;
  Carried all = gone_;
  all.bytes_sent += kernel_sent_;
  all.bytes_received += kernel_received_ + bytes_outside_of_ring;
  uint64_t unread = 0;
  for (const auto& [key, entry] : peers) {
    const Peer& peer = *entry;
    all.add(peer);
    if (!peer.out.is_open()) continue;
    const uint64_t waiting = peer.out.unread_slots(std::memory_order_relaxed);
    if (waiting <= slot_count) unread += waiting;  // the peer may have written nonsense
  }
  shown_.show({{Value::PacketsSent, all.frames_sent},
               {Value::PacketsReceived, all.frames_received},
               {Value::BytesSent, all.bytes_sent},
               {Value::BytesReceived, all.bytes_received},
               {Value::Peers, peers.size()},
               {Value::SendQueue, unread}});
}

}  // namespace weft::link::shm
