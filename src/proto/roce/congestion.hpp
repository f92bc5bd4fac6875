// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The algorithm of a queue pair (docs/congestion.md): what it hears of the requester, and what it permits that one. Functions
// of the queue pair alone. Must not know packets.
#pragma once

#include <cstdint>

#include "proto/congestion/controller.hpp"
#include "proto/roce/queue_pair.hpp"

namespace weft::proto::roce {

// The algorithm of a queue pair that is new, or fails, or is reset. Null: Dcqcn.
void begin_congestion(QueuePair& qp, congestion::Make algorithm) noexcept;
// As its attributes are now.
congestion::Controller& controller_of(QueuePair& qp) noexcept;
// What the algorithm permits: a rate, and in packets a window, where what arrives is acknowledged.
void adopt_window(QueuePair& qp) noexcept;
// So many packets from `oldest` on, where the algorithm wants to hear of them.
void on_acknowledged(QueuePair& qp, uint32_t packets, uint64_t now) noexcept;
void on_lost(QueuePair& qp, congestion::LossSign sign, uint64_t now) noexcept;
// It has no rate any more.
void end_pace(QueuePair& qp) noexcept;

// Packets under way at most.
inline uint32_t window_of(const QueuePair& qp) noexcept {
  const uint32_t most = qp.attributes.window_packets;
  return qp.requester.allowed < most ? qp.requester.allowed : most;
}

}  // namespace weft::proto::roce
