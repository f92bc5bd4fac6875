// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A queue pair in the place of one of the kernel's: requests that its rxe sent are answered as its responder did,
// and the same work is sent in the same packets, byte by byte. tests/golden/rxe-rc.pcap: messages of 0 to 64 and
// 5,000 bytes, atomics, SEND with invalidate, RNR, a wrong key, in three stretches of PSNs.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "proto/roce/sim_pair.hpp"
#include "wire/roce/sim_golden.hpp"

// Not in a namespace of the room: the rule of sans-IO (scripts/check/sans_io.py) is for the code under test.
namespace {

using namespace weft::proto::roce;
using namespace weft::proto::roce::sim;
using weft::wire::roce::Operation;
using weft::wire::roce::Packet;

constexpr uint32_t mtu_code = 3;  // 1,024

struct Captured {
  std::vector<std::byte> bytes;  // from the BTH to the pad
  Packet packet;
};

std::vector<Captured> exchange() {
  std::vector<Captured> all;
  for (const auto& frame :
       weft::wire::roce::sim::frames(weft::wire::roce::sim::golden_folder() + "rxe-rc.pcap")) {
    weft::wire::Ethernet ethernet;
    weft::wire::Bytes rest;
    weft::wire::Datagram datagram;
    if (!weft::wire::Ethernet::read(frame, ethernet, rest) || !weft::wire::Datagram::read(rest, datagram))
      continue;
    Captured& one = all.emplace_back();
    one.bytes.assign(datagram.payload.begin(), datagram.payload.end() - 4);
    if (!weft::wire::roce::parse(one.bytes, one.packet)) ADD_FAILURE() << "not understood";
    one.packet.payload = {};  // it moves with `all`
  }
  for (Captured& one : all) (void)weft::wire::roce::parse(one.bytes, one.packet);
  return all;
}

struct Kernel : Pair {
  Kernel() {
    common.path_mtu = mtu_code;
    common.min_rnr_timer = 1;
    common.timeout = 14;
  }
};

TEST(RoceGolden, RequestsOfTheKernelAreAnsweredAsItDid) {
  const auto all = exchange();
  ASSERT_GT(all.size(), 70u);
  Kernel t;
  t.common.rq_psn = all[0].packet.bth.psn;
  t.connect();
  uint64_t base = 0;
  uint32_t key = 0;
  for (const Captured& one : all)
    if ((one.packet.traits().headers & weft::wire::roce::has_reth) != 0 && key == 0) {
      base = one.packet.reth.address;
      key = one.packet.reth.key;
    }
  std::vector<std::byte> memory(1 << 16);
  const uint32_t ours =
      (*t.b.adapter.memory().add(1, memory.data(), base, memory.size(),
                                 local_write | remote_write | remote_read | remote_atomic | window_bind))
          ->key;
  Region* window = *t.b.adapter.memory().add_window(1, WindowType::Two);
  ASSERT_EQ(
      t.b.adapter.memory().bind(1, t.b.qp->number, {window->key, ours, base, 100, remote_read}, window->key),
      Status::Success);
  Block incoming(t.b, 8192);

  size_t answers = 0;
  for (size_t i = 0; i < all.size();) {
    Packet request = all[i].packet;
    ASSERT_TRUE(request.traits().is_request);
    // Its responses follow it.
    size_t last = i + 1;
    while (last < all.size() && !all[last].packet.traits().is_request) ++last;
    // A stretch begins elsewhere in the sequence.
    ResponderState& r = t.b.qp->responder;
    if (psn_diff(request.bth.psn, r.expected) > 4) {
      r.expected = request.bth.psn;
      for (size_t k = i; k < all.size(); ++k)
        if (!all[k].packet.traits().is_request) {
          r.msn = all[k].packet.aeth.msn - 1;
          break;
        }
    }
    request.bth.destination = t.b.qp->number;
    if (request.reth.key == key) request.reth.key = ours;
    if (request.atomic.key == key) request.atomic.key = ours;
    request.invalidate = window->key;
    const bool is_rnr = last > i + 1 && all[i + 1].packet.aeth.kind() == weft::wire::roce::AckKind::RnrNak;
    if (t.b.qp->receives.size() == 0 && !is_rnr) {
      ASSERT_EQ(t.receive(t.b, i, {incoming.element(0, 8192)}), 0);
    }
    if (is_rnr) t.b.qp->receives.clear();
    t.give(t.b, make(request));
    for (int turn = 0; turn < 4; ++turn) t.b.adapter.flush(t.now);
    ASSERT_EQ(t.b.out.size(), last - i - 1) << "request " << i;
    for (++i; i < last; ++i, ++answers) {
      PacketBytes held;
      const Packet got = take(t.b, held);
      const Packet& wanted = all[i].packet;
      const std::string name = "answer " + std::to_string(i);
      EXPECT_EQ(got.bth.opcode, wanted.bth.opcode) << name;
      EXPECT_EQ(got.bth.psn, wanted.bth.psn) << name;
      EXPECT_EQ(got.bth.pad, wanted.bth.pad) << name;
      EXPECT_EQ(held.size(), all[i].bytes.size()) << name;
      if (got.operation() == Operation::ReadResponseMiddle) continue;
      EXPECT_EQ(got.aeth.syndrome, wanted.aeth.syndrome) << name;
      EXPECT_EQ(got.aeth.msn, wanted.aeth.msn) << name;
    }
    (void)Pair::completions(t.b);
  }
  EXPECT_GT(answers, 35u);
  EXPECT_EQ(t.b.qp->state, QpState::Error);  // the wrong key at the end
}

TEST(RoceGolden, TheSameWorkIsSentInTheSamePackets) {
  const auto all = exchange();
  ASSERT_GT(all.size(), 70u);
  Kernel t;
  t.common.sq_psn = all[0].packet.bth.psn;
  t.connect();
  t.a.qp->attributes.destination = all[0].packet.bth.destination;
  Block memory(t.a, 8192);
  uint64_t id = 0;
  for (size_t i = 0; i < all.size();) {
    // One message: its packets, then what answered it.
    std::vector<size_t> requests, answers;
    const Packet first = all[i].packet;
    size_t length = 0;
    for (; i < all.size(); ++i) {
      const Packet& p = all[i].packet;
      if (!p.traits().is_request) break;
      std::copy(p.payload.begin(), p.payload.end(), memory.at + length);
      length += p.payload.size();
      requests.push_back(i);
    }
    const Packet& end = all[requests.back()].packet;
    while (i < all.size() && !all[i].packet.traits().is_request) answers.push_back(i++);
    if (psn_diff(first.bth.psn, t.a.qp->requester.next) > 0)
      t.a.qp->requester.next = t.a.qp->requester.oldest = first.bth.psn;
    const bool again = psn_diff(first.bth.psn, t.a.qp->requester.next) < 0;  // after an RNR NAK
    if (!again) {
      SendRequest q;
      q.id = ++id;
      q.flags = static_cast<uint8_t>(signaled | (end.bth.solicited ? solicited : 0));
      switch (end.operation()) {
        case Operation::SendOnlyImmediate:
        case Operation::SendLastImmediate:
          q.opcode = SendOpcode::SendImmediate;
          break;
        case Operation::SendOnlyInvalidate:
          q.opcode = SendOpcode::SendInvalidate;
          break;
        case Operation::WriteOnly:
        case Operation::WriteLast:
          q.opcode = SendOpcode::Write;
          break;
        case Operation::WriteOnlyImmediate:
        case Operation::WriteLastImmediate:
          q.opcode = SendOpcode::WriteImmediate;
          break;
        case Operation::ReadRequest:
          q.opcode = SendOpcode::Read;
          length = first.reth.length;
          break;
        case Operation::CompareSwap:
          q.opcode = SendOpcode::CompareSwap;
          length = 8;
          break;
        case Operation::FetchAdd:
          q.opcode = SendOpcode::FetchAdd;
          length = 8;
          break;
        default:
          q.opcode = SendOpcode::Send;
      }
      const Element element = memory.element(0, static_cast<uint32_t>(length));
      q.elements = {&element, 1};
      q.immediate = end.immediate;
      q.invalidate = end.invalidate;
      q.remote_address = first.reth.address;
      q.remote_key = first.reth.key;
      if (length == 8 && (q.opcode == SendOpcode::CompareSwap || q.opcode == SendOpcode::FetchAdd)) {
        q.remote_address = first.atomic.address;
        q.remote_key = first.atomic.key;
        q.swap = first.atomic.swap_add;
        q.compare_add = q.opcode == SendOpcode::FetchAdd ? first.atomic.swap_add : first.atomic.compare;
      }
      ASSERT_EQ(t.send(t.a, q), 0);
    } else {
      t.now += 20'000;
      t.a.adapter.flush(t.now);
    }
    ASSERT_EQ(t.a.out.size(), requests.size()) << "message " << id;
    for (const size_t at : requests) {
      EXPECT_EQ(t.a.out.front(), all[at].bytes) << "packet " << at;
      t.a.out.pop_front();
    }
    Status wanted = Status::Success;
    bool waits = false;
    for (const size_t at : answers) {
      Packet answer = all[at].packet;
      answer.bth.destination = t.a.qp->number;
      if (answer.aeth.syndrome == 0x62) wanted = Status::RemoteAccess;
      if (answer.aeth.kind() == weft::wire::roce::AckKind::RnrNak) waits = true;
      t.give(t.a, make(answer));
    }
    const auto done = Pair::completions(t.a);
    ASSERT_EQ(done.size(), waits ? 0u : 1u) << "message " << id;
    if (waits) continue;
    EXPECT_EQ(done[0].id, id);
    EXPECT_EQ(done[0].status, wanted);
  }
  EXPECT_EQ(t.a.qp->state, QpState::Error);
}

}  // namespace
