// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two adapters side by side for tests: packets wait until the test delivers, drops, alters or forges them.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "proto/roce/adapter.hpp"

namespace weft::proto::roce::sim {

inline bool test_random(void* bytes, size_t count) {
  static std::mt19937_64 engine(1);
  for (size_t i = 0; i < count; ++i)
    static_cast<unsigned char*>(bytes)[i] = static_cast<unsigned char>(engine());
  return true;
}

struct PacketBytes : std::vector<std::byte> {
  using vector::vector;
  uint8_t psns = 1;
};

struct Port final : PacketOutput, Events {
  Port() : adapter(*this, *this, test_random) {}
  bool send(const AddressVector& to, const iovec* parts, size_t count) noexcept override {
    return send_aggregate(to, parts, count, 1);
  }
  bool send_aggregate(const AddressVector&, const iovec* parts, size_t count,
                      uint32_t psns) noexcept override {
    if (refuses) return false;
    PacketBytes bytes;
    bytes.psns = static_cast<uint8_t>(psns);
    for (size_t i = 0; i < count; ++i) {
      const auto* from = static_cast<const std::byte*>(parts[i].iov_base);
      bytes.insert(bytes.end(), from, from + parts[i].iov_len);
      if (refers && i != 0) referred.push_back({parts[i], {from, from + parts[i].iov_len}});
    }
    out.push_back(std::move(bytes));
    return true;
  }
  size_t payload_max(const AddressVector&) noexcept override { return aggregates ? mtu_bytes_max : 0; }
  void on_completion(CompletionQueue&) noexcept override { ++completion_events; }
  void on_async(const AsyncEvent& event) noexcept override { async.push_back(event); }
  size_t count_async(AsyncKind kind) const {
    size_t n = 0;
    for (const AsyncEvent& one : async) n += one.kind == kind;
    return n;
  }

  // A batch of a real port refers to payloads until it is sent. False: one of those is another now.
  bool payloads_are_as_they_were() const {
    for (const auto& [part, copy] : referred)
      if (std::memcmp(part.iov_base, copy.data(), copy.size()) != 0) return false;
    return true;
  }

  bool refuses = false;
  bool refers = false;
  bool aggregates = false;
  std::deque<PacketBytes> out;
  std::vector<std::pair<iovec, PacketBytes>> referred;
  std::vector<AsyncEvent> async;
  int completion_events = 0;
  Gid gid{};
  CompletionQueue* cq = nullptr;
  QueuePair* qp = nullptr;
  Adapter adapter;
};

// Memory with a key.
struct Block {
  Block(Port& port, size_t count,
        uint32_t access = local_write | remote_write | remote_read | remote_atomic | window_bind,
        uint32_t pd = 1)
      : bytes(count + 16, std::byte{0}) {
    auto* first = bytes.data() + (-reinterpret_cast<uintptr_t>(bytes.data()) & 7);
    at = first;
    region = *port.adapter.memory().add(pd, first, address(), count, access);
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(at); }
  Element element(uint32_t offset, uint32_t length) const {
    return {address() + offset, length, region->key};
  }

  std::vector<std::byte> bytes;
  std::byte* at = nullptr;
  Region* region = nullptr;
};

struct Pair {
  explicit Pair(QpType type = QpType::Rc, const std::function<void(QueuePairRequest&)>& change = {}) {
    a.gid[0] = std::byte{1};
    b.gid[0] = std::byte{2};
    for (Port* port : {&a, &b}) {
      port->cq = *port->adapter.create_cq(256);
      QueuePairRequest request;
      request.type = type;
      request.pd = 1;
      request.send_cq = request.receive_cq = port->cq;
      request.capacities = {64, 64, 4, 4, 128};
      if (change) change(request);
      port->qp = *port->adapter.create_qp(request);
    }
    common.access = remote_write | remote_read | remote_atomic;
    common.path_mtu = 1;  // 256
    common.rq_psn = common.sq_psn = 0xfffffe;
    common.max_reads = common.max_dest_reads = 2;
    common.min_rnr_timer = 1;
    common.timeout = 10;  // 4 ms
    common.qkey = 0x1234;
  }

  void connect(QpState last = QpState::ReadyToSend) {
    for (auto [port, peer] : {std::pair{&a, &b}, std::pair{&b, &a}}) raise(*port, *peer, last);
  }
  void raise(Port& port, Port& peer, QpState last = QpState::ReadyToSend) {
    Attributes x = common;
    x.path.destination = peer.gid;
    x.destination = peer.qp->number;
    const bool ud = port.qp->type == QpType::Ud;
    step(port, x, QpState::Init, attr_pkey_index | attr_port | (ud ? attr_qkey : attr_access));
    const uint32_t to_peer = attr_path | attr_path_mtu | attr_destination | attr_rq_psn;
    const uint32_t responds = attr_max_dest_reads | attr_min_rnr_timer;
    const uint32_t requests = attr_timeout | attr_retry_count | attr_rnr_retry | attr_max_reads;
    const bool reliable = port.qp->is_reliable();
    const bool receives = port.qp->type == QpType::Rc || port.qp->type == QpType::XrcReceive;
    step(port, x, QpState::ReadyToReceive, ud ? 0 : to_peer | (receives ? responds : 0));
    if (last == QpState::ReadyToReceive) return;
    step(port, x, QpState::ReadyToSend,
         attr_sq_psn | (port.qp->type == QpType::XrcReceive ? uint32_t{attr_timeout}
                        : reliable                          ? requests
                                                            : 0));
  }
  void step(Port& port, Attributes x, QpState to, uint32_t mask) {
    x.state = to;
    const auto ok = port.adapter.modify(*port.qp, x, mask | attr_state, now);
    ASSERT_TRUE(ok) << ok.error().why;
  }

