// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A hostile host sends packets to a reliable core that has a connection under way: the input is a sequence of packets, raw or built from fields that
// are right often enough to get far, and of time. The core must neither touch memory that is not its own nor hand up a byte twice nor stop.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "proto/reliable/core.hpp"

namespace {

using namespace weft::proto::reliable;

struct Ground final : PacketOutput, Upper {
  size_t packet_bytes_max(std::span<const std::byte>) noexcept override { return 600; }
  bool send(std::span<const std::byte>, const iovec* parts, size_t count) noexcept override {
    last.clear();
    for (size_t i = 0; i < count; ++i) {
      const auto* at = static_cast<const std::byte*>(parts[i].iov_base);
      last.insert(last.end(), at, at + parts[i].iov_len);
    }
    return refusing == 0 || --refusing != 0;
  }
  bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                      size_t) noexcept override {
    return send(to, parts, count);
  }
  Connection* accept(std::span<const std::byte> address) noexcept override {
    if (connections.size() >= 8) return nullptr;
    auto made = std::make_unique<Connection>();
    Connection* c = made.get();
    if (!core->add(*c, address)) return nullptr;
    connections[c] = std::move(made);
    taken[c] = 0;
    return c;
  }
  size_t on_bytes(Connection& c, std::span<const std::byte> bytes) noexcept override {
    if (c.in.taken() != taken[&c]) std::abort();
    const size_t take = shy ? bytes.size() / 2 : bytes.size();
    taken[&c] += take;
    for (const std::byte b : bytes.first(take)) sum += std::to_integer<unsigned>(b);  // all of it is readable
    return take;
  }
  void lost(Connection& c, weft::core::ProviderError) noexcept override {
    taken.erase(&c);
    connections.erase(&c);
  }

  Core* core = nullptr;
  std::map<Connection*, std::unique_ptr<Connection>> connections;
  std::map<Connection*, uint64_t> taken;
  std::vector<std::byte> last;
  int refusing = 0;
  bool shy = false;
  unsigned sum = 0;
};

const std::array<std::byte, 4> our_address{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

uint64_t near(FuzzedDataProvider& in, uint64_t value) {
  switch (in.ConsumeIntegralInRange(0, 5)) {
    case 0:
      return in.ConsumeIntegral<uint64_t>();
    case 1:
      return value + in.ConsumeIntegralInRange<uint64_t>(0, 5000);
    case 2:
      return value - in.ConsumeIntegralInRange<uint64_t>(0, 5000);
    default:
      return value;
  }
}

std::vector<std::byte> build(FuzzedDataProvider& in, Ground& ground, const std::array<std::byte, 4>& from) {
  Packet packet;
  packet.type = static_cast<PacketType>(in.ConsumeIntegralInRange(1, 4));
  packet.flags = in.ConsumeIntegral<uint8_t>() & 31;
  Connection* c = ground.connections.empty() ? nullptr : ground.connections.begin()->first;
  packet.to = static_cast<uint32_t>(c != nullptr ? near(in, c->who.id) : 0);
  if (in.ConsumeIntegralInRange(0, 3) == 0) packet.to = 0;
  packet.from = static_cast<uint32_t>(c != nullptr && c->who.peer_id != 0 ? near(in, c->who.peer_id) : 7);
  packet.stamp = in.ConsumeIntegral<uint32_t>();
  packet.offset = c != nullptr ? near(in, c->in.ready()) : 0;
  packet.ack = c != nullptr ? near(in, c->out.acked()) : 0;
  packet.window = in.ConsumeIntegral<uint32_t>();
  packet.echo = in.ConsumeIntegral<uint32_t>();
  packet.hold = in.ConsumeIntegral<uint32_t>();
  packet.range_count = in.ConsumeIntegralInRange<uint8_t>(0, ranges_max);
  for (size_t i = 0; i < packet.range_count; ++i) {
    packet.ranges[i].begin = packet.ack + in.ConsumeIntegralInRange<uint32_t>(0, 3000);
    packet.ranges[i].end = packet.ranges[i].begin + in.ConsumeIntegralInRange<uint32_t>(0, 3000);
  }
  packet.incarnation = c != nullptr && c->who.peer_incarnation != 0 ? near(in, c->who.peer_incarnation)
                                                                    : in.ConsumeIntegral<uint64_t>();
  packet.peer_incarnation = c != nullptr ? near(in, c->who.incarnation) : 0;
  if (packet.to == 0) packet.peer_incarnation = 0;
  packet.address = from;
  std::vector<std::byte> bytes(head_bytes_max);
  const size_t head = encode(packet, bytes.data());
  bytes.resize(head + in.ConsumeIntegralInRange<size_t>(0, 700), std::byte{'x'});
  if ((packet.flags & has_check) != 0) {
    const Piece piece{bytes.data() + head, bytes.size() - head};
    seal(bytes.data(), head, {&piece, 1});
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  Ground ground;
  Core core(ground, ground);
  ground.core = &core;
  Config config;
  config.check = in.ConsumeBool();
  config.segments_max = 4;
  (void)core.open(our_address, config);
  uint64_t now = 1;
  if (in.ConsumeBool()) (void)ground.accept(std::array<std::byte, 4>{std::byte{9}, {}, {}, {}});
  while (in.remaining_bytes() > 0) {
    const std::array<std::byte, 4> from{
        static_cast<std::byte>(9 + in.ConsumeIntegralInRange(0, 2)), {}, {}, {}};
    now += in.ConsumeIntegralInRange<uint64_t>(0, 2'000'000);
    ground.shy = in.ConsumeBool();
    switch (in.ConsumeIntegralInRange(0, 7)) {
      case 0: {
        const auto raw = in.ConsumeBytes<uint8_t>(in.ConsumeIntegralInRange<size_t>(0, 300));
        core.on_packet(from, std::as_bytes(std::span(raw)), now);
        break;
      }
      case 1:
        if (!ground.connections.empty()) {
          Connection& c = *ground.connections.begin()->first;
          const std::vector<std::byte> bytes(in.ConsumeIntegralInRange<size_t>(1, 5000), std::byte{'y'});
          if (core.reserve(c, bytes.size())) {
            core.append(c, bytes.data(), bytes.size());
            core.push(c, [&] { return now; });
          }
        }
        break;
      case 2:
        core.end_poll(now);
        break;
      case 3:
        ground.refusing = in.ConsumeIntegralInRange(0, 3);
        break;
      case 4:
        core.on_refused(from, now);
        break;
      case 5:
        if (!ground.connections.empty() && in.ConsumeIntegralInRange(0, 9) == 0) {
          Connection* c = ground.connections.begin()->first;
          core.remove(*c, now);
          ground.lost(*c, weft::core::ProviderError::None);
        }
        break;
      default:
        core.on_packet(from, build(in, ground, from), now);
    }
  }
  core.end_poll(now);
  return 0;
}
