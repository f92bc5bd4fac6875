// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The window of UC: what waits for it, peers without it, peers that lie, and what a buffer's size makes of it.
#include <algorithm>

#include "proto/roce/sim_pair.hpp"

namespace weft::proto::roce::sim {
namespace {

bool all_weft_peers(const Gid&) noexcept { return true; }

struct Unreliable : Pair {
  explicit Unreliable(bool a_has = true, bool b_has = true) : Pair(QpType::Uc) {
    if (a_has) a.adapter.is_weft_peer = all_weft_peers;
    if (b_has) b.adapter.is_weft_peer = all_weft_peers;
    connect();
    fill(from, 3);
  }
  // A WRITE of so many packets of 256 bytes.
  void write(uint32_t packets, uint64_t id = 1) {
    SendRequest w = request(SendOpcode::Write, from.element(0, packets * 256), id);
    w.remote_address = to.address();
    w.remote_key = to.region->key;
    ASSERT_EQ(send(a, w), 0);
    serve();
  }
  void serve() {
    for (int i = 0; i < 100 && a.adapter.has_ready(); ++i) a.adapter.flush(now);
  }
  // What a has sent reaches b; b's answer is returned, and goes no further.
  std::deque<PacketBytes> deliver() {
    for (const PacketBytes& one : std::exchange(a.out, {})) give(b, one);
    b.adapter.flush(now);
    return std::exchange(b.out, {});
  }
  static PacketBytes update(const QueuePair& qp, uint32_t psn, uint32_t window) {
    wire::roce::Packet packet;
    packet.bth.opcode = wire::roce::opcode_window_update;
    packet.bth.destination = qp.number;
    packet.bth.psn = psn;
    packet.aeth.msn = window;
    return make(packet);
  }

