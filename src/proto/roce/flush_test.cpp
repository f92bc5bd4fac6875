// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FLUSH: its packets, its rights, and what is repeated (IBTA A19).
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "proto/roce/sim_pair.hpp"

namespace weft::proto::roce::sim {
namespace {

using wire::roce::Feth;
using wire::roce::Operation;
using wire::roce::Packet;
using wire::roce::placement_global;
using wire::roce::placement_persistent;
using wire::roce::selects_range;
using wire::roce::selects_region;

constexpr uint32_t rights = local_write | remote_write | flush_global;

// A region that may be flushed, at a queue pair that lets its peer flush.
struct Target {
  explicit Target(Pair& p, uint32_t access = rights) : block(p.b, 64) {
    p.b.qp->attributes.access |= flush_global;
    EXPECT_TRUE(
        p.b.adapter.memory().change(*block.region, block.region->pd, block.at, block.address(), 64, access));
  }
  SendRequest range(uint64_t offset, uint64_t length, uint64_t id = 1) const {
    SendRequest q;
    q.id = id;
    q.opcode = SendOpcode::Flush;
    q.flags = signaled;
    q.remote_address = block.address() + offset;
    q.remote_key = block.region->key;
    q.compare_add = length;
    q.immediate = Feth{placement_global, selects_range}.bits();
    return q;
  }
  Block block;
};

Status status_of(Pair& p, const SendRequest& q) {
  EXPECT_EQ(p.send(p.a, q), 0);
  p.exchange();
  const auto got = Pair::completions(p.a);
  EXPECT_EQ(got.size(), 1u);
  return got.empty() ? Status::Flushed : got[0].status;
}

TEST(RoceFlush, HasFethAndRethAndIsAnsweredWithoutAPayload) {
  Pair p;
  p.connect();
  const Target target(p);
  ASSERT_EQ(p.send(p.a, target.range(8, 16)), 0);
  ASSERT_EQ(p.a.out.size(), 1u);
  PacketBytes held;
  const Packet packet = take(p.a, held);
  EXPECT_EQ(packet.bth.opcode, 0x1c);
  EXPECT_EQ(packet.traits().headers_bytes, 12u + 4 + 16);
  EXPECT_EQ(packet.feth.bits(), 1u);
  EXPECT_EQ(packet.reth.address, target.block.address() + 8);
  EXPECT_EQ(packet.reth.length, 16u);
  EXPECT_TRUE(packet.payload.empty());
  p.give(p.b, held);
  p.b.adapter.flush(p.now);
  const Packet answer = take(p.b, held);
  EXPECT_EQ(answer.operation(), Operation::ReadResponseOnly);
  EXPECT_TRUE(answer.payload.empty());
  p.give(p.a, held);
  expect_one(p.a, 1, CompletionOpcode::Flush);
}

TEST(RoceFlush, ARangeHasBoundsAndARegionHasNone) {
  struct Case {
    uint64_t offset, length;
    Status status;
  };
  for (const Case& one :
       {Case{0, 64, Status::Success}, Case{0, 65, Status::RemoteAccess}, Case{64, 1, Status::RemoteAccess},
        Case{63, 1, Status::Success}, Case{UINT64_MAX - 63, 64, Status::RemoteAccess}}) {
    Pair p;
    p.connect();
    const Target target(p);
    EXPECT_EQ(status_of(p, target.range(one.offset, one.length)), one.status)
        << one.offset << " " << one.length;
  }
  Pair p;
  p.connect();
  const Target target(p);
  // No bytes need no key, as in a READ or WRITE.
  SendRequest q = target.range(1000, 0);
  q.remote_key ^= 0x40;
  EXPECT_EQ(status_of(p, q), Status::Success);
  q = target.range(1000, 4096);
  q.immediate = Feth{placement_global, selects_region}.bits();
  EXPECT_EQ(status_of(p, q), Status::Success);
  q.remote_key ^= 0x40;
  EXPECT_EQ(status_of(p, q), Status::RemoteAccess);
}

TEST(RoceFlush, NeedsItsRightOfTheRegionAndOfTheQueuePair) {
  for (const bool of_region : {false, true}) {
    Pair p;
    p.connect();
    const Target target(p, of_region ? uint32_t{local_write | remote_write} : rights);
    if (!of_region) p.b.qp->attributes.access &= ~uint32_t{flush_global};
    EXPECT_EQ(status_of(p, target.range(0, 8)), Status::RemoteAccess) << of_region;
  }
  // Nothing here is known to be persistent.
  Pair p;
  p.connect();
  const Target target(p);
  p.b.qp->attributes.access |= flush_persistent;
  SendRequest q = target.range(0, 8);
  q.immediate = Feth{placement_global | placement_persistent, selects_range}.bits();
  EXPECT_EQ(status_of(p, q), Status::RemoteAccess);
}

TEST(RoceFlush, WhatItDoesNotMeanIsRefused) {
  Pair p;
  p.connect();
  const Target target(p);
  for (const uint32_t bits : {0u, 4u, 0x21u, 0x31u, 0x101u}) {
    SendRequest q = target.range(0, 8);
    q.immediate = bits;
    EXPECT_EQ(p.send(p.a, q), -EINVAL) << bits;
  }
  EXPECT_EQ(p.send(p.a, target.range(0, uint64_t{message_bytes_max} + 1)), -EINVAL);
  SendRequest full = target.range(0, 8);
  const Element element = target.block.element(0, 8);
  full.elements = {&element, 1};
  EXPECT_EQ(p.send(p.a, full), -EINVAL);

  // From the wire, where the reserved bits do not count.
  for (const uint8_t bits : {uint8_t{0}, uint8_t{4}, uint8_t{0x21}, uint8_t{0xc1}}) {
    Pair two;
    two.connect();
    const Target at(two);
    ASSERT_EQ(two.send(two.a, at.range(0, 8)), 0);
    PacketBytes held;
    (void)take(two.a, held);
    held[12 + 3] = std::byte{bits};
    two.give(two.b, held);
    two.b.adapter.flush(two.now);
    const Packet answer = take(two.b, held);
    if (bits == 0xc1) {
      EXPECT_EQ(answer.operation(), Operation::ReadResponseOnly);
    } else {
      EXPECT_EQ(answer.operation(), Operation::Acknowledge);
      EXPECT_EQ(answer.aeth.syndrome, wire::roce::syndrome(wire::roce::NakCode::InvalidRequest)) << int{bits};
    }
  }
}

// It counts as a READ: a resource at the responder, max_rd_atomic at the requester, and a duplicate is answered.
TEST(RoceFlush, CountsAsAReadAndADuplicateIsAnswered) {
  Pair p;
  p.connect();
  const Target target(p);
  p.a.qp->attributes.max_reads = 1;
  ASSERT_EQ(p.send(p.a, target.range(0, 8, 1)), 0);
  ASSERT_EQ(p.send(p.a, target.range(8, 8, 2)), 0);
  ASSERT_EQ(p.a.out.size(), 1u);
  PacketBytes request, held;
  (void)take(p.a, request);
  for (int i = 0; i < 2; ++i) {
    p.give(p.b, request);
    p.b.adapter.flush(p.now);
    ASSERT_EQ(p.b.out.size(), 1u) << i;
    EXPECT_EQ(take(p.b, held).operation(), Operation::ReadResponseOnly);
  }
  p.give(p.a, held);
  expect_one(p.a, 1, CompletionOpcode::Flush);
  p.exchange();
  expect_one(p.a, 2, CompletionOpcode::Flush);
}

}  // namespace
}  // namespace weft::proto::roce::sim
