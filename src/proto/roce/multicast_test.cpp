// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// UD queue pairs in multicast groups: who gets a copy, and what attaching refuses.
#include <algorithm>

#include "proto/roce/sim_pair.hpp"

namespace weft::proto::roce::sim {
namespace {

Gid group_gid(unsigned number) {
  Gid gid{};
  gid[0] = std::byte{0xff};
  gid[1] = std::byte{0x0e};
  gid[14] = static_cast<std::byte>(number >> 8);
  gid[15] = static_cast<std::byte>(number);
  return gid;
}

// Two sides with UD queue pairs that are ready; b has two of them.
struct Groups : Pair {
  Groups() : Pair(QpType::Ud), from(a, 1024), to(b, 4096) {
    connect();
    first = b.qp;
    second = another(b);
    a.adapter.names = {a.gid};
    b.adapter.names = {b.gid};
  }
  QueuePair* another(Port& port, QpType type = QpType::Ud) {
    QueuePairRequest request;
    request.type = type;
    request.pd = 1;
    request.send_cq = request.receive_cq = port.cq;
    request.capacities = {64, 64, 4, 4, 128};
    QueuePair* const before = port.qp;
    port.qp = *port.adapter.create_qp(request);
    if (type == QpType::Ud) raise(port, &port == &a ? b : a);
    return std::exchange(port.qp, before);
  }
  int send_to_group(Port& port, QueuePair& qp, uint32_t qkey = 0x1234, uint32_t qpn = group_qpn) {
    SendRequest q = request(SendOpcode::SendImmediate, {reinterpret_cast<uint64_t>("datagram"), 8, 0}, 1,
                            signaled | inline_data);
    q.to.destination = group;
    q.remote_qpn = qpn;
    q.remote_qkey = qkey;
    return port.adapter.post_send(qp, q, now);
  }
  void give_group(Port& to_port, const PacketBytes& bytes, const Gid& source) {
    const std::vector<std::byte> exact(bytes.begin(), bytes.end());
    Arrival arrival;
    arrival.source = source;
    arrival.bytes = exact;
    arrival.group = &group;
    to_port.adapter.on_packet(arrival, now);
  }
  void receive_on(Port& port, QueuePair& qp, uint64_t id, const Element& element) {
    ASSERT_EQ(port.adapter.post_receive(qp, {id, {&element, 1}}, now), 0);
  }

