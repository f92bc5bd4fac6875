// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reliable frames over cards that are models, an e1000e and a virtio_net on a cable.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "link/nic/settings.hpp"
#include "link/nic/test_cards.hpp"
#include "link/reliable/ip_names.hpp"
#include "link/reliable/link.hpp"

namespace weft::link::nic {
namespace {

using Link = reliable::Reliable<Packets, reliable::IpNames>;
static_assert(proto::Link<Link> && proto::UsesDevice<Link>);

struct End final : reliable::Events {
  explicit End(Device& device) {
    link.set_device(device);
    auto opened = link.open({}, *this);
    EXPECT_TRUE(opened) << opened.error().why;
  }
  ~End() { link.close(); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  reliable::Peer* make_peer(std::span<const std::byte>) override {
    peers.push_back(std::make_unique<reliable::Peer>());
    return peers.back().get();
  }
  void peer_lost(reliable::Peer&, core::ProviderError) noexcept override { ++losses; }
  bool on_frame(reliable::Peer&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    came.emplace_back(reinterpret_cast<const char*>(payload), head.length);
    return true;
  }
  Link link;
  std::vector<std::unique_ptr<reliable::Peer>> peers;
  std::vector<std::string> came;
  int losses = 0;
};

std::string text_of(size_t n) { return std::string(n * 37 % 5000, static_cast<char>('a' + n % 26)); }

struct NicReliable : testing::Test {
  void SetUp() override {
    for (unsigned n : {1U, 2U}) {
      const std::string text = "0000:00:0" + std::to_string(n) + ".0=10.0.0." + std::to_string(n) + "/24";
      auto card = open_card("0000:00:0" + std::to_string(n) + ".0");
      ASSERT_TRUE(card);
      ASSERT_TRUE((n == 1 ? first : second).open(std::move(*card), *parse_card(text)));
    }
  }
  void carry(Device& from, Device& to, size_t messages) {
    End a(from);
    End b(to);
    int error = 0;
    reliable::Peer* const peer = a.link.connect(b.link.address(), error);
    ASSERT_NE(peer, nullptr);
    const uint64_t until = os::monotonic_ns() + 30 * proto::reliable::second;
    for (size_t sent = 0; b.came.size() < messages && os::monotonic_ns() < until;) {
      if (sent < messages) {
        const std::string text = text_of(sent);
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
    for (size_t i = 0; i < messages; ++i) ASSERT_EQ(b.came[i], text_of(i)) << i;
    EXPECT_EQ(a.losses + b.losses, 0);
  }
  TestBench bench;
  Device first;
  Device second;
};

TEST_F(NicReliable, carries_frames_between_cards) {
  carry(first, second, 2000);
  carry(second, first, 2000);
  EXPECT_EQ(bench.first->host().iommu.faults() + bench.second->host().iommu.faults(), 0u);
}

TEST_F(NicReliable, carries_frames_within_a_card) {
  carry(first, first, 2000);
  EXPECT_GT(first.statistics().looped, 1000u);
}

TEST_F(NicReliable, repeats_what_is_lost) {
  bench.hub.drop = [n = 0](std::span<const std::byte> frame) mutable {
    return frame.size() > 60 && ++n % 10 == 0;
  };
  carry(first, second, 500);
  bench.hub.drop = nullptr;
}

}  // namespace
}  // namespace weft::link::nic
