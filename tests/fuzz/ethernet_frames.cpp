// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Any frames to a host on an Ethernet, between packets of its own: what it shows lies within the frame and says of itself what the
// frame says, what it sends are whole frames, and what waits stays within its bounds.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdlib>
#include <vector>

#include "link/ethernet/packets.hpp"
#include "link/ethernet/test_hub.hpp"
#include "wire/ip.hpp"

namespace {

using namespace weft;
using namespace weft::link::ethernet;

struct Clock {
  static inline uint64_t time = 0;
  static uint64_t now() noexcept { return time; }
};
using Packets = EthernetPackets<HubPort, Clock>;

void require(bool holds) {
  if (!holds) std::abort();
}

struct Checker {
  size_t shown = 0;
  void on_packet(const proto::ReceivedPacket& packet) noexcept {
    wire::Datagram datagram;
    const auto* const end = packet.bytes.data() + packet.bytes.size();
    require(packet.headers.data() + packet.headers.size() == packet.bytes.data());
    require(wire::Datagram::read({packet.headers.data(), end}, datagram));
    require(datagram.payload.size() == packet.bytes.size());
    const auto source = os::SocketAddress::from(packet.source.data(), packet.source.size());
    require(source && !source->is_any() && source->port() == datagram.udp.source);
    require(os::SocketAddress::from(packet.destination.data(), packet.destination.size()).has_value());
    for (const std::byte byte : packet.bytes) shown += std::to_integer<size_t>(byte);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  const bool is_ip6 = in.ConsumeBool();
  const auto host = [&](unsigned number) {
    const std::string text =
        (is_ip6 ? "[fd14::" : "10.0.0.") + std::to_string(number) + (is_ip6 ? "]:9" : ":9");
    return *os::SocketAddress::from_text(text);
  };
  Clock::time = 1'000'000'000;
  Hub hub;
  Packets link;
  link.frames().attach(hub, 1);
  Network network;
  network.vlan = in.ConsumeBool() ? uint16_t{5} : uint16_t{0};
  network.prefix_bits = in.ConsumeBool() ? uint8_t{24} : uint8_t{0};
  link.set_network(network);
  link.set_optional_checksum(in.ConsumeBool());
  require(static_cast<bool>(link.open(host(1).bytes())));
  const os::SocketAddress group = *os::SocketAddress::from_text(is_ip6 ? "[ff05::1]:9" : "239.0.0.1:9");
  require(link.join(group.bytes(), true) == 0);
  Checker checker;
  while (in.remaining_bytes() != 0) {
    switch (in.ConsumeIntegralInRange(0, 3)) {
      case 0: {
        Clock::time += uint64_t{in.ConsumeIntegral<uint16_t>()} * 1'000'000;
        break;
      }
      case 1: {
        std::string text = in.ConsumeRandomLengthString(64);
        const iovec part{text.data(), text.size()};
        (void)link.try_send(in.ConsumeBool() ? host(in.ConsumeIntegralInRange(1, 40)).bytes() : group.bytes(),
                            &part, 1);
        break;
      }
      case 2: {
        // An almost right frame: what the link sent itself, turned round.
        if (hub.seen.empty()) break;
        Frame frame = hub.seen[in.ConsumeIntegralInRange<size_t>(0, hub.seen.size() - 1)];
        std::swap_ranges(frame.begin(), frame.begin() + 6, frame.begin() + 6);
        if (in.ConsumeBool())
          frame[in.ConsumeIntegralInRange<size_t>(0, frame.size() - 1)] =
              std::byte{in.ConsumeIntegral<uint8_t>()};
        link.frames().arrived.push_back(frame);
        break;
      }
      default: {
        const std::string text = in.ConsumeRandomLengthString(1600);
        const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
        link.frames().arrived.emplace_back(bytes, bytes + text.size());
      }
    }
    link.frames().trusts_checksums = in.ConsumeBool();
    link.frames().is_full = in.ConsumeBool();
    (void)link.poll(checker);
  }
  for (const Frame& frame : hub.seen) require(frame.size() >= wire::Ethernet::bytes + wire::Arp::bytes);
  link.close();
  return 0;
}
