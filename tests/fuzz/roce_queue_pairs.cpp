// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A hostile peer sends packets to an adapter that has queue pairs of all types: the input is a sequence of packets,
// raw or built from fields that are right often enough to get far, of commands of the program, and of time. No byte
// outside of registered memory changes, every posted request completes once at most, in order, and the adapter never
// stops.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "proto/roce/adapter.hpp"

namespace {

using namespace weft::proto::roce;
using weft::wire::roce::Packet;
using weft::wire::roce::Transport;

std::mt19937 numbers;
bool random_bytes(void* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i)
    static_cast<unsigned char*>(bytes)[i] = static_cast<unsigned char>(numbers());
  return true;
}

constexpr size_t memory_bytes = 3000;
constexpr size_t guard_bytes = 32;

struct Ground final : PacketOutput, Events {
  Ground() : adapter(*this, *this, random_bytes), memory(memory_bytes + 2 * guard_bytes, std::byte{0xee}) {
    adapter.is_weft_peer = [](const Gid&) noexcept { return true; };
    cq = *adapter.create_cq(512);
    region = *adapter.memory().add(
        1, memory.data() + guard_bytes, address(), memory_bytes,
        local_write | remote_write | remote_read | remote_atomic | window_bind | flush_global);
    srq = *adapter.create_srq(1, 8, 2, 3, cq);
    for (const QpType type : {QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend, QpType::XrcReceive}) {
      QueuePairRequest q;
      q.type = type;
      q.pd = 1;
      q.xrcd = 3;
      if (type != QpType::XrcReceive) q.send_cq = cq;
      if (type != QpType::XrcReceive && type != QpType::XrcSend) q.receive_cq = cq;
      q.capacities = {8, 8, 2, 2, 16};
      qps.push_back(*adapter.create_qp(q));
    }
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory.data()) + guard_bytes; }
  bool send(const AddressVector&, const iovec* parts, size_t count) noexcept override {
    for (size_t i = 0; i < count; ++i)
      for (size_t at = 0; at < parts[i].iov_len; ++at)
        sum += static_cast<const unsigned char*>(parts[i].iov_base)[at];  // all of it is readable
    return refusing == 0 || --refusing != 0;
  }
  void on_completion(CompletionQueue&) noexcept override {}
  void on_async(const AsyncEvent&) noexcept override {}

  Adapter adapter;
  std::vector<std::byte> memory;
  CompletionQueue* cq = nullptr;
  Region* region = nullptr;
  SharedReceiveQueue* srq = nullptr;
  std::vector<QueuePair*> qps;
  std::array<uint64_t, 5> next_id{};
  std::array<uint64_t, 5> done_id{};
  int refusing = 0;
  unsigned sum = 0;
};

void raise(FuzzedDataProvider& in, Ground& ground, QueuePair& qp, uint64_t now) {
  Attributes a;
  a.access = remote_write | remote_read | remote_atomic | flush_global;
  a.path_mtu = 1;
  a.timeout = 8;
  a.retry_count = a.rnr_retry = 2;
  a.max_reads = a.max_dest_reads = 2;
  a.destination = 99;
  a.rq_psn = in.ConsumeBool() ? 0xfffff0 : 5;
  a.sq_psn = 0xfffffe;
  const bool ud = qp.type == QpType::Ud;
  const bool receives = qp.type == QpType::Rc || qp.type == QpType::XrcReceive;
  const auto step = [&](QpState to, uint32_t mask) {
    a.state = to;
    if (!ground.adapter.modify(qp, a, mask | attr_state, now)) std::abort();
  };
  step(QpState::Reset, 0);
  step(QpState::Init, attr_pkey_index | attr_port | (ud ? attr_qkey : attr_access));
  step(QpState::ReadyToReceive, ud ? 0u
                                   : attr_path | attr_path_mtu | attr_destination | attr_rq_psn |
                                         (receives ? attr_max_dest_reads | attr_min_rnr_timer : 0u));
  if (in.ConsumeIntegralInRange(0, 7) == 0) return;
  step(QpState::ReadyToSend,
       attr_sq_psn | (qp.type == QpType::XrcReceive ? uint32_t{attr_timeout}
                      : qp.is_reliable() ? attr_timeout | attr_retry_count | attr_rnr_retry | attr_max_reads
                                         : 0u));
}

