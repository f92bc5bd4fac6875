// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reliable over the least PacketLink, one without any of the optional abilities, with names that have no scopes: frames
// arrive whole and in order, also when every third packet is lost.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "link/reliable/link.hpp"
#include "proto/packet/abilities.hpp"

namespace weft::link::reliable {
namespace {

using Bytes = std::span<const std::byte>;
Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

struct InFlight {
  std::string source;
  std::string packet;
};
std::map<std::string, std::deque<InFlight>> network;

struct LeastLink {
  static constexpr size_t address_length = 8;
  Result<void> open(Bytes at) {
    own = text_of(at);
    return {};
  }
  static void close() noexcept {}
  Bytes address() const noexcept { return bytes_of(own); }
  static size_t packet_bytes_max(Bytes) noexcept { return 600; }
  bool send(Bytes to, const iovec* parts, size_t count) noexcept {
    std::string packet;
    for (size_t i = 0; i < count; ++i)
      packet.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    if (lossy && ++sent % 3 == 0) return true;
    network[text_of(to)].push_back({own, packet});
    return true;
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    const auto taken = std::exchange(network[own], {});
    for (const InFlight& one : taken)
      handler.on_packet({bytes_of(one.source), address(), bytes_of(one.packet)});
    return static_cast<int>(taken.size());
  }
  std::string own;
  unsigned sent = 0;
  static inline bool lossy = false;
};
static_assert(proto::PacketLink<LeastLink>);

struct Text {
  std::string text;
  Bytes bytes() const noexcept { return bytes_of(text); }
  Bytes span() const noexcept { return bytes_of(text); }
};
struct LeastNames {
  static constexpr size_t address_length = 8;
  static void set_format(uint32_t) noexcept {}
  static Text anywhere() { return {"nobody"}; }
  static std::optional<Text> from(Bytes bytes) { return Text{link::reliable::text_of(bytes)}; }
  static std::optional<Text> read(Bytes bytes) { return from(bytes); }
  static Text write(const Text& text) { return text; }
  static std::string text_of(const Text& text) { return text.text; }
  static bool is_destination(const Text& text) noexcept { return text.text != "nobody"; }
  using Name = Text;
};
static_assert(PacketNames<LeastNames> && !HasScopedAddresses<LeastNames> && !ExplainsAddresses<LeastNames>);
using Link = Reliable<LeastLink, LeastNames>;
static_assert(proto::Link<Link>);

struct End final : Events {
  explicit End(const char* name) { EXPECT_TRUE(link.open(name, *this)); }
  ~End() { link.close(); }
  Peer* make_peer(Bytes) override {
    peers.push_back(std::make_unique<Peer>());
    return peers.back().get();
  }
  void peer_lost(Peer&, core::ProviderError) noexcept override { ++losses; }
  bool on_frame(Peer&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    came.emplace_back(reinterpret_cast<const char*>(payload), head.length);
    return true;
  }
  Link link;
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<std::string> came;
  int losses = 0;
};

void carry(size_t messages) {
  network.clear();
  End a("a"), b("b");
  int error = 0;
  EXPECT_EQ(a.link.connect(bytes_of("nobody"), error), nullptr);
  EXPECT_EQ(error, EINVAL);
  Peer* peer = a.link.connect(bytes_of("b"), error);
  ASSERT_NE(peer, nullptr);
  EXPECT_EQ(a.link.wait_fd(), -1);
  EXPECT_FALSE(a.link.arm());
  a.link.disarm();
  const uint64_t until = os::monotonic_ns() + 20 * proto::reliable::second;
  for (size_t sent = 0; b.came.size() < messages && os::monotonic_ns() < until;) {
    if (sent < messages) {
      const std::string text(sent * 37 % 2000, static_cast<char>('a' + sent % 26));
      wire::FrameHead head{};
      head.kind = wire::FrameKind::Msg;
      head.length = static_cast<uint32_t>(text.size());
      const iovec part{const_cast<char*>(text.data()), text.size()};
      if (a.link.send(*peer, head, {}, &part, 1)) ++sent;
    }
    (void)a.link.poll(a);
    (void)b.link.poll(b);
  }
  ASSERT_EQ(b.came.size(), messages);
  for (size_t i = 0; i < messages; ++i)
    EXPECT_EQ(b.came[i], std::string(i * 37 % 2000, static_cast<char>('a' + i % 26))) << i;
  EXPECT_EQ(a.losses + b.losses, 0);
}

TEST(LeastPacketLink, CarriesFrames) {
  LeastLink::lossy = false;
  carry(300);
}

TEST(LeastPacketLink, CarriesFramesThoughPacketsAreLost) {
  LeastLink::lossy = true;
  carry(300);
  LeastLink::lossy = false;
}

}  // namespace
}  // namespace weft::link::reliable
