// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A peer, or whoever forges its packets, against queue pairs: one test for each line of the list in docs/roce.md
// that the core decides.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "proto/roce/sim_pair.hpp"

namespace weft::proto::roce::sim {
namespace {

using wire::roce::Operation;
using wire::roce::Packet;
using wire::roce::Transport;

// `b` is attacked; `a` is who it thinks that it talks to.
struct Attack : Pair {
  explicit Attack(QpType type = QpType::Rc) : Pair(type) {
    connect();
    secret = std::make_unique<Block>(b, 4096);
    fill(*secret, 42);
    before = secret->bytes;
  }
  Packet packet(Operation op, uint32_t ahead = 0) const {
    Packet p;
    const Transport transport = b.qp->type == QpType::Uc   ? Transport::Unreliable
                                : b.qp->type == QpType::Ud ? Transport::Datagram
                                                           : Transport::ReliableConnection;
    p.bth.opcode = wire::roce::opcode(transport, op);
    p.bth.destination = b.qp->number;
    p.bth.psn = psn_add(b.qp->responder.expected, ahead);
    p.bth.ack_request = true;
    p.reth = {secret->address(), secret->region->key, 8};
    return p;
  }
  void attack(const Packet& p) {
    give(b, make(p));
    b.adapter.flush(now);
  }
  // The one answer's syndrome; 0 for none.
  int answer() {
    if (b.out.empty()) return 0;
    EXPECT_EQ(b.out.size(), 1u);
    PacketBytes held;
    const Packet p = take(b, held);
    EXPECT_EQ(p.operation(), Operation::Acknowledge);
    return p.aeth.syndrome;
  }
  void expect_untouched() { EXPECT_EQ(secret->bytes, before); }

  std::unique_ptr<Block> secret;
  std::vector<std::byte> before;
};

const std::array<std::byte, 8> evil{std::byte{0xbb}, std::byte{0xbb}, std::byte{0xbb}, std::byte{0xbb},
                                    std::byte{0xbb}, std::byte{0xbb}, std::byte{0xbb}, std::byte{0xbb}};

TEST(RoceSecurity, EveryOpcodeTruncationAndPad) {
  for (const QpType type : {QpType::Rc, QpType::Uc, QpType::Ud}) {
    auto held = std::make_unique<Attack>(type);
    for (unsigned code = 0; code < 256; ++code)
      for (uint8_t pad = 0; pad < 4; ++pad)
        for (size_t length = 0; length <= 64; length += length < 12 ? 4 : 1) {
          if (length % 4 != 0 && pad != 0) continue;
          PacketBytes bytes(length);
          Attack& t = *held;
          Packet p = t.packet(Operation::SendOnly);
          p.bth.opcode = static_cast<uint8_t>(code);
          p.bth.pad = pad;
          PacketBytes head(64);
          p.bth.write(head.data());
          std::copy_n(head.begin(), length, bytes.begin());
          t.give(t.b, bytes);
          t.b.adapter.flush(t.now);
          t.expect_untouched();
          for (const PacketBytes& one : t.b.out) EXPECT_LE(one.size(), 16u);
          if (t.b.qp->state == QpState::ReadyToSend && t.b.out.empty()) continue;
          held = std::make_unique<Attack>(type);  // it did something: the next one finds all as at first
        }
  }
}

TEST(RoceSecurity, RangesThatWrapAreRefused) {
  for (const auto& [offset, length] : {std::pair<uint64_t, uint32_t>{0, 4097},
                                       {4095, 2},
                                       {uint64_t(-1), 8},
                                       {4096, 1},
                                       {0, 0x80000000u},
                                       {0, 0xffffffffu}})
    for (const Operation op : {Operation::WriteOnly, Operation::ReadRequest}) {
      Attack t;
      Packet p = t.packet(op);
      p.reth.address += offset;
      p.reth.length = length;
      if (op == Operation::WriteOnly) p.payload = evil;
      t.attack(p);
      EXPECT_TRUE(t.answer() >= 0x61);
      t.expect_untouched();
      EXPECT_EQ(t.b.qp->state, QpState::Error);
    }
  Attack t;
  Packet p = t.packet(Operation::ReadRequest);
  p.reth.address = UINT64_MAX - 3;
  t.attack(p);
  EXPECT_EQ(t.answer(), 0x62);
}

TEST(RoceSecurity, KeysOfAnotherProtectionDomain) {
  Attack t;
  Block other(t.b, 64, local_write | remote_write | remote_read, 2);
  Packet p = t.packet(Operation::WriteOnly);
  p.reth = {other.address(), other.region->key, 8};
  p.payload = evil;
  t.attack(p);
  EXPECT_EQ(t.answer(), 0x62);
  EXPECT_EQ(other.at[0], std::byte{0});
  // And our own program's.
  Attack own;
  Block foreign(own.b, 64, local_write, 2);
  SendRequest q;
  const Element element = foreign.element(0, 8);
  q.elements = {&element, 1};
  ASSERT_EQ(own.send(own.b, q), 0);
  EXPECT_TRUE(own.b.out.empty());
  const auto got = Pair::completions(own.b);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].status, Status::LocalProtection);
}