  Block from{a, 1 << 20};
  Block to{b, 1 << 20};
};

constexpr uint32_t first = 0xfffffe;  // PSN of a pair

TEST(RoceUnreliable, NoMoreIsInFlightThanAWindow) {
  Unreliable p;
  p.write(1000);
  EXPECT_EQ(p.a.out.size(), window_least);
  EXPECT_TRUE(Pair::completions(p.a).empty());
  size_t sent = p.a.out.size();
  size_t most = 0;
  for (int i = 0; i < 1000 && sent < 1000; ++i) {
    const auto answers = p.deliver();
    ASSERT_EQ(answers.size(), 1u);  // however many packets have asked
    p.give(p.a, answers[0]);
    p.serve();
    sent += p.a.out.size();
    most = std::max(most, p.a.out.size());
  }
  EXPECT_EQ(sent, 1000u);
  EXPECT_EQ(most, p.a.qp->attributes.window_packets);
  (void)p.deliver();
  expect_one(p.a, 1, CompletionOpcode::Write);
  EXPECT_EQ(std::memcmp(p.to.at, p.from.at, 256'000), 0);
  EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
  EXPECT_EQ(p.b.adapter.counters().gaps, 0u);
}

TEST(RoceUnreliable, ThirdPartyPeersAreNeitherAskedNorNotified) {
  Unreliable p(false, true);
  p.write(200);
  EXPECT_EQ(p.a.out.size(), 200u);
  for (const PacketBytes& one : p.a.out) {
    wire::roce::Packet packet;
    ASSERT_TRUE(wire::roce::parse(one, packet));
    EXPECT_FALSE(packet.bth.ack_request);
  }
  EXPECT_TRUE(p.deliver().empty());
}

// An older version, or one that is stopped: what is posted leaves all the same, later.
TEST(RoceUnreliable, APeerThatTellsNothingIsSentToWithoutALimit) {
  Unreliable p(true, false);
  p.write(200);
  EXPECT_TRUE(p.deliver().empty());
  EXPECT_EQ(p.a.qp->sent, window_least);
  p.pass(Requester::window_timeout_ns - 1);
  EXPECT_EQ(p.a.qp->sent, window_least);
  p.pass(2);
  EXPECT_EQ(p.a.qp->sent, 200u);
  expect_one(p.a, 1, CompletionOpcode::Write);
  EXPECT_EQ(p.a.qp->timeouts, 1u);
  p.write(200);
  EXPECT_EQ(p.a.qp->sent, 400u);
}

TEST(RoceUnreliable, AWindowThatWasLostEndsWithTheNextUpdate) {
  Unreliable p;
  p.write(20);
  p.a.out.clear();
  p.pass(Requester::window_timeout_ns);
  EXPECT_EQ(p.a.qp->sent, 20u);
  EXPECT_EQ(p.a.qp->requester.window, 0u);
  p.write(40);
  p.exchange();
  EXPECT_EQ(p.a.qp->requester.window, p.a.qp->attributes.window_packets);
  EXPECT_EQ(p.a.qp->timeouts, 1u);
}

TEST(RoceUnreliable, TheWindowFollowsTheBufferAndTheNumberOfQueuePairs) {
  Unreliable p;
  p.b.adapter.unreliable_room_bytes =
      425'984;  // what Linux gives anybody; a packet of 256 bytes counts as 2,560
  const auto told = [&] {
    p.write(window_least);
    const auto answers = p.deliver();
    if (answers.empty()) return 0u;
    p.give(p.a, answers[0]);
    return p.a.qp->requester.window;
  };
  EXPECT_EQ(told(), 83u);
  QueuePairRequest more;
  more.type = QpType::Uc;
  more.pd = 1;
  more.send_cq = more.receive_cq = p.b.cq;
  QueuePair* const second = *p.b.adapter.create_qp(more);
  EXPECT_EQ(told(), 41u);
  std::vector<QueuePair*> many;
  many.reserve(20);
  for (int i = 0; i < 20; ++i) many.push_back(*p.b.adapter.create_qp(more));
  EXPECT_EQ(told(), window_least);
  for (QueuePair* qp : many) p.b.adapter.destroy_qp(*qp);
  p.b.adapter.destroy_qp(*second);
  EXPECT_EQ(told(), 83u);
}

// Whoever makes windows smaller while packets are under way does not stop what waits for an answer of these.
TEST(RoceUnreliable, AWindowThatShrinksDoesNotStopTheQueuePair) {
  Unreliable p;
  p.write(1000);
  for (int i = 0; i < 4; ++i) {
    for (const PacketBytes& one : p.deliver()) p.give(p.a, one);
    p.serve();
  }
  p.b.adapter.unreliable_room_bytes = 1;
  p.exchange();
  EXPECT_EQ(p.a.qp->sent, 1000u);
  EXPECT_EQ(p.a.qp->timeouts, 0u);
  EXPECT_EQ(p.a.qp->requester.window, window_least);
}

TEST(RoceUnreliable, UpdatesOfOthersAndOfWhatWasNotSentCountForNothing) {
  Unreliable p;
  p.write(200);
  p.a.out.clear();
  Gid stranger{};
  stranger[0] = std::byte{9};
  p.give(p.a, Unreliable::update(*p.a.qp, first, 128), stranger);
  EXPECT_EQ(p.a.adapter.counters().foreign, 1u);
  for (const uint32_t psn :
       {psn_add(first, window_least), psn_add(first, 0x7fffff), psn_add(first, psn_mask)})
    p.give(p.a, Unreliable::update(*p.a.qp, psn, 128));
  EXPECT_EQ(p.a.adapter.counters().ghosts, 3u);
  p.a.adapter.flush(p.now);
  EXPECT_EQ(p.a.qp->sent, window_least);
  // A window that no responder has.
  p.give(p.a, Unreliable::update(*p.a.qp, first, 0xffffff));
  EXPECT_EQ(p.a.qp->requester.window, p.a.qp->attributes.window_packets);
  p.give(p.a, Unreliable::update(*p.a.qp, psn_add(first, 1), 0));
  EXPECT_EQ(p.a.qp->requester.window, window_least);
  p.give(p.a, Unreliable::update(*p.a.qp, first, 128));  // it was overtaken
  EXPECT_EQ(p.a.qp->requester.window, window_least);
}

// One for a queue pair that has no window: of RC, or with a third-party peer.
TEST(RoceUnreliable, UpdatesForOthersAreUnknown) {
  Unreliable third_party(false, false);
  third_party.give(third_party.a, Unreliable::update(*third_party.a.qp, first, 16));
  EXPECT_EQ(third_party.a.adapter.counters().unknown, 1u);
  Pair rc;
  rc.a.adapter.is_weft_peer = all_weft_peers;
  rc.connect();
  rc.give(rc.a, Unreliable::update(*rc.a.qp, first, 16));
  EXPECT_EQ(rc.a.adapter.counters().unknown, 1u);
}

// A queue pair that only receives tells, too; and one that fails meanwhile tells nothing.
TEST(RoceUnreliable, AResponderTellsInEachStateThatReceives) {
  Unreliable p;
  p.write(window_least);
  for (const PacketBytes& one : std::exchange(p.a.out, {})) p.give(p.b, one);
  p.step(p.b, p.common, QpState::Error, 0);
  p.b.adapter.flush(p.now);
  EXPECT_TRUE(p.b.out.empty());

  Pair half(QpType::Uc);
  for (Port* port : {&half.a, &half.b}) port->adapter.is_weft_peer = all_weft_peers;
  half.raise(half.a, half.b);
  half.raise(half.b, half.a, QpState::ReadyToReceive);
  Block from(half.a, 65536), to(half.b, 65536);
  SendRequest w = request(SendOpcode::Write, from.element(0, 200 * 256));
  w.remote_address = to.address();
  w.remote_key = to.region->key;
  ASSERT_EQ(half.send(half.a, w), 0);
  half.exchange();
  EXPECT_EQ(half.a.qp->sent, 200u);
  EXPECT_EQ(half.a.qp->timeouts, 0u);
}

}  // namespace
}  // namespace weft::proto::roce::sim
