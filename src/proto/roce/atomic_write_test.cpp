// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ATOMIC WRITE: its packets, its rights, and what is repeated.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "proto/roce/sim_pair.hpp"

namespace weft::proto::roce::sim {
namespace {

using wire::roce::Operation;
using wire::roce::Packet;

SendRequest to_peer(SendOpcode opcode, const Element& element, const Block& theirs, uint64_t id = 1) {
  SendRequest q = request(opcode, element, id, signaled);
  q.remote_address = theirs.address();
  q.remote_key = theirs.region->key;
  return q;
}

// IBTA volume 1, release 1.6: RETH and 8 bytes, answered by a READ response without a payload.
TEST(RoceAtomicWrite, WritesWhatAnElementOrTheRequestHas) {
  Pair p;
  p.connect();
  Block ours(p.a, 64), theirs(p.b, 64);
  fill(ours, 64);
  ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::AtomicWrite, ours.element(3, 8), theirs)), 0);
  ASSERT_EQ(p.a.out.size(), 1u);
  PacketBytes held;
  const Packet packet = take(p.a, held);
  EXPECT_EQ(packet.bth.opcode, 0x1d);
  EXPECT_EQ(packet.reth.length, 8u);
  EXPECT_EQ(packet.payload.size(), 8u);
  p.give(p.b, held);
  p.b.adapter.flush(p.now);
  const Packet answer = take(p.b, held);
  EXPECT_EQ(answer.operation(), Operation::ReadResponseOnly);
  EXPECT_TRUE(answer.payload.empty());
  p.give(p.a, held);
  expect_one(p.a, 1, CompletionOpcode::AtomicWrite);
  EXPECT_EQ(std::memcmp(theirs.at, ours.at + 3, 8), 0);
  EXPECT_EQ(theirs.at[8], std::byte{0});

  SendRequest value = to_peer(SendOpcode::AtomicWrite, {}, theirs, 2);
  value.elements = {};
  value.flags |= inline_data;
  value.remote_address += 16;
  value.compare_add = 0x0102030405060708;
  ASSERT_EQ(p.send(p.a, value), 0);
  p.exchange();
  expect_one(p.a, 2, CompletionOpcode::AtomicWrite);
  EXPECT_EQ(std::memcmp(theirs.at + 16, &value.compare_add, 8), 0);
  EXPECT_EQ(p.send(p.a, to_peer(SendOpcode::AtomicWrite, ours.element(0, 4), theirs)), -EINVAL);

  value.remote_address += 4;
  ASSERT_EQ(p.send(p.a, value), 0);
  p.exchange();
  const auto got = Pair::completions(p.a);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].status, Status::RemoteInvalidRequest);
}

TEST(RoceAtomicWrite, NeedsTheRightToWrite) {
  for (const bool is_key : {false, true}) {
    Pair p;
    p.connect();
    Block ours(p.a, 64), theirs(p.b, 64);
    SendRequest q = to_peer(SendOpcode::AtomicWrite, ours.element(0, 8), theirs);
    if (is_key) q.remote_key ^= 0x40;
    else p.b.qp->attributes.access &= ~uint32_t{remote_write};
    ASSERT_EQ(p.send(p.a, q), 0);
    p.exchange();
    const auto got = Pair::completions(p.a);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].status, Status::RemoteAccess);
    EXPECT_EQ(theirs.at[0], std::byte{0});
  }
  Pair p;
  p.connect();
  Block ours(p.a, 64), theirs(p.b, 64);
  Element bad = ours.element(0, 8);
  bad.key ^= 0x40;
  ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::AtomicWrite, bad, theirs)), 0);
  p.exchange();
  const auto got = Pair::completions(p.a);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].status, Status::LocalProtection);
}

// What was written since is not overwritten.
TEST(RoceAtomicWrite, ADuplicateIsAnsweredAndWritesNothing) {
  Pair p;
  p.connect();
  Block theirs(p.b, 64);
  const uint64_t value = 42;
  Packet q;
  q.bth.opcode = wire::roce::opcode(wire::roce::Transport::ReliableConnection, Operation::AtomicWrite);
  q.bth.destination = p.b.qp->number;
  q.bth.psn = p.b.qp->responder.expected;
  q.bth.ack_request = true;
  q.reth = {theirs.address(), theirs.region->key, 8};
  q.payload = std::as_bytes(std::span(&value, 1));
  const PacketBytes bytes = make(q);
  for (int i = 0; i < 3; ++i) {
    p.give(p.b, bytes);
    p.b.adapter.flush(p.now);
    PacketBytes held;
    const Packet answer = take(p.b, held);
    EXPECT_EQ(answer.operation(), Operation::ReadResponseOnly);
    EXPECT_EQ(answer.bth.psn, q.bth.psn);
    EXPECT_EQ(theirs.at[0], i == 0 ? std::byte{42} : std::byte{1});
    theirs.at[0] = std::byte{1};
  }
  // As another request than it was, it is not answered.
  q.reth.address += 8;
  p.give(p.b, make(q));
  p.b.adapter.flush(p.now);
  EXPECT_TRUE(p.b.out.empty());
}

}  // namespace
}  // namespace weft::proto::roce::sim