TEST(RoceSecurity, RightsOfRegionAndQueuePairBothCount) {
  for (const Operation op : {Operation::WriteOnly, Operation::ReadRequest, Operation::FetchAdd}) {
    const uint32_t right = op == Operation::WriteOnly     ? uint32_t{remote_write}
                           : op == Operation::ReadRequest ? uint32_t{remote_read}
                                                          : uint32_t{remote_atomic};
    for (const bool of_region : {false, true}) {
      Attack t;
      constexpr uint32_t all = local_write | remote_write | remote_read | remote_atomic;
      Block block(t.b, 64, of_region ? all & ~right : all);
      if (!of_region) t.b.qp->attributes.access &= ~right;
      Packet p = t.packet(op);
      p.reth = {block.address(), block.region->key, 8};
      p.atomic = {block.address(), block.region->key, 1, 0};
      if (op == Operation::WriteOnly) p.payload = evil;
      t.attack(p);
      EXPECT_EQ(t.answer(), 0x62);
      EXPECT_EQ(block.at[0], std::byte{0});
    }
  }
}

TEST(RoceSecurity, AKeyIsWorthNothingAfterDeregistration) {
  Attack t;
  const uint32_t key = t.secret->region->key;
  Packet p = t.packet(Operation::WriteOnly);
  p.payload = evil;
  ASSERT_EQ(t.b.adapter.memory().remove(*t.secret->region), 0);
  p.reth.key = key;
  t.attack(p);
  EXPECT_EQ(t.answer(), 0x62);
  t.expect_untouched();
}

TEST(RoceSecurity, DeregistrationInTheMiddleOfARead) {
  Attack t;
  Packet p = t.packet(Operation::ReadRequest);
  p.reth.length = 4096;  // 16 packets; one turn sends them all but when the link takes no more
  t.b.refuses = true;
  t.attack(p);
  EXPECT_TRUE(t.b.out.empty());
  ASSERT_EQ(t.b.adapter.memory().remove(*t.secret->region), 0);
  t.secret->bytes.clear();
  t.secret->bytes.shrink_to_fit();
  t.b.refuses = false;
  t.b.adapter.flush(t.now);
  EXPECT_EQ(t.answer(), 0x62);
}

TEST(RoceSecurity, DestructionAmongTraffic) {
  Attack t;
  Block from(t.a, 4096);
  SendRequest q;
  q.opcode = SendOpcode::Write;
  const Element element = from.element(0, 4096);
  q.elements = {&element, 1};
  q.remote_address = t.secret->address();
  q.remote_key = t.secret->region->key;
  ASSERT_EQ(t.send(t.a, q), 0);
  t.give(t.b, t.a.out.front());
  t.b.adapter.destroy_qp(*t.b.qp);
  for (const PacketBytes& one : t.a.out) t.give(t.b, one);
  t.b.adapter.flush(t.now);
  EXPECT_TRUE(t.b.out.empty());
  EXPECT_EQ(t.b.adapter.counters().unknown, t.a.out.size());
}

