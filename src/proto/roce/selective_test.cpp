// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Selective repeat: what is kept, told and repeated; peers that do not know it; peers that lie; what it gains.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "proto/roce/sim_bottleneck.hpp"
#include "wire/roce/sack_bitmap.hpp"

namespace weft::proto::roce::sim {
namespace {

using wire::roce::SackBitmap;

bool all_weft_peers(const Gid&) noexcept { return true; }

struct Selective : Pair {
  explicit Selective(bool a_selects = true, bool b_selects = true, QpType type = QpType::Rc) : Pair(type) {
    if (a_selects) a.adapter.is_weft_peer = all_weft_peers;
    if (b_selects) b.adapter.is_weft_peer = all_weft_peers;
    connect();
    fill(from, 7);
  }
  // A WRITE of so many packets of 256 bytes.
  void write(uint32_t packets, uint64_t id = 1) {
    SendRequest w = request(SendOpcode::Write, from.element(0, packets * 256), id);
    w.remote_address = to.address();
    w.remote_key = to.region->key;
    ASSERT_EQ(send(a, w), 0);
    // A turn has a bound.
    for (int i = 0; i < 100 && a.adapter.has_ready(); ++i) a.adapter.flush(now);
  }
  // What a has sent reaches b, but for the packets that are named by their place.
  void deliver_but(std::initializer_list<size_t> lost) {
    std::deque<PacketBytes> batch;
    batch.swap(a.out);
    for (size_t i = 0; i < batch.size(); ++i)
      if (std::ranges::find(lost, i) == lost.end()) give(b, batch[i]);
    b.adapter.flush(now);
  }
  size_t buffered() const { return b.qp->reorder->has.size(); }

  Block from{a, 65536};
  Block to{b, 65536};
};

size_t maps(const Port& port) {
  return static_cast<size_t>(std::ranges::count_if(
      port.out, [](const PacketBytes& bytes) { return bytes[0] == std::byte{wire::roce::opcode_sack}; }));
}

PacketBytes map_to(const QueuePair& qp, uint32_t psn, const SackBitmap& map) {
  std::array<std::byte, SackBitmap::bytes_max> bytes;
  wire::roce::Packet packet;
  packet.bth.opcode = wire::roce::opcode_sack;
  packet.bth.destination = qp.number;
  packet.bth.psn = psn;
  packet.aeth.syndrome = 0x60;
  packet.payload = {bytes.data(), map.write(bytes.data())};
  return make(packet);
}

// Writes over what was on the stack.
[[gnu::noinline]] int scribble(int with) {
  std::array<volatile int, 1024> place;
  for (auto& one : place) one = with;
  return place[static_cast<size_t>(with)];
}

TEST(RoceSelective, TheMissingPacketsAloneAreRepeated) {
  Selective p;
  p.write(20);
  ASSERT_EQ(p.a.out.size(), 20u);
  p.deliver_but({3, 4, 9});
  EXPECT_EQ(p.buffered(), 14u);
  EXPECT_EQ(maps(p.b), 2u);
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Write);
  EXPECT_EQ(p.a.adapter.counters().sent_again, 3u);
  EXPECT_EQ(p.a.adapter.counters().repeated, 3u);
  EXPECT_EQ(p.a.qp->repeated, 3u);
  EXPECT_EQ(p.b.adapter.counters().buffered, 14u);
  EXPECT_EQ(p.b.adapter.counters().duplicates, 0u);
  EXPECT_EQ(p.buffered(), 0u);
  EXPECT_FALSE(p.b.qp->reorder->is_open);
  EXPECT_EQ(std::memcmp(p.from.at, p.to.at, 20 * 256), 0);
  EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
}

TEST(RoceSelective, MapsStayWhereTheyAreUntilTheyAreSent) {
  Selective p;
  p.write(20);
  p.b.refers = true;
  for (uint32_t i = 1; i < 20; ++i) {
    p.give(p.b, p.a.out[i]);
    p.b.adapter.flush(p.now);
    (void)scribble(static_cast<int>(i));
  }
  EXPECT_GT(maps(p.b), 1u);
  EXPECT_TRUE(p.b.payloads_are_as_they_were());
}

TEST(RoceSelective, ARepetitionThatIsLostGoesOnceMore) {
  Selective p;
  p.write(20);
  p.deliver_but({3, 9});
  for (const PacketBytes& one : p.b.out) p.give(p.a, one);
  p.b.out.clear();
  p.a.adapter.flush(p.now);
  ASSERT_EQ(p.a.out.size(), 2u);
  p.deliver_but({0});  // the second one tells that the first is lost again
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Write);
  EXPECT_EQ(p.a.adapter.counters().sent_again, 3u);
  EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
}

