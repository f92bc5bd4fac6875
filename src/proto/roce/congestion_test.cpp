// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Congestion: who answers marks by CNPs, who heeds them, and a bottleneck that marks.
#include <algorithm>
#include <array>

#include "proto/congestion/delay_window.hpp"
#include "proto/congestion/sim_cubic.hpp"
#include "proto/roce/sim_bottleneck.hpp"

namespace weft::proto::roce::sim {
namespace {

using congestion::DcqcnRate;

uint32_t rate_of(const QueuePair& qp) { return static_cast<const congestion::Dcqcn&>(*qp.congestion).rate(); }

size_t cnps(const Port& port) {
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
  ASSERT_EQ(cnps(p.b), 1u);
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
  EXPECT_EQ(p.a.adapter.counters().cnps_received, 1u);
  p.exchange();
  EXPECT_EQ(Pair::completions(p.a).size(), 1u);
  p.now += Responder::cnp_ns;
  ASSERT_EQ(p.send(p.a, w), 0);
  for (const PacketBytes& one : p.a.out) give_marked(p, p.b, one);
  p.a.out.clear();
  p.b.adapter.flush(p.now);
  EXPECT_EQ(cnps(p.b), 1u);
  EXPECT_EQ(p.b.adapter.counters().cnps_sent, 2u);
}

TEST(RoceCongestion, AcknowledgementsCnpsAndDatagramsAreNotAnswered) {
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
  EXPECT_EQ(cnps(p.a), 0u);
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
  EXPECT_EQ(cnps(d.b), 0u);
  EXPECT_EQ(d.b.adapter.counters().marked, 1u);
}

TEST(RoceCongestion, CnpsOfThirdPartyPeersAndOfDatagramsAreIgnored) {
  Pair p;
  p.connect();
  Gid stranger{};
  stranger[3] = std::byte{9};
  for (int i = 0; i < 5; ++i, p.now += 100 * us) p.give(p.a, notice_to(*p.a.qp), stranger);
  EXPECT_EQ(p.a.adapter.counters().cnps_received, 0u);
  EXPECT_FALSE(p.a.qp->congestion->is_paced());
  Pair d(QpType::Ud);
  d.connect();
  for (int i = 0; i < 5; ++i, d.now += 100 * us) d.give(d.a, notice_to(*d.a.qp));
  EXPECT_FALSE(d.a.qp->congestion->is_paced());
}

// Whatever a peer says, its queue pair goes on, and others are as fast as before.
TEST(RoceCongestion, AFloodOfCnpsSlowsAndDoesNotStop) {
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
      p.pass(DcqcnRate::tick_ns);
      done += Pair::completions(p.a).size();
    }
    EXPECT_TRUE(p.a.qp->congestion->is_paced());
    EXPECT_EQ(rate_of(*p.a.qp), DcqcnRate::rate_min);
    EXPECT_GT(p.a.qp->sends.tail, p.a.qp->sends.head);
    p.pass(1000 * ms);
    done += Pair::completions(p.a).size();
    EXPECT_EQ(done, p.a.qp->sends.tail);
    EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
    EXPECT_EQ(p.a.qp->state, QpState::ReadyToSend);
    EXPECT_EQ(p.a.adapter.next_due(), UINT64_MAX);
  }
}

// Whatever number the packets begin with, and whatever was cut long ago: the first cut is of the rate that was used.
TEST(RoceCongestion, TheFirstCutIsOfTheRateThatWasUsed) {
  for (const uint32_t psn : {0u, 5u, 0x7fffffu, 0x900000u, 0xfffffeu}) {
    for (const uint32_t cut : {0u, 0x400000u, 0xc00000u}) {
      Pair p;
      p.common.rq_psn = p.common.sq_psn = psn;
      p.connect();
      EXPECT_EQ(p.a.qp->cut_psn, psn);
      p.a.qp->cut_psn = cut;
      Block from(p.a, 65536), to(p.b, 65536);
      SendRequest w = request(SendOpcode::Write, from.element(0, 100 * 256));
      w.remote_address = to.address();
      w.remote_key = to.region->key;
      p.give(p.a, notice_to(*p.a.qp));
      ASSERT_EQ(p.send(p.a, w), 0);
      for (int i = 0; i < 20; ++i) p.a.adapter.flush(p.now);
      ASSERT_EQ(p.a.out.size(), 100u);  // under way
      p.now += DcqcnRate::tick_ns;
      p.give(p.a, notice_to(*p.a.qp));
      ASSERT_TRUE(p.a.qp->congestion->is_paced());
      EXPECT_EQ(rate_of(*p.a.qp), 50 * DcqcnRate::unit);
      EXPECT_EQ(p.a.qp->cut_psn, psn_add(psn, 100));
      // Once for what is under way.
      p.now += DcqcnRate::tick_ns;
      p.give(p.a, notice_to(*p.a.qp));
      EXPECT_EQ(rate_of(*p.a.qp), 50 * DcqcnRate::unit);
    }
  }
}