TEST(RoceSecurity, NumbersAreUnpredictable) {
  Port port;
  port.cq = *port.adapter.create_cq(8);
  std::set<uint32_t> keys, numbers, steps;
  uint32_t last = 0;
  for (int i = 0; i < 200; ++i) {
    Block block(port, 8);
    keys.insert(block.region->key);
    QueuePairRequest q;
    q.pd = 1;
    q.send_cq = q.receive_cq = port.cq;
    const uint32_t number = (*port.adapter.create_qp(q))->number;
    EXPECT_GT(number, 1u);
    EXPECT_LT(number, 0xffffffu);
    numbers.insert(number);
    steps.insert(number - last);
    last = number;
  }
  EXPECT_EQ(keys.size(), 200u);
  EXPECT_EQ(numbers.size(), 200u);
  EXPECT_GT(steps.size(), 190u);
  EXPECT_GT(*keys.rbegin() - *keys.begin(), 0x80000000u);
}

TEST(RoceSecurity, ASpoofedSourceIsNotHeard) {
  Attack t;
  Packet p = t.packet(Operation::WriteOnly);
  p.payload = evil;
  Gid other = t.a.gid;
  other[15] = std::byte{9};
  t.give(t.b, make(p), other);
  t.b.adapter.flush(t.now);
  EXPECT_EQ(t.answer(), 0);
  t.expect_untouched();
  EXPECT_EQ(t.b.adapter.counters().foreign, 1u);
  p.bth.pkey = 0x1234;
  t.attack(p);
  EXPECT_EQ(t.answer(), 0);
  t.expect_untouched();
}

TEST(RoceSecurity, PsnsOffTheWindowChangeNothing) {
  for (const uint32_t ahead : {1u, 2u, 1000u, psn_half - 1, psn_half, psn_half + 1, psn_mask - 5, psn_mask}) {
    Attack t;
    Packet p = t.packet(Operation::WriteOnly, ahead);
    p.payload = evil;
    t.attack(p);
    t.expect_untouched();
    const int answered = t.answer();
    EXPECT_EQ(answered, ahead < psn_half ? 0x60 : 0x1f);
    EXPECT_EQ(t.b.qp->state, QpState::ReadyToSend);
    t.attack(p);  // one NAK for a gap
    EXPECT_EQ(t.answer(), ahead < psn_half ? 0 : 0x1f);
  }
}

TEST(RoceSecurity, ForgedAcknowledgementsOfNothing) {
  for (const unsigned syndrome :
       {0x1fu, 0x20u, 0x3fu, 0x60u, 0x61u, 0x62u, 0x63u, 0x64u, 0x40u, 0x9fu, 0xffu})
    for (const uint32_t off : {0u, 1u, 5u, psn_mask, psn_half}) {
      Attack t;
      Packet p = t.packet(Operation::Acknowledge);
      p.aeth = {static_cast<uint8_t>(syndrome), 77};
      p.bth.psn = psn_add(t.b.qp->requester.next, off);  // nothing is open
      t.attack(p);
      EXPECT_EQ(t.b.qp->state, QpState::ReadyToSend);
      EXPECT_TRUE(Pair::completions(t.b).empty());
      EXPECT_EQ(t.b.adapter.counters().ghosts, 1u);
      // One request is open: PSNs beside it count as little.
      Block from(t.b, 8);
      SendRequest q;
      q.flags = signaled;
      const Element element = from.element(0, 8);
      q.elements = {&element, 1};
      ASSERT_EQ(t.send(t.b, q), 0);
      if (off == 0) continue;
      p.bth.psn = psn_add(t.b.qp->requester.oldest, off);
      if (syndrome == 0x60 && off == 1) continue;  // right: it acknowledges what is before its PSN
      t.attack(p);
      EXPECT_TRUE(Pair::completions(t.b).empty());
      EXPECT_EQ(t.b.qp->state, QpState::ReadyToSend);
    }
}