  Block from, to;
  QueuePair* first;
  QueuePair* second;
  Gid group = group_gid(1);
};

TEST(RoceMulticast, EachMemberGetsOneCopy) {
  Groups g;
  EXPECT_TRUE(*g.b.adapter.attach(*g.first, g.group));
  EXPECT_FALSE(*g.b.adapter.attach(*g.second, g.group));
  EXPECT_FALSE(*g.b.adapter.attach(*g.second, g.group));  // once more is nothing
  for (uint64_t i = 0; i < 3; ++i) g.receive_on(g.b, *g.first, i, g.to.element(0, 100));
  for (uint64_t i = 3; i < 6; ++i) g.receive_on(g.b, *g.second, i, g.to.element(100, 100));
  ASSERT_EQ(g.send_to_group(g.a, *g.a.qp), 0);
  ASSERT_EQ(g.a.out.size(), 1u);
  g.give_group(g.b, g.a.out[0], g.a.gid);
  const auto got = Pair::completions(g.b);
  ASSERT_EQ(got.size(), 2u);
  for (const Completion& c : got) {
    EXPECT_EQ(c.status, Status::Success);
    EXPECT_EQ(c.bytes, 48u);
    EXPECT_EQ(c.source_qpn, g.a.qp->number);
    EXPECT_EQ(std::memcmp(g.to.at + (c.id == 0 ? 0 : 100) + grh_bytes, "datagram", 8), 0);
  }
  EXPECT_NE(got[0].qpn, got[1].qpn);
}

TEST(RoceMulticast, OnlyTheRightKeyAndTheRightGroup) {
  Groups g;
  ASSERT_TRUE(g.b.adapter.attach(*g.first, g.group));
  g.receive_on(g.b, *g.first, 1, g.to.element(0, 100));
  ASSERT_EQ(g.send_to_group(g.a, *g.a.qp, 0x1235), 0);
  g.give_group(g.b, g.a.out[0], g.a.gid);
  EXPECT_EQ(g.b.adapter.counters().foreign, 1u);
  ASSERT_EQ(g.send_to_group(g.a, *g.a.qp), 0);
  g.group = group_gid(2);
  g.give_group(g.b, g.a.out[1], g.a.gid);
  EXPECT_EQ(g.b.adapter.counters().unknown, 1u);
  g.give(g.b, g.a.out[1]);  // to the QPN of groups, and not to a group
  EXPECT_EQ(g.b.adapter.counters().unknown, 2u);
  EXPECT_TRUE(Pair::completions(g.b).empty());
}

TEST(RoceMulticast, OtherTransportsDoNotReachGroups) {
  Groups g;
  ASSERT_TRUE(g.b.adapter.attach(*g.first, g.group));
  g.receive_on(g.b, *g.first, 1, g.to.element(0, 100));
  wire::roce::Packet packet;
  packet.bth.destination = group_qpn;
  for (const uint8_t code : {0x04, 0x24, 0x0a, 0x11, 0x81}) {
    packet.bth.opcode = code;
    g.give_group(g.b, make(packet), g.a.gid);
  }
  EXPECT_EQ(g.b.adapter.counters().unknown, 5u);
  EXPECT_TRUE(Pair::completions(g.b).empty());
}

TEST(RoceMulticast, TheSendersOtherQueuePairsHearIt) {
  Groups g;
  QueuePair* const other = g.another(g.a);
  ASSERT_TRUE(g.a.adapter.attach(*g.a.qp, g.group));
  ASSERT_TRUE(g.a.adapter.attach(*other, g.group));
  g.receive_on(g.a, *g.a.qp, 5, g.from.element(0, 100));
  g.receive_on(g.a, *other, 6, g.from.element(100, 100));
  ASSERT_EQ(g.send_to_group(g.a, *g.a.qp), 0);
  expect_one(g.a, 1, CompletionOpcode::Send);
  g.give_group(g.a, g.a.out[0], g.a.gid);
  expect_one(g.a, 6, CompletionOpcode::Receive);
  // Another host may have the same QPN.
  g.give_group(g.a, g.a.out[0], g.b.gid);
  expect_one(g.a, 5, CompletionOpcode::Receive);
}

TEST(RoceMulticast, WhatOneMemberCannotTakeTheOthersGet) {
  Groups g;
  ASSERT_TRUE(g.b.adapter.attach(*g.first, g.group));
  ASSERT_TRUE(g.b.adapter.attach(*g.second, g.group));
  g.receive_on(g.b, *g.first, 1, g.to.element(0, 45));  // too short
  g.receive_on(g.b, *g.second, 2, g.to.element(100, 100));
  ASSERT_EQ(g.send_to_group(g.a, *g.a.qp), 0);
  g.give_group(g.b, g.a.out[0], g.a.gid);
  expect_one(g.b, 2, CompletionOpcode::Receive);
  EXPECT_EQ(g.first->state, QpState::ReadyToSend);
  EXPECT_EQ(g.first->too_long, 1u);
  g.step(g.b, {}, QpState::Error, 0);  // the first one
  expect_one(g.b, 1, CompletionOpcode::Receive, Status::Flushed);
  g.receive_on(g.b, *g.second, 3, g.to.element(100, 100));
  g.give_group(g.b, g.a.out[0], g.a.gid);  // one in ERR gets nothing
  expect_one(g.b, 3, CompletionOpcode::Receive);
}

TEST(RoceMulticast, DetachingAndDestroying) {
  Groups g;
  EXPECT_FALSE(g.b.adapter.detach(*g.first, g.group));
  ASSERT_TRUE(g.b.adapter.attach(*g.first, g.group));
  ASSERT_TRUE(g.b.adapter.attach(*g.second, g.group));
  ASSERT_TRUE(g.b.adapter.attach(*g.second, group_gid(2)));
  EXPECT_EQ(g.b.adapter.first_group(*g.first), g.group);
  EXPECT_FALSE(*g.b.adapter.detach(*g.first, g.group));  // one is left
  EXPECT_FALSE(g.b.adapter.detach(*g.first, g.group));
  EXPECT_FALSE(g.b.adapter.first_group(*g.first));
  g.b.adapter.destroy_qp(*g.second);
  ASSERT_EQ(g.send_to_group(g.a, *g.a.qp), 0);
  g.give_group(g.b, g.a.out[0], g.a.gid);
  EXPECT_EQ(g.b.adapter.counters().unknown, 1u);  // the group has gone with it
  EXPECT_TRUE(*g.b.adapter.attach(*g.first, g.group));
  EXPECT_TRUE(*g.b.adapter.detach(*g.first, g.group));
}

TEST(RoceMulticast, BoundsAndTypes) {
  Groups g;
  const auto of_rc = g.b.adapter.attach(*g.another(g.b, QpType::Rc), g.group);
  ASSERT_FALSE(of_rc);
  EXPECT_EQ(of_rc.error().code, EINVAL);
  for (unsigned i = 0; i < groups_max; ++i) ASSERT_TRUE(g.b.adapter.attach(*g.first, group_gid(i)));
  const auto beyond = g.b.adapter.attach(*g.first, group_gid(groups_max));
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ENOMEM);
  EXPECT_FALSE(*g.b.adapter.attach(*g.second, group_gid(0)));
}

}  // namespace
}  // namespace weft::proto::roce::sim
