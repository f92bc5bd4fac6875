// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Headers below RoCEv2: round trips, lengths that contradict each other, every truncation.
#include "wire/ip.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "wire/bytes.hpp"

namespace weft::wire {
namespace {

std::vector<std::byte> datagram(bool ip6, size_t payload) {
  const size_t ip = ip6 ? Ip6::bytes : Ip4::bytes;
  const size_t udp = Udp::bytes + payload;
  std::vector<std::byte> out(ip + udp);
  if (ip6) {
    Ip6 head;
    head.flow_label = 0xabcde;
    head.payload_bytes = static_cast<uint16_t>(udp);
    head.write(out.data());
  } else {
    Ip4 head;
    head.total_bytes = static_cast<uint16_t>(out.size());
    head.identification = 77;
    head.write(out.data());
  }
  Udp{1, 4791, static_cast<uint16_t>(udp), 0}.write(out.data() + ip);
  return out;
}

// With the checksum of an altered IPv4 header made right.
void mend(std::vector<std::byte>& packet) {
  store_big(packet.data() + 10, uint16_t{0});
  store_big(packet.data() + 10, internet_checksum(Bytes(packet).first(Ip4::bytes)));
}

TEST(Ip, DatagramsComeBack) {
  for (const bool ip6 : {false, true}) {
    auto packet = datagram(ip6, 10);
    packet.resize(packet.size() + 6);  // Ethernet pads
    Datagram d;
    ASSERT_TRUE(Datagram::read(packet, d));
    EXPECT_EQ(d.is_ip6, ip6);
    EXPECT_EQ(d.payload.size(), 10u);
    EXPECT_EQ(d.headers.size(), (ip6 ? Ip6::bytes : Ip4::bytes) + Udp::bytes);
    EXPECT_EQ(d.udp.destination, 4791);
    EXPECT_EQ(ip6 ? d.ip6.flow_label : d.ip4.identification, ip6 ? 0xabcdeu : 77u);
  }
}

TEST(Ip, EveryTruncationIsRefused) {
  for (const bool ip6 : {false, true}) {
    const auto packet = datagram(ip6, 10);
    for (size_t length = 0; length < packet.size(); ++length) {
      const std::vector<std::byte> less(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(length));
      Datagram d;
      EXPECT_FALSE(Datagram::read(less, d)) << length;
    }
  }
}

TEST(Ip, LengthsThatContradictEachOtherAreRefused) {
  Datagram d;
  for (const bool ip6 : {false, true})
    for (const int off : {-4, -1, 1, 4}) {
      auto packet = datagram(ip6, 20);
      const size_t udp = (ip6 ? Ip6::bytes : Ip4::bytes) + 4;
      store_big(packet.data() + udp, static_cast<uint16_t>(28 + off));
      EXPECT_FALSE(Datagram::read(packet, d)) << "UDP " << off;
      packet = datagram(ip6, 20);
      if (ip6) {
        store_big(packet.data() + 4, static_cast<uint16_t>(28 + off));
      } else {
        store_big(packet.data() + 2, static_cast<uint16_t>(48 + off));
        mend(packet);
      }
      EXPECT_FALSE(Datagram::read(packet, d)) << "IP " << off;
    }
}

TEST(Ip, FragmentsOptionsAndOtherProtocolsAreRefused) {
  Datagram d;
  auto packet = datagram(false, 20);
  for (const uint16_t fragment : {0x2000, 0x0001, 0x1fff}) {
    store_big(packet.data() + 6, fragment);
    mend(packet);
    EXPECT_FALSE(Datagram::read(packet, d));
  }
  packet = datagram(false, 20);
  packet[0] = std::byte{0x46};
  mend(packet);
  EXPECT_FALSE(Datagram::read(packet, d));
  packet = datagram(false, 20);
  packet[9] = std::byte{6};
  mend(packet);
  EXPECT_FALSE(Datagram::read(packet, d));
  packet = datagram(false, 20);
  packet[12] ^= std::byte{1};  // without a right checksum
  EXPECT_FALSE(Datagram::read(packet, d));
  packet = datagram(true, 20);
  packet[6] = std::byte{0};  // hop-by-hop options
  EXPECT_FALSE(Datagram::read(packet, d));
}

TEST(Ip, EthernetWithAndWithoutATag) {
  std::vector<std::byte> frame(Ethernet::bytes + 10);
  Ethernet in;
  in.type = Ethernet::type_ip4;
  in.write(frame.data());
  Ethernet out;
  Bytes rest;
  ASSERT_TRUE(Ethernet::read(frame, out, rest));
  EXPECT_EQ(rest.size(), 10u);
  store_big(frame.data() + 12, Ethernet::type_vlan);
  store_big(frame.data() + 14, uint16_t{5});
  store_big(frame.data() + 16, Ethernet::type_ip6);
  ASSERT_TRUE(Ethernet::read(frame, out, rest));
  EXPECT_EQ(out.vlan, 5);
  EXPECT_EQ(out.type, Ethernet::type_ip6);
  EXPECT_EQ(rest.size(), 6u);
  EXPECT_FALSE(Ethernet::read(Bytes(frame).first(17), out, rest));
  EXPECT_FALSE(Ethernet::read(Bytes(frame).first(13), out, rest));
}

TEST(InternetSum, DoesNotDependOnThePieces) {
  std::vector<std::byte> bytes(61);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 200);
  const uint16_t whole = internet_checksum(bytes);
  for (size_t first = 0; first <= bytes.size(); ++first)
    for (size_t second = first; second <= bytes.size(); ++second) {
      InternetSum sum;
      sum.add(Bytes(bytes).first(first));
      sum.add(Bytes(bytes).subspan(first, second - first));
      sum.add(Bytes(bytes).subspan(second));
      ASSERT_EQ(sum.checksum(), whole) << first << ' ' << second;
    }
}

// The example of RFC 1071 section 3.
TEST(InternetSum, IsThatOfTheRfc) {
  constexpr uint8_t example[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
  EXPECT_EQ(internet_checksum(std::as_bytes(std::span(example))), 0x220d);
}

}  // namespace
}  // namespace weft::wire