TEST(RoceSecurity, ReadResponsesLongerOrShorterThanAsked) {
  for (const size_t length : {0, 99, 101, 256})
    for (const Operation op : {Operation::ReadResponseOnly, Operation::ReadResponseFirst,
                               Operation::ReadResponseMiddle, Operation::ReadResponseLast}) {
      Attack t;
      Block landing(t.b, 4096);
      SendRequest q;
      q.opcode = SendOpcode::Read;
      const Element element = landing.element(0, 100);
      q.elements = {&element, 1};
      ASSERT_EQ(t.send(t.b, q), 0);
      t.b.out.clear();
      const std::vector<std::byte> bytes(length, std::byte{0xcc});
      Packet p = t.packet(op);
      p.bth.psn = t.b.qp->requester.oldest;
      p.payload = bytes;
      t.attack(p);
      const auto got = Pair::completions(t.b);
      ASSERT_EQ(got.size(), 1u);
      EXPECT_EQ(got[0].status, Status::BadResponse);
      for (size_t i = 0; i < 4096; ++i) ASSERT_EQ(landing.at[i], std::byte{0});
    }
}

TEST(RoceSecurity, AnAtomicRunsOnceHoweverOftenItIsReplayed) {
  Attack t;
  Packet p = t.packet(Operation::FetchAdd);
  p.atomic = {t.secret->address(), t.secret->region->key, 1, 0};
  uint64_t before_value, after;
  std::memcpy(&before_value, t.secret->at, 8);
  for (int i = 0; i < 5; ++i) {
    t.attack(p);
    PacketBytes held;
    const Packet answer = take(t.b, held);
    EXPECT_EQ(answer.operation(), Operation::AtomicAcknowledge);
    EXPECT_EQ(answer.atomic_ack, before_value);
  }
  std::memcpy(&after, t.secret->at, 8);
  EXPECT_EQ(after, before_value + 1);
  // Beyond the resources nothing is remembered, and nothing is run.
  for (int i = 0; i < 3; ++i) {
    Packet more = t.packet(Operation::FetchAdd);
    more.atomic = p.atomic;
    t.attack(more);
  }
  t.b.out.clear();
  t.attack(p);
  EXPECT_TRUE(t.b.out.empty());
  std::memcpy(&after, t.secret->at, 8);
  EXPECT_EQ(after, before_value + 4);
}

TEST(RoceSecurity, ASendLargerThanItsReceive) {
  for (const uint32_t room : {0u, 7u, 255u, 300u}) {
    Attack t;
    Block from(t.a, 1024), to(t.b, 1024);
    fill(from, 1);
    ASSERT_EQ(t.receive(t.b, 1, {to.element(0, room)}), 0);
    SendRequest q;
    q.flags = signaled;
    const Element element = from.element(0, room + 1);
    q.elements = {&element, 1};
    ASSERT_EQ(t.send(t.a, q), 0);
    t.exchange();
    for (size_t i = room; i < 1024; ++i) ASSERT_EQ(to.at[i], std::byte{0});
    const auto got = Pair::completions(t.b);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].status, Status::LocalLength);
    const auto sent = Pair::completions(t.a);
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].status, Status::RemoteInvalidRequest);
  }
}

// The datagram is dropped and counted. The posted receive stays for one that fits.
TEST(RoceSecurity, UdWithAShortBuffer) {
  for (const uint32_t room : {0u, 39u, 47u}) {
    Attack t(QpType::Ud);
    Block to(t.b, 1024);
    ASSERT_EQ(t.receive(t.b, 1, {to.element(0, room)}), 0);
    Packet p = t.packet(Operation::SendOnly);
    p.deth = {0x1234, 5};
    p.payload = evil;
    t.attack(p);
    EXPECT_TRUE(Pair::completions(t.b).empty());
    EXPECT_EQ(t.b.qp->state, QpState::ReadyToSend);
    EXPECT_EQ(t.b.qp->receives.size(), 1u);
    EXPECT_EQ(t.b.qp->too_long, 1u);
    EXPECT_EQ(t.b.adapter.counters().too_long, 1u);
    for (size_t i = 0; i < 1024; ++i) ASSERT_EQ(to.at[i], std::byte{0});
    if (room < 47) continue;
    p.payload = wire::Bytes(evil).first(7);
    t.attack(p);
    expect_one(t.b, 1, CompletionOpcode::Receive);
  }
}

