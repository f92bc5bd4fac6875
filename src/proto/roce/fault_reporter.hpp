// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FaultReporter: says why a request failed, a packet was dropped or a call refused, to the observer of queue pairs. Cold.
// Changes nothing but the `cause` of a queue pair, which its next completions carry. Must not know who asks, nor decide.
#pragma once

#include <cstdint>
#include <span>

#include "proto/roce/environment.hpp"
#include "proto/roce/fault.hpp"
#include "proto/roce/memory.hpp"
#include "proto/roce/queue_pair.hpp"
#include "wire/roce/packet.hpp"

namespace weft::proto::roce {

class FaultReporter {
 public:
  using Packet = wire::roce::Packet;
  explicit FaultReporter(const MemoryTable& memory) : memory_(memory) {}

  void observe(QueuePairObserver* observer) noexcept { observer_ = observer; }
  QueuePairObserver* observer() const noexcept { return observer_; }  // null: none

  // The oldest send request is about to fail.
  void report_send(QueuePair& qp, Status status) noexcept;
  // The posted receive of a message is about to fail.
  void report_receive(QueuePair& qp, Status status, const Packet& packet) noexcept;
  // A request of the peer is refused. One without a receive may come again, and what is unreliable is dropped alone: these
  // end nothing.
  void report_refusal(QueuePair& qp, const Packet& packet, Cause cause, uint64_t wanted = 0,
                      uint64_t given = 0) noexcept;
  // The same: it may not access this memory.
  void report_access(QueuePair& qp, const Packet& packet, uint32_t key, uint32_t pd, uint64_t address,
                     uint64_t length, uint32_t rights) noexcept;
  // Memory of a READ that was accepted is gone.
  void report_response(QueuePair& qp, const Resource& one, uint64_t address, uint64_t length) noexcept;
  // A completion queue of it has overrun.
  void report_overrun(QueuePair& qp) noexcept;
  // A packet has no effect. Null: its queue pair is not there.
  void report_dropped(const QueuePair* qp, const Arrival& arrival, const Packet& packet, Cause cause,
                      uint64_t wanted = 0, uint64_t given = 0) const noexcept;
  // The first request of the peer has another PSN than the expected one.
  void report_gap(const QueuePair& qp, const Packet& packet) const noexcept;

 private:
  void report(QueuePair& qp, const Fault& fault) noexcept;
  bool find_bad_element(std::span<const Element> elements, uint32_t pd, bool write,
                        Fault& fault) const noexcept;

  const MemoryTable& memory_;
  QueuePairObserver* observer_ = nullptr;
};

}  // namespace weft::proto::roce
