// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests: two adapters with a narrow place between them, which marks and loses.
#pragma once

#include <algorithm>
#include <memory>
#include <queue>
#include <random>

#include "proto/roce/sim_pair.hpp"
#include "proto/roce/sim_times.hpp"

namespace weft::proto::roce::sim {

// A path from a to b whose narrowest place sends a packet in `packet_ns`, marks above `mark` waiting packets, and loses
// above `room`. The way back is wide. `loss` comes behind the narrow place.
struct Bottleneck {
  explicit Bottleneck(QpType type = QpType::Rc, bool selects = false, uint8_t timeout = 14,
                      congestion::Make algorithm = nullptr)
      : p(type) {
    if (algorithm != nullptr)
      for (Port* port : {&p.a, &p.b}) port->qp->congestion.emplace(algorithm);
    if (selects)
      for (Port* port : {&p.a, &p.b}) port->adapter.is_weft_peer = [](const Gid&) noexcept { return true; };
    p.common.path_mtu = 3;
    p.common.timeout = timeout;
    p.connect();
  }
  static constexpr size_t mark = 20, room = 200;
  struct Flight {
    uint64_t at;
    uint64_t order;
    Port* to;
    PacketBytes bytes;
    bool is_marked;
    bool operator<(const Flight& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  void collect() {
    for (Port* port : {&p.a, &p.b}) {
      port->adapter.flush(p.now);
      for (PacketBytes& one : port->out) {
        if (port == &p.a) ++sent;
        const bool is_narrow = port == (reverse ? &p.b : &p.a);
        if (!is_narrow) {
          if (loses_back && chance(random) < loss) continue;
          flights.push({p.now + delay, ++order, port == &p.a ? &p.b : &p.a, std::move(one), false});
          continue;
        }
        free_at = std::max(free_at, p.now);
        const size_t waiting = (free_at - p.now) / packet_ns;
        most = std::max(most, waiting);
        waited += waiting;
        if (waiting >= room) {
          ++lost;
          continue;
        }
        free_at += packet_ns;
        ++carried;
        if (loss != 0 && chance(random) < loss) continue;
        flights.push(
            {free_at + delay, ++order, port == &p.a ? &p.b : &p.a, std::move(one), marks && waiting >= mark});
      }
      port->out.clear();
    }
  }
  template <class Work>
  void run(uint64_t until, Work&& work) {
    while (p.now < until) {
      work();
      collect();
      uint64_t next = std::min(p.a.adapter.next_due(), p.b.adapter.next_due());
      if (p.a.adapter.has_ready() || p.b.adapter.has_ready()) next = p.now + 200;
      if (!flights.empty()) next = std::min(next, flights.top().at);
      p.now = std::max(p.now + 1, std::min(next, p.now + 10 * us));
      while (!flights.empty() && flights.top().at <= p.now) {
        const Flight f = flights.top();
        flights.pop();
        Arrival arrival;
        arrival.source = f.to == &p.a ? p.b.gid : p.a.gid;
        arrival.bytes = f.bytes;
        arrival.is_marked = f.is_marked;
        f.to->adapter.on_packet(arrival, p.now);
      }
    }
  }
  // A stream of requests of 64 KiB; returns the packets that the narrow place carried for each ms.
  double stream(SendOpcode opcode, uint64_t for_ns) {
    const uint64_t before = carried, begin = p.now;
    run(p.now + for_ns, [&] {
      // UC completes what it sends at once: as many as a link of 2 us a packet takes.
      const bool is_paced = p.a.qp->type == QpType::Uc;
      while (p.a.qp->sends.tail - p.a.qp->sends.head < 8 && (!is_paced || p.now >= posts_at)) {
        posts_at = p.now + 128 * us;
        SendRequest q = request(opcode, ours->element(0, 65536), 1);
        q.remote_address = theirs->address();
        q.remote_key = theirs->region->key;
        if (p.send(p.a, q) != 0) break;
      }
      for (const Completion& c : Pair::completions(p.a)) EXPECT_EQ(c.status, Status::Success);
      (void)Pair::completions(p.b);
    });
    return static_cast<double>(carried - before) * static_cast<double>(ms) /
           static_cast<double>(p.now - begin);
  }

  Pair p;
  std::unique_ptr<Block> ours = std::make_unique<Block>(p.a, 65536);
  std::unique_ptr<Block> theirs = std::make_unique<Block>(p.b, 65536);
  uint64_t delay = 20 * us;  // each way
  double loss = 0;           // of packets by the narrow place,
  bool loses_back = false;   // and of those that come back
  std::mt19937_64 random{1};
  std::uniform_real_distribution<double> chance;
  uint64_t sent = 0;  // by a
  bool marks = true;
  bool reverse = false;
  uint64_t packet_ns = 2 * us;
  uint64_t free_at = 0;
  uint64_t carried = 0;
  uint64_t lost = 0;
  size_t most = 0;      // packets that waited at the narrow place
  uint64_t waited = 0;  // their sum, for each that came
  double mean() const { return static_cast<double>(waited) / static_cast<double>(carried); }
  void forget() { waited = carried = most = 0; }
  uint64_t posts_at = 0;
  uint64_t order = 0;
  std::priority_queue<Flight> flights;
};

}  // namespace weft::proto::roce::sim
