// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an endpoint has carried, and the statistics entry that shows it. The positions of the rings are counters, so a message counts nothing. Must not
// know what is done with the peers.
#pragma once

#include <cstdint>
#include <string_view>

#include "link/shm/peer.hpp"
#include "os/statistics.hpp"

namespace weft::link::shm {

class Traffic {
 public:
  void open(std::string_view name, uint32_t shown_as) {
    shown_ = os::StatisticsEntry::open(os::StatisticsEntry::Kind::Path, "shm", name, shown_as);
  }
  void close() noexcept { shown_.close(); }
  // Before its rings are left.
  void add_gone(const Peer& peer) noexcept { gone_.add(peer); }
  // Bytes that the kernel has copied: of announced messages that peers read or that were written to them, and by one-sided access.
  void add_by_kernel(bool sent, uint64_t bytes) noexcept {
    (sent ? kernel_sent_ : kernel_received_) += bytes;
  }
  // `bytes_outside_of_ring`: of large messages that came by another way.
  void show(const PeerTable& peers, uint64_t bytes_outside_of_ring) noexcept;

 private:
  struct Carried {
    uint64_t frames_sent = 0;
    uint64_t frames_received = 0;
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;

    void add(const Peer& peer) noexcept;
  };

  Carried gone_;  // with peers whose rings were left
  uint64_t kernel_sent_ = 0;
  uint64_t kernel_received_ = 0;
  os::StatisticsEntry shown_;
};

}  // namespace weft::link::shm