uint64_t near(FuzzedDataProvider& in, uint64_t value) {
  switch (in.ConsumeIntegralInRange(0, 7)) {
    case 0:
      return in.ConsumeIntegral<uint64_t>();
    case 1:
      return value + in.ConsumeIntegralInRange<uint64_t>(0, 20);
    case 2:
      return value - in.ConsumeIntegralInRange<uint64_t>(0, 20);
    default:
      return value;
  }
}

void packet(FuzzedDataProvider& in, Ground& ground, uint64_t now) {
  QueuePair& qp = *ground.qps[in.ConsumeIntegralInRange<size_t>(0, 4)];
  Packet p;
  const Transport transport = qp.type == QpType::Uc   ? Transport::Unreliable
                              : qp.type == QpType::Ud ? Transport::Datagram
                              : qp.is_xrc()           ? Transport::Extended
                                                      : Transport::ReliableConnection;
  auto operation = in.ConsumeIntegralInRange<uint8_t>(0, 0x19);
  if (operation > 0x17) operation = static_cast<uint8_t>(operation + 4);  // FLUSH, ATOMIC WRITE
  p.bth.opcode = weft::wire::roce::opcode(transport, static_cast<weft::wire::roce::Operation>(operation));
  if (in.ConsumeIntegralInRange(0, 30) == 0) p.bth.opcode = in.ConsumeIntegral<uint8_t>();
  if (in.ConsumeIntegralInRange(0, 7) == 0)
    p.bth.opcode =
        qp.type == QpType::Uc ? weft::wire::roce::opcode_window_update : weft::wire::roce::opcode_sack;
  p.bth.destination = qp.number;
  p.bth.ack_request = in.ConsumeBool();
  p.bth.solicited = in.ConsumeBool();
  p.bth.psn =
      static_cast<uint32_t>(near(in, p.traits().is_request ? qp.responder.expected : qp.requester.oldest)) &
      psn_mask;
  if (in.ConsumeBool()) p.bth.tag = tag_of(qp.responder.tag_key, p.bth.psn);
  p.xrc_srqn = ground.srq->number;
  p.deth = {0, 7};
  const auto offset = in.ConsumeIntegralInRange<uint64_t>(0, 800);
  p.reth = {near(in, ground.address() + offset), static_cast<uint32_t>(near(in, ground.region->key)),
            in.ConsumeIntegralInRange<uint32_t>(0, 2500)};
  if (in.ConsumeIntegralInRange(0, 15) == 0) p.reth.length = in.ConsumeIntegral<uint32_t>();
  if (operation == 0x1c) p.feth = weft::wire::roce::Feth::of(in.ConsumeIntegralInRange<uint32_t>(0, 0x3f));
  p.atomic = {(ground.address() + offset) & ~uint64_t{7}, static_cast<uint32_t>(near(in, ground.region->key)),
              1, in.ConsumeIntegral<uint8_t>()};
  p.aeth.msn = in.ConsumeIntegral<uint8_t>();
  p.aeth.syndrome = in.ConsumeBool() ? uint8_t{0x1f} : in.ConsumeIntegral<uint8_t>();
  std::vector<std::byte> bytes(weft::wire::roce::headers_bytes_max);
  std::vector<std::byte> payload(1'100, std::byte{'p'});
  if (p.bth.opcode == weft::wire::roce::opcode_sack) {
    const auto bits = in.ConsumeBytes<uint8_t>(36);
    std::ranges::copy(std::as_bytes(std::span(bits)), payload.begin());
  }
  size_t length = in.ConsumeBool() ? 256 * in.ConsumeIntegralInRange<size_t>(1, 4)
                                   : in.ConsumeIntegralInRange<size_t>(0, 1'100);
  if (!p.traits().has_payload) length = 0;
  if (p.bth.opcode == weft::wire::roce::opcode_sack) length = in.ConsumeIntegralInRange<size_t>(0, 10) * 4;
  p.bth.pad = weft::wire::roce::pad_of(length);
  bytes.resize(weft::wire::roce::write_headers(p, bytes.data()));
  bytes.insert(bytes.end(), payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(length));
  bytes.resize(bytes.size() + p.bth.pad);
  bytes.shrink_to_fit();
  Arrival arrival;
  arrival.bytes = bytes;
  if (length > 256 && in.ConsumeBool()) arrival.psns = static_cast<uint8_t>((length + 255) / 256);
  else if (in.ConsumeIntegralInRange(0, 15) == 0) arrival.psns = in.ConsumeIntegralInRange<uint8_t>(1, 16);
  ground.adapter.on_packet(arrival, now);
}

void command(FuzzedDataProvider& in, Ground& ground, uint64_t now) {
  const size_t which = in.ConsumeIntegralInRange<size_t>(0, 4);
  QueuePair& qp = *ground.qps[which];
  const std::array<Element, 2> elements{
      Element{ground.address() + 1000, in.ConsumeIntegralInRange<uint32_t>(0, 700), ground.region->key},
      Element{ground.address() + 1700, in.ConsumeIntegralInRange<uint32_t>(0, 700), ground.region->key}};
  SendRequest q;
  q.id = which << 32 | ground.next_id[which];
  const int opcode = in.ConsumeIntegralInRange(0, 11);
  q.opcode = static_cast<SendOpcode>(opcode > 9 ? opcode + 4 : opcode);
  q.flags = in.ConsumeIntegral<uint8_t>() & 7;
  q.elements = {elements.data(), in.ConsumeIntegralInRange<size_t>(0, 2)};
  const Element word{ground.address() + 2400, 8, ground.region->key};
  if (q.opcode == SendOpcode::CompareSwap || q.opcode == SendOpcode::FetchAdd ||
      q.opcode == SendOpcode::AtomicWrite)
    q.elements = {&word, 1};
  if (q.opcode == SendOpcode::Flush) {
    q.elements = {};
    q.remote_address = ground.address();
    q.remote_key = ground.region->key;
    q.compare_add = in.ConsumeIntegralInRange<uint64_t>(0, memory_bytes);
    q.immediate = in.ConsumeIntegralInRange<uint32_t>(0, 0x3f);
  }
  if (ground.adapter.post_send(qp, q, now) == 0) ++ground.next_id[which];
  const ReceiveRequest r{uint64_t{9} << 32, {elements.data(), 2}};
  if (in.ConsumeBool()) (void)ground.adapter.post_receive(qp, r, now);
  if (in.ConsumeBool()) (void)ground.adapter.post_receive(*ground.srq, r);
}

void look(Ground& ground) {
  std::array<Completion, 64> found;
  const int n = ground.cq->poll(found);
  for (int i = 0; i < n; ++i) {
    const uint64_t id = found[static_cast<size_t>(i)].id;
    if (id >> 32 == 9) continue;
    uint64_t& done = ground.done_id[id >> 32];
    if (static_cast<uint32_t>(id) < done || static_cast<uint32_t>(id) >= ground.next_id[id >> 32])
      std::abort();
    done = static_cast<uint32_t>(id) + 1;
  }
  for (size_t i = 0; i < guard_bytes; ++i)
    if (ground.memory[i] != std::byte{0xee} || ground.memory[ground.memory.size() - 1 - i] != std::byte{0xee})
      std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  numbers.seed(1);
  Ground ground;
  uint64_t now = 1;
  for (QueuePair* qp : ground.qps) raise(in, ground, *qp, now);
  while (in.remaining_bytes() > 0) {
    now += in.ConsumeIntegralInRange<uint64_t>(0, 3'000'000);
    switch (in.ConsumeIntegralInRange(0, 9)) {
      case 0: {
        const auto raw = in.ConsumeBytes<uint8_t>(in.ConsumeIntegralInRange<size_t>(0, 100));
        Arrival arrival;
        arrival.bytes = std::as_bytes(std::span(raw));
        arrival.psns = static_cast<uint8_t>(1 + raw.size() % 16);
        ground.adapter.on_packet(arrival, now);
        break;
      }
      case 1:
      case 2:
        command(in, ground, now);
        break;
      case 3:
        ground.refusing = in.ConsumeIntegralInRange(0, 3);
        break;
      case 4:
      case 5:
        ground.adapter.flush(now);
        break;
      case 6: {
        const size_t which = in.ConsumeIntegralInRange<size_t>(0, 4);
        if (ground.qps[which]->state == QpState::Error || in.ConsumeIntegralInRange(0, 15) == 0) {
          look(ground);
          raise(in, ground, *ground.qps[which], now);
        }
        break;
      }
      default:
        packet(in, ground, now);
    }
    look(ground);
  }
  for (int i = 0; i < 100; ++i) ground.adapter.flush(now += 1'000'000);
  look(ground);
  return 0;
}
