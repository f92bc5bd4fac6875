// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests: two queue pairs in use, and somebody who sends packets by the address of one of them, with the right queue
// pair number, keys and addresses, but without the right PSN.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "proto/roce/sim_pair.hpp"
#include "wire/roce/sack_bitmap.hpp"

namespace weft::proto::roce::sim {

// What is forged.
struct Forgery {
  enum class To : uint8_t { Responder, Requester };
  const char* name;
  uint8_t opcode;    // complete, or for a transport that is filled in: its lower 5 bits
  bool is_complete;  // of opcode
  To to;
  uint8_t syndrome = 0x1f;
  bool says_next = false;  // its right PSNs are the open ones and the next one: the NAK of a gap, and a map
  bool has_psn = true;
};

inline std::vector<Forgery> forgeries(QpType type) {
  using wire::roce::Operation;
  using To = Forgery::To;
  const bool is_uc = type == QpType::Uc;
  std::vector<Forgery> all;
  const auto add = [&](const char* name, Operation op, To to, uint8_t syndrome = 0x1f,
                       bool says_next = false) {
    all.push_back({name, static_cast<uint8_t>(op), false, to, syndrome, says_next, true});
  };
  add("SEND First", Operation::SendFirst, To::Responder);
  add("SEND Middle", Operation::SendMiddle, To::Responder);
  add("SEND Last", Operation::SendLast, To::Responder);
  add("SEND Last with Immediate", Operation::SendLastImmediate, To::Responder);
  add("SEND Only", Operation::SendOnly, To::Responder);
  add("SEND Only with Immediate", Operation::SendOnlyImmediate, To::Responder);
  add("WRITE First", Operation::WriteFirst, To::Responder);
  add("WRITE Middle", Operation::WriteMiddle, To::Responder);
  add("WRITE Last", Operation::WriteLast, To::Responder);
  add("WRITE Last with Immediate", Operation::WriteLastImmediate, To::Responder);
  add("WRITE Only", Operation::WriteOnly, To::Responder);
  add("WRITE Only with Immediate", Operation::WriteOnlyImmediate, To::Responder);
  if (!is_uc) {
    add("SEND Last with Invalidate", Operation::SendLastInvalidate, To::Responder);
    add("SEND Only with Invalidate", Operation::SendOnlyInvalidate, To::Responder);
    add("READ Request", Operation::ReadRequest, To::Responder);
    add("CmpSwap", Operation::CompareSwap, To::Responder);
    add("FetchAdd", Operation::FetchAdd, To::Responder);
    add("READ Response First", Operation::ReadResponseFirst, To::Requester);
    add("READ Response Middle", Operation::ReadResponseMiddle, To::Requester);
    add("READ Response Last", Operation::ReadResponseLast, To::Requester);
    add("READ Response Only", Operation::ReadResponseOnly, To::Requester);
    add("Atomic Acknowledge", Operation::AtomicAcknowledge, To::Requester);
    add("ACK", Operation::Acknowledge, To::Requester);
    add("ACK with credits", Operation::Acknowledge, To::Requester, 0x05);
    add("NAK of a gap (0x60)", Operation::Acknowledge, To::Requester, 0x60, true);
    add("NAK invalid request (0x61)", Operation::Acknowledge, To::Requester, 0x61);
    add("NAK remote access (0x62)", Operation::Acknowledge, To::Requester, 0x62);
    add("NAK remote operation (0x63)", Operation::Acknowledge, To::Requester, 0x63);
    add("NAK invalid RD request (0x64)", Operation::Acknowledge, To::Requester, 0x64);
    add("RNR NAK, 0.01 ms", Operation::Acknowledge, To::Requester, 0x21);
    add("RNR NAK, 655 ms", Operation::Acknowledge, To::Requester, 0x20);
    add("reserved syndrome (0x40)", Operation::Acknowledge, To::Requester, 0x40);
    all.push_back({"map of Weft (0xd1)", wire::roce::opcode_sack, true, To::Requester, 0x60, true, true});
  } else {
    all.push_back({"window update of Weft (0xd2)", wire::roce::opcode_window_update, true, To::Requester, 0,
                   false, true});
  }
  all.push_back({"CNP", wire::roce::opcode_cnp, true, To::Requester, 0, false, false});
  return all;
}

// Distances from the PSNs that would be right: from the expected one of a responder; of a requester, behind the oldest
// open one and ahead of the newest open one.
inline std::vector<int32_t> spoofed_distances() {
  std::vector<int32_t> all;
  for (const int32_t d :
       {1, 2, 3, 7, 16, 127, 128, 150, 254, 255, 256, 257, 1000, 1 << 16, 1 << 22, (1 << 23) - 1}) {
    all.push_back(d);
    all.push_back(-d);
  }
  all.push_back(-(1 << 23));
  return all;
}

// a sends to b: SEND, WRITE, READ and fetch-and-add of three packets each (UC: the first two); RC has SENDs of b as well.
class Scene : public Pair {
 public:
  static constexpr uint32_t bytes = 600;  // of each message

