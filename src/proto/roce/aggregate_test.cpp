// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Several packets of a message as one, where the way to the peer takes more than an MTU.
#include <utility>

#include "proto/roce/sim_pair.hpp"

namespace weft::proto::roce::sim {
namespace {

using wire::roce::Operation;

struct Aggregates : Pair {
  // The MTU of each side; of 1,024 four packets go as one.
  explicit Aggregates(bool is_weft_peer = false, uint8_t mtu = 3, uint8_t peers_mtu = 3) {
    for (Port* port : {&a, &b}) {
      port->aggregates = true;
      if (is_weft_peer) port->adapter.is_weft_peer = [](const Gid&) noexcept { return true; };
    }
    common.path_mtu = mtu;
    raise(a, b);
    common.path_mtu = peers_mtu;
    raise(b, a);
    fill(from, 5);
  }
  SendRequest to_peer(SendOpcode opcode, uint32_t length, uint64_t id) {
    SendRequest q =
        request(opcode, opcode == SendOpcode::Read ? to.element(0, length) : from.element(0, length), id);
    q.remote_address = to_remote.address();
    q.remote_key = to_remote.region->key;
    return q;
  }

  Block from{a, 1 << 17};
  Block to{a, 1 << 17};
  Block to_remote{b, 1 << 17};
};

TEST(RoceAggregate, MessagesOfEveryLengthArrive) {
  for (const uint32_t length : {1U, 1024U, 1025U, 4096U, 4097U, 5121U, 65'536U, 65'537U, 131'072U}) {
    Aggregates p;
    std::memset(p.to_remote.at, 0, 1 << 17);
    ASSERT_EQ(p.receive(p.b, 7, {p.to_remote.element(0, length)}), 0);
    ASSERT_EQ(p.send(p.a, request(SendOpcode::SendImmediate, p.from.element(0, length), 1)), 0);
    p.exchange();
    expect_one(p.a, 1, CompletionOpcode::Send);
    expect_one(p.b, 7, CompletionOpcode::Receive);
    EXPECT_EQ(std::memcmp(p.from.at, p.to_remote.at, length), 0) << length;

    std::memset(p.to_remote.at, 0, 1 << 17);
    ASSERT_EQ(p.send(p.a, p.to_peer(SendOpcode::Write, length, 2)), 0);
    p.exchange();
    expect_one(p.a, 2, CompletionOpcode::Write);
    EXPECT_EQ(std::memcmp(p.from.at, p.to_remote.at, length), 0) << length;

    ASSERT_EQ(p.send(p.a, p.to_peer(SendOpcode::Read, length, 3)), 0);
    p.exchange();
    expect_one(p.a, 3, CompletionOpcode::Read);
    EXPECT_EQ(std::memcmp(p.from.at, p.to.at, length), 0) << length;

    // Every PSN was sent, in a quarter of the packets.
    const uint32_t packets = (length + 1023) / 1024;
    EXPECT_EQ(psn_diff(p.a.qp->requester.next, p.common.sq_psn), static_cast<int32_t>(3 * packets)) << length;
    EXPECT_EQ(p.b.qp->responder.expected, p.a.qp->requester.next);
    EXPECT_EQ(p.a.adapter.counters().sent_again + p.b.adapter.counters().gaps, 0U);
    EXPECT_EQ(p.a.adapter.counters().aggregates != 0, packets > 1);
    if (length == 65'536) {
      EXPECT_EQ(p.a.adapter.counters().aggregates, 2 * 16U);
      EXPECT_EQ(p.b.adapter.counters().aggregates, 16U);
    }
  }
}

// What was lost comes again in packets of an MTU, which any way takes.
TEST(RoceAggregate, ALostOneComesAgainInPackets) {
  for (const bool is_weft_peer : {false, true}) {
    Aggregates p(is_weft_peer);
    ASSERT_EQ(p.receive(p.b, 7, {p.to_remote.element(0, 40'000)}), 0);
    ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, p.from.element(0, 40'000), 1)), 0);
    p.a.adapter.flush(p.now);
    ASSERT_GE(p.a.out.size(), 3U);
    p.a.out.erase(p.a.out.begin() + 1);
    const uint64_t aggregates = p.a.adapter.counters().aggregates;
    p.pass(1'000'000'000);
    expect_one(p.a, 1, CompletionOpcode::Send);
    expect_one(p.b, 7, CompletionOpcode::Receive);
    EXPECT_EQ(std::memcmp(p.from.at, p.to_remote.at, 40'000), 0);
    EXPECT_EQ(p.a.adapter.counters().aggregates, aggregates);
    EXPECT_GE(p.a.adapter.counters().sent_again, 4U);
  }
}

TEST(RoceAggregate, LostResponsesAreAskedForAgain) {
  Aggregates p;
  std::memcpy(p.to_remote.at, p.from.at, 40'000);
  ASSERT_EQ(p.send(p.a, p.to_peer(SendOpcode::Read, 40'000, 1)), 0);
  p.a.adapter.flush(p.now);
  for (const PacketBytes& one : std::exchange(p.a.out, {})) p.give(p.b, one);
  p.b.adapter.flush(p.now);
  ASSERT_GE(p.b.out.size(), 3U);
  p.b.out.erase(p.b.out.begin() + 2);
  p.pass(1'000'000'000);
  expect_one(p.a, 1, CompletionOpcode::Read);
  EXPECT_EQ(std::memcmp(p.from.at, p.to.at, 40'000), 0);
}

// As for one packet: of a duplicate nothing is executed twice.
TEST(RoceAggregate, ADuplicateIsAcknowledged) {
  Aggregates p;
  ASSERT_EQ(p.receive(p.b, 7, {p.to_remote.element(0, 4096)}), 0);
  ASSERT_EQ(p.receive(p.b, 8, {p.to_remote.element(0, 4096)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, p.from.element(0, 4096), 1)), 0);
  p.a.adapter.flush(p.now);
  ASSERT_EQ(p.a.out.size(), 1U);
  p.a.out.push_back(p.a.out.front());
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Send);
  expect_one(p.b, 7, CompletionOpcode::Receive);
  EXPECT_EQ(p.b.adapter.counters().duplicates, 1U);
  EXPECT_EQ(p.b.qp->responder.expected, p.a.qp->requester.next);
}

// Who counts PSNs otherwise, or sends a packet that is longer than the MTU by a socket, is refused as without aggregates.
TEST(RoceAggregate, PathMtusThatDifferAreRefused) {
  for (const auto& [ours, theirs] : {std::pair<uint8_t, uint8_t>{3, 5}, {5, 3}, {4, 3}, {3, 4}}) {
    for (const uint32_t length : {4096U, 16'384U}) {
      for (const SendOpcode opcode : {SendOpcode::Send, SendOpcode::Write, SendOpcode::Read}) {
        Aggregates p(false, ours, theirs);
        ASSERT_EQ(p.receive(p.b, 7, {p.to_remote.element(0, length)}), 0);
        ASSERT_EQ(p.send(p.a, p.to_peer(opcode, length, 1)), 0);
        p.exchange();
        const bool is_read = opcode == SendOpcode::Read;
        expect_one(p.a, 1, CompletionOpcode::Send,
                   is_read ? Status::BadResponse : Status::RemoteInvalidRequest);
        EXPECT_EQ(p.b.qp->responder.msn, is_read ? 1U : 0U);
      }
    }
  }
}

// Whole packets, but for the last of a message; nothing beyond the request that it answers.
TEST(RoceAggregate, LengthsThatAreNoneAreRefused) {
  for (const size_t bytes : {1024UL, 2048UL, 2049UL, 3072UL, 4095UL}) {
    Aggregates p;
    ASSERT_EQ(p.receive(p.b, 7, {p.to_remote.element(0, 8192)}), 0);
    wire::roce::Packet packet;
    packet.bth.opcode = wire::roce::opcode(wire::roce::Transport::ReliableConnection, Operation::SendFirst);
    packet.bth.destination = p.b.qp->number;
    packet.bth.psn = p.common.rq_psn;
    packet.payload = {p.from.at, bytes};
    PacketBytes made = make(packet);
    made.psns = 4;
    p.give(p.b, made);
    EXPECT_EQ(p.b.qp->state, QpState::Error) << bytes;
  }
  Aggregates p;
  ASSERT_EQ(p.send(p.a, p.to_peer(SendOpcode::Read, 2048, 1)), 0);
  p.a.adapter.flush(p.now);
  p.a.out.clear();
  wire::roce::Packet packet;
  packet.bth.opcode =
      wire::roce::opcode(wire::roce::Transport::ReliableConnection, Operation::ReadResponseOnly);
  packet.bth.destination = p.a.qp->number;
  packet.bth.psn = p.common.sq_psn;
  packet.payload = {p.from.at, 4096};
  PacketBytes made = make(packet);
  made.psns = 4;
  p.give(p.a, made);
  expect_one(p.a, 1, CompletionOpcode::Read, Status::BadResponse);
}

}  // namespace
}  // namespace weft::proto::roce::sim