TEST(RoceSelective, ALostEndBehindAGapIsFoundByAProbe) {
  Selective p;
  p.write(20);
  p.deliver_but({3, 18, 19});
  p.exchange();
  EXPECT_TRUE(Pair::completions(p.a).empty());
  p.pass(3 * ms);  // the timeout is 4 ms
  expect_one(p.a, 1, CompletionOpcode::Write);
  EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
  EXPECT_EQ(p.a.adapter.counters().sent_again, 3u);
}

TEST(RoceSelective, MessagesCompleteInOrder) {
  Selective p;
  for (uint64_t id = 0; id < 8; ++id) {
    ASSERT_EQ(p.receive(p.b, id, {p.to.element(static_cast<uint32_t>(id) * 256, 256)}), 0);
    ASSERT_EQ(
        p.send(p.a, request(SendOpcode::Send, p.from.element(static_cast<uint32_t>(id) * 256, 200), id)), 0);
  }
  p.deliver_but({0, 5});
  EXPECT_TRUE(Pair::completions(p.b).empty());
  p.exchange();
  const auto got = Pair::completions(p.b);
  ASSERT_EQ(got.size(), 8u);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].id, i);
    EXPECT_EQ(std::memcmp(p.from.at + i * 256, p.to.at + i * 256, 200), 0);
  }
  EXPECT_EQ(Pair::completions(p.a).size(), 8u);
  EXPECT_EQ(p.a.adapter.counters().repeated, 2u);
}

TEST(RoceSelective, AReadAndAnAtomicBehindAGapAreBufferedAndRunOnce) {
  Selective p;
  SendRequest w = request(SendOpcode::Write, p.from.element(0, 256), 1);
  w.remote_address = p.to.address();
  w.remote_key = p.to.region->key;
  ASSERT_EQ(p.send(p.a, w), 0);
  SendRequest r = request(SendOpcode::Read, p.from.element(4096, 2560), 2);
  r.remote_address = p.to.address();
  r.remote_key = p.to.region->key;
  ASSERT_EQ(p.send(p.a, r), 0);
  SendRequest add = request(SendOpcode::FetchAdd, p.from.element(8192, 8), 3);
  add.remote_address = p.to.address() + 32768;
  add.remote_key = p.to.region->key;
  add.compare_add = 5;
  ASSERT_EQ(p.send(p.a, add), 0);
  w.id = 4;
  ASSERT_EQ(p.send(p.a, w), 0);
  p.deliver_but({0});
  EXPECT_EQ(p.buffered(), 3u);
  p.exchange();
  const auto got = Pair::completions(p.a);
  ASSERT_EQ(got.size(), 4u);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].id, i + 1);
  EXPECT_EQ(std::memcmp(p.from.at, p.from.at + 4096, 256), 0);
  uint64_t sum = 0;
  std::memcpy(&sum, p.to.at + 32768, 8);
  EXPECT_EQ(sum, 5u);
  EXPECT_EQ(p.a.adapter.counters().sent_again, 1u);
}

TEST(RoceSelective, AnRnrNakBehindAGapBringsAllOfItAgain) {
  Selective p;
  for (uint64_t id = 0; id < 6; ++id)
    ASSERT_EQ(
        p.send(p.a, request(SendOpcode::Send, p.from.element(static_cast<uint32_t>(id) * 256, 200), id)), 0);
  ASSERT_EQ(p.receive(p.b, 0, {p.to.element(0, 256)}), 0);
  p.deliver_but({0});
  EXPECT_EQ(p.buffered(), 5u);
  p.exchange();
  EXPECT_EQ(p.buffered(), 0u);
  for (uint64_t id = 1; id < 6; ++id)
    ASSERT_EQ(p.receive(p.b, id, {p.to.element(static_cast<uint32_t>(id) * 256, 256)}), 0);
  p.pass(100 * ms);
  EXPECT_EQ(Pair::completions(p.b).size(), 6u);
  EXPECT_EQ(Pair::completions(p.a).size(), 6u);
}

// --- who does not know it ---

TEST(RoceSelective, ARequesterThatKnowsNoMapsGoesBack) {
  Selective p(false, true);
  p.write(20);
  p.deliver_but({3, 9});
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Write);
  EXPECT_EQ(p.a.adapter.counters().sent_again, 17u);
  EXPECT_EQ(p.b.adapter.counters().buffered, 0u);  // its requests have no tags
  EXPECT_EQ(p.a.adapter.counters().unknown, 0u);
  EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
  EXPECT_EQ(std::memcmp(p.from.at, p.to.at, 20 * 256), 0);
}

TEST(RoceSelective, GoBackNWithAResponderThatBuffersNothing) {
  Selective p(true, false);
  p.write(20);
  p.deliver_but({3, 9});
  EXPECT_EQ(maps(p.b), 0u);
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Write);
  EXPECT_EQ(p.a.adapter.counters().sent_again, 17u);
  EXPECT_EQ(p.a.adapter.counters().repeated, 0u);
}