TEST(RoceSecurity, UcWithAShortBuffer) {
  Attack t(QpType::Uc);
  Block to(t.b, 1024);
  ASSERT_EQ(t.receive(t.b, 1, {to.element(0, 7)}), 0);
  Packet p = t.packet(Operation::SendOnly);
  p.payload = evil;
  t.attack(p);
  EXPECT_TRUE(Pair::completions(t.b).empty());
  EXPECT_EQ(t.b.qp->state, QpState::ReadyToSend);
  EXPECT_EQ(t.b.qp->too_long, 1u);
  p = t.packet(Operation::SendOnly);
  p.payload = wire::Bytes(evil).first(7);
  t.attack(p);
  expect_one(t.b, 1, CompletionOpcode::Receive);
}

TEST(RoceSecurity, MoreReadsThanAgreed) {
  Attack t;
  t.b.refuses = true;  // so that none is answered
  for (int i = 0; i < 2; ++i) t.attack(t.packet(Operation::ReadRequest));
  EXPECT_EQ(t.b.qp->state, QpState::ReadyToSend);
  t.attack(t.packet(Operation::ReadRequest));
  EXPECT_EQ(t.b.qp->state, QpState::Error);
  t.b.refuses = false;
  t.b.adapter.flush(t.now);
  ASSERT_EQ(t.b.out.size(), 3u);  // two responses, and then the NAK
  t.b.out.erase(t.b.out.begin(), t.b.out.begin() + 2);
  EXPECT_EQ(t.answer(), 0x61);
}

TEST(RoceSecurity, AnswersToTheUnauthorisedAreSmall) {
  for (const Operation op : {Operation::WriteFirst, Operation::WriteOnly, Operation::ReadRequest,
                             Operation::CompareSwap, Operation::FetchAdd}) {
    Attack t;
    Packet p = t.packet(op);
    const std::vector<std::byte> full(256, std::byte{1});
    p.reth.key ^= 0x100;
    p.reth.length = 0x40000000;
    p.atomic.key = 7;
    if (op == Operation::WriteFirst) p.payload = full;
    const PacketBytes request = make(p);
    t.give(t.b, request);
    t.b.adapter.flush(t.now);
    size_t sum = 0;
    for (const PacketBytes& one : t.b.out) sum += one.size();
    EXPECT_LE(sum, request.size());
    t.b.out.clear();
    t.give(t.b, request);  // and once
    t.b.adapter.flush(t.now);
    EXPECT_TRUE(t.b.out.empty());
  }
}

TEST(RoceSecurity, MessagesOutOfTheirOrder) {
  for (const auto& [first, then] : {std::pair{Operation::SendFirst, Operation::WriteLast},
                                    {Operation::SendFirst, Operation::SendOnly},
                                    {Operation::WriteFirst, Operation::SendMiddle},
                                    {Operation::WriteFirst, Operation::ReadRequest}}) {
    Attack t;
    Block to(t.b, 4096);
    ASSERT_EQ(t.receive(t.b, 1, {to.element(0, 4096)}), 0);
    const std::vector<std::byte> full(256, std::byte{1});
    Packet p = t.packet(first);
    p.payload = full;
    p.reth = {to.address(), to.region->key, 600};
    t.attack(p);
    t.b.out.clear();
    Packet q = t.packet(then);
    if (then != Operation::ReadRequest) q.payload = full;
    t.attack(q);
    EXPECT_EQ(t.answer(), 0x61);
  }
  for (const Operation op :
       {Operation::SendMiddle, Operation::SendLast, Operation::WriteMiddle, Operation::WriteLast}) {
    Attack t;
    t.attack(t.packet(op));
    EXPECT_EQ(t.answer(), 0x61);
  }
}

TEST(RoceSecurity, WritesHaveTheLengthThatTheySaid) {
  const std::vector<std::byte> full(256, std::byte{1});
  for (const size_t last : {0, 43, 45, 256}) {
    Attack t;
    Packet p = t.packet(Operation::WriteFirst);
    p.payload = full;
    p.reth.length = 300;
    t.attack(p);
    t.b.out.clear();
    Packet q = t.packet(Operation::WriteLast);
    q.payload = wire::Bytes(full).first(last);
    t.attack(q);
    EXPECT_EQ(t.answer(), 0x61) << last;
  }
}

}  // namespace
}  // namespace weft::proto::roce::sim