  Scene(QpType kind, bool is_weft_peer) : Pair(kind == QpType::Uc ? kind : QpType::Rc), type(kind) {
    common.retry_count = 0;  // no failed attempt is left over
    if (is_weft_peer)
      for (Port* port : {&a, &b}) port->adapter.is_weft_peer = [](const Gid&) noexcept { return true; };
    if (type == QpType::XrcSend) make_xrc();
    connect();
    from = std::make_unique<Block>(a, 16384);
    back = std::make_unique<Block>(b, 16384);
    landing = std::make_unique<Block>(a, 16384);
    received = std::make_unique<Block>(b, 16384);
    target = std::make_unique<Block>(b, 16392);
    secret = std::make_unique<Block>(b, 4096);
    fill(*from, 1);
    fill(*back, 2);
    for (size_t i = 0; i < 4096; ++i) secret->at[i] = std::byte{0x5e};
  }
  bool is_reliable() const { return type != QpType::Uc; }

  // Posted, not sent on.
  void post(uint32_t round) {
    const uint32_t at = round * 4096;
    for (uint32_t i = 0; i < 2; ++i) receive_b(at + i * 1024);
    if (type == QpType::Rc) {
      ASSERT_EQ(receive(a, 100 + round, {landing->element(at + 2048, 1024)}), 0);
    }
    send_a(request(SendOpcode::SendImmediate, from->element(at, bytes), round * 10 + 0), 0);
    send_a(request(SendOpcode::Write, from->element(at + 1024, bytes), round * 10 + 1),
           target->address() + at);
    if (is_reliable()) {
      send_a(request(SendOpcode::Read, landing->element(at, bytes), round * 10 + 2), target->address() + at);
      SendRequest add = request(SendOpcode::FetchAdd, landing->element(at + 1024, 8), round * 10 + 3);
      add.compare_add = 1;
      send_a(add, target->address() + 16384);
    }
    send_a(request(SendOpcode::Send, from->element(at + 2048, bytes), round * 10 + 4), 0);
    if (type == QpType::Rc) {
      ASSERT_EQ(send(b, request(SendOpcode::Send, back->element(at, bytes), round * 10 + 5)), 0);
    }
    ++rounds;
  }
  // What is wrong with the rounds so far; empty: nothing.
  std::string judge() {
    for (const Completion& c : completions(a)) c.id < 100 ? sent.push_back(c) : got_a.push_back(c);
    for (const Completion& c : completions(b)) c.id >= 1000 ? got_b.push_back(c) : sent_b.push_back(c);
    if (a.qp->state != QpState::ReadyToSend) return "the requester has failed";
    if (b.qp->state != QpState::ReadyToSend) return "the responder has failed";
    for (const auto* all : {&sent, &sent_b, &got_a, &got_b})
      for (const Completion& c : *all)
        if (c.status != Status::Success) return "a request has failed";
    if (sent.size() != rounds * (is_reliable() ? 5 : 3)) return "not every request completes";
    if (got_b.size() != rounds * 2) return "not every message arrives once";
    if (type == QpType::Rc && (got_a.size() != rounds || sent_b.size() != rounds))
      return "the other direction stands still";
    for (uint32_t i = 0; i < rounds; ++i) {
      const uint32_t at = i * 4096;
      if (got_b[i * 2].bytes != bytes || got_b[i * 2 + 1].bytes != bytes ||
          got_b[i * 2].immediate != 0xdeadbeef)
        return "a message has another length or immediate data";
      if (std::memcmp(received->at + at, from->at + at, bytes) != 0 ||
          std::memcmp(received->at + at + 1024, from->at + at + 2048, bytes) != 0)
        return "a message has other bytes";
      if (std::memcmp(target->at + at, from->at + at + 1024, bytes) != 0) return "a WRITE has other bytes";
      if (!is_reliable()) continue;
      if (std::memcmp(landing->at + at, from->at + at + 1024, bytes) != 0) return "a READ has other bytes";
      uint64_t before = 0;
      std::memcpy(&before, landing->at + at + 1024, 8);
      if (before != i) return "an atomic has run more or less than once";
      if (type == QpType::Rc && std::memcmp(landing->at + at + 2048, back->at + at, bytes) != 0)
        return "a message of the other direction has other bytes";
    }
    if (std::any_of(secret->at, secret->at + 4096, [](std::byte one) { return one != std::byte{0x5e}; }))
      return "memory has been written";
    return {};
  }