  // XRC instead, before connect(): `a` sends to a shared receive queue at `b`, whose completions go into b's queue.
  void make_xrc() {
    a.adapter.destroy_qp(*a.qp);
    b.adapter.destroy_qp(*b.qp);
    QueuePairRequest initiator;
    initiator.type = QpType::XrcSend;
    initiator.pd = 1;
    initiator.send_cq = a.cq;
    initiator.capacities = {64, 0, 4, 0, 0};
    a.qp = *a.adapter.create_qp(initiator);
    QueuePairRequest target;
    target.type = QpType::XrcReceive;
    target.xrcd = 5;
    b.qp = *b.adapter.create_qp(target);
    srq = *b.adapter.create_srq(1, 64, 2, target.xrcd, b.cq);
  }

  // One packet to `to`, as if from its peer.
  void give(Port& to, const PacketBytes& bytes) { give(to, bytes, &to == &a ? b.gid : a.gid); }
  void give(Port& to, const PacketBytes& bytes, const Gid& source) {
    const std::vector<std::byte> exact(bytes.begin(), bytes.end());  // ends where it ends, for a sanitizer
    Arrival arrival;
    arrival.source = source;
    arrival.bytes = exact;
    arrival.psns = bytes.psns;
    to.adapter.on_packet(arrival, now);
  }
  // Everything that is under way, until nothing is.
  void exchange() {
    for (int rounds = 0; rounds < 10'000; ++rounds) {
      a.adapter.flush(now);
      b.adapter.flush(now);
      if (a.out.empty() && b.out.empty() && !a.adapter.has_ready() && !b.adapter.has_ready()) return;
      for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
        std::deque<PacketBytes> batch;
        batch.swap(from->out);
        for (const PacketBytes& one : batch) give(*to, one);
      }
    }
    ADD_FAILURE() << "does not come to rest";
  }
  // One way only: what `a` has sent reaches `b`, whose link takes nothing.
  void exchange_refused() {
    for (const PacketBytes& one : a.out) give(b, one);
    a.out.clear();
    b.adapter.flush(now);
  }
  // With all timers that run meanwhile.
  void pass(uint64_t ns) {
    const uint64_t end = now + ns;
    for (;;) {
      exchange();
      const uint64_t due = std::min(a.adapter.next_due(), b.adapter.next_due());
      if (due > end) break;
      now = std::max(now, due);
    }
    now = end;
    exchange();
  }

  int send(Port& from, SendRequest request) {
    if (srq != nullptr) request.remote_srqn = srq->number;
    return from.adapter.post_send(*from.qp, request, now);
  }
  int receive(Port& at, uint64_t id, std::vector<Element> elements) {
    if (srq != nullptr && &at == &b) return b.adapter.post_receive(*srq, {id, elements});
    return at.adapter.post_receive(*at.qp, {id, elements}, now);
  }
  static std::vector<Completion> completions(Port& port) {
    std::vector<Completion> all(256);
    const int n = port.cq->poll(all);
    all.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return all;
  }

  Port a;
  Port b;
  SharedReceiveQueue* srq = nullptr;  // of b, with XRC
  Attributes common;
  uint64_t now = 1000;
};

// The only packet that waits at `port`, understood.
inline wire::roce::Packet take(Port& port, PacketBytes& held) {
  wire::roce::Packet packet;
  if (port.out.empty()) {
    ADD_FAILURE() << "no packet";
    return packet;
  }
  held = port.out.front();
  port.out.pop_front();
  EXPECT_TRUE(wire::roce::parse(held, packet));
  return packet;
}

// A packet as bytes.
inline PacketBytes make(wire::roce::Packet packet) {
  packet.bth.pad = wire::roce::pad_of(packet.payload.size());
  PacketBytes bytes(wire::roce::headers_bytes_max);
  bytes.resize(wire::roce::write_headers(packet, bytes.data()));
  bytes.insert(bytes.end(), packet.payload.begin(), packet.payload.end());
  bytes.resize(bytes.size() + packet.bth.pad);
  return bytes;
}

// A request with one element, which lives as long as the next 63.
inline SendRequest request(SendOpcode opcode, const Element& element, uint64_t id = 1,
                           uint8_t flags = signaled) {
  static thread_local std::array<Element, 64> buffered;
  static thread_local size_t next = 0;
  Element& place = buffered[next++ % buffered.size()];
  place = element;
  SendRequest q;
  q.id = id;
  q.opcode = opcode;
  q.flags = flags;
  q.elements = {&place, 1};
  q.immediate = 0xdeadbeef;
  return q;
}

// The only completion that is there.
inline void expect_one(Port& port, uint64_t id, CompletionOpcode opcode, Status status = Status::Success) {
  const auto got = Pair::completions(port);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].id, id);
  EXPECT_EQ(got[0].status, status);
  if (status == Status::Success) {
    EXPECT_EQ(got[0].opcode, opcode);
  }
}

inline void fill(Block& block, unsigned seed) {
  std::mt19937 random(seed);
  for (size_t i = 0; i < block.region->length; ++i) block.at[i] = static_cast<std::byte>(random());
}

}  // namespace weft::proto::roce::sim
