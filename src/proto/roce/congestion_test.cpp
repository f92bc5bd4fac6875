// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Congestion: who answers marks by notices, who heeds them, and a bottleneck that marks.
#include <algorithm>
#include <memory>
#include <queue>

#include "proto/roce/sim_pair.hpp"

namespace weft::proto::roce::sim {
namespace {

constexpr uint64_t us = 1000;
constexpr uint64_t ms = 1000 * us;

size_t notices(const Port& port) {
  return static_cast<size_t>(std::ranges::count_if(
      port.out, [](const PacketBytes& bytes) { return bytes[0] == std::byte{wire::roce::opcode_cnp}; }));
}

void give_marked(Pair& p, Port& to, const PacketBytes& bytes) {
  Arrival arrival;
  arrival.source = &to == &p.a ? p.b.gid : p.a.gid;
  arrival.bytes = bytes;
  arrival.is_marked = true;
  to.adapter.on_packet(arrival, p.now);
}

PacketBytes notice_to(const QueuePair& qp) {
  static const std::array<std::byte, 16> reserved{};
  wire::roce::Packet packet;
  packet.bth.opcode = wire::roce::opcode_cnp;
  packet.bth.destination = qp.number;
  packet.bth.becn = true;
  packet.payload = reserved;
  return make(packet);
}

TEST(RoceCongestion, AMarkIsAnsweredByOneNoticeInAnInterval) {
  Pair p;
  p.connect();
  Block from(p.a, 4096), to(p.b, 4096);
  SendRequest w = request(SendOpcode::Write, from.element(0, 2560));
  w.remote_address = to.address();
  w.remote_key = to.region->key;
  ASSERT_EQ(p.send(p.a, w), 0);
  for (const PacketBytes& one : p.a.out) give_marked(p, p.b, one);
  p.a.out.clear();
  p.b.adapter.flush(p.now);
  ASSERT_EQ(notices(p.b), 1u);
  // As annex A17.9.3 has it.
  PacketBytes held;
  const auto packet = take(p.b, held);
  EXPECT_EQ(packet.bth.destination, p.a.qp->number);
  EXPECT_EQ(packet.bth.psn, 0u);
  EXPECT_TRUE(packet.bth.becn);
  EXPECT_FALSE(packet.bth.ack_request || packet.bth.solicited || packet.bth.fecn);
  EXPECT_EQ(packet.payload.size(), 16u);
  EXPECT_TRUE(std::ranges::all_of(packet.payload, [](std::byte b) { return b == std::byte{0}; }));
  p.give(p.a, held);
  EXPECT_EQ(p.a.adapter.counters().congestion_notices, 1u);
  p.exchange();
  EXPECT_EQ(Pair::completions(p.a).size(), 1u);
  p.now += Adapter::notice_ns;
  ASSERT_EQ(p.send(p.a, w), 0);
  for (const PacketBytes& one : p.a.out) give_marked(p, p.b, one);
  p.a.out.clear();
  p.b.adapter.flush(p.now);
  EXPECT_EQ(notices(p.b), 1u);
  EXPECT_EQ(p.b.adapter.counters().congestion_notices_sent, 2u);
}

TEST(RoceCongestion, AcknowledgementsNoticesAndDatagramsAreNotAnswered) {
  Pair p;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  ASSERT_EQ(p.receive(p.b, 1, {to.element(0, 64)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), 0);
  p.give(p.b, p.a.out[0]);
  p.a.out.clear();
  p.b.adapter.flush(p.now);
  ASSERT_EQ(p.b.out.size(), 1u);
  give_marked(p, p.a, p.b.out[0]);  // the ACK
  give_marked(p, p.a, notice_to(*p.a.qp));
  p.a.adapter.flush(p.now);
  EXPECT_EQ(notices(p.a), 0u);
  Pair d(QpType::Ud);
  d.connect();
  SendRequest q =
      request(SendOpcode::Send, {reinterpret_cast<uint64_t>("hello"), 5, 0}, 1, signaled | inline_data);
  q.to.destination = d.b.gid;
  q.remote_qpn = d.b.qp->number;
  q.remote_qkey = 0x1234;
  ASSERT_EQ(d.send(d.a, q), 0);
  give_marked(d, d.b, d.a.out[0]);
  d.b.adapter.flush(d.now);
  EXPECT_EQ(notices(d.b), 0u);
  EXPECT_EQ(d.b.adapter.counters().marked, 1u);
}

TEST(RoceCongestion, NoticesOfStrangersAndOfDatagramsAreNothing) {
  Pair p;
  p.connect();
  Gid stranger{};
  stranger[3] = std::byte{9};
  for (int i = 0; i < 5; ++i, p.now += 100 * us) p.give(p.a, notice_to(*p.a.qp), stranger);
  EXPECT_EQ(p.a.adapter.counters().congestion_notices, 0u);
  EXPECT_FALSE(p.a.qp->pace.is_limited());
  Pair d(QpType::Ud);
  d.connect();
  for (int i = 0; i < 5; ++i, d.now += 100 * us) d.give(d.a, notice_to(*d.a.qp));
  EXPECT_FALSE(d.a.qp->pace.is_limited());
}

// Whatever a peer says, its queue pair goes on, and others are as fast as before.
TEST(RoceCongestion, AFloodOfNoticesSlowsAndDoesNotStop) {
  for (const QpType type : {QpType::Rc, QpType::Uc}) {
    Pair p(type);
    p.connect();
    Block from(p.a, 4096), to(p.b, 4096);
    uint64_t done = 0;
    for (int i = 0; i < 200; ++i) {
      p.give(p.a, notice_to(*p.a.qp));
      SendRequest w = request(SendOpcode::Write, from.element(0, 2560), static_cast<uint64_t>(i));
      w.remote_address = to.address();
      w.remote_key = to.region->key;
      (void)p.send(p.a, w);
      p.pass(Pace::tick_ns);
      done += Pair::completions(p.a).size();
    }
    EXPECT_TRUE(p.a.qp->pace.is_limited());
    EXPECT_EQ(p.a.qp->pace.rate(), Pace::rate_min);
    EXPECT_GT(p.a.qp->sends.tail, p.a.qp->sends.head);
    p.pass(1000 * ms);
    done += Pair::completions(p.a).size();
    EXPECT_EQ(done, p.a.qp->sends.tail);
    EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
    EXPECT_EQ(p.a.qp->state, QpState::ReadyToSend);
    EXPECT_EQ(p.a.adapter.next_due(), UINT64_MAX);
  }
}

TEST(RoceCongestion, ANoticeIsOwedUntilTheLinkTakesIt) {
  Pair p;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  ASSERT_EQ(p.receive(p.b, 1, {to.element(0, 64)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), 0);
  p.b.refuses = true;
  give_marked(p, p.b, p.a.out[0]);
  p.a.out.clear();
  p.b.adapter.flush(p.now);
  p.b.refuses = false;
  p.b.adapter.flush(p.now);
  EXPECT_EQ(p.b.out.size(), 2u);
  EXPECT_EQ(notices(p.b), 1u);
}

// A path from a to b whose narrowest place sends a packet in `packet_ns`, marks above `mark` waiting packets, and loses
// above `room`. The way back is wide.
struct Bottleneck {
  explicit Bottleneck(QpType type = QpType::Rc) : p(type) {
    p.common.path_mtu = 3;
    p.common.timeout = 14;
    p.connect();
  }
  static constexpr uint64_t delay = 20 * us;
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
        const bool is_narrow = port == (reverse ? &p.b : &p.a);
        if (!is_narrow) {
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

TEST(RoceCongestion, AWriterFitsItselfToABottleneckAndBack) {
  Bottleneck net;
  const double first = net.stream(SendOpcode::Write, 50 * ms);  // 500 packets a ms fit
  EXPECT_GT(first, 300);
  EXPECT_EQ(net.lost, 0u);
  EXPECT_EQ(net.p.a.adapter.counters().sent_again, 0u);
  EXPECT_GT(net.p.a.adapter.counters().congestion_notices, 0u);
  net.packet_ns = 20 * us;  // 50 a ms
  (void)net.stream(SendOpcode::Write, 20 * ms);
  net.forget();
  const double narrow = net.stream(SendOpcode::Write, 100 * ms);
  EXPECT_GT(narrow, 35);
  EXPECT_LE(narrow, 51);
  EXPECT_LT(net.mean(),
            2 * Bottleneck::mark);  // without control the window of 128 packets stands in the queue
  EXPECT_EQ(net.lost, 0u);
  net.packet_ns = 2 * us;
  (void)net.stream(SendOpcode::Write, 50 * ms);
  EXPECT_GT(net.stream(SendOpcode::Write, 50 * ms), 300);
  EXPECT_EQ(net.p.a.adapter.counters().timeouts, 0u);
}

TEST(RoceCongestion, WithoutMarksTheWindowStandsInTheQueue) {
  Bottleneck net;
  net.marks = false;
  net.packet_ns = 20 * us;
  (void)net.stream(SendOpcode::Write, 50 * ms);
  EXPECT_GT(net.mean(), 100);
}

TEST(RoceCongestion, AResponderOfReadsFitsItselfToo) {
  Bottleneck net;
  net.reverse = true;
  EXPECT_GT(net.stream(SendOpcode::Read, 50 * ms), 200);
  net.packet_ns = 20 * us;
  (void)net.stream(SendOpcode::Read, 30 * ms);
  net.forget();
  const double narrow = net.stream(SendOpcode::Read, 100 * ms);
  EXPECT_GT(narrow, 30);
  EXPECT_LT(net.mean(), 2 * Bottleneck::mark);
  EXPECT_EQ(net.p.a.adapter.counters().timeouts, 0u);
  EXPECT_EQ(net.lost, 0u);
}

TEST(RoceCongestion, AnUnreliableWriterLosesLess) {
  uint64_t lost[2];
  for (const bool marks : {false, true}) {
    Bottleneck net(QpType::Uc);
    net.marks = marks;
    net.packet_ns = 20 * us;
    (void)net.stream(SendOpcode::Write, 30 * ms);
    const uint64_t before = net.lost;
    (void)net.stream(SendOpcode::Write, 100 * ms);
    lost[marks] = net.lost - before;
  }
  EXPECT_LT(lost[1], lost[0] / 20);
}

}  // namespace
}  // namespace weft::proto::roce::sim