TEST(RoceSelective, ThirdPartyPeersGetAndHeedNoSackBitmap) {
  Selective p(false, false);
  p.write(20);
  p.deliver_but({3});
  EXPECT_EQ(maps(p.b), 0u);
  EXPECT_EQ(p.b.qp->reorder, nullptr);
  SackBitmap map;
  map.newest = psn_add(p.a.qp->requester.oldest, 10);
  p.give(p.a, map_to(*p.a.qp, p.a.qp->requester.oldest, map));
  EXPECT_EQ(p.a.adapter.counters().unknown, 1u);
  EXPECT_EQ(p.a.adapter.counters().sent_again, 0u);
}

// --- who lies ---

TEST(RoceSelective, AMapThatSaysTooMuchDelaysItsOwnQueuePairAlone) {
  Selective p;
  p.write(20);
  p.a.out.clear();  // nothing has arrived
  SackBitmap map;
  map.bits.fill(0xff);
  map.newest = 0x123456;
  const uint32_t oldest = p.a.qp->requester.oldest;
  p.give(p.a, map_to(*p.a.qp, oldest, map));
  p.a.adapter.flush(p.now);
  EXPECT_TRUE(Pair::completions(p.a).empty());
  EXPECT_EQ(p.a.qp->requester.oldest, oldest);
  p.exchange();
  p.pass(500 * ms);  // the timeout repeats all of it
  expect_one(p.a, 1, CompletionOpcode::Write);
  EXPECT_EQ(std::memcmp(p.from.at, p.to.at, 20 * 256), 0);
}

TEST(RoceSelective, SackBitmapsThatAreEmptyOfThirdPartyPeersOrOfAWrongLengthAreIgnored) {
  Selective p;
  p.write(20);
  p.a.out.clear();
  SackBitmap map;
  const uint32_t oldest = p.a.qp->requester.oldest;
  map.newest = psn_add(oldest, 5);
  map.add(4);
  p.give(p.a, map_to(*p.a.qp, psn_add(oldest, 21), map));  // never sent
  p.give(p.a, map_to(*p.a.qp, psn_add(oldest, psn_mask), map));
  EXPECT_EQ(p.a.adapter.counters().ghosts, 2u);
  Gid stranger{};
  stranger[3] = std::byte{9};
  p.give(p.a, map_to(*p.a.qp, oldest, map), stranger);
  EXPECT_EQ(p.a.adapter.counters().foreign, 1u);
  for (const size_t length : {size_t{0}, size_t{8}, SackBitmap::bytes_max + 4, size_t{4092}}) {
    std::vector<std::byte> payload(length, std::byte{0xff});
    wire::roce::Packet packet;
    packet.bth.opcode = wire::roce::opcode_sack;
    packet.bth.destination = p.a.qp->number;
    packet.bth.psn = oldest;
    packet.payload = payload;
    p.give(p.a, make(packet));
  }
  EXPECT_EQ(p.a.adapter.counters().malformed, 3u);
  EXPECT_LE(p.a.adapter.counters().sent_again, 1u);
}

// As often as somebody says that it is missing, a packet is repeated a few times for each answer that is one.
TEST(RoceSelective, AFloodOfMapsIsNoAmplifier) {
  Selective p;
  p.write(64);
  p.a.out.clear();
  const uint32_t oldest = p.a.qp->requester.oldest;
  std::mt19937 random(3);
  for (int i = 0; i < 10'000 && p.a.qp->state == QpState::ReadyToSend; ++i) {
    SackBitmap map;
    map.newest = psn_add(oldest, random() % 64);
    for (int k = 0; k < 8; ++k) map.add(random() % 62);
    p.give(p.a, map_to(*p.a.qp, oldest, map));
    p.a.adapter.flush(p.now);
    p.a.out.clear();
  }
  EXPECT_LE(p.a.adapter.counters().sent_again, 64u * Repeater::times_max);
}

TEST(RoceSelective, AGapThatIsNeverFilledHoldsABoundedPartOfThePool) {
  Selective p;
  wire::roce::Packet packet;
  packet.bth.opcode =
      wire::roce::opcode(wire::roce::Transport::ReliableConnection, wire::roce::Operation::SendOnly);
  packet.bth.destination = p.b.qp->number;
  const uint32_t expected = p.b.qp->responder.expected;
  for (uint32_t i = 1; i < 100'000; ++i) {
    packet.bth.psn = psn_add(expected, i);
    packet.bth.tag = tag_of(p.b.qp->responder.tag_key, packet.bth.psn);
    p.give(p.b, make(packet));
    if (i % 1000 == 0) p.b.adapter.flush(p.now);
    p.b.out.clear();
  }
  EXPECT_EQ(p.buffered(), reorder_span - 1);
  EXPECT_EQ(p.b.adapter.counters().buffered, reorder_span - 1);
  EXPECT_TRUE(Pair::completions(p.b).empty());
  Attributes x;
  x.state = QpState::Error;
  ASSERT_TRUE(p.b.adapter.modify(*p.b.qp, x, attr_state, p.now));
  EXPECT_EQ(p.buffered(), 0u);
  x.state = QpState::Reset;
  ASSERT_TRUE(p.b.adapter.modify(*p.b.qp, x, attr_state, p.now));
  EXPECT_EQ(p.b.qp->reorder, nullptr);
}

