// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Services: what requester and responder of an adapter share: the output, memory, completions, the scheduler, counters, the
// report of faults, and the way to the Error state, which ends both. Requester and Responder know each other by nothing else
// but the state of a queue pair. Must not know the registry of the adapter, nor which side of a queue pair calls.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/roce/environment.hpp"
#include "proto/roce/fault_reporter.hpp"
#include "proto/roce/memory.hpp"
#include "proto/roce/queue_pair.hpp"
#include "proto/roce/queues.hpp"
#include "proto/roce/scheduler.hpp"
#include "wire/roce/packet.hpp"

namespace weft::proto::roce {

// Where a queue pair fails: both of its sides end, so the adapter does it.
struct ErrorTransition {
  // To ERR, with all requests flushed. Not in RESET or ERR.
  virtual void to_error(QueuePair& qp, uint64_t now) noexcept = 0;

 protected:
  ~ErrorTransition() = default;
};

class Services {
 public:
  Services(PacketOutput& to, Events& hears, Random random, ErrorTransition& transition)
      : output(to), events(hears), memory(random), transition_(transition) {}
  Services(const Services&) = delete;
  Services& operator=(const Services&) = delete;

  PacketOutput& output;      // the owner's
  Events& events;            // the owner's
  MemoryTable memory;        // regions and windows of all protection domains
  AdapterCounters counters;  // since the adapter was made
  Scheduler scheduler;
  FaultReporter faults{memory};

  // One packet to `to`: parts[0] becomes its headers, `count` of the parts are there, and one behind them is free for the pad.
  // `payload`: the bytes of parts[1] and on. False: no room.
  bool send_packet(QueuePair& qp, const AddressVector& to, wire::roce::Packet& packet, iovec* parts,
                   size_t count, size_t payload) noexcept;
  // Packets of a message that go as one, of the `left` ones that are next.
  uint32_t aggregate_of(const QueuePair& qp, uint32_t left) const noexcept;
  // False: an element may not be written.
  bool scatter(std::span<const Element> elements, uint32_t pd, uint64_t offset,
               std::span<const std::byte> from) noexcept;
  // Into `cq`, if that is not null. Where it has no room, the next turn of the queue pair fails it.
  void complete(CompletionQueue* cq, QueuePair& qp, const Completion& completion, bool is_solicited) noexcept;
  void count_nak(QueuePair& qp, uint8_t syndrome) noexcept;
  void to_error(QueuePair& qp, uint64_t now) noexcept { transition_.to_error(qp, now); }

 private:
  ErrorTransition& transition_;
};

}  // namespace weft::proto::roce
