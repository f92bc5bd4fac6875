// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a capture shows of a packet: port 4791, and an ICRC that is right exactly where the packet's was.
#include "link/roce/capture.hpp"

#include <gtest/gtest.h>

#include <array>

#include "link/roce/headers.hpp"
#include "wire/bytes.hpp"
#include "wire/roce/icrc.hpp"

namespace weft::link::roce {
namespace {

struct Kept final : proto::PacketCapture {
  void record(std::span<const std::byte> from, std::span<const std::byte> to,
              std::span<const std::byte> packet) noexcept override {
    source = *os::SocketAddress::from(from.data(), from.size());
    destination = *os::SocketAddress::from(to.data(), to.size());
    bytes.assign(packet.begin(), packet.end());
  }
  std::string summary() const override { return "kept"; }
  os::SocketAddress source, destination;
  std::vector<std::byte> bytes;
};

struct Shown {
  os::SocketAddress source, destination;
  std::vector<std::byte> bytes;
  bool icrc_is_right() const {
    return wire::roce::icrc_is_right(headers_between(source, destination, bytes.size()).span(), bytes);
  }
};

// A packet of 24 bytes as its sender made it, with that identification; `flip` alters a byte on the way.
Shown show(const char* from, const char* to, uint16_t identification, bool flip = false) {
  const auto source = *os::SocketAddress::from_text(from);
  const auto destination = *os::SocketAddress::from_text(to);
  std::vector<std::byte> packet(28, std::byte{0x17});
  const Headers headers = headers_between(source, destination, packet.size(), identification);
  const uint32_t icrc = wire::roce::icrc(headers.span(), std::span(packet).first(24));
  wire::store_big(packet.data() + 24, wire::swap_bytes(icrc));
  if (flip) packet[20] ^= std::byte{1};
  auto kept = std::make_unique<Kept>();
  Kept& seen = *kept;
  RoceCapture capture(std::move(kept));
  capture.record(source.bytes(), destination.bytes(), packet);
  EXPECT_EQ(capture.summary(), "kept");
  EXPECT_TRUE(std::equal(packet.begin(), packet.begin() + 24, seen.bytes.begin()));
  return {seen.source, seen.destination, seen.bytes};
}

TEST(RoceCapture, ShowsTheStandardPortAndAnIcrcThatFitsIt) {
  const Shown shown = show("192.0.2.1:40000", "192.0.2.2:40001", 0);
  EXPECT_EQ(shown.source.port(), 40000);
  EXPECT_EQ(shown.destination.port(), standard_port);
  EXPECT_TRUE(shown.icrc_is_right());
  EXPECT_TRUE(show("[2001:db8::1]:4791", "[2001:db8::2]:4791", 0).icrc_is_right());
}

TEST(RoceCapture, TheIdentificationOfTheWireIsNotThatOfTheRecord) {
  EXPECT_TRUE(show("192.0.2.1:4791", "192.0.2.2:4791", 0xbeef).icrc_is_right());
}

TEST(RoceCapture, WhatWasWrongIsShownWrong) {
  EXPECT_FALSE(show("[2001:db8::1]:9", "[2001:db8::2]:9", 0, true).icrc_is_right());
  EXPECT_FALSE(show("192.0.2.1:9", "192.0.2.2:9", 0, true).icrc_is_right());
}

}  // namespace
}  // namespace weft::link::roce