// Four queue pairs take the whole pool; a fifth goes on without.
TEST(RoceSelective, AnEmptyPoolIsGoBackN) {
  Selective p;
  std::vector<QueuePair*> greedy;
  for (int i = 0; i < 5; ++i) {
    QueuePairRequest q;
    q.pd = 1;
    q.send_cq = q.receive_cq = p.b.cq;
    QueuePair* const own = p.b.qp;
    p.b.qp = *p.b.adapter.create_qp(q);
    p.raise(p.b, p.a);
    wire::roce::Packet packet;
    packet.bth.opcode =
        wire::roce::opcode(wire::roce::Transport::ReliableConnection, wire::roce::Operation::SendOnly);
    packet.bth.destination = p.b.qp->number;
    for (uint32_t k = 1; k < reorder_span; ++k) {
      packet.bth.psn = psn_add(p.b.qp->responder.expected, k);
      packet.bth.tag = tag_of(p.b.qp->responder.tag_key, packet.bth.psn);
      p.give(p.b, make(packet));
    }
    greedy.push_back(p.b.qp);
    p.b.qp = own;
  }
  EXPECT_EQ(p.b.adapter.counters().buffered, reorder_packets_max);
  p.b.adapter.flush(p.now);
  p.b.out.clear();
  p.write(20);
  p.deliver_but({3, 9});
  EXPECT_EQ(p.buffered(), 0u);
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Write);
  EXPECT_EQ(std::memcmp(p.from.at, p.to.at, 20 * 256), 0);
  EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
  for (QueuePair* one : greedy) p.b.adapter.destroy_qp(*one);
  p.write(20, 2);
  p.deliver_but({3});
  EXPECT_EQ(p.buffered(), 16u);
}

// --- what it gains ---

struct Gain {
  double goodput;  // of the link
  double sent;     // packets for each that was needed
  uint64_t timeouts;
};

Gain gain(bool selects, double loss, uint64_t round_trip, bool loses_back) {
  constexpr SendOpcode opcode = SendOpcode::Write;
  Bottleneck net(QpType::Rc, selects, 8);  // a timeout of 1 ms
  net.marks = false;
  net.loss = loss;
  net.loses_back = loses_back;
  net.delay = round_trip / 2;
  (void)net.stream(opcode, 10 * ms);
  const uint32_t before = net.p.b.qp->responder.expected;
  const uint64_t sent = net.sent;
  const uint64_t time = 200 * ms;
  (void)net.stream(opcode, time);
  const auto needed = static_cast<double>(psn_diff(net.p.b.qp->responder.expected, before));
  return {needed * static_cast<double>(net.packet_ns) / static_cast<double>(time),
          static_cast<double>(net.sent - sent) / needed, net.p.a.adapter.counters().timeouts};
}

TEST(RoceSelective, KeepsTheLinkFullWhereGoBackNDoesNot) {
  for (const bool loses_back : {false, true}) {
    for (const double loss : {0.01, 0.03, 0.05}) {
      for (const uint64_t round_trip : {10 * us, 40 * us, 200 * us}) {
        const Gain back = gain(false, loss, round_trip, loses_back);
        const Gain selective = gain(true, loss, round_trip, loses_back);
        const std::string row = "loss " + std::to_string(loss) + (loses_back ? " both ways" : " one way") +
                                ", round trip " + std::to_string(round_trip / us) + " us: go-back-N " +
                                std::to_string(back.goodput) + " of the link, " + std::to_string(back.sent) +
                                " packets for each, " + std::to_string(back.timeouts) +
                                " timeouts; selective " + std::to_string(selective.goodput) + ", " +
                                std::to_string(selective.sent) + ", " + std::to_string(selective.timeouts);
        if (std::getenv("WEFT_SIM_TABLE") != nullptr) std::puts(row.c_str());
        EXPECT_GT(selective.goodput, back.goodput) << row;
        EXPECT_GT(selective.goodput, 0.85 * (1 - loss)) << row;
        EXPECT_LT(selective.sent, 1.03 / (1 - loss)) << row;
      }
    }
  }
}

}  // namespace
}  // namespace weft::proto::roce::sim