  // The packet reaches the queue pair that it is for, which counts it.
  void forge(const Forgery& what, int32_t distance) {
    using wire::roce::Packet;
    const bool to_responder = what.to == Forgery::To::Responder;
    Port& victim = to_responder ? b : a;
    Packet p;
    const auto transport =
        static_cast<unsigned>(type == QpType::Uc        ? wire::roce::Transport::Unreliable
                              : type == QpType::XrcSend ? wire::roce::Transport::Extended
                                                        : wire::roce::Transport::ReliableConnection);
    p.bth.opcode = what.is_complete ? what.opcode : static_cast<uint8_t>(transport << 5 | what.opcode);
    p.bth.destination = victim.qp->number;
    p.bth.ack_request = true;
    const RequesterState& r = a.qp->requester;
    const auto off = static_cast<uint32_t>(distance);
    if (to_responder) {
      p.bth.psn = psn_add(b.qp->responder.expected, off);
    } else if (type == QpType::Uc) {
      // Right are those that were sent since the last update, which names the PSN before `reported`.
      p.bth.psn = psn_add(distance < 0 ? psn_add(r.reported, 0) : psn_add(r.next, psn_mask), off);
    } else if (distance < 0) {
      p.bth.psn = psn_add(r.oldest, off);
    } else {
      p.bth.psn = psn_add(what.says_next ? r.next : psn_add(r.next, psn_mask), off);
    }
    if (!what.has_psn) p.bth.psn = 0;
    p.xrc_srqn = srq != nullptr ? srq->number : 0;
    p.reth = {secret->address(), secret->region->key, what.opcode == 6 ? 512u : 256u};
    p.atomic = {target->address() + 16384, target->region->key, 77, 0};
    p.aeth = {what.syndrome, 77};
    p.immediate = 0xbad;
    p.invalidate = target->region->key;
    std::vector<std::byte> evil(p.traits().has_payload ? 256 : 0, std::byte{0xbb});
    wire::roce::SackBitmap map;
    if (what.opcode == wire::roce::opcode_sack) {
      map.bits.fill(0xff);
      map.newest = psn_add(p.bth.psn, 3);
      evil.resize(wire::roce::SackBitmap::bytes_max);
      evil.resize(map.write(evil.data()));
    }
    if (what.opcode == wire::roce::opcode_cnp) evil.resize(16);
    p.payload = evil;
    const uint64_t before = heard(victim);
    give(victim, make(p));
    EXPECT_EQ(heard(victim), before + 1) << what.name << " has not reached its queue pair";
  }
  // What the queue pair has taken for packets of its peer. A map or update is nothing to one that has no such peer.
  uint64_t heard(const Port& victim) const {
    return victim.qp->received + victim.adapter.counters().cnps_received +
           (victim.qp->repeater == nullptr && !victim.qp->has_window ? victim.adapter.counters().unknown : 0);
  }

  QpType type;
  uint32_t rounds = 0;

 private:
  void receive_b(uint32_t at) {
    const Element element = received->element(at, 1024);
    ASSERT_EQ(receive(b, 1000 + at, {element}), 0);
  }
  void send_a(SendRequest q, uint64_t remote) {
    q.remote_address = remote;
    q.remote_key = target->region->key;
    ASSERT_EQ(send(a, q), 0);
  }

  std::unique_ptr<Block> from, back, landing, received, target, secret;
  std::vector<Completion> sent, sent_b, got_a, got_b;
};

}  // namespace weft::proto::roce::sim