// UC acknowledges nothing: CNPs while a long message is under way cut again and again.
TEST(RoceCongestion, CnpsCutWithinAMessageOfUc) {
  Pair p(QpType::Uc);
  p.connect();
  Block from(p.a, 262144), to(p.b, 262144);
  SendRequest w = request(SendOpcode::Write, from.element(0, 262144));
  w.remote_address = to.address();
  w.remote_key = to.region->key;
  p.give(p.a, notice_to(*p.a.qp));
  ASSERT_EQ(p.send(p.a, w), 0);
  uint32_t before = UINT32_MAX;
  for (int i = 0; i < 4; ++i) {
    p.now += DcqcnRate::tick_ns;
    p.a.adapter.flush(p.now);
    p.give(p.a, notice_to(*p.a.qp));
    ASSERT_TRUE(p.a.qp->congestion->is_paced());
    EXPECT_LT(rate_of(*p.a.qp), before);
    before = rate_of(*p.a.qp);
  }
  EXPECT_NE(p.a.qp->requester.oldest, p.a.qp->requester.next);
}

// Both sides at the least rate, each READs from the other and waits for the answer: a turn that is the requester's,
// which has nothing to send, goes to the responses.
TEST(RoceCongestion, WhoWaitsForAReadAnswersOne) {
  Pair p;
  p.common.timeout = 0;  // for ever
  p.common.max_reads = p.common.max_dest_reads = 1;
  p.connect();
  Block from(p.a, 4096), to(p.b, 4096);
  for (Port* port : {&p.a, &p.b}) {
    for (int i = 0; i < 40; ++i, p.now += DcqcnRate::tick_ns) p.give(*port, notice_to(*port->qp));
    ASSERT_TRUE(port->qp->congestion->is_paced());
  }
  for (uint64_t id = 0; id < 4; ++id) {
    SendRequest r = request(SendOpcode::Read, from.element(0, 512), id);
    r.remote_address = to.address();
    r.remote_key = to.region->key;
    ASSERT_EQ(p.send(p.a, r), 0);
    r = request(SendOpcode::Read, to.element(1024, 512), id);
    r.remote_address = from.address();
    r.remote_key = from.region->key;
    ASSERT_EQ(p.send(p.b, r), 0);
  }
  size_t done[2] = {};
  for (int i = 0; i < 100; ++i) {
    p.pass(DcqcnRate::tick_ns);
    done[0] += Pair::completions(p.a).size();
    done[1] += Pair::completions(p.b).size();
  }
  EXPECT_EQ(done[0], 4u);
  EXPECT_EQ(done[1], 4u);
}

// An algorithm that cuts at its first CNP, whatever was cut half of all PSNs ago.
TEST(RoceCongestion, AnOldCutHidesNoNotice) {
  for (const uint32_t cut : {0u, 0x400000u, 0x7fffffu, 0x900000u, 0xc00000u}) {
    Pair p;
    p.common.rq_psn = p.common.sq_psn = 5;
    for (Port* port : {&p.a, &p.b}) port->qp->congestion.emplace(congestion::make<congestion::sim::Cubic>);
    p.connect();
    p.a.qp->cut_psn = cut;
    Block from(p.a, 65536), to(p.b, 65536);
    SendRequest w = request(SendOpcode::Write, from.element(0, 20 * 256));
    w.remote_address = to.address();
    w.remote_key = to.region->key;
    ASSERT_EQ(p.send(p.a, w), 0);
    const auto& cubic = static_cast<const congestion::sim::Cubic&>(*p.a.qp->congestion);
    p.give(p.a, notice_to(*p.a.qp));
    EXPECT_EQ(cubic.cuts(), 1u) << cut;
    p.now += Responder::cnp_ns;
    p.give(p.a, notice_to(*p.a.qp));  // about what was sent before the cut
    EXPECT_EQ(cubic.cuts(), 1u) << cut;
    p.exchange();
    EXPECT_EQ(Pair::completions(p.a).size(), 1u);
  }
}

// The window of an algorithm begins with packets of the path MTU that the queue pair has, not of the one before.
TEST(RoceCongestion, AWindowBeginsWithThePathMtu) {
  for (const uint8_t mtu : {1, 3, 5}) {
    Pair p;
    p.common.path_mtu = mtu;
    p.a.qp->congestion.emplace(congestion::make<congestion::DelayWindow>);
    p.connect();
    EXPECT_EQ(p.a.qp->requester.allowed, 10u);
  }
}

TEST(RoceCongestion, ANoticeIsNoPayload) {
  Pair p;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  ASSERT_EQ(p.receive(p.b, 1, {to.element(0, 64)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), 0);
  give_marked(p, p.b, p.a.out[0]);
  p.a.out.clear();
  p.b.adapter.flush(p.now);
  EXPECT_EQ(cnps(p.b), 1u);
  EXPECT_EQ(p.b.qp->sent_bytes, 0u);
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
  EXPECT_EQ(cnps(p.b), 1u);
}

TEST(RoceCongestion, AWriterFitsItselfToABottleneckAndBack) {
  Bottleneck net;
  const double first = net.stream(SendOpcode::Write, 50 * ms);  // 500 packets a ms fit
  EXPECT_GT(first, 300);
  EXPECT_EQ(net.lost, 0u);
  EXPECT_EQ(net.p.a.adapter.counters().sent_again, 0u);
  EXPECT_GT(net.p.a.adapter.counters().cnps_received, 0u);
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
  uint64_t lost[2] = {};
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
